"""`ginkgo reinforce`: the loop on this machine alone, or with the workers of a server.

In: the options. Out: a run that gets stronger, as `ginkgo.selfplay.loop` describes it. The
same command goes on where it was stopped, however that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from ginkgo.selfplay.reinforce import ReinforceConfig, check_loop


@dataclass(frozen=True)
class ServedConfig(ReinforceConfig):
    """Get stronger by self-play: games, training on them, a gate, and again.

    The same command goes on with a run that was stopped or killed.
    """

    server: str = ""
    """URL of a `ginkgo serve`: its workers play, this machine trains. The trainer's token is
    taken from the variable GINKGO_TOKEN or from a file."""
    token_file: Path | None = None
    """File that holds the token."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, run the loop.

    Returns:
        the exit status: 0, or 130 after Ctrl-C.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = tyro.cli(ServedConfig, prog="ginkgo reinforce", args=argv)
    check_loop(config)
    if config.server:
        from ginkgo.fleet.served import ServedLoop

        ServedLoop(config).run()
    else:
        from ginkgo.selfplay.loop import Loop

        Loop(config).run()
    return 0
