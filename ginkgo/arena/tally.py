"""Counting: what the games of a match say so far.

In: games in the order in which they end. Out: the result, as `--json` writes it.

Pairs count in the order in which they began, each when all before it are complete: otherwise
short games would have more say than long ones while a match runs, and a verdict would depend on
the machine's speed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import cshogi
import numpy as np

from ginkgo.arena.referee import Played
from ginkgo.arena.statistics import Sprt, Verdict, estimate, normalized_elo
from ginkgo.records.replay import set_up, walk

#: Ply at which positions are counted for the report on diversity.
PLY = 20


class Tally:
    """The pairs that count, and the sequential test over them."""

    def __init__(self, sprt: Sprt | None = None) -> None:
        self.sprt = sprt
        self.counts = np.zeros(5, np.int64)
        """(5,) pairs by outcome."""
        self.counted: list[Played] = []
        """Games of the pairs that count, in order."""
        self.played = 0
        """Games that have ended."""
        self.ratio = 0.0
        self.verdict: Verdict = "undecided"
        self._waiting: dict[int, Played] = {}
        self._diversity = Diversity()

    def add(self, played: Played) -> None:
        """Take a game; after the verdict no more pairs count."""
        self.played += 1
        self._waiting[played.number] = played
        while self.verdict == "undecided":
            number = len(self.counted)
            if number not in self._waiting or number + 1 not in self._waiting:
                return
            pair = [self._waiting.pop(number), self._waiting.pop(number + 1)]
            self.counted += pair
            for one in pair:
                self._diversity.add(one)
            self.counts[round(2 * sum(one.score for one in pair))] += 1
            if self.sprt is not None:
                self.ratio = self.sprt.ratio(self.counts)
                self.verdict = self.sprt.verdict(self.counts)

    def result(self) -> dict[str, Any]:
        """The figures of the match, JSON-able; infinite ones are None."""
        games = self.counted
        found, wide = estimate(self.counts), estimate(self.counts, 0.99)
        scores = Counter(one.score for one in games)
        black = sum({"b": 1.0, "w": 0.0, "d": 0.5}[one.winner] for one in games)
        sprt = self.sprt
        normalized = normalized_elo(self.counts) if len(games) else 0.0
        return {
            "games": len(games),
            "wins": scores[1.0],
            "losses": scores[0.0],
            "draws": scores[0.5],
            "pentanomial": self.counts.tolist(),
            "elo": _finite(found.elo),
            "elo_low": _finite(found.low),
            "elo_high": _finite(found.high),
            "elo_low_99": _finite(wide.low),
            "elo_high_99": _finite(wide.high),
            "normalized_elo": _finite(normalized),
            "los": found.los,
            "llr": self.ratio if sprt else None,
            "llr_bounds": list(sprt.bounds) if sprt else None,
            "verdict": self.verdict,
            "endings": dict(Counter(one.end for one in games).most_common()),
            "faults": _faults(games),
            "black_score": black / len(games) if games else None,
            "mean_plies": sum(one.plies for one in games) / len(games) if games else None,
            "games_played": self.played,
            **self._diversity.result(),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _faults(games: Iterable[Played]) -> dict[str, dict[str, int]]:
    """By engine, how often it lost by a fault of its own."""
    kinds = ("crash", "no_answer", "no_start", "illegal_move", "illegal_action", "time_up")
    found: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
    for one in games:
        if one.end in kinds:
            found["a" if one.score == 0 else "b"][one.end] += 1
    return {engine: dict(count) for engine, count in found.items()}


class Diversity:
    """How different the games are."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, tuple[str, ...]], int] = {}
        self._positions: set[int] = set()
        self._duplicates = self._reached = 0
        self._board = cshogi.Board()

    def add(self, one: Played) -> None:
        """Count a game."""
        self._duplicates += self._pairs.setdefault((one.start, one.moves), one.pair) != one.pair
        if one.plies >= PLY:
            set_up(self._board, one.start)
            walk(self._board, one.moves[:PLY])
            self._positions.add(self._board.zobrist_hash())
            self._reached += 1

    def result(self) -> dict[str, int]:
        """What was counted.

        Returns:
            `distinct_games`; `duplicates`, games that are the same as one of another pair;
            `distinct_positions` at ply 20, in `games_to_ply_20` games that came so far.
        """
        return {
            "distinct_games": len(self._pairs),
            "duplicates": self._duplicates,
            "distinct_positions": len(self._positions),
            f"games_to_ply_{PLY}": self._reached,
        }
