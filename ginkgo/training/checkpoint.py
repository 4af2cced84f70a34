"""Checkpoints: everything that a run needs to go on, in one file.

In: a model, its optimiser and weight average, and the loaders' states. Out:
`checkpoints/step-00001234.npz`, written under a temporary name and renamed; the last two are kept.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ginkgo.errors import GinkgoError
from ginkgo.records.files import atomic_write
from ginkgo.training.recipe import WeightAverage

_KEEP = 2


def save_checkpoint(
    directory: Path,
    step: int,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    average: WeightAverage | None,
    best: list[np.ndarray] | None,
    progress: dict[str, Any],
    data: list[bytes],
) -> Path:
    """Write a checkpoint.

    Args:
        best: weights with the best held-out loss so far, if any.
        progress: JSON-able state of the run.
        data: `pack_data` of the loader's state in each process that trains.

    Raises:
        GinkgoError: it cannot be written; the earlier ones are untouched.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, values in _variables(model, optimizer, average).items():
        for number, value in enumerate(values):
            arrays[f"{name}/{number}"] = np.asarray(value)
    for number, value in enumerate(best or []):
        arrays[f"best/{number}"] = value
    for worker, state in enumerate(data):
        arrays[f"data/{worker}"] = np.frombuffer(state, np.uint8)
    meta = json.dumps({"progress": progress, "workers": len(data)})
    arrays["meta"] = np.frombuffer(meta.encode(), np.uint8)
    path = directory / f"step-{step:08d}.npz"
    with atomic_write(path) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    for old in sorted(directory.glob("step-*.npz"))[:-_KEEP]:
        old.unlink(missing_ok=True)
    return path


def pack_data(state: dict[str, Any]) -> bytes:
    """A loader's state (`Loader.state`) as bytes."""
    keys = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    rest = json.dumps({name: value for name, value in state.items() if name not in keys})
    stream = io.BytesIO()
    np.savez(stream, rest=np.frombuffer(rest.encode(), np.uint8), **keys)  # type: ignore[arg-type]
    return stream.getvalue()


def unpack_data(packed: bytes) -> dict[str, Any]:
    """The inverse of `pack_data`."""
    with np.load(io.BytesIO(packed)) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    return {**json.loads(found.pop("rest").tobytes()), **found}


def latest_checkpoint(directory: Path) -> Path | None:
    """The newest one, or None."""
    return max(directory.glob("step-*.npz"), default=None)


def read_progress(path: Path) -> dict[str, Any]:
    """The `progress` of a checkpoint, without its weights.

    Raises:
        GinkgoError: the file is damaged.
    """
    try:
        with np.load(path) as arrays:
            return json.loads(arrays["meta"].tobytes())["progress"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise GinkgoError(f"{path}: damaged checkpoint: {error}") from None


def load_checkpoint(
    path: Path,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    average: WeightAverage | None,
) -> tuple[dict[str, Any], list[dict[str, Any]], list[np.ndarray] | None]:
    """Put a checkpoint's weights back; its progress, loader states by process, best weights.

    Raises:
        GinkgoError: the file is damaged or belongs to another network or optimiser.
    """
    try:
        with np.load(path) as arrays:
            for name, values in _variables(model, optimizer, average).items():
                for number, variable in enumerate(values):
                    variable.assign(arrays[f"{name}/{number}"])
            best = [
                arrays[f"best/{number}"]
                for number in range(len(model.weights))
                if f"best/{number}" in arrays
            ]
            meta = json.loads(arrays["meta"].tobytes())
            data = [
                unpack_data(arrays[f"data/{worker}"].tobytes()) for worker in range(meta["workers"])
            ]
            return meta["progress"], data, best or None
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise GinkgoError(f"{path}: no checkpoint of this network: {error}") from None


def _variables(model, optimizer, average) -> dict[str, list]:
    return {
        "model": list(model.weights),
        "optimizer": list(optimizer.variables),
        "average": list(average.values) if average is not None else [],
    }
