"""Files to shuffled batches, asynchronously.

In: an `Index` and a `LoaderConfig`. Out: an iterator of `Batch`, the same for the same seed
whatever the number of workers, and a state after each batch that a later loader goes on from.

One thread keeps the pools: it takes blocks from the workers in the order of their jobs, fills the
pool that is drawn from up to its target, draws a batch, and puts it on a short queue from which the
training loop takes it. There is one pool for all sources, or one for each (`stream`); which of them
a batch comes from is then decided as it leaves (`mixer`).
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.batch import Batch, Dropped
from ginkgo.pipeline.coverage import Coverage, Progress
from ginkgo.pipeline.history import Earlier, unpack_seen
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.mixer import Mixed, Mixer
from ginkgo.pipeline.mixing import Bandit
from ginkgo.pipeline.parse import Block
from ginkgo.pipeline.shuffle import share_without_mate
from ginkgo.pipeline.stream import LoaderConfig, Stream, pool_sizes
from ginkgo.pipeline.worker import Job, slot_bytes
from ginkgo.pipeline.workers import Workers
from ginkgo.records import Refusal

#: Batches that a `tf.data.Dataset` over a loader holds ready.
TFDATA_PREFETCH = 2
#: Seconds for which a loader waits to be told that a batch has been taken.
_PATIENCE_S = 0.05


class Seen(NamedTuple):
    """What had been drawn of the sources when a batch had been trained on."""

    progress: Progress
    bandit: Bandit | None
    """What was known of them; None without a choice among them."""


class _Moment(NamedTuple):
    """A loader after a batch, but for what is in the pools."""

    batch: int
    streams: tuple[dict[str, Any], ...]
    dropped: dict[str, Any]
    progress: Progress | None
    mixed: Mixed | None


class DataChanged(GinkgoError):
    """A state is of data that has changed since."""


class _Stopped(Exception):
    """The loader is being closed."""


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
        earlier: in place of a state: what is known of the sources from before the data changed.

    Raises:
        GinkgoError: a setting that cannot work; the state is of other data or settings.
    """

    def __init__(
        self,
        index: Index,
        config: LoaderConfig,
        state: dict[str, Any] | None = None,
        say: Callable[[str], None] = print,
        ahead: bool = False,
        earlier: Earlier | None = None,
    ) -> None:
        config.check(len(index.sources))
        self.index, self.config = index, config
        self._say, self._ahead = say, ahead
        self._parse = replace(config.parse, seed=config.seed, left_out=index.left_out)
        self.dropped = Dropped()
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._number = 0
        self._streams = self._open_streams()
        self._lanes = {source: n for n, one in enumerate(self._streams) for source in one.sources}
        self._coverage = self._mixer = None
        if config.coverage or config.mix == "ucb":
            self._coverage = Coverage(index, self._per_game())
        if config.mix != "proportional":
            sources = len(index.sources)
            self._mixer = Mixer(
                config.mix, sources, config.weights, config.chunk, config.exploration
            )
        self._fingerprint = index.fingerprint()
        if state is not None:
            self._restore(state)
        else:
            if earlier is not None:
                self._start_anew(earlier)
            for bad in index.bad:
                self._count(bad)
        self._moments: deque[_Moment] = deque()
        self._last = self._moment()
        self._acknowledged = self._handed_out = self._number
        self._told = threading.Condition()
        self._queue: queue.Queue[Batch | _End] = queue.Queue(max(1, config.prefetch))
        largest = max(segment.positions for one in self._streams for _, segment in one.segments)
        lanes = [stream.jobs() for stream in self._streams]
        size = slot_bytes(largest, config.parse.ragged)
        self._workers = Workers(config.workers, lanes, self._parse, size, say)
        self._thread = threading.Thread(target=self._run, name="ginkgo-pool", daemon=True)
        self._thread.start()

    def _open_streams(self) -> list[Stream]:
        """One over all sources, or one for each that has something in it."""
        config, index = self.config, self.index
        there = [number for number, source in enumerate(index.sources) if source.segments]
        if not there:
            damage = f": {index.bad[0]}" if index.bad else ""
            raise GinkgoError(f"no positions in the data{damage}")
        groups, sizes = [there], [config.pool]
        if config.mix != "proportional":
            groups = [[number] for number in there]
            sizes = pool_sizes(config, [self._kept()[number] for number in there])
        common = (itertools.count(), self._lock, lambda: self._number + 1)
        return [
            Stream(
                *(index, sources, number, config, size),
                -(-config.min_fill * size // config.pool),
                *common,
            )
            for number, (sources, size) in enumerate(zip(groups, sizes, strict=True))
        ]

    def _kept(self) -> list[float]:
        """By source about how many positions an epoch has."""
        given = self.config.per_game
        if given:
            return [
                source.games * positions
                for source, positions in zip(self.index.sources, given, strict=True)
            ]
        return [
            source.positions_kept(self._parse.kept(number))
            for number, source in enumerate(self.index.sources)
        ]

    def _per_game(self) -> list[float]:
        """By source the positions that an epoch has of a game, on average."""
        sources = zip(self._kept(), self.index.sources, strict=True)
        return [kept / max(1, source.games) for kept, source in sources]

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
            numbers, and as arrays `current` and `next`, keys (uint64) of the positions in the
            pools, one pool after another; `seen`, a bit for each game of the sources.

        Raises:
            ValueError: batches after it count as done already.
        """
        if batch < self._acknowledged:
            raise ValueError(f"batch {batch} is past; a loader with ahead=True waits to be told")
        self.acknowledge(batch)
        with self._lock:
            self._advance()
            last, bags = self._last, [stream.keys() for stream in self._streams]
        state: dict[str, Any] = {
            "batch": last.batch,
            "dropped": last.dropped,
            "files": self._fingerprint,
            "order": self._order_matters(),
            "streams": [
                {**position, "current": len(current), "next": len(following)}
                for position, (current, following) in zip(last.streams, bags, strict=True)
            ],
            "current": np.concatenate([current for current, _ in bags]),
            "next": np.concatenate([following for _, following in bags]),
        }
        if self._mixer is not None and last.mixed is not None:
            state["mix"] = self._mixer.state(last.mixed, last.batch)
        if self._coverage is not None and last.progress is not None:
            state["pulls"] = last.progress.pulls
            state["seen"] = np.packbits(np.concatenate(self._coverage.seen_at(last.batch)))
        return state

    def acknowledge(self, batch: int) -> None:
        """Tell that all batches up to this number have been trained on."""
        with self._told:
            self._acknowledged = max(self._acknowledged, batch)
            self._told.notify_all()

    @property
    def pids(self) -> list[int]:
        """Process numbers of the workers."""
        return self._workers.pids

    def report(self, batch: int, losses: NDArray, counts: NDArray) -> None:
        """Tell the mean loss of a batch by source: see `Mixer.report`."""
        if self._mixer is not None:
            self._mixer.report(batch, losses, counts)

    def seen(self) -> Seen | None:
        """What had been drawn of each source with the last acknowledged batch.

        None without `LoaderConfig.coverage`.
        """
        with self._lock:
            self._advance()
            last = self._last
        if last.progress is None:
            return None
        return Seen(last.progress, last.mixed.bandit if last.mixed is not None else None)

    @property
    def share_without_mate(self) -> dict[str, float]:
        """Expected share of positions without a game-mate in their batch.

        By source where each has a pool of its own, else of `all`.
        """
        found = {}
        kept = self._kept()
        for stream in self._streams:
            epoch = round(sum(kept[number] for number in stream.sources))
            # What the game of a position gives, on average over the positions.
            per_game = sum(
                kept[number] ** 2 / self.index.sources[number].games
                for number in stream.sources
                if self.index.sources[number].games
            ) / max(1, epoch)
            size = (self.config.batch_size, per_game, stream.size, epoch)
            found[self._name_of(stream)] = share_without_mate(*size)
        return found

    @property
    def pools(self) -> dict[str, int]:
        """Positions in each pool when it is full, by the same names."""
        return {self._name_of(stream): stream.size for stream in self._streams}

    def _name_of(self, stream: Stream) -> str:
        return "all" if self._mixer is None else self.index.names[stream.sources[0]]

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

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._fill_pools()
            while not self._stop.is_set():
                batch = self._draw()
                if batch is None:
                    break
                self._put(batch)
                self._stay_behind()
                with self._lock:
                    self._advance()
            self._put(_End())
        except _Stopped:
            pass
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
        for stream in self._streams:
            stream.advance(self._acknowledged)
        while self._moments and self._moments[0].batch <= self._acknowledged:
            self._last = self._moments.popleft()
        if self._mixer is not None and self._last.mixed is not None:
            self._mixer.forget(self._last.mixed)

    def _take(self, lane: int) -> tuple[Job, Block]:
        """The next block of a stream."""
        item = None if self._stop.is_set() else self._workers.next(lane)
        if item is None:
            raise _Stopped
        # Each line counts once, not again in every epoch.
        if item[0].epoch == 0 and item[0].wanted is None:
            for bad in item[1].bad:
                self._count(bad)
        return item

    def _fill_pools(self) -> None:
        """Everything that is there before the first batch leaves."""
        takes = [self._taker(lane) for lane in range(len(self._streams))]
        for stream, take in zip(self._streams, takes, strict=True):
            stream.refill(take)
        for stream, take in zip(self._streams, takes, strict=True):
            stream.fill(take)
            if stream.barren and self._mixer is not None:
                name = self._name_of(stream)
                self._say(f"source {name}: none of its positions passes the filters")
        if all(stream.barren for stream in self._streams):
            raise GinkgoError("no position of the data passes the filters")

    def _taker(self, lane: int) -> Callable[[], tuple[Job, Block]]:
        return lambda: self._take(lane)

    def _draw(self) -> Batch | None:
        lane = self._next_stream()
        if lane is None:
            return None
        stream = self._streams[lane]
        epoch, block = stream.draw(self.config.batch_size, self._taker(lane))
        self._number += 1
        if self._coverage is not None:
            self._coverage.add(block.positions, self._number)
        with self._lock:
            self._moments.append(self._moment())
        fill = sum(len(stream.pool) for stream in self._streams)
        numbers = (self._number, epoch)
        return Batch(*numbers, block.positions, block.keys, block.ragged, fill)

    def _next_stream(self) -> int | None:
        """Which stream the next batch comes from; None: all have come to their end."""
        for lane, stream in enumerate(self._streams):
            stream.fill(self._taker(lane))
        there = [lane for lane, stream in enumerate(self._streams) if not stream.ended]
        if not there or self._mixer is None:
            return there[0] if there else None
        lane = self._lanes[self._mixer.now.source]
        if self._number % self.config.chunk == 0 or lane not in there:
            allowed = sorted(self._streams[lane].sources[0] for lane in there)
            drawn = self._coverage.progress if self._coverage is not None else None
            chosen = self._mixer.choose(self._number + 1, drawn, allowed, self._stop.is_set)
            lane = self._lanes[chosen]
        return lane

    def _count(self, bad: Refusal) -> None:
        if self.config.strict:
            raise GinkgoError(str(bad))
        if self.dropped.add(bad):
            self._say(f"left out: {bad} (further lines of this kind are only counted)")

    # --- state --------------------------------------------------------------------------------

    def _moment(self) -> _Moment:
        return _Moment(
            self._number,
            tuple(stream.position() for stream in self._streams),
            self.dropped.as_dict(),
            self._coverage.progress if self._coverage is not None else None,
            self._mixer.now if self._mixer is not None else None,
        )

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
            "sources": self.index.names,
            "mix": config.mix,
            "weights": list(config.weights),
            "chunk": config.chunk,
            "exploration": config.exploration,
            "coverage": self._coverage is not None,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if state["files"] != self._fingerprint:
            raise DataChanged("the data has changed since the checkpoint: cannot go on inside it")
        mine = self._order_matters()
        if state["order"] != mine:
            changed = [name for name in mine if state["order"].get(name) != mine[name]]
            raise GinkgoError(f"other settings than in the checkpoint: {', '.join(changed)}")
        self._number = state["batch"]
        for kind, entry in state["dropped"].items():
            self.dropped.counts[kind] = entry["count"]
            self.dropped.first[kind] = entry["first"]
        low = {"current": 0, "next": 0}
        for stream, position in zip(self._streams, state["streams"], strict=True):
            keys = {}
            for name in low:
                high = low[name] + position[name]
                keys[name] = np.asarray(state[name][low[name] : high], np.uint64)
                low[name] = high
            stream.restore(position, keys["current"], keys["next"])
        if self._mixer is not None:
            self._mixer.restore(state["mix"])
        if self._coverage is not None:
            self._coverage.restore(unpack_seen(state["seen"], self.index), state["pulls"])

    def _start_anew(self, earlier: Earlier) -> None:
        """Go on with changed data: other pools, but what is known of the sources stays."""
        for stream in self._streams:
            stream.start_anew(earlier.position, earlier.seen)
        if self._coverage is not None:
            self._coverage.restore(earlier.seen, earlier.pulls)
        if self._mixer is not None:
            self._mixer.start_anew(earlier.bandit)
