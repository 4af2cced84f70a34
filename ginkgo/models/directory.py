"""The model directory: `model.keras`, `config.json`, `checkpoints/`, `logs/`.

In: a Keras model and what is known of it. Out: files, each written under a temporary name and
renamed, and a model read back with its configuration.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import keras

from ginkgo.errors import GinkgoError
from ginkgo.records.files import write_text

CONFIG, WEIGHTS = "config.json", "model.keras"


def save_model(directory: str | Path, model: keras.Model, config: dict[str, Any]) -> Path:
    """Write model and configuration; what stood there before stays whole until both are written.

    Args:
        config: JSON-able; `network`, `features`, `labels`, `heads`, `view`, `trained_on`,
            `metrics` are what other verbs look at.

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
    write_text(directory / CONFIG, json.dumps(config, indent=2) + "\n")
    return directory / WEIGHTS


def load_config(directory: str | Path) -> dict[str, Any]:
    """The configuration of a model directory.

    Raises:
        GinkgoError: there is none, or it is not JSON.
    """
    path = Path(directory) / CONFIG
    try:
        return json.loads(path.read_text())
    except OSError:
        raise GinkgoError(f"{directory}: no model directory (no {CONFIG} in it)") from None
    except ValueError as error:
        raise GinkgoError(f"{path}: not valid JSON: {error}") from None


def load_model(directory: str | Path) -> tuple[keras.Model, dict[str, Any]]:
    """The model and its configuration.

    Raises:
        GinkgoError: the directory lacks one of them.
    """
    import ginkgo.models.resnet  # noqa: F401  (registers the layers that the file names)

    config = load_config(directory)
    path = Path(directory) / WEIGHTS
    if not path.exists():
        raise GinkgoError(f"{directory}: no {WEIGHTS} in it")
    try:
        return keras.saving.load_model(path, compile=False), config
    except (OSError, ValueError) as error:
        raise GinkgoError(f"{path}: cannot read the model: {error}") from None


def model_name(run: str, network: str, samples: int, positions: int) -> str:
    """A model's name in KataGo's grammar: run, network, samples trained on, positions of data.

    >>> model_name("sample", "b5c64", 1024000, 276000)
    'sample-b5c64-s1024000-d276000'
    """
    return f"{run}-{network}-s{samples}-d{positions}"
