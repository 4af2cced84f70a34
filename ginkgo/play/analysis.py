"""What the search says of every position of a game.

In: a game, an evaluator, how long to look at a position. Out: one `Judged` a position, in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import cshogi

from ginkgo.records.game import Game
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import Evaluator
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.search import Candidate, Search, mate_only, run
from ginkgo.usi.mate import search_mate
from ginkgo.usi.thinker import centipawns

#: Centipawns of a position that is won by a rule other than mate, or mated already.
WON = 30000
#: Nodes of the tree at most, half a GiB; and how many searches it holds at least.
_NODES, _SEARCHES = 200_000, 8
#: Simulations of a position at least, however little time there is.
_LEAST = 20


@dataclass(frozen=True)
class Judged:
    """A position of a game as the search sees it."""

    ply: int
    """Moves of the game before it, the start position's own number left out."""
    rate: float
    """Black's win rate, in [0, 1]."""
    score: int
    """The same in centipawns, of Black's view."""
    mate: int = 0
    """Plies to a forced mate, > 0 if Black mates, < 0 if White does; 0: none was found."""
    line: tuple[str, ...] = ()
    """The best continuation, in USI; empty where the game is over."""
    seldepth: int = 0
    """Plies of the deepest line looked at."""
    nodes: int = 0
    """Simulations."""
    seconds: float = 0.0

    @property
    def best(self) -> str:
        """The best move; empty where the game is over."""
        return self.line[0] if self.line else ""


@dataclass(frozen=True)
class Effort:
    """How long a position is looked at."""

    nodes: int
    """Simulations."""
    seconds: float
    """Where above 0, this long instead."""
    mate_nodes: int
    """Positions of a search for a forced mate before; 0: none."""

    def stop(self) -> Callable[[], bool] | None:
        """What `run` asks between batches."""
        if not self.seconds:
            return None
        end = time.perf_counter() + self.seconds
        return lambda: time.perf_counter() >= end


def judge(game: Game, evaluator: Evaluator, effort: Effort) -> Iterator[Judged]:
    """Look at the position before each move of a game, and at the last one.

    Args:
        game: its moves are legal and both kings are there.

    Yields:
        `game.total + 1` judgements, each as soon as it is made.

    Raises:
        GinkgoError: the start position is impossible.
    """
    capacity = _NODES
    if not effort.seconds:
        capacity = min(_NODES, _SEARCHES * effort.nodes + 1000)
    config = replace(SearchConfig(), nodes=capacity, max_ply=0)
    line = Line(game.start)
    search, queue = Search(config, line), Queue(evaluator)
    for ply in range(game.total + 1):
        yield _ended(line, ply) or _searched(search, queue, ply, effort)
        if ply < game.total:
            search.play(line.move_of(game.moves[ply]))


def _ended(line: Line, ply: int) -> Judged | None:
    """The judgement of a position that ends the game by the rules, or may: by a declaration."""
    found = line.ending()
    if found is not None:
        winner = found[0]
    elif line.can_declare():
        winner = "w" if line.white else "b"
    else:
        return None
    rate = {"b": 1.0, "w": 0.0, "d": 0.5}[winner]
    return Judged(ply, rate, round((2 * rate - 1) * WON))


def _searched(search: Search, queue: Queue, ply: int, effort: Effort) -> Judged:
    began, line = time.perf_counter(), search.line
    side = -1 if line.white else 1
    if effort.mate_nodes:
        mate = search_mate(line.board.sfen(), effort.mate_nodes).moves
        if mate:
            seconds = time.perf_counter() - began
            return Judged(
                *(ply, (1 + side) / 2, side * WON, side * len(mate), mate, len(mate), 0, seconds)
            )
    search.begin()
    stop = effort.stop()
    if stop is None:
        run([search], queue, effort.nodes)
    else:
        run([search], queue, 10**9, lambda: search.simulations >= _LEAST and stop())
    best = search.candidates(1)[0]
    value = _value(best, search.value)
    if mate_only(best.proof):
        mate_in, score = side * best.proof, side * (WON if best.proof > 0 else -WON)
    else:
        mate_in = 0
        score = side * (centipawns(value) if not best.proof else WON if best.proof > 0 else -WON)
    return Judged(
        ply,
        value if side > 0 else 1 - value,
        score,
        mate_in,
        tuple(map(cshogi.move_to_usi, best.usi_line)),
        max(search.deepest, len(best.usi_line)),
        search.simulations,
        time.perf_counter() - began,
    )


def _value(best: Candidate, root: float) -> float:
    """Win rate of the side to move."""
    if best.proof:
        return 1.0 if best.proof > 0 else 0.0
    return root if best.value != best.value else best.value


@dataclass(frozen=True)
class Loss:
    """What a move of the game cost."""

    ply: int
    """Of the move, from 1."""
    rate: float
    """Win rate that its player lost, in [0, 1]; 0 for the best move."""
    mark: str
    """`mistake`, `blunder`, or empty."""


def losses(game: Game, judged: list[Judged], mistake: float, blunder: float) -> list[Loss]:
    """What each move cost, as far as the positions before and after it have been judged.

    Args:
        mistake, blunder: win rates lost from which on a move is marked.
    """
    white_first = game.start.split()[1] == "w"
    found = []
    for before, after in pairwise(judged):
        ply = after.ply
        white = white_first != bool(before.ply % 2)
        lost = after.rate - before.rate if white else before.rate - after.rate
        if lost < 0 or game.moves[before.ply] == before.best:
            lost = 0.0
        mark = "blunder" if lost >= blunder else "mistake" if lost >= mistake else ""
        found.append(Loss(ply, lost, mark))
    return found
