"""What a loader hands over: batches, and a count of the lines that it could not use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.pipeline.ragged import Ragged
from ginkgo.records import Refusal


@dataclass
class Batch:
    """Positions that train together."""

    number: int
    """Counted from 1 over the whole run."""
    epoch: int
    """Epoch of its first position, counted from 0."""
    positions: NDArray
    """(b,) `POSITION`."""
    keys: NDArray[np.uint64]
    ragged: dict[str, Ragged] = field(default_factory=dict)
    """As in `Block`."""
    pool_fill: int = 0
    """Positions left in the pool after it."""


@dataclass
class Dropped:
    """Lines that could not be used, by kind."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Lines of all kinds."""
        return sum(self.counts.values())

    def add(self, bad: Refusal) -> bool:
        """Count one; whether it is the first of its kind."""
        new = bad.kind not in self.counts
        self.counts[bad.kind] = self.counts.get(bad.kind, 0) + 1
        if new:
            self.first[bad.kind] = str(bad)
        return new

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """By kind, how many and which was the first."""
        return {
            kind: {"count": count, "first": self.first[kind]} for kind, count in self.counts.items()
        }
