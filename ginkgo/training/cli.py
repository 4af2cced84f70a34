"""The command line of training: `ginkgo train`, `train_value.py`, `train_policy.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Literal

import tyro

from ginkgo.training.config import TrainConfig, check


def main(
    argv: Sequence[str] | None = None,
    heads: tuple[Literal["policy", "value"], ...] | None = None,
) -> int:
    """Parse the options, train, print the report.

    Args:
        argv: options; those of the process by default.
        heads: what is learned unless the options say otherwise.

    Returns:
        the exit status: 0, or 130 after Ctrl-C.

    Raises:
        GinkgoError: a user's mistake.
    """
    program = os.path.basename(sys.argv[0]) if heads else "ginkgo train"
    default = TrainConfig(data=tyro.MISSING, heads=heads or TrainConfig.heads)
    config = tyro.cli(TrainConfig, prog=program, args=argv, default=default)
    check(config)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # TensorFlow gives every large tensor back to the system and asks for it anew, and each time
    # the pages have to be cleared; its pooling allocator trains up to three times as fast here.
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    from ginkgo.training.monitor import plain
    from ginkgo.training.report import print_report
    from ginkgo.training.trainer import Interrupted, Trainer

    try:
        trainer = Trainer(config)
        report = trainer.run()
    except Interrupted:
        if trainer.saved:
            plain(f"stopped; add --resume to the same command to go on with run {config.run!r}")
        else:
            plain("stopped before the first step: there is nothing to resume")
        return 130
    if report:  # of several processes one has it
        print_report(config, trainer.directory, report)
    return 0
