"""What a model says of itself: the `config.json` beside its weights.

In: the run's configuration, its data, its figures. Out: a JSON-able dictionary, of which engines
read `features`, `heads` and `labels`, and people the rest.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import ginkgo
from ginkgo.features.labels import LABEL_SCHEME
from ginkgo.models import Network, model_name
from ginkgo.pipeline.index import Index
from ginkgo.training.config import TrainConfig
from ginkgo.training.report import without_nan


def description(
    config: TrainConfig,
    network: Network,
    train: Index,
    report: dict[str, Any],
    start: dict[str, Any],
) -> dict[str, Any]:
    """The description of a model that has just been trained.

    Args:
        train: the training data.
        report: figures at the end; `positions` is how many samples were trained on.
        start: the description of the model that it was started from, empty without one.
    """
    samples, origin = report["positions"], {}
    if start:
        origin = {"init": start.get("name", str(config.init))}
        samples += start.get("trained_on", {}).get("samples", 0)
    return {
        "name": model_name(config.run, network.name, samples, train.positions),
        "ginkgo": ginkgo.__version__,
        "network": network.name,
        "activation": network.activation,
        "features": config.features,
        "labels": LABEL_SCHEME,
        "heads": list(config.heads),
        "view": config.view,
        "trained_on": {
            "sources": {
                source.name: {
                    "games": source.games,
                    "positions": source.positions,
                    "split": dataclasses.asdict(source.split),
                }
                for source in train.sources
            },
            "samples": samples,
            **origin,
        },
        "metrics": without_nan(
            {key: report[key] for key in ("heldout", "by_source", "heldout_split")}
        ),
    }
