"""One shuffle pool with what fills it: the order of its segments, its epochs, its state.

In: an index, and which of its sources this stream is of. Out: jobs for the workers, and positions
drawn from the pool, each exactly once an epoch; what came out depends on the seed and the number
of draws alone, never on time or on what other streams do.

A loader has one stream over all sources, or one for each of them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.index import Index, Segment
from ginkgo.pipeline.parse import Block, ParseOptions, join_blocks
from ginkgo.pipeline.pool import Pool, Shadow, draw_places
from ginkgo.pipeline.worker import Job

#: Gives the next block of this stream's jobs.
Take = Callable[[], tuple[Job, Block]]


MIXES = ("proportional", "weights", "ucb")


@dataclass(frozen=True)
class LoaderConfig:
    """How data are read, shuffled and mixed."""

    batch_size: int = 1024
    pool: int = 1 << 20
    """Positions in the shuffle pool, or in all pools together."""
    min_fill: int = 0
    """Positions in the pool before the first batch leaves; 0: a full pool."""
    workers: int = 1
    """Reader processes; 0 reads in this process."""
    epochs: int = 0
    """Passes over the data; 0: without end."""
    seed: int = 0
    prefetch: int = 8
    """Batches that wait ready."""
    strict: bool = False
    """An unusable line is an error, not a counted loss."""
    parse: ParseOptions = field(default_factory=ParseOptions)
    mix: str = "proportional"
    """One pool for all sources (`proportional`), or one for each; which of them the next batches
    come from is then decided by `weights` or by what they teach (`ucb`): see `mixer`."""
    weights: tuple[float, ...] = ()
    """By number of the source, for `weights`; empty: all alike."""
    chunk: int = 4
    """Batches in a row from one source."""
    exploration: float = 1.0
    """The constant c of `mixing.ucb1`."""
    coverage: bool = False
    """Note which games have been seen; `ucb` does in any case."""
    per_game: tuple[float, ...] = ()
    """By source the positions that an epoch has of a game, filters applied; empty: estimated
    without filters."""

    def check(self, sources: int) -> None:
        """Whether it can be done with so many sources.

        Raises:
            GinkgoError: it cannot; says what would do.
        """
        if self.batch_size < 1 or self.pool < self.batch_size:
            raise GinkgoError(
                f"pool {self.pool}: expected at least the batch size, {self.batch_size}"
            )
        if self.mix not in MIXES:
            raise GinkgoError(f"mix {self.mix!r}: expected one of {' '.join(MIXES)}")
        if self.chunk < 1:
            raise GinkgoError(f"chunk {self.chunk}: expected at least 1")
        weights = self.weights
        if weights and (len(weights) != sources or not all(0 < one < math.inf for one in weights)):
            raise GinkgoError(
                f"weights {weights}: expected {sources} numbers above 0, one a source"
            )


def pool_sizes(config: LoaderConfig, epochs: Sequence[float]) -> list[int]:
    """The room of `config.pool` dealt out: all sources alike, none more than its epoch.

    Args:
        epochs: by source the positions of an epoch.

    >>> pool_sizes(LoaderConfig(batch_size=64, pool=1000), (5000.0, 100.0, 5000.0))
    [450, 100, 450]
    """
    sizes, left = [0] * len(epochs), float(config.pool)
    smallest_first = sorted(range(len(epochs)), key=lambda source: epochs[source])
    for place, source in enumerate(smallest_first):
        room = min(epochs[source], left / (len(epochs) - place))
        left -= room
        sizes[source] = max(config.batch_size, round(room))
    return sizes


class Stream:
    """Positions of some sources in random order.

    Args:
        sources: their numbers.
        number: of the stream.
        pool: positions in its pool.
        min_fill: positions in it before the first batch leaves.
        jobs: numbers for jobs.
        lock: held while the shadow is changed.
        upcoming: number of the batch that is being made.
    """

    def __init__(
        self,
        index: Index,
        sources: Sequence[int],
        number: int,
        config: LoaderConfig,
        pool: int,
        min_fill: int,
        jobs: Iterator[int],
        lock: threading.Lock,
        upcoming: Callable[[], int],
    ) -> None:
        self.sources, self._index, self._config = tuple(sources), index, config
        self.size, self._min_fill = pool, min_fill
        #: Streams and, with a bit of its own, the orders of epochs have random numbers apart.
        self._stream_key = number << 44
        self._job_numbers, self._lock, self._upcoming = jobs, lock, upcoming
        self.segments = [
            (source, segment) for source in sources for segment in index.sources[source].segments
        ]
        largest = max(segment.positions for _, segment in self.segments)
        self.pool = Pool(pool + largest, config.seed, config.parse.ragged)
        self.epoch = self._feed_epoch = self._feed_place = self._fed_in_epoch = 0
        self._first_epoch = self._draws = self._batches = 0
        self._late: list[int] = []
        self.barren = False
        """No position passes the filters."""
        self._refill: list[tuple[NDArray[np.uint64], bool]] = []
        empty = np.zeros(0, np.uint64)
        self._shadow = Shadow(empty, empty)

    # --- the order of the data ----------------------------------------------------------------

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Numbers of all segments in the order of an epoch.

        Within a source the files come in random order, each from front to back. The sources are
        interleaved in proportion to their sizes.
        """
        key = [self._config.seed, self._stream_key | 1 << 40 | epoch]
        rng = np.random.Generator(np.random.Philox(key=key))
        places: list[tuple[float, int]] = []
        first = 0
        for source in self.sources:
            segments = self._index.sources[source].segments
            by_file: dict[int, list[int]] = {}
            for number, segment in enumerate(segments, first):
                by_file.setdefault(segment.file, []).append(number)
            first += len(segments)
            files = list(by_file.values())
            sequence = [number for file in rng.permutation(len(files)) for number in files[file]]
            if epoch == self._first_epoch and self._late:
                late = set(self._late)
                sequence.sort(key=lambda number: number in late)
            shift = rng.random()
            places += [
                ((place + shift) / len(sequence), number) for place, number in enumerate(sequence)
            ]
        return np.array([number for _, number in sorted(places)], np.int64)

    def jobs(self) -> Iterator[Job]:
        """First what refills the pool of a resumed run, then epoch after epoch."""
        for keys, _ in self._refill:
            for number, wanted in self._segments_of(keys):
                yield self._job(0, number, wanted)
        epoch, place = self._feed_epoch, self._feed_place
        while not self._config.epochs or epoch < self._config.epochs:
            for number in self.order(epoch)[place:]:
                yield self._job(epoch, int(number), None)
            epoch, place = epoch + 1, 0

    def _job(self, epoch: int, number: int, wanted: NDArray | None) -> Job:
        source, segment = self.segments[number]
        files = self._index.files[segment.file : segment.file + segment.files]
        paths = tuple(file.path for file in files)
        buckets = self._index.buckets(source, segment)
        count = next(self._job_numbers)
        return Job(count, epoch, files[0].kind, paths, segment, source, buckets, wanted)

    def _segments_of(self, keys: NDArray[np.uint64]) -> list[tuple[int, NDArray[np.uint64]]]:
        """Which segments hold these keys, each with its own keys, sorted."""
        order = sorted(
            range(len(self.segments)),
            key=lambda n: (self.segments[n][1].file, self.segments[n][1].line),
        )

        def first_key(segment: Segment) -> int:
            return segment.file << 44 | segment.line << 10

        bounds = np.array([first_key(self.segments[n][1]) for n in order], np.uint64)
        keys = np.sort(keys)
        owners = np.searchsorted(bounds, keys, side="right") - 1
        return [
            (order[int(owner)], keys[owners == owner]) for owner in np.unique(owners) if owner >= 0
        ]

    # --- the pool -----------------------------------------------------------------------------

    @property
    def _target(self) -> int:
        """How full the pool must be before the next batch leaves.

        It starts at `min_fill` and grows by a batch with each batch, up to the whole pool.
        """
        first = max(self._min_fill or self.size, self._config.batch_size)
        return min(self.size, first + self._batches * self._config.batch_size)

    def _note(self, what: str, data: NDArray | None = None) -> None:
        with self._lock:
            self._shadow.note(self._upcoming(), what, data)

    def fill(self, take: Take) -> None:
        """Fill the pool up to its target, if there is so much."""
        while (
            len(self.pool) < self._target and self._feed_epoch <= self.epoch + 1 and not self.barren
        ):
            if self._config.epochs and self._feed_epoch >= self._config.epochs:
                return
            _, block = take()
            to_next = self._feed_epoch > self.epoch
            self.pool.add(block, to_next)
            self._note("add_next" if to_next else "add", block.keys)
            self._fed_in_epoch += len(block.positions)
            self._feed_place += 1
            if self._feed_place == len(self.segments):
                self.barren = self._fed_in_epoch == 0
                self._feed_epoch, self._feed_place, self._fed_in_epoch = self._feed_epoch + 1, 0, 0

    @property
    def ended(self) -> bool:
        """Whether a filled pool has nothing more to give."""
        epochs = self._config.epochs
        return self.barren or bool(
            not self.pool.current.size and epochs and self.epoch + 1 >= epochs
        )

    def draw(self, count: int, take: Take) -> tuple[int, Block]:
        """Take positions out of the pool, in the last epoch perhaps fewer than asked for.

        Returns:
            the epoch of the first of them, and the positions; at least one.
        """
        parts: list[Block] = []
        first_epoch = self.epoch
        while count:
            self.fill(take)
            if self.ended:
                break
            if not self.pool.current.size:
                self.pool.turn()
                self._note("turn")
                self.epoch += 1
                continue
            if not parts:
                first_epoch = self.epoch
            size = self.pool.current.size
            key = self._stream_key | self._draws
            places = draw_places(size, min(count, size), self._config.seed, key)
            self._draws += 1
            parts.append(self.pool.draw(places))
            self._note("draw", places)
            count -= len(places)
        self._batches += 1
        return first_epoch, join_blocks(parts)

    # --- state --------------------------------------------------------------------------------

    def position(self) -> dict[str, Any]:
        """Where it is in the data now, without what is in the pool."""
        return {
            "epoch": self.epoch,
            "feed_epoch": self._feed_epoch,
            "feed_place": self._feed_place,
            "fed_in_epoch": self._fed_in_epoch,
            "draws": self._draws,
            "batches": self._batches,
            "first_epoch": self._first_epoch,
            "late": self._late,
            "barren": self.barren,
        }

    def advance(self, batch: int) -> None:
        """Nothing before this batch will be asked for any more. The lock is held."""
        self._shadow.advance(batch)

    def keys(self) -> list[NDArray[np.uint64]]:
        """Keys of the positions that were in the pool after the batch of `advance`.

        Those of this epoch and those of the next one. The lock is held.
        """
        return [bag.items.copy() for bag in self._shadow.bags]

    def restore(
        self, position: dict[str, Any], current: NDArray[np.uint64], following: NDArray[np.uint64]
    ) -> None:
        """Go on from `position` and `keys` of an earlier stream; `refill` does the reading."""
        self._enter(position)
        self._late, self.barren = position["late"], position["barren"]
        self._first_epoch = position["first_epoch"]
        self._fed_in_epoch, self._feed_place = position["fed_in_epoch"], position["feed_place"]
        self.epoch, self._batches = position["epoch"], position["batches"]
        self._refill = [(current, False), (following, True)]
        self._shadow = Shadow(current, following)

    def start_anew(self, position: dict[str, Any], seen: Sequence[NDArray[np.bool_]]) -> None:
        """Begin another epoch of changed data, with what has not been seen yet.

        Args:
            position: of the earlier stream, whose random numbers are not used again.
            seen: by source of the index (games of the split,) whether it has been seen.
        """
        self._enter(position)
        self._feed_epoch += 1
        self.epoch = self._first_epoch = self._feed_epoch
        late: set[int] = set()
        first = 0
        for source in self.sources:
            entry = self._index.sources[source]
            starts = np.array([segment.game for segment in entry.segments])
            bounds = np.searchsorted(entry.numbers, np.append(np.sort(starts), 1 << 62))
            counted = np.concatenate([[0], np.cumsum(seen[source])])[bounds]
            mostly = 2 * np.diff(counted) > np.diff(bounds)
            late |= set((first + np.argsort(starts, kind="stable")[mostly]).tolist())
            first += len(entry.segments)
        self._late = sorted(late)

    def _enter(self, position: dict[str, Any]) -> None:
        self._feed_epoch, self._draws = position["feed_epoch"], position["draws"]

    def refill(self, take: Take) -> None:
        """Read again what was in the pool at the checkpoint.

        Raises:
            GinkgoError: some of it is not there any more.
        """
        for keys, to_next in self._refill:
            blocks = [take()[1] for _ in self._segments_of(keys)]
            if blocks and self.pool.refill(join_blocks(blocks), keys, to_next):
                raise GinkgoError("the data has changed since the checkpoint: positions are gone")
