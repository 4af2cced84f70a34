"""Which split a game belongs to: train, validation (early stopping) or test (reported).

In: the buckets of a source's games (`Game.bucket`). Out: two thresholds, and a split by bucket.
One function for `ginkgo convert` and for training directly on game files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ginkgo.records.game import BUCKETS, SPLITS


@dataclass(frozen=True)
class Split:
    """Buckets below `test` are test games, from there below `val` validation, the rest train."""

    test: int = 0
    val: int = 0

    def of(self, bucket: int) -> str:
        """`train`, `val` or `test`.

        >>> [Split(500, 1000).of(bucket) for bucket in (0, 500, 1000)]
        ['test', 'val', 'train']
        """
        return "test" if bucket < self.test else "val" if bucket < self.val else "train"

    def range_of(self, split: str) -> tuple[int, int]:
        """Buckets [low, high) of a split."""
        ranges = {"test": (0, self.test), "val": (self.test, self.val)}
        return {**ranges, "train": (self.val, BUCKETS)}[split]


def choose_split(buckets: Iterable[int], fraction: float = 0.05, minimum: int = 100) -> Split:
    """The thresholds for a source, from the buckets of all its games.

    Test and validation get `fraction` of the games each, but at least `minimum` games where
    that is no more than a tenth of the source (the intervals of smaller sets are too wide to say
    anything). Duplicates of a game share its bucket and so its split.
    """
    sizes = np.bincount(np.fromiter(buckets, np.int64), minlength=BUCKETS)
    games = int(sizes.sum())
    wanted = round(games * fraction)
    if fraction > 0 and 10 * minimum <= games:
        wanted = max(wanted, minimum)
    if wanted == 0:
        return Split()
    below = np.concatenate([[0], np.cumsum(sizes)])
    test = int(np.searchsorted(below, wanted))
    val = int(np.searchsorted(below, min(games, below[test] + wanted)))
    return Split(test, val)


__all__ = ["BUCKETS", "SPLITS", "Split", "choose_split"]
