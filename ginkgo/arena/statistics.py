"""What match results say: Elo with its interval, likelihood of superiority, a sequential test.

In: how often a pair of games, the same opening with colours swapped, ended 0, ½, 1, 1½ and 2 for
the first player. Out: pure functions of these five counts.

Games of a pair are not independent (an opening can favour a colour), pairs are: all variances are
those of pairs. Elo is logistic, a score of s being 400·log10(s / (1 − s)); normalized Elo divides
the distance of the score from ½ by the standard deviation of a game (M. Van den Bergh, "Normalized
Elo", 2021), which makes the length of a test independent of the share of draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

#: Mean score of the games of a pair, by outcome.
PAIR_SCORES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
#: Normalized Elo of one standard deviation of a game.
ELO_PER_DEVIATION = 800 / math.log(10)
#: Stands for an outcome that has not happened: a maximum of likelihood cannot forbid it.
_NEVER_SEEN = 1e-3
#: Deviations of a pair by which normalized Elo is approached.
_STEP = 0.2

EloModel = Literal["logistic", "normalized"]
Verdict = Literal["accepted", "rejected", "undecided"]


def score_of(elo: float) -> float:
    """Expected score of a player so much stronger.

    >>> round(score_of(200), 3)
    0.76
    """
    return 1 / (1 + 10 ** (-elo / 400))


def elo_of(score: float) -> float:
    """The inverse of `score_of`; infinite at 0 and 1."""
    if not 0 < score < 1:
        return math.copysign(math.inf, score - 0.5)
    return 400 * math.log10(score / (1 - score))


def pentanomial(pairs: Sequence[tuple[float, float]]) -> NDArray[np.int64]:
    """(5,) counts from the scores (0, ½ or 1) of the first player in the games of each pair.

    >>> pentanomial([(1, 0.5), (0.5, 0.5), (1, 0)]).tolist()
    [0, 0, 2, 1, 0]
    """
    outcomes = [round(2 * (first + second)) for first, second in pairs]
    return np.bincount(np.array(outcomes, np.int64), minlength=5)


@dataclass(frozen=True)
class Estimate:
    """How much stronger the first player is."""

    elo: float
    """Infinite where one side has won every game."""
    low: float
    """Of the interval."""
    high: float
    los: float
    """Likelihood of superiority: that the first player is the stronger one."""


def estimate(counts: NDArray[np.int64], confidence: float = 0.95) -> Estimate:
    """Elo, its interval and the likelihood of superiority.

    By the normal distribution of the mean score of pairs. Where all pairs have ended alike their
    variance is not known: the interval then allows for the largest share of other outcomes that
    so many pairs could have missed (C. Clopper and E. Pearson, "The use of confidence or fiducial
    limits", 1934), all of them at the one or the other extreme.

    Args:
        counts: (5,) pairs by outcome.
        confidence: of the interval.
    """
    pairs = int(counts.sum())
    if not pairs:
        return Estimate(0.0, -math.inf, math.inf, 0.5)
    mean, variance = map(float, _moments(counts / pairs))
    if np.count_nonzero(counts) == 1:
        missed = 1 - ((1 - confidence) / 2) ** (1 / pairs)
        low, high = mean * (1 - missed), mean * (1 - missed) + missed
        los = 0.5 if mean == 0.5 else float(mean > 0.5)
        return Estimate(elo_of(mean), elo_of(low), elo_of(high), los)
    error = math.sqrt(variance / pairs)
    away = NormalDist().inv_cdf((1 + confidence) / 2) * error
    low, high = max(0.0, mean - away), min(1.0, mean + away)
    los = NormalDist().cdf((mean - 0.5) / error)
    return Estimate(elo_of(mean), elo_of(low), elo_of(high), los)


def normalized_elo(counts: NDArray[np.int64]) -> float:
    """Van den Bergh's normalized Elo; infinite where the results have no variance."""
    mean, variance = map(float, _moments(counts / counts.sum()))
    if np.count_nonzero(counts) == 1:
        return math.copysign(math.inf, mean - 0.5) if mean != 0.5 else 0.0
    return ELO_PER_DEVIATION * (mean - 0.5) / math.sqrt(2 * variance)


def log_likelihood_ratio(
    counts: NDArray[np.int64], elo0: float, elo1: float, model: EloModel = "logistic"
) -> NDArray[np.float64]:
    """How much likelier the results are if the difference is `elo1` than if it is `elo0`, as a log.

    The generalized ratio: each hypothesis takes the distribution of outcomes that is most likely
    under it (M. Van den Bergh, "Comments on normalized Elo", 2021).

    Args:
        counts: (..., 5) pairs by outcome, of one match or of several.

    Returns:
        (...) ratios.
    """
    seen, pairs = _regular(counts), counts.sum(axis=-1)
    best = _with_deviations if model == "normalized" else _with_score
    first, second = best(seen, elo0), best(seen, elo1)
    return pairs * (seen * np.log(second / first)).sum(axis=-1)


@dataclass(frozen=True)
class Sprt:
    """A sequential probability ratio test.

    A. Wald, "Sequential tests of statistical hypotheses" (1945). It ends as soon as the
    log-likelihood ratio leaves the bounds.
    """

    elo0: float
    elo1: float
    alpha: float = 0.05
    """Chance of accepting where the difference is `elo0`."""
    beta: float = 0.05
    """Chance of rejecting where it is `elo1`."""
    model: EloModel = "logistic"

    @property
    def bounds(self) -> tuple[float, float]:
        """Of the log-likelihood ratio: rejected below, accepted above."""
        lower = math.log(self.beta / (1 - self.alpha))
        return lower, math.log((1 - self.beta) / self.alpha)

    def ratio(self, counts: NDArray[np.int64]) -> float:
        """The log-likelihood ratio of (5,) counts; 0 where they have no variance."""
        if np.count_nonzero(counts) < 2:
            return 0.0
        return float(log_likelihood_ratio(counts, self.elo0, self.elo1, self.model))

    def verdict(self, counts: NDArray[np.int64]) -> Verdict:
        """What the results say so far. Results without variance say nothing."""
        lower, upper = self.bounds
        ratio = self.ratio(counts)
        return "accepted" if ratio >= upper else "rejected" if ratio <= lower else "undecided"


def _moments(shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(...) mean and variance of the score of a pair whose outcomes have (..., 5) shares."""
    mean = shares @ PAIR_SCORES
    return mean, (shares * (PAIR_SCORES - mean[..., None]) ** 2).sum(axis=-1)


def _regular(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(..., 5) shares of the outcomes, none of them zero."""
    positive = np.where(counts > 0, counts, _NEVER_SEEN)
    return positive / positive.sum(axis=-1, keepdims=True)


def _with_score(seen: NDArray[np.float64], elo: float) -> NDArray[np.float64]:
    """The likeliest distribution of outcomes, given the shares seen, with the score of an `elo`."""
    return _likeliest(seen, np.broadcast_to(PAIR_SCORES - score_of(elo), seen.shape))


def _with_deviations(seen: NDArray[np.float64], elo: float) -> NDArray[np.float64]:
    """The same with a normalized `elo`: a mean so many standard deviations above one half.

    That is no linear condition. It is solved by Newton's method: the condition is made linear at
    the last distribution found, where `away` is its derivative. What is asked moves in small
    steps from what the shares seen have to `elo`, for far off the linear one has no solution.
    """
    wanted = elo / ELO_PER_DEVIATION * math.sqrt(2)  # in deviations of a pair
    mean, variance = (moment[..., None] for moment in _moments(seen))
    has = (mean - 0.5) / np.sqrt(variance)
    found = seen
    steps = max(1, math.ceil(float(np.abs(wanted - has).max(initial=0)) / _STEP))
    for number in range(1, steps + 20):
        distance = has + (wanted - has) * min(1.0, number / steps)
        mean, variance = (moment[..., None] for moment in _moments(found))
        deviation = np.sqrt(variance)
        spread = 1 + ((PAIR_SCORES - mean) / deviation) ** 2
        away = PAIR_SCORES - 0.5 - distance * deviation / 2 * spread
        before, found = found, _likeliest(seen, away)
        if number >= steps and np.abs(found - before).max(initial=0) < 1e-10:
            break
    return found


def _likeliest(seen: NDArray[np.float64], away: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distribution p under which the seen shares are most likely, with Σ p·away = 0.

    It is seen / (1 + x·away) for the x at which that holds: the derivative of the Lagrangian of
    Σ seen·log(p) under Σ p = 1 and the condition. The sum falls as x rises: Newton's method,
    with a bisection wherever it would leave what is known to enclose x.

    Args:
        seen, away: (..., 5); no share zero, and `away` of both signs.
    """
    # Between these all probabilities are positive.
    low = (1e-9 - 1) / away.max(axis=-1, keepdims=True)
    high = (1e-9 - 1) / away.min(axis=-1, keepdims=True)
    x = np.zeros_like(low)
    for _ in range(100):
        shares = seen * away / (1 + x * away)
        total = shares.sum(axis=-1, keepdims=True)
        below = total > 0
        low, high = np.where(below, x, low), np.where(below, high, x)
        step = x + total / (shares * away / (1 + x * away)).sum(axis=-1, keepdims=True)
        before, x = x, np.where((step > low) & (step < high), step, (low + high) / 2)
        if np.all(np.abs(x - before) <= 1e-13 * (1 + np.abs(x))):
            break
    return seen / (1 + x * away)
