"""The referee: what the rules make of the engines' answers.

In: an opening, then answers (moves, `resign`, `win`) with scores and times, or an engine's fault.
Out: `Played`, the whole game with winner, ending and reason.

Endings are the words of the records (`ginkgo.records.game.ENDINGS`) and three that only a match
has: `crash` (the engine's process has ended), `no_answer` (it did not answer) and `no_start` (it
did not come as far as `readyok`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ginkgo.arena.openings import Opening
from ginkgo.records.game import STARTPOS, Game
from ginkgo.records.replay import IllegalMove
from ginkgo.search.rules import Line

#: Faults of engines that are no words of the records, and what kifu call them.
FAULTS = {"crash": "illegal_action", "no_answer": "time_up", "no_start": "illegal_action"}
#: Centipawns of a forced mate.
MATE = 30_000


@dataclass(frozen=True)
class Rules:
    """How games end besides by the moves alone."""

    max_ply: int = 320
    """Moves after which a game is drawn; 0: never."""
    adjudicate: tuple[int, int] | None = None
    """The side to move resigns when for so many plies both scores have said that it is so many
    centipawns behind (score, plies)."""
    declare: bool = False
    """Award a declaration by 27 points to an engine that does not claim it."""


@dataclass(frozen=True)
class Pairing:
    """A game that is to be played."""

    number: int
    """From 0; games 2n and 2n + 1 are a pair."""
    opening: Opening

    @property
    def black(self) -> str:
        """`a` or `b`: A has Black in the first game of a pair."""
        return "b" if self.number % 2 else "a"


@dataclass(frozen=True)
class Played:
    """A game that has been played."""

    number: int
    black: str
    """`a` or `b`, the engine that had Black."""
    winner: str
    """`b`, `w` or `d`."""
    end: str
    reason: str
    """Said of faults and of what the referee decided; else empty."""
    start: str
    opening: int
    """Moves that were given."""
    moves: tuple[str, ...]
    """All of them, the opening's first."""
    scores: tuple[int | None, ...]
    """Centipawns of the mover at each move."""
    times: tuple[float | None, ...]
    """Seconds of each move."""

    @property
    def pair(self) -> int:
        """Number of its pair, from 0."""
        return self.number // 2

    @property
    def score(self) -> float:
        """Of A: 0, ½ or 1."""
        if self.winner == "d":
            return 0.5
        return float((self.winner == "b") == (self.black == "a"))

    @property
    def plies(self) -> int:
        return len(self.moves)

    def to_json(self) -> dict[str, Any]:
        """As a JSON-able dictionary; `from_json` is its inverse."""
        return {**asdict(self), "moves": " ".join(self.moves)}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Played:
        """
        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        lists = {name: tuple(found[name]) for name in ("scores", "times")}
        played = Played(**{**found, **lists, "moves": tuple(found["moves"].split())})
        if not isinstance(played.number, int) or played.number < 0:
            raise ValueError(f"number {played.number!r}")
        if played.black != "ab"[played.number % 2] or played.winner not in ("b", "w", "d"):
            raise ValueError(f"black {played.black!r}, winner {played.winner!r}")
        return played

    def game(self, names: tuple[str, str], comments: bool = True) -> Game:
        """The game as the writers of kifu take it.

        Args:
            names: of A and B.
            comments: with the scores (Black's view) and the reason of the ending as comments.
        """
        black, white = names if self.black == "a" else names[::-1]
        notes: dict[int, str] = {}
        if comments:
            white_first = self.start.split()[1] == "w"
            for place, score in enumerate(self.scores):
                if score is not None:
                    by_white = white_first != bool(place % 2)
                    notes[place + 1] = f"#評価値={-score if by_white else score}"
        if self.reason:
            last = [notes[self.plies]] if self.plies in notes else []
            notes[self.plies] = "\n".join([*last, self.reason])
        return Game(
            start=self.start,
            moves=self.moves,
            winner=self.winner,
            end=FAULTS.get(self.end, self.end),
            game=f"{self.number + 1:05d}",
            black=black,
            white=white,
            scores=self.scores,
            times=self.times,
            comments=notes or None,
        )


class Referee:
    """A game under way."""

    def __init__(self, pairing: Pairing, rules: Rules) -> None:
        """
        Raises:
            GinkgoError: the opening is impossible.
        """
        self.pairing, self.rules = pairing, rules
        self.line = Line(pairing.opening.start, pairing.opening.moves)
        given = len(self.line.moves)
        self._scores: list[int | None] = [None] * given
        self._times: list[float | None] = [None] * given
        self._result: tuple[str, str, str] | None = None
        self._look()

    @property
    def over(self) -> bool:
        return self._result is not None

    @property
    def side(self) -> str:
        """`b` or `w`, who is to move."""
        return "w" if self.line.white else "b"

    @property
    def mover(self) -> str:
        """`a` or `b`, the engine that is to move."""
        return self.engine(self.side)

    def engine(self, side: str) -> str:
        """`a` or `b`, the engine that has a side."""
        return self.pairing.black if side == "b" else ("a" if self.pairing.black == "b" else "b")

    @property
    def position(self) -> str:
        """The rest of a `position` command."""
        start = self.pairing.opening.start
        head = "startpos" if start == STARTPOS else f"sfen {start}"
        return f"{head} moves {' '.join(self.line.usi)}" if self.line.usi else head

    def answer(self, move: str, score: int | None = None, seconds: float | None = None) -> None:
        """Take what the engine to move has answered.

        Args:
            move: USI, `resign` or `win`.
            score: its own opinion in centipawns.
            seconds: that it took.
        """
        mover, other = self.side, _other(self.side)
        if move == "resign":
            self._result = other, "toryo", ""
        elif move == "win":
            if self.line.can_declare():
                self._result = mover, "kachi", ""
            else:
                self._result = other, "illegal_action", "declared a win without the points for it"
        else:
            try:
                self.line.push_usi(move)
            except IllegalMove as error:
                self._result = other, "illegal_move", str(error)
                return
            self._scores.append(score)
            self._times.append(None if seconds is None else round(seconds, 3))
            self._look()

    def fault(self, side: str, end: str, reason: str) -> None:
        """An engine has lost by something else than its moves.

        Args:
            side: that loses. end: `crash`, `no_answer`, `no_start`, `time_up`, `illegal_move`.
        """
        self._result = _other(side), end, reason

    def _look(self) -> None:
        """See whether the game is over on the board, or by agreement of the scores."""
        ended = self.line.ending(self.rules.max_ply)
        if ended is not None:
            self._result = (*ended, "")
        elif self.rules.declare and self.line.can_declare():
            self._result = self.side, "kachi", "awarded"
        elif self.rules.adjudicate is not None:
            score, plies = self.rules.adjudicate
            if self._agreed(score, plies):
                self._result = _other(self.side), "toryo", f"both scores beyond {score}"

    def _agreed(self, score: int, plies: int) -> bool:
        """Whether the last moves' scores all say that the side to move is so far behind."""
        last = self._scores[-plies:]
        if len(last) < plies:
            return False
        # The last move was the other side's.
        return all(
            one is not None and (one if place % 2 == 0 else -one) >= score
            for place, one in enumerate(reversed(last))
        )

    def played(self) -> Played:
        """The game, once it is over."""
        assert self._result is not None
        winner, end, reason = self._result
        opening = self.pairing.opening
        return Played(
            self.pairing.number,
            self.pairing.black,
            winner,
            end,
            " ".join(reason.split()),
            opening.start,
            len(opening.moves),
            tuple(self.line.usi),
            tuple(self._scores),
            tuple(self._times),
        )


def _other(side: str) -> str:
    return "w" if side == "b" else "b"
