"""What must be the same: in all processes of a run, and when it is resumed.

In: configurations. Out: a `GinkgoError` where they do not fit together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from ginkgo.errors import GinkgoError
from ginkgo.models import Network
from ginkgo.pipeline.index import Index
from ginkgo.training.config import TrainConfig, sources_by_name
from ginkgo.training.distribution import Distribution

#: Options that must not change when a run is resumed (the data's own are in the loader's state).
LASTING = (
    *("network", "activation", "heads", "features", "view", "optimizer", "ema", "init"),
    *("label_smoothing", "value_weight", "score_share", "root_share", "mirror"),
    *("weight_decay", "clip"),
    *("val", "test", "val_fraction", "val_positions", "best_by"),
)
#: What may differ between machines.
_OWN = ("report", "workers", "data", "source", "runs", "val", "test")


def lasting(config: TrainConfig, network: Network) -> dict[str, str]:
    """The options that a resumed run must share."""
    options = {name: str(getattr(config, name)) for name in LASTING}
    return options | {"network": network.name, "activation": network.activation}


def check_same_run(now: dict[str, str], before: dict[str, str]) -> None:
    """A resumed run must learn the same thing and be judged on the same games.

    Args:
        now, before: `lasting` of this run, and of the one that wrote the checkpoint.

    Raises:
        GinkgoError: the first option that differs.
    """
    for name, old in before.items():
        if now[name] != old:
            unset = "the default"
            raise GinkgoError(
                f"--{name.replace('_', '-')}: the run began with {old or unset}, "
                f"not {now[name] or unset}"
            )


def check_alike(
    config: TrainConfig, distribution: Distribution, step: int, names: list[str], part: Index
) -> None:
    """All processes must do the same with the same data and go on from the same step.

    Args:
        step: from which they go on. names: of the sources. part: the data of this process.

    Raises:
        GinkgoError: they do not, in every process.
    """
    options = json.loads(as_json(config))
    shared = {name: value for name, value in options.items() if name not in _OWN}
    weights = [one.weight for _, one in sorted(sources_by_name(config).items())]
    text = json.dumps([shared, step, names, weights, part.fingerprint()[1:]]).encode()
    mine = int.from_bytes(hashlib.blake2b(text, digest_size=5).digest(), "big")
    total = distribution.total(np.array([mine]))[0]
    if distribution.workers > 1 and total != mine * distribution.workers:
        raise GinkgoError(
            "the workers have different options, data or checkpoints: they must be started "
            "alike, with data and --runs on a file system that all of them share"
        )


def as_json(config: Any) -> str:
    """A configuration as JSON."""

    def plain_value(value: Any) -> Any:
        return str(value) if isinstance(value, Path) else value

    return json.dumps(dataclasses.asdict(config), indent=2, default=plain_value) + "\n"
