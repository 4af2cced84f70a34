"""Encodings of planes by name: what every other room needs to know of one.

In: a name. Out: an `Encoding`, which the encoding's own module defines.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError

#: All there are. Each is a module beside this one that defines `ENCODING`.
ENCODINGS = ("dlshogi119", "ginkgo148")


@dataclass(frozen=True)
class Encoding:
    """How positions become planes."""

    inputs: Mapping[str, int]
    """Inputs of an exported model by name, and how many planes each takes, in order."""
    on_host: Callable[[NDArray], NDArray[np.float32]]
    """(n,) `POSITION` to (n, planes, 9, 9), [file, rank], by numpy."""
    on_device: Callable[[dict[str, Any]], Any]
    """The same of a compact batch of tensors, by TensorFlow."""
    pack: Callable[[NDArray], tuple[NDArray[np.uint16], NDArray[np.int64]]] | None = None
    """(n,) `POSITION` to what readers work out for the device, a row of any length for each
    position: values, and where each row begins. A batch has them as `codes` and `codes_offsets`."""
    mirrors: bool = True
    """Whether the board of a batch can be mirrored on the device before planes are made of it."""

    @property
    def planes(self) -> int:
        """How many there are."""
        return sum(self.inputs.values())

    def split(self, planes: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Planes (n, planes, 9, 9) as the inputs of an exported model, by name."""
        return split_planes(planes, self.inputs)


def split_planes(
    planes: NDArray[np.float32], inputs: Mapping[str, int]
) -> dict[str, NDArray[np.float32]]:
    """Planes (n, c, 9, 9) as parts by name, each with as many planes as `inputs` says."""
    borders = np.cumsum(list(inputs.values()))[:-1].tolist()
    return dict(zip(inputs, np.split(planes, borders, axis=1), strict=True))


def encoding(name: str) -> Encoding:
    """An encoding by its name.

    Raises:
        GinkgoError: there is none.

    >>> encoding("ginkgo148").planes
    148
    """
    if name not in ENCODINGS:
        raise GinkgoError(f"planes {name!r}: expected one of {' '.join(ENCODINGS)}")
    return importlib.import_module(f"ginkgo.features.{name}").ENCODING
