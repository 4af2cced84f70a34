"""Rows of different lengths: what a position carries that has no fixed size.

In: the rows' values one after another, and where each row begins. Out: other rows of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray


@dataclass(frozen=True)
class Ragged:
    """n rows of different lengths.

    >>> rows = Ragged(np.array([7, 8, 9]), np.array([0, 1, 1, 3]))
    >>> len(rows), rows.lengths.tolist(), rows.take(np.array([2, 0])).values.tolist()
    (3, [1, 0, 2], [8, 9, 7])
    """

    values: NDArray
    """(k,) all rows, one after another."""
    offsets: NDArray[np.int64]
    """(n + 1,) where each row begins, and the end."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) values in each row."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Bytes of both arrays."""
        return self.values.nbytes + self.offsets.nbytes

    @staticmethod
    def of_lengths(values: NDArray, lengths: NDArray) -> Ragged:
        """Rows from their lengths, (n,)."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return Ragged(values, offsets)

    @staticmethod
    def empty(dtype: DTypeLike, rows: int = 0) -> Ragged:
        """So many rows without a value."""
        return Ragged(np.zeros(0, dtype), np.zeros(rows + 1, np.int64))

    @staticmethod
    def joined(parts: Sequence[Ragged]) -> Ragged:
        """The rows of several, which have values of one type, one after another."""
        lengths = np.concatenate([part.lengths for part in parts])
        return Ragged.of_lengths(np.concatenate([part.values for part in parts]), lengths)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Copies of these rows, in this order."""
        taken = Ragged.of_lengths(self.values[:0], self.lengths[rows])
        shift = self.offsets[:-1][rows] - taken.offsets[:-1]
        places = np.repeat(shift, taken.lengths) + np.arange(taken.offsets[-1])
        return Ragged(self.values.take(places), taken.offsets)

    def part(self, low: int, high: int) -> Ragged:
        """Rows low to high, high not included; shares their memory."""
        offsets = self.offsets[low : high + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])


def as_bytes(rows: NDArray) -> NDArray[np.uint8]:
    """(n, itemsize) the bytes of each row; numpy copies structured types field by field."""
    rows = np.ascontiguousarray(rows)
    return rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
