"""Files to shuffled batches, asynchronously.

In: an `Index` and a `LoaderConfig`. Out: an iterator of `Batch`, the same for the same seed
whatever the number of workers, and a state after each batch that a later loader goes on from.

One thread keeps the pool: it takes blocks from the workers in the order of their jobs, fills the
pool up to its target, draws a batch, and puts it on a short queue from which the training loop
takes it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.index import Index, Segment
from ginkgo.pipeline.parse import Block, ParseOptions, join_blocks
from ginkgo.pipeline.pool import Pool, Shadow, draw_places
from ginkgo.pipeline.ragged import Ragged
from ginkgo.pipeline.shuffle import share_without_mate
from ginkgo.pipeline.worker import Job, slot_bytes
from ginkgo.pipeline.workers import Workers
from ginkgo.records import Refusal

#: Batches that a `tf.data.Dataset` over a loader holds ready.
TFDATA_PREFETCH = 2
#: Seconds for which a loader waits to be told that a batch has been taken.
_PATIENCE_S = 0.05


@dataclass(frozen=True)
class LoaderConfig:
    """How data are read and shuffled."""

    batch_size: int = 1024
    pool: int = 1 << 20
    """Positions in the shuffle pool."""
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


class _End:
    """On the queue: no more batches, or what went wrong."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class Loader:
    """An iterator of batches. Close it (or use it in a `with` block) to end its processes.

    Args:
        index: what to read.
        config: how. Everything but `workers`, `prefetch` and `strict` decides the order.
        state: of an earlier loader (`Loader.state`); this one goes on after that batch.
        ahead: batches are trained on some time after they were handed out, and the caller tells
            with `acknowledge`; without it a batch counts as done when the next one is asked for.
        say: told a line when a worker dies or a first unusable line of its kind is met.

    Raises:
        GinkgoError: the state is of other data or another configuration.
    """

    def __init__(
        self,
        index: Index,
        config: LoaderConfig,
        state: dict[str, Any] | None = None,
        say: Callable[[str], None] = print,
        ahead: bool = False,
    ) -> None:
        if config.batch_size < 1 or config.pool < config.batch_size:
            raise GinkgoError(
                f"pool {config.pool}: expected at least the batch size, {config.batch_size}"
            )
        self.index, self.config = index, config
        self._say, self._ahead = say, ahead
        self._parse = replace(config.parse, seed=config.seed, left_out=index.left_out)
        self.dropped = Dropped()
        self.error: BaseException | None = None
        self._segments = [
            (number, part)
            for number, source in enumerate(index.sources)
            for part in source.segments
        ]
        if not self._segments:
            damage = f": {index.bad[0]}" if index.bad else ""
            raise GinkgoError(f"no positions in the data{damage}")
        largest = max(segment.positions for _, segment in self._segments)
        ragged = config.parse.ragged
        self._pool = Pool(config.pool + largest, config.seed, ragged)
        self._epoch = self._feed_epoch = self._feed_place = self._draws = self._number = 0
        self._fed_in_epoch = 0
        self._fingerprint = index.fingerprint()
        self._refill: list[tuple[NDArray[np.uint64], bool]] = []
        empty = np.zeros(0, np.uint64)
        self._shadow = Shadow(empty, empty)
        self._last_state: dict[str, Any] = {}
        if state is not None:
            self._restore(state)
        else:
            for bad in index.bad:
                self._count(bad)
        self._last_state = self._position_in_data()
        self._acknowledged = self._number
        self._told = threading.Condition()
        self._handed_out = self._number
        self._lock = threading.Lock()
        self._queue: queue.Queue[Batch | _End] = queue.Queue(max(1, config.prefetch))
        self._stop = threading.Event()
        self._workers = Workers(
            config.workers, self._jobs(), self._parse, slot_bytes(largest, ragged), say
        )
        self._thread = threading.Thread(target=self._run, name="ginkgo-pool", daemon=True)
        self._thread.start()

    # --- what the user sees -------------------------------------------------------------------

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        # As in `_stay_behind`: whoever fills the dataset's buffer waits for the loop as well.
        self._wait_for(self._handed_out + 1 - TFDATA_PREFETCH)
        while True:
            try:
                item = self._queue.get(timeout=0.5)
                break
            except queue.Empty:
                if self._stop.is_set() or not self._thread.is_alive():
                    raise StopIteration from None
        if isinstance(item, _End):
            self._queue.put(item)  # whoever asks again gets the same answer
            if item.error is not None:
                raise item.error
            raise StopIteration
        self._handed_out = item.number
        if not self._ahead:
            self.acknowledge(item.number - 1)
        return item

    def state(self, batch: int) -> dict[str, Any]:
        """The loader as it was after this batch, for a checkpoint. Batches up to it are done.

        Returns:
            numbers, and `current` and `next`: keys (uint64) of the positions in the pool.

        Raises:
            ValueError: batches after it count as done already.
        """
        if batch < self._acknowledged:
            raise ValueError(f"batch {batch} is past; a loader with ahead=True waits to be told")
        self.acknowledge(batch)
        with self._lock:
            self._advance()
            bags = [bag.items.copy() for bag in self._shadow.bags]
            return {
                **self._last_state,
                "files": self._fingerprint,
                "order": self._order_matters(),
                "current": bags[0],
                "next": bags[1],
            }

    def acknowledge(self, batch: int) -> None:
        """Tell that all batches up to this number have been trained on."""
        with self._told:
            self._acknowledged = max(self._acknowledged, batch)
            self._told.notify_all()

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers."""
        return self._workers.pids

    @property
    def share_without_mate(self) -> float:
        """Expected share of positions without a game-mate in their batch."""
        kept = [
            source.positions_kept(self._parse.kept(number))
            for number, source in enumerate(self.index.sources)
        ]
        epoch = round(sum(kept))
        # What the game of a position gives, on average over the positions.
        per_game = sum(
            share * share / source.games
            for share, source in zip(kept, self.index.sources, strict=True)
            if source.games
        ) / max(1, epoch)
        return share_without_mate(self.config.batch_size, per_game, self.config.pool, epoch)

    def close(self) -> None:
        """End the thread and all processes."""
        self._stop.set()
        self._workers.stop()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.05)
        self._workers.close()

    # --- the order of the data ----------------------------------------------------------------

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """Numbers of all segments in the order of an epoch.

        Within a source the files come in random order, each from front to back. The sources are
        interleaved in proportion to their sizes.
        """
        rng = np.random.Generator(np.random.Philox(key=[self.config.seed, 1 << 40 | epoch]))
        places: list[tuple[float, int]] = []
        first = 0
        for source in self.index.sources:
            by_file: dict[int, list[int]] = {}
            for number, segment in enumerate(source.segments, first):
                by_file.setdefault(segment.file, []).append(number)
            first += len(source.segments)
            files = list(by_file.values())
            sequence = [number for file in rng.permutation(len(files)) for number in files[file]]
            shift = rng.random()
            places += [
                ((place + shift) / len(sequence), number) for place, number in enumerate(sequence)
            ]
        return np.array([number for _, number in sorted(places)], np.int64)

    def _jobs(self) -> Iterator[Job]:
        """First what refills the pool of a resumed run, then epoch after epoch."""
        count = 0
        for keys, _ in self._refill:
            for number, wanted in self._segments_of(keys):
                yield self._job(count, 0, number, wanted)
                count += 1
        epoch, place = self._feed_epoch, self._feed_place
        while not self.config.epochs or epoch < self.config.epochs:
            for number in self._order(epoch)[place:]:
                yield self._job(count, epoch, int(number), None)
                count += 1
            epoch, place = epoch + 1, 0

    def _job(self, count: int, epoch: int, number: int, wanted: NDArray | None) -> Job:
        source, segment = self._segments[number]
        files = self.index.files[segment.file : segment.file + segment.files]
        paths = tuple(file.path for file in files)
        buckets = self.index.buckets(source, segment)
        return Job(count, epoch, files[0].kind, paths, segment, source, buckets, wanted)

    def _segments_of(self, keys: NDArray[np.uint64]) -> list[tuple[int, NDArray[np.uint64]]]:
        """Which segments hold these keys, each with its own keys, sorted."""
        order = sorted(
            range(len(self._segments)),
            key=lambda n: (self._segments[n][1].file, self._segments[n][1].line),
        )

        def first_key(segment: Segment) -> int:
            return segment.file << 44 | segment.line << 10

        bounds = np.array([first_key(self._segments[n][1]) for n in order], np.uint64)
        keys = np.sort(keys)
        owners = np.searchsorted(bounds, keys, side="right") - 1
        return [
            (order[int(owner)], keys[owners == owner]) for owner in np.unique(owners) if owner >= 0
        ]

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._refill_pool()
            while not self._stop.is_set():
                batch = self._draw()
                if batch is None:
                    break
                self._put(batch)
                self._stay_behind()
                with self._lock:
                    self._advance()
            self._put(_End())
        except BaseException as error:  # handed to the thread that asks for batches
            self.error = error
            self._put(_End(error))

    def _put(self, item: Batch | _End) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return
            except queue.Full:
                pass

    def _stay_behind(self) -> None:
        """Do no work while the training loop is about to take a batch.

        The loop's `next` makes room, which would wake this thread, and the two would want the
        interpreter's lock at the same moment. What has been taken is acknowledged when the loop
        has its batch and is busy with it on the device: that is the time to make another one.
        """
        self._wait_for(self._number - self.config.prefetch - TFDATA_PREFETCH + 1)

    def _wait_for(self, batch: int) -> None:
        """Wait until this batch is acknowledged, but not for long: nothing depends on it."""
        if self._ahead and self._acknowledged < batch:
            with self._told:
                self._told.wait_for(lambda: self._acknowledged >= batch, _PATIENCE_S)

    def _advance(self) -> None:
        state = self._shadow.advance(self._acknowledged)
        if state is not None:
            self._last_state = state

    def _note(self, what: str, data: NDArray | None = None, state: dict | None = None) -> None:
        with self._lock:
            self._shadow.note(self._number + 1, what, data, state)

    @property
    def _target(self) -> int:
        """How full the pool must be before the next batch leaves.

        It starts at `min_fill` and grows by a batch with each batch, up to the whole pool.
        """
        config = self.config
        first = config.min_fill or config.pool
        first = max(first, config.batch_size)
        return min(config.pool, first + self._number * config.batch_size)

    def _fill(self) -> None:
        while len(self._pool) < self._target and self._feed_epoch <= self._epoch + 1:
            if self.config.epochs and self._feed_epoch >= self.config.epochs:
                return
            item = self._workers.next()
            if item is None:
                return
            job, block = item
            self._count_bad(job, block)
            to_next = self._feed_epoch > self._epoch
            self._pool.add(block, to_next)
            self._note("add_next" if to_next else "add", block.keys)
            self._fed_in_epoch += len(block.positions)
            self._feed_place += 1
            if self._feed_place == len(self._segments):
                if self._fed_in_epoch == 0:
                    raise GinkgoError("no position of the data passes the filters")
                self._feed_epoch, self._feed_place, self._fed_in_epoch = self._feed_epoch + 1, 0, 0

    def _draw(self) -> Batch | None:
        parts: list[Block] = []
        needed, epoch = self.config.batch_size, None
        while needed:
            self._fill()
            if self._stop.is_set():
                return None
            if not self._pool.current.size:
                if self._feed_epoch <= self._epoch or (
                    self.config.epochs and self._epoch + 1 >= self.config.epochs
                ):
                    break
                self._pool.turn()
                self._note("turn")
                self._epoch += 1
                continue
            epoch = self._epoch if epoch is None else epoch
            size = self._pool.current.size
            places = draw_places(size, min(needed, size), self.config.seed, self._draws)
            self._draws += 1
            parts.append(self._pool.draw(places))
            self._note("draw", places)
            needed -= len(places)
        if not parts:
            return None
        self._number += 1
        with self._lock:
            self._shadow.note(self._number, "state", None, self._position_in_data())
        block = join_blocks(parts)
        return Batch(
            self._number,
            epoch or 0,
            block.positions,
            block.keys,
            block.ragged,
            len(self._pool),
        )

    def _count_bad(self, job: Job, block: Block) -> None:
        # Each line counts once, not again in every epoch.
        if job.epoch == 0 and job.wanted is None:
            for bad in block.bad:
                self._count(bad)

    def _count(self, bad: Refusal) -> None:
        if self.config.strict:
            raise GinkgoError(str(bad))
        if self.dropped.add(bad):
            self._say(f"left out: {bad} (further lines of this kind are only counted)")

    # --- state --------------------------------------------------------------------------------

    def _position_in_data(self) -> dict[str, Any]:
        return {
            "batch": self._number,
            "epoch": self._epoch,
            "feed_epoch": self._feed_epoch,
            "feed_place": self._feed_place,
            "fed_in_epoch": self._fed_in_epoch,
            "draws": self._draws,
            "dropped": self.dropped.as_dict(),
        }

    def _order_matters(self) -> dict[str, Any]:
        """The settings that decide the order of the data."""
        config = self.config
        return {
            "seed": config.seed,
            "batch_size": config.batch_size,
            "pool": config.pool,
            "min_fill": config.min_fill,
            "parse": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in vars(self._parse).items()
                if name != "left_out"
            },
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if state["files"] != self._fingerprint:
            raise GinkgoError("the data has changed since the checkpoint: cannot go on inside it")
        mine = self._order_matters()
        if state["order"] != mine:
            changed = [name for name in mine if state["order"].get(name) != mine[name]]
            raise GinkgoError(f"other settings than in the checkpoint: {', '.join(changed)}")
        self._number, self._epoch = state["batch"], state["epoch"]
        self._feed_epoch, self._feed_place = state["feed_epoch"], state["feed_place"]
        self._fed_in_epoch, self._draws = state["fed_in_epoch"], state["draws"]
        for kind, entry in state["dropped"].items():
            self.dropped.counts[kind] = entry["count"]
            self.dropped.first[kind] = entry["first"]
        current = np.asarray(state["current"], np.uint64)
        following = np.asarray(state["next"], np.uint64)
        self._refill = [(current, False), (following, True)]
        self._shadow = Shadow(current, following)

    def _refill_pool(self) -> None:
        """Read again what was in the pool at the checkpoint."""
        for keys, to_next in self._refill:
            jobs = len(self._segments_of(keys))
            blocks = []
            for _ in range(jobs):
                item = self._workers.next()
                if item is None:
                    return
                blocks.append(item[1])
            if not blocks:
                continue
            if self._pool.refill(join_blocks(blocks), keys, to_next):
                raise GinkgoError("the data has changed since the checkpoint: positions are gone")
