"""Keras networks, the model directory, and export.

In: a network's name and its heads. Out: a Keras model, saved and read back with what is known
of it (`config.json`: network, feature and label schemes, what it was trained on, metrics), and
written in formats that play without Keras.

Keras and TensorFlow are imported only with a name that needs them: an engine that plays an ONNX
file reads `config.json` without.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ginkgo.models.directory import (
    NONE_SEEN,
    SeenGames,
    find_model,
    load_baselines,
    load_config,
    load_games,
    load_model,
    model_name,
    save_model,
    start_from,
)

if TYPE_CHECKING:
    from ginkgo.models.resnet import HEADS, Network, build_network, parse_network

__all__ = [
    "HEADS",
    "NONE_SEEN",
    "Network",
    "SeenGames",
    "build_network",
    "find_model",
    "load_baselines",
    "load_config",
    "load_games",
    "load_model",
    "model_name",
    "parse_network",
    "save_model",
    "start_from",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("ginkgo.models.resnet"), name)
