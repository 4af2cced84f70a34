"""Many games at once: their searches share the evaluators' batches.

In: games, written as generators: each yields a `Want`, a search it needs, and goes on when that
search is over. Out: what the games return, in the order in which they end.

    def game():
        search = Search(config)
        while search.line.ending() is None:
            search.begin()
            yield Want(search, 400)
            search.play(search.best_move())
        return search.line.usi

    for moves in play_many((game() for _ in range(1000)), [[Queue(evaluator)]], 256):
        ...

Each search takes the same course as in `ginkgo.search.run`, whatever games run beside it, as far
as the evaluator answers alike in batches of different size.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from ginkgo.search.queue import Queue
from ginkgo.search.search import Search

T = TypeVar("T")


class Want(NamedTuple):
    """A search that a game waits for."""

    search: Search
    """Has had its `begin`."""
    simulations: int
    """After which it is over, unless it is decided before."""
    network: int = 0
    """Which queue of its group it takes its evaluations from."""


Play = Generator[Want, None, T]


def play_many(
    games: Iterable[Play[T]], queues: Sequence[Sequence[Queue]], concurrency: int
) -> Iterator[T]:
    """Play games, so many at a time, each step of all of them as one batch for each network.

    Args:
        games: begun only when there is room for them.
        queues: groups of queues, one for each network. With several groups the games are spread
            over them, and while the batches of some groups are with their evaluators (each in a
            thread), leaves are gathered for another: so processor and device, or all cores, work
            at the same time.
            No evaluator may be in two groups.
        concurrency: games under way at most, at least one for each group.

    Yields:
        what each game returned, as soon as it is over.

    Raises:
        GinkgoError: an evaluator failed; the games under way are given up, as they are when the
            iteration is left.
    """
    coming = iter(games)
    groups: list[_Group[T]] = [_Group(group) for group in queues]
    share = -(-max(concurrency, len(groups)) // len(groups))
    with ThreadPoolExecutor(len(groups)) as pool:
        while True:
            for group in groups:
                yield from group.finish()
                yield from group.fill(coming, share)
                group.gather(pool if len(groups) > 1 else None)
            if not any(group.running for group in groups):
                return


class _Running(Generic[T]):
    """A game under way."""

    def __init__(self, game: Play[T]) -> None:
        self.game = game
        self.want: Want | None = None
        self.result: T | None = None
        self.moved = 0
        self.go_on()

    def go_on(self) -> None:
        """Let the game take what it waited for, until it waits for something that takes time."""
        try:
            self.want = next(self.game)
            while self.want.search.decided:
                self.want = next(self.game)
        except StopIteration as end:
            self.want, self.result = None, end.value

    @property
    def waits(self) -> bool:
        """Whether its search needs another step."""
        assert self.want is not None
        search, simulations, _ = self.want
        return bool(self.moved and search.simulations < simulations and not search.decided)


class _Group(Generic[T]):
    """Games whose leaves are evaluated together."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._queues = queues
        # A thread pays only where the evaluator does not hold the interpreter's lock.
        self._waits = any(queue.evaluator.note is not None for queue in queues)
        self._pending: Future[None] | None = None
        self.running: list[_Running[T]] = []

    def fill(self, games: Iterator[Play[T]], most: int) -> Iterator[T]:
        """Begin games until there are so many; those that end at once are yielded."""
        while len(self.running) < most:
            game = next(games, None)
            if game is None:
                return
            begun = _Running(game)
            if begun.want is None:
                yield begun.result  # type: ignore[misc]
            else:
                self.running.append(begun)

    def gather(self, pool: ThreadPoolExecutor | None) -> None:
        """Choose leaves in all games and have them evaluated, in a thread of `pool`."""
        for queue in self._queues:
            queue.clear()
        for one in self.running:
            search, simulations, network = one.want  # type: ignore[misc]
            left = max(1, simulations - search.simulations)
            one.moved = search.gather(self._queues[network], left)
        if pool is not None and self._waits:
            self._pending = pool.submit(self._evaluate)
        else:
            self._evaluate()

    def _evaluate(self) -> None:
        for queue in self._queues:
            if len(queue):
                queue.evaluate()

    def finish(self) -> Iterator[T]:
        """Grow the trees by what has been evaluated; games whose search is over go on."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None
        for one in self.running:
            search, _, network = one.want  # type: ignore[misc]
            search.apply(self._queues[network])
        for one in self.running:
            if not one.waits:
                one.go_on()
                if one.want is None:
                    yield one.result  # type: ignore[misc]
        self.running = [one for one in self.running if one.want is not None]
