"""When to resign: a threshold out of games that were played on.

In: games that could not resign, with the root value at each move. Out: the threshold, and how
often it would have been wrong. As AlphaGo Zero did (Silver et al. 2017, Methods: self-play): some
games never resign, and the threshold is kept such that few of those that would have been resigned
were not lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Thresholds that are tried.
GRID = np.arange(0.01, 0.3001, 0.01)
#: Games that would have been resigned, below which nothing is concluded.
ENOUGH = 20


class PlayedOn(NamedTuple):
    """A game in which nobody was allowed to resign."""

    values: NDArray[np.float64]
    """(plies,) root value by move, of the side to move; NaN: not searched."""
    white_first: bool
    winner: str


class Tally(NamedTuple):
    """Resignations that a threshold would have brought."""

    resigned: int
    wrong: int
    """Of these, games that the side did not lose."""

    @property
    def rate(self) -> float:
        """Share of wrong ones; NaN where there is none."""
        return self.wrong / self.resigned if self.resigned else float("nan")


def tally(games: Iterable[PlayedOn], threshold: float) -> Tally:
    """What would have happened with a threshold.

    >>> game = PlayedOn(np.array([0.5, 0.02, 0.9]), False, "w")
    >>> tally([game], 0.05)
    Tally(resigned=1, wrong=1)
    """
    resigned = wrong = 0
    for game in games:
        below = np.flatnonzero(game.values < threshold)
        if not len(below):
            continue
        resigned += 1
        white = game.white_first ^ bool(below[0] & 1)
        wrong += game.winner != ("b" if white else "w")
    return Tally(resigned, wrong)


def calibrated(games: list[PlayedOn], share: float, otherwise: float) -> float:
    """The highest threshold with at most this share of wrong resignations.

    Half a wrong one more is counted, for few games say little. Every lower threshold holds too.

    Args:
        games: that were played on.
        share: of wrong resignations, at most.
        otherwise: the threshold where there are too few games; 0: nobody resigns then.
    """
    best, enough = 0.0, False
    for threshold in GRID.tolist():
        found = tally(games, threshold)
        enough |= found.resigned >= ENOUGH
        if found.resigned and (found.wrong + 0.5) / (found.resigned + 1) > share:
            if found.resigned >= ENOUGH:
                break
            continue
        if found.resigned >= ENOUGH:
            best = threshold
    return round(best, 4) if enough else otherwise
