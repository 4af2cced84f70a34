"""Which split a game belongs to: train, validation (early stopping) or test (reported).

In: the buckets of a source's games (`Game.bucket`). Out: two thresholds, and a split by bucket.
One function for `ginkgo convert` and for training directly on game files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.records.files import atomic_write, why_no_arrays
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


#: File beside merged records: (n,) uint64, `Game.hash` of the games in them, sorted.
MERGED_GAMES = "games.npy"


def write_merged_games(folder: Path, hashes: NDArray[np.uint64]) -> None:
    """Keep which games merged records are of.

    Raises:
        GinkgoError: the file cannot be written.
    """
    with atomic_write(folder / MERGED_GAMES) as stream:
        np.save(stream, np.unique(hashes))


def merged_games(folder: Path) -> NDArray[np.uint64] | None:
    """Hashes of the games whose positions are merged in a folder; None: nothing is merged there.

    Raises:
        GinkgoError: the list is damaged.
    """
    path = folder / MERGED_GAMES
    if not path.is_file():
        return None
    try:
        return np.load(path, allow_pickle=False).astype(np.uint64)
    except (OSError, ValueError, EOFError) as error:
        why = why_no_arrays(error)
        raise GinkgoError(f"{path}: cannot read the list of games: {why}") from None


__all__ = [
    "BUCKETS",
    "MERGED_GAMES",
    "SPLITS",
    "Split",
    "choose_split",
    "merged_games",
    "write_merged_games",
]
