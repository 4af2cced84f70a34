"""The shuffle pool: positions wait here and leave in random order.

In: blocks of positions. Out: batches drawn without replacement by vectorised random removal.

Positions of two epochs can be in the pool at once: the current one, which batches are drawn
from, and the next one, which fills the room that it leaves, so that the end of an epoch costs
no wait. What is drawn depends only on the order of calls, never on time: the same calls give the
same batches, and `Shadow` replays them on keys alone to know the pool as it was some batches ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.position import POSITION
from ginkgo.pipeline.parse import Block
from ginkgo.pipeline.ragged import Ragged, as_bytes


class Bag:
    """An unordered collection of integers with fast vectorised removal by place.

    >>> bag = Bag(np.int64)
    >>> bag.add(np.arange(5))
    >>> bag.remove(np.array([0, 4])).tolist(), bag.items.tolist()
    ([0, 4], [3, 1, 2])
    """

    def __init__(self, dtype: type = np.int64) -> None:
        self._items: NDArray = np.empty(1024, dtype)
        self.size = 0

    @property
    def items(self) -> NDArray:
        """(size,) what is in the bag, in its present order."""
        return self._items[: self.size]

    def add(self, items: NDArray) -> None:
        """Put items in."""
        while self.size + len(items) > len(self._items):
            self._items = np.concatenate([self._items, np.empty_like(self._items)])
        self._items[self.size : self.size + len(items)] = items
        self.size += len(items)

    def remove(self, places: NDArray[np.int64]) -> NDArray:
        """Take out the items at distinct `places`; the last ones move into the gaps."""
        taken = self._items[places]
        end = self.size - len(places)
        stays = np.ones(len(places), bool)
        stays[places[places >= end] - end] = False
        self._items[places[places < end]] = self._items[end : self.size][stays]
        self.size = end
        return taken


def draw_places(size: int, count: int, seed: int, batch: int) -> NDArray[np.int64]:
    """`count` distinct places in a bag of `size`: a pure function of seed and batch number."""
    rng = np.random.Generator(np.random.Philox(key=[seed, batch]))
    if count >= size:
        return rng.permutation(size)
    return rng.choice(size, count, replace=False)


class Pool:
    """Storage for positions of two epochs, and the order in which they leave.

    Args:
        capacity: rows that fit.
        ragged: what each position brings besides, see `ParseOptions.ragged`.
    """

    def __init__(
        self, capacity: int, seed: int, ragged: Mapping[str, np.dtype] = MappingProxyType({})
    ) -> None:
        self.rows = np.zeros(0, POSITION)
        self.keys = np.zeros(0, np.uint64)
        self._types = dict(ragged)
        #: By name the rows as bytes; an object for each position, for they come and go singly.
        self._ragged = {name: np.zeros(0, object) for name in ragged}
        self._capacity = capacity
        self._free = Bag(np.int64)
        self._seed = seed
        self.current, self.next = Bag(np.int64), Bag(np.int64)

    def __len__(self) -> int:
        return self.current.size + self.next.size

    def _grow(self, rows: int) -> None:
        """Make room for so many more; the storage grows with what is really in it."""
        old = len(self.rows)
        new = max(old + rows - self._free.size, min(self._capacity, 2 * old))
        if new <= old or self._free.size >= rows:
            return
        self.rows = np.concatenate([self.rows, np.zeros(new - old, POSITION)])
        self.keys = np.concatenate([self.keys, np.zeros(new - old, np.uint64)])
        for name, rows_of in self._ragged.items():
            self._ragged[name] = np.concatenate([rows_of, np.zeros(new - old, object)])
        self._free.add(np.arange(old, new))

    def add(self, block: Block, to_next: bool) -> None:
        """Put the positions of a block in, for the current or the next epoch."""
        count = len(block.positions)
        if not count:
            return
        self._grow(count)
        places = self._free.remove(np.arange(self._free.size - count, self._free.size))
        # As bytes: numpy copies rows of a structured type field by field, five times as slowly.
        as_bytes(self.rows)[places] = as_bytes(block.positions)
        self.keys[places] = block.keys
        for name, rows in block.ragged.items():
            stored, values = self._ragged[name], as_bytes(rows.values)
            bounds = rows.offsets.tolist()
            for place, low, high in zip(places.tolist(), bounds, bounds[1:], strict=False):
                stored[place] = values[low:high].tobytes()
        (self.next if to_next else self.current).add(places)

    def draw(self, places: NDArray[np.int64]) -> Block:
        """Take the positions at these places of the current epoch's bag out of the pool."""
        slots = self.current.remove(places)
        block = Block(self.rows.take(slots), self.keys[slots])
        for name, stored in self._ragged.items():
            texts, dtype = stored[slots].tolist(), self._types[name]
            sizes = np.fromiter(map(len, texts), np.int64, len(texts)) // dtype.itemsize
            block.ragged[name] = Ragged.of_lengths(np.frombuffer(b"".join(texts), dtype), sizes)
            stored[slots] = 0
        self._free.add(slots)
        return block

    def turn(self) -> None:
        """The current epoch is used up: the next one becomes the current one."""
        assert self.current.size == 0
        self.current, self.next = self.next, self.current

    def refill(self, block: Block, keys: NDArray[np.uint64], to_next: bool) -> int:
        """Put the positions with these keys back, in this order; how many of them are missing.

        The bag must be empty, and the block holds the positions in any order.
        """
        order = np.argsort(block.keys)
        places = np.searchsorted(block.keys[order], keys).clip(max=max(0, len(order) - 1))
        rows = order[places] if len(order) else np.zeros(0, np.int64)
        found = block.keys[rows] == keys if len(order) else np.zeros(len(keys), bool)
        rows = rows[found]
        self.add(block.take(rows), to_next)
        return int((~found).sum())


class Shadow:
    """The keys in the pool as they were after a given batch, for checkpoints.

    The loader runs ahead of the training loop. It notes what it does to the pool, and the shadow
    repeats it on keys alone, up to the last batch that was trained on.
    """

    def __init__(self, current: NDArray[np.uint64], following: NDArray[np.uint64]) -> None:
        self.bags = [Bag(np.uint64), Bag(np.uint64)]
        self.bags[0].add(current)
        self.bags[1].add(following)
        self._notes: deque[tuple[int, str, NDArray | None]] = deque()

    def note(self, batch: int, what: str, data: NDArray | None = None) -> None:
        """Remember a step on the way to `batch`: `add`, `add_next`, `draw` or `turn`."""
        self._notes.append((batch, what, data))

    def advance(self, batch: int) -> None:
        """Repeat everything up to and with `batch`."""
        while self._notes and self._notes[0][0] <= batch:
            _, what, data = self._notes.popleft()
            match what:
                case "add":
                    self.bags[0].add(data)  # type: ignore[arg-type]
                case "add_next":
                    self.bags[1].add(data)  # type: ignore[arg-type]
                case "draw":
                    self.bags[0].remove(data)  # type: ignore[arg-type]
                case "turn":
                    self.bags.reverse()
