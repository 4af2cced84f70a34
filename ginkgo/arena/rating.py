"""Ratings out of many matches.

In: wins and draws between players. Out: their ratings in Elo with intervals, one of them fixed.

The model is that of R. Bradley and M. Terry ("Rank analysis of incomplete block designs", 1952),
fitted by choix (L. Maystre and M. Grossglauser, "Fast and accurate inference of Plackett–Luce
models", 2015). A draw is half a win for each. Every two players that have met get one drawn game
more as a prior, which keeps the rating of one who has won or lost everything finite (R. Coulom's
BayesElo does the like).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError

#: Elo of one unit of the model's logarithmic strength.
ELO_PER_LOG = 400 / math.log(10)
#: Games that stand for the prior, for every two players that have met.
_PRIOR = 1.0
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Rating:
    """One player's."""

    name: str
    elo: float
    low: float
    """Of the 95 % interval of the distance to the anchor, as `high`."""
    high: float
    games: int
    score: float
    """Points in these games."""


def rate(
    points: Mapping[tuple[str, str], float], anchor: str, anchor_elo: float = 0.0
) -> list[Rating]:
    """Rate players, the strongest first.

    The intervals are those of the maximum's curvature (Fisher's information). They take games as
    independent; that draws and pairs of games vary less makes them rather too wide.

    Args:
        points: of the first player against the second, for both orders of each two that have met.
        anchor: the player whose rating is fixed. anchor_elo: at this.

    Raises:
        GinkgoError: the anchor has not played, or no chain of games leads from it to a player.
    """
    names = sorted({name for pair in points for name in pair})
    if anchor not in names:
        raise GinkgoError(f"--anchor {anchor}: has no games; players are {', '.join(names)}")
    scores = np.zeros((len(names), len(names)))
    for (one, other), score in points.items():
        scores[names.index(one), names.index(other)] += score
    games = scores + scores.T
    _check_connected(games, names, names.index(anchor))
    strengths = _fit(scores + _PRIOR / 2 * (games > 0))
    place = names.index(anchor)
    errors = _errors(strengths, games + _PRIOR * (games > 0), place)
    elos = anchor_elo + ELO_PER_LOG * (strengths - strengths[place])
    found = [
        Rating(
            name,
            float(elos[index]),
            float(elos[index] - _Z95 * ELO_PER_LOG * errors[index]),
            float(elos[index] + _Z95 * ELO_PER_LOG * errors[index]),
            round(float(games[index].sum())),
            float(scores[index].sum()),
        )
        for index, name in enumerate(names)
    ]
    return sorted(found, key=lambda one: -one.elo)


def _fit(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) logarithmic strengths of largest likelihood, out of (n, n) points."""
    import choix

    return choix.ilsr_pairwise_dense(scores, max_iter=10_000)


def _errors(
    strengths: NDArray[np.float64], games: NDArray[np.float64], anchor: int
) -> NDArray[np.float64]:
    """(n,) standard errors of the distances to the anchor.

    A game between i and j contributes p(1 − p) to their information, p being the chance that i
    wins. The inverse of the information without the anchor's row is the covariance of the
    distances to it.
    """
    chance = 1 / (1 + np.exp(strengths[None, :] - strengths[:, None]))
    weight = games * chance * (1 - chance)
    information = np.diag(weight.sum(axis=1)) - weight
    others = np.arange(len(strengths)) != anchor
    errors = np.zeros(len(strengths))
    errors[others] = np.sqrt(np.diag(np.linalg.inv(information[np.ix_(others, others)])))
    return errors


def _check_connected(games: NDArray[np.float64], names: Sequence[str], anchor: int) -> None:
    reached, new = {anchor}, [anchor]
    while new:
        near = set(np.flatnonzero(games[new.pop()]).tolist()) - reached
        reached |= near
        new += near
    lost = [name for index, name in enumerate(names) if index not in reached]
    if lost:
        raise GinkgoError(
            f"no chain of games leads from {names[anchor]} to {', '.join(lost)}: play a match "
            "that connects them, or leave their folders out"
        )
