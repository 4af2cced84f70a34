"""A game between a person and the engine, as the browser sees it.

In: moves in USI. Out: the whole state as one JSON-able dictionary after each request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import make_evaluator
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.search import Search, run

#: Moves of the engine that are drawn as arrows.
_ARROWS = 3
#: Simulations of a move at least.
_LEAST = 40
_WINNERS = {"b": "Black wins", "w": "White wins", "d": "draw"}
_ENDINGS = {
    "tsumi": "mate",
    "sennichite": "fourth repetition",
    "perpetual": "perpetual check",
    "max_moves": "too many moves",
    "toryo": "resignation",
    "kachi": "declaration",
}


class Game:
    """The line, the search, and the win rates so far."""

    def __init__(self, model: str, seconds: float, config: SearchConfig) -> None:
        """Load the network; the start position is on the board.

        Args:
            model: as for `make_evaluator`. seconds: of thinking for each move.
            config: of the search.

        Raises:
            GinkgoError: there is no such model.
        """
        self._queue = Queue(make_evaluator(model))
        self.name = self._queue.evaluator.name
        self._seconds, self._config = seconds, config
        self.new("b")

    def new(self, human: str) -> None:
        """Begin a game.

        Args:
            human: `b`, `w`, `bw` (both sides, the engine only watches).
        """
        if human not in ("b", "w", "bw"):
            raise GinkgoError(f"side {human!r}: expected b, w or bw")
        self._human = human
        self._line = Line()
        self._search = Search(self._config, self._line)
        self._rates: list[float] = []
        self._thoughts: list[dict[str, Any]] = []
        self._result: tuple[str, str] | None = None
        self._think()

    def play(self, usi: str) -> None:
        """A person's move, then the engine's.

        Raises:
            GinkgoError: it is not legal, or the game is over.
        """
        if self._result is not None:
            raise GinkgoError("the game is over")
        if usi == "resign":
            self._result = ("b" if self._line.white else "w"), "toryo"
            return
        self._push(self._line.move_of(usi))
        self._think()

    def take_back(self) -> None:
        """Take the last move back, and the one before where it was the engine's."""
        keep = len(self._line.moves) - (1 if self._human == "bw" else 2)
        if keep < 0:
            return
        self._line = Line(moves=self._line.usi[:keep])
        self._search.set_line(self._line)
        del self._rates[keep:]
        self._result = None
        self._think()

    def _push(self, move: int) -> None:
        self._search.play(move)
        self._result = self._line.ending(self._config.max_ply)

    def _think(self) -> None:
        """Look at the position; make the engine's moves as long as it is to move."""
        while self._result is None:
            search = self._search
            search.begin()
            run([search], self._queue, 10**6, self._timer(search))
            value = 1 - search.value if self._line.white else search.value
            self._rates[len(self._line.moves) :] = [value]
            self._thoughts = [
                {
                    "line": [cshogi.move_to_usi(move) for move in one.usi_line[:8]],
                    "visits": one.visits,
                    "rate": _rate(one.value, one.proof),
                }
                for one in search.candidates(_ARROWS)
                if one.visits or one.proof
            ]
            side = "w" if self._line.white else "b"
            if side in self._human:
                return
            if self._line.can_declare():
                self._result = side, "kachi"
                return
            self._push(search.best_move())
        self._thoughts = []

    def _timer(self, search: Search) -> Callable[[], bool]:
        """Whether the time for a move is over; some positions are looked at in any case."""
        end = time.perf_counter() + self._seconds
        return lambda: time.perf_counter() >= end and search.simulations >= _LEAST

    def state(self) -> dict[str, Any]:
        """Everything that the page shows."""
        board = self._line.board
        side = "w" if self._line.white else "b"
        result = ""
        if self._result is not None:
            winner, end = self._result
            result = f"{_WINNERS[winner]} ({_ENDINGS[end]})"
        return {
            "sfen": board.sfen(),
            "moves": self._line.usi,
            "legal": [cshogi.move_to_usi(move) for move in board.legal_moves]
            if self._result is None and side in self._human
            else [],
            "human": self._human,
            "rates": self._rates,
            "thoughts": self._thoughts,
            "result": result,
            "check": self._line.checks[-1],
            "model": self.name,
        }


def _rate(value: float, proof: int) -> float:
    """Win rate of the side that moves, in [0, 1]."""
    if proof:
        return 1.0 if proof > 0 else 0.0
    return 0.5 if value != value else value


def new_game(model: str, seconds: float, max_ply: int) -> Game:
    """A game with a search of moderate memory (half a GiB at most)."""
    return Game(model, seconds, replace(SearchConfig(), nodes=200_000, max_ply=max_ply))
