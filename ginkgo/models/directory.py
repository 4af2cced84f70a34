"""The model directory: weights, configuration, baselines, games seen.

It holds `model.keras`, `config.json`, `baselines.json`, `games.npz`, and of a run `checkpoints/`
and `logs/`.

In: a Keras model and what is known of it. Out: files, each written under a temporary name and
renamed, and a model read back with its configuration.
"""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.encoding import ENCODINGS
from ginkgo.features.labels import LABEL_SCHEME
from ginkgo.records.files import atomic_write, read_object, why_no_arrays, write_text

if TYPE_CHECKING:
    import keras

#: The word that stands for the bundled model wherever a model directory is asked for.
PRETRAINED = "pretrained"
CONFIG, WEIGHTS = "config.json", "model.keras"
BASELINES, GAMES = "baselines.json", "games.npz"
#: Exports that an engine looks for in the directory.
ONNX, INT8 = EXPORTS = ("model.onnx", "model-int8.onnx")


class SeenGames(NamedTuple):
    """Hashes (`Game.hash`) of the games that had a part in making a model, sorted."""

    train: NDArray[np.uint64]
    """Trained on."""
    val: NDArray[np.uint64]
    """Decided when to stop and which weights to keep."""

    @property
    def all(self) -> NDArray[np.uint64]:
        """Both together."""
        return np.union1d(self.train, self.val)

    def joined(self, train: NDArray[np.uint64], val: NDArray[np.uint64]) -> SeenGames:
        """These and further ones; what was trained on stays trained on."""
        train = np.union1d(self.train, train)
        return SeenGames(train, np.setdiff1d(np.union1d(self.val, val), train))


NONE_SEEN = SeenGames(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def save_model(
    directory: str | Path,
    model: keras.Model,
    config: dict[str, Any],
    baselines: dict[str, Any],
    seen: SeenGames,
) -> Path:
    """Write a model directory; each file that stood there before stays whole until it is replaced.

    `EXPORTS` that were made there of other weights are removed, for an engine would play them.

    Args:
        config: JSON-able; `network`, `features`, `labels`, `heads`, `view`, `trained_on`,
            `metrics` are what other verbs look at.
        baselines: JSON-able; predictors fitted on the training games, shown beside the model's
            figures.
        seen: the games that had a part in making it; no evaluation uses them.

    Raises:
        GinkgoError: the files cannot be written.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{os.getpid()}.{WEIGHTS}"
    try:
        model.save(temporary)
        os.replace(temporary, directory / WEIGHTS)
    except OSError as error:
        raise GinkgoError(f"{directory / WEIGHTS}: cannot write: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    for name in EXPORTS:
        try:
            (directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise GinkgoError(f"{directory / name}: cannot remove: {error}") from error
    write_text(directory / BASELINES, json.dumps(baselines) + "\n")
    with atomic_write(directory / GAMES) as stream:
        np.savez(stream, **seen._asdict())  # type: ignore[arg-type]
    write_text(directory / CONFIG, json.dumps(config, indent=2) + "\n")
    return directory / WEIGHTS


def find_model(directory: str | Path) -> Path:
    """The directory of a model; the word `pretrained` means the one that comes with ginkgo.

    Raises:
        GinkgoError: there is no model directory.
    """
    path = Path(__file__).parent / PRETRAINED if str(directory) == PRETRAINED else Path(directory)
    if not (path / CONFIG).is_file():
        name = str(directory) or "''"
        raise GinkgoError(f"{name}: no model directory (no {CONFIG} in it)")
    return path


def load_config(directory: str | Path) -> dict[str, Any]:
    """The configuration of a model directory.

    Raises:
        GinkgoError: there is none, or it is not JSON.
    """
    path = find_model(directory) / CONFIG
    config = read_object(path, "network", "activation", "features", "labels", "heads", "view")
    if config["labels"] != LABEL_SCHEME:
        raise GinkgoError(f"{path}: labels {config['labels']}; expected {LABEL_SCHEME}")
    if config["features"] not in ENCODINGS:
        raise GinkgoError(
            f"{path}: planes {config['features']!r}; expected one of {' '.join(ENCODINGS)}"
        )
    if not isinstance(config["heads"], list) or not config["heads"]:
        raise GinkgoError(f"{path}: heads {config['heads']!r}; expected a list")
    return config


def load_model(directory: str | Path) -> tuple[keras.Model, dict[str, Any]]:
    """The model and its configuration.

    Raises:
        GinkgoError: the directory lacks one of them.
    """
    import keras

    import ginkgo.models.resnet  # noqa: F401  (registers the layers that the file names)

    config = load_config(directory)
    path = find_model(directory) / WEIGHTS
    if not path.exists():
        raise GinkgoError(f"{directory}: no {WEIGHTS} in it")
    try:
        return keras.saving.load_model(path, compile=False), config
    except (OSError, ValueError) as error:
        raise GinkgoError(f"{path}: cannot read the model: {error}") from None


def load_baselines(directory: str | Path) -> dict[str, Any]:
    """What was saved as `baselines`.

    Raises:
        GinkgoError: there is none, or it is not JSON.
    """
    path = find_model(directory) / BASELINES
    try:
        return read_object(path)
    except FileNotFoundError:
        raise GinkgoError(f"{path}: no baselines beside the model") from None


def load_games(directory: str | Path) -> SeenGames:
    """The games that had a part in making a model.

    Raises:
        GinkgoError: they are not there, or damaged.
    """
    path = find_model(directory) / GAMES
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return SeenGames(arrays["train"].astype(np.uint64), arrays["val"].astype(np.uint64))
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        why = why_no_arrays(error)
        raise GinkgoError(f"{path}: cannot read the games trained on: {why}") from None


def start_from(
    model: keras.Model, directory: str | Path, network: str, activation: str, features: str
) -> list[str]:
    """Give a fresh model the trunk of another one, and those of its heads that both have.

    Args:
        model: changed in place.
        network, activation, features: what it is, to be compared with the other's.

    Returns:
        names of the layers that keep their fresh weights (heads that the other model lacks).

    Raises:
        GinkgoError: another network or other features, so that weights would not mean the same.
    """
    other, config = load_model(directory)
    wants = {"network": network, "activation": activation, "features": features}
    for name, wanted in {**wants, "labels": LABEL_SCHEME}.items():
        if config.get(name) != wanted:
            raise GinkgoError(f"{directory}: {name} {config.get(name)}, not {wanted}")
    known = {layer.name: layer for layer in other.layers}
    fresh = []
    for layer in model.layers:
        if not layer.weights:
            continue
        if layer.name in known:
            layer.set_weights(known[layer.name].get_weights())
        else:
            fresh.append(layer.name)
    return fresh


def model_name(run: str, network: str, samples: int, positions: int) -> str:
    """A model's name in KataGo's grammar: run, network, samples trained on, positions of data.

    >>> model_name("sample", "b5c64", 1024000, 276000)
    'sample-b5c64-s1024000-d276000'
    """
    return f"{run}-{network}-s{samples}-d{positions}"
