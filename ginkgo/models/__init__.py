"""Keras networks and the model directory.

In: a network's name and its heads. Out: a Keras model, saved and read back with what is known
of it (`config.json`: network, feature and label schemes, what it was trained on, metrics).

Importing this room imports Keras and TensorFlow.
"""

from ginkgo.models.directory import (
    load_baselines,
    load_config,
    load_games,
    load_model,
    model_name,
    save_model,
    start_from,
)
from ginkgo.models.resnet import HEADS, Network, build_network, parse_network

__all__ = [
    "HEADS",
    "Network",
    "build_network",
    "load_baselines",
    "load_config",
    "load_games",
    "load_model",
    "model_name",
    "parse_network",
    "save_model",
    "start_from",
]
