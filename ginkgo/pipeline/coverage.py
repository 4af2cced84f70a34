"""Which games of each source have been seen, and how often each source has been gone through.

In: the batches that leave the pools. Out: by source the number of distinct games seen so far, the
games drawn (a game's worth of positions is one), and both as they were after an earlier batch; and
all of it as what JSON can hold, which finds its games again when files have come, gone or grown.

A game counts as seen with the first of its positions. What is noted of it is the number of that
batch: so the set as it was after any batch is there without a copy for each, and noting a batch
is a few array operations, whatever its size.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.pipeline.index import Index
from ginkgo.pipeline.mixing import coverage_bonus, epoch_penalty

#: Games of a block, on average: by blocks of the same games a source is recognised.
_BLOCK = 64
#: In place of a batch: the game has not come.
_NEVER = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Progress:
    """How much of each source has been drawn. A value."""

    games: tuple[int, ...]
    """Games of each source."""
    seen: tuple[int, ...]
    """Distinct games seen of each."""
    pulls: tuple[float, ...]
    """Games drawn of each: positions drawn ÷ positions that an epoch has of a game."""

    def coverage(self, source: int) -> float:
        """Distinct games seen ÷ games, in [0, 1].

        >>> round(Progress((512_000,), (154_000,), (154_000.0,)).coverage(0), 3)
        0.301
        """
        return min(1.0, self.seen[source] / self.games[source]) if self.games[source] else 1.0

    def epochs(self, source: int) -> float:
        """How often the source has been gone through."""
        return self.pulls[source] / max(1, self.games[source])

    def bonus(self, source: int) -> float:
        """See `mixing.coverage_bonus`."""
        return coverage_bonus(self.coverage(source))

    def penalty(self, source: int) -> float:
        """See `mixing.epoch_penalty`."""
        return epoch_penalty(self.epochs(source))


class Coverage:
    """The games seen of each source of an index.

    Args:
        index: where positions come from. Its numbers of games may be those of a part.
        per_game: by source the positions that an epoch has of a game, on average.
    """

    def __init__(self, index: Index, per_game: Sequence[float]) -> None:
        sources = index.sources
        self._per_game = np.maximum(np.array(per_game, np.float64), 1e-9)
        self._games = tuple(source.games for source in sources)
        self._numbers = [source.numbers for source in sources]
        ends = [int(source.numbers[-1]) + 1 if len(source.numbers) else 0 for source in sources]
        #: Where the games of each source begin, and the end.
        self._bounds = np.cumsum([0, *ends])
        #: (all numbers of games,) the batch in which a game came first; 0: before this loader.
        self._first = np.full(self._bounds[-1], _NEVER, np.int32)
        self._seen = np.zeros(len(sources), np.int64)
        self._pulls = np.zeros(len(sources))

    @property
    def progress(self) -> Progress:
        """After all batches noted so far."""
        return Progress(self._games, tuple(self._seen.tolist()), tuple(self._pulls.tolist()))

    def add(self, positions: NDArray, batch: int) -> None:
        """Note a batch.

        Args:
            positions: (n,) `POSITION`. batch: its number, not less than those before.
        """
        sources = positions["source"].astype(np.int64)
        self._pulls += np.bincount(sources, minlength=len(self._pulls)) / self._per_game
        places = self._bounds[sources] + positions["game"]
        # A file that was changed since it was scanned may have more games than there were.
        places = np.minimum(places, self._bounds[sources + 1] - 1)
        new = places[self._first[places] == _NEVER]
        if len(new):
            new = np.unique(new)
            self._first[new] = batch
            owners = np.searchsorted(self._bounds, new, side="right") - 1
            self._seen += np.bincount(owners, minlength=len(self._seen))

    def seen_at(self, batch: int) -> list[NDArray[np.bool_]]:
        """By source (games of the split,) which had been seen after a batch."""
        return [
            self._first[low + numbers] <= batch
            for low, numbers in zip(self._bounds, self._numbers, strict=False)
        ]

    def restore(self, seen: Sequence[NDArray[np.bool_]], pulls: Sequence[float]) -> None:
        """Go on from what `seen_at` and `Progress.pulls` were. Nothing has been noted yet."""
        for source, (numbers, flags) in enumerate(zip(self._numbers, seen, strict=True)):
            self._first[self._bounds[source] + numbers[flags]] = 0
            self._seen[source] = np.count_nonzero(flags)
        self._pulls[:] = pulls


# --- on disk ----------------------------------------------------------------------------------


def pack(seen: NDArray[np.bool_], hashes: NDArray[np.uint64]) -> dict[str, Any]:
    """The games seen of a source, as what JSON can hold.

    Args:
        seen: (n,) by game. hashes: (n,) of the games, in the same order.

    Returns:
        `bitmap`, a bit for each game; `lengths` and `digests`, by which `unpack` finds blocks of
        the same games again. All are compressed and in base64.
    """
    lengths, digests = _blocks(hashes)
    return {
        "bitmap": _text(np.packbits(seen)),
        "lengths": _text(lengths.astype("<u4")),
        "digests": _text(digests.astype("<u8")),
    }


def unpack(saved: dict[str, Any], hashes: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], int]:
    """The games seen of a source that may have changed since.

    Games are recognised in blocks of some sixty, which end where the games say so themselves:
    what comes, goes or moves changes the blocks that it touches and no others.

    Args:
        saved: what `pack` returned. hashes: (n,) of the games that are there now.

    Returns:
        (n,) which of them have been seen, and the number of games seen then and not found now.
    """
    lengths, digests = _numbers(saved["lengths"], "<u4"), _numbers(saved["digests"], "<u8")
    bits = np.unpackbits(_numbers(saved["bitmap"], np.uint8))[: lengths.sum()].astype(bool)
    starts = np.cumsum(lengths) - lengths
    then = {
        digest: (start, length)
        for digest, start, length in zip(
            digests.tolist(), starts.tolist(), lengths.tolist(), strict=True
        )
    }
    seen, place = np.zeros(len(hashes), bool), 0
    for length, digest in zip(*(part.tolist() for part in _blocks(hashes)), strict=True):
        start, before = then.get(digest, (0, 0))
        if before == length:
            seen[place : place + length] = bits[start : start + length]
        place += length
    return seen, int(max(0, bits.sum() - seen.sum()))


def _blocks(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """(k,) lengths and (k,) digests of runs of games. A game with a certain remainder ends one."""
    count = len(hashes)
    ends = np.flatnonzero(hashes % np.uint64(_BLOCK) == 0) + 1
    bounds = np.unique(np.concatenate([[0], ends, [count]]))
    lengths, starts = np.diff(bounds), bounds[:-1]
    if not count:
        return lengths, np.zeros(0, np.uint64)
    # Numbered from the start of the block, so that its place in the source does not matter.
    odd = 2 * (np.arange(count) - np.repeat(starts, lengths)).astype(np.uint64) + np.uint64(1)
    return lengths, np.add.reduceat(hashes * odd, starts)


def _text(numbers: NDArray) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes())).decode()


def _numbers(text: str, dtype: Any) -> NDArray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)
