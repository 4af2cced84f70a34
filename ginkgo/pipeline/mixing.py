"""Which source to draw from next: weights, or a bandit that knows coverage and epochs.

In: what each source has taught so far (losses), how much of it has been seen. Out: the number of
a source. Everything here is a pure function or a value; the same calls give the same choices.

The bandit is UCB1 (Auer, Cesa-Bianchi and Fischer, "Finite-time Analysis of the Multiarmed Bandit
Problem", Machine Learning 47, 2002, figure 1): it draws from the source whose mean reward plus
c·sqrt(ln n / n_j) is the largest, n_j being its draws and n those of all; the paper has c = √2, for
rewards in [0, 1]. Two factors multiply that bound: a bonus while less than half of a source's games
have been seen, and a penalty once it has been gone through more than once. They are known exactly
at each moment, so they are taken as they are now, not averaged with the rewards of the past: a
source that is used up falls at once. They multiply the whole of it, not the mean alone, for what is
gained by trying a source again fades with its games too: with the mean alone every source, however
small, was drawn by its exploration, twenty games for two hundred epochs (docs/RESULTS.md).

A draw is a chunk of batches. Its reward is how far the loss on its source fell, as a rank among the
last thousand chunks: losses of sources lie apart and flatten out in the course of a run, ranks do
not. How far it fell is divided by the chunks since that source was last drawn: what others teach
lowers its loss as well, and a source would look the better the less it is drawn.
Rewards come some time after the draw (the pipeline works ahead); a draw counts at once, so that
no source is drawn again and again while its first reward is on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

#: Chunks among which the improvement of one is ranked.
WINDOW = 1000
#: Coverage from which on there is no bonus, and the bonus of a source that is new altogether.
_COVERED, _BONUS = 0.5, 0.3
#: Weight of a chunk in the moving mean of its source's loss, against which it is judged; the first
#: few make a plain mean, so that one lucky chunk at the start is no yardstick for long.
_MOVING = 0.1
#: Reward of a source of which nothing is known yet: the middle rank.
_UNKNOWN = 0.5


def coverage_bonus(coverage: float) -> float:
    """1.3 for a source of which nothing has been seen, falling to 1 at one half.

    Args:
        coverage: distinct games seen ÷ games, in [0, 1].

    >>> [round(coverage_bonus(coverage), 3) for coverage in (0, 0.25, 0.5, 0.7)]
    [1.3, 1.15, 1.0, 1.0]
    """
    return 1 + _BONUS * max(0.0, 1 - coverage / _COVERED)


def epoch_penalty(epochs: float) -> float:
    """1 in the first epoch, 1 / (1 + epochs) after it.

    Args:
        epochs: games drawn ÷ games, over the lifetime of a run.

    >>> epoch_penalty(0.9), epoch_penalty(5600 / 1400)
    (1.0, 0.2)
    """
    return 1 / (1 + epochs) if epochs > 1 else 1.0


def ucb1(mean: float, draws: int, total: int, exploration: float) -> float:
    """Upper confidence bound of a mean reward: see the head of this file.

    Args:
        mean: of the rewards. draws: of this source. total: of all sources.
        exploration: the constant c.

    >>> ucb1(0.5, 0, 10, 0.5), round(ucb1(0.5, 4, 10, 2**0.5), 3)
    (inf, 1.573)
    """
    if not draws:
        return math.inf
    return mean + exploration * math.sqrt(math.log(max(total, 1)) / draws)


def rank(value: float, others: NDArray[np.float64]) -> float:
    """Share of the others that are less, equal ones by half; one half where there are none.

    >>> rank(3.0, np.array([1.0, 3.0, 5.0, 2.0]))
    0.625
    """
    if not len(others):
        return _UNKNOWN
    less, equal = np.count_nonzero(others < value), np.count_nonzero(others == value)
    return float(less + equal / 2) / len(others)


def by_weight(drawn: Sequence[int], weights: Sequence[float], allowed: Sequence[int]) -> int:
    """The source that is furthest behind its share.

    After any number of draws each source has its share of them, to within one draw or so.

    Args:
        drawn: chunks drawn from each source. weights: of each, any positive scale.
        allowed: numbers of the sources to choose from.

    >>> drawn = [0, 0]
    >>> for _ in range(8):
    ...     drawn[by_weight(drawn, (3, 1), (0, 1))] += 1
    >>> drawn
    [6, 2]
    """
    scale = (sum(drawn[source] for source in allowed) + 1) / sum(weights[s] for s in allowed)
    return max(allowed, key=lambda source: (weights[source] * scale - drawn[source], -source))


@dataclass(frozen=True)
class Bandit:
    """What is known of the rewards of each source. A value: what changes it returns another."""

    draws: tuple[int, ...]
    """Chunks drawn from each source."""
    rewards: tuple[float, ...]
    """Sum of the rewards of each source."""
    rewarded: tuple[int, ...]
    """How many rewards that are."""
    losses: tuple[float, ...]
    """Moving mean of the loss on each source; NaN before the first chunk."""
    recent: NDArray[np.float64]
    """(at most WINDOW,) by how much the last chunks were better than their moving mean."""
    heard: int = 0
    """Chunks whose loss has become known."""
    last: tuple[int, ...] = ()
    """What `heard` was after the last one of each source; 0 before the first."""

    @classmethod
    def new(cls, sources: int) -> Self:
        """One that knows nothing of so many sources."""
        nothing = (0,) * sources
        unknown = (math.nan,) * sources
        return cls(nothing, (0.0,) * sources, nothing, unknown, np.zeros(0), 0, nothing)

    def mean(self, source: int) -> float:
        """Estimated reward of a source, in [0, 1]."""
        count = self.rewarded[source]
        return self.rewards[source] / count if count else _UNKNOWN

    def choose(self, factors: Sequence[float], exploration: float, allowed: Sequence[int]) -> int:
        """The source to draw from.

        Args:
            factors: of each source's bound: bonus × penalty.
            exploration: the constant of `ucb1`.
            allowed: numbers of the sources to choose from.

        >>> bandit = Bandit.new(2).drawn(0).drawn(1).rewarded_with(0, 0.6).rewarded_with(1, 0.5)
        >>> bandit.choose((1.0, 1.0), 0.5, (0, 1)), bandit.choose((1.0, 1.3), 0.5, (0, 1))
        (0, 1)
        """
        total = sum(self.draws)

        def worth(source: int) -> tuple[float, int]:
            bound = ucb1(self.mean(source), self.draws[source], total, exploration)
            return factors[source] * bound, -source

        return max(allowed, key=worth)

    def drawn(self, source: int) -> Self:
        """After a chunk of this source has been drawn."""
        return replace(self, draws=_with(self.draws, source, self.draws[source] + 1))

    def rewarded_with(self, source: int, reward: float) -> Self:
        """After a reward in [0, 1] for a chunk of this source."""
        return replace(
            self,
            rewards=_with(self.rewards, source, self.rewards[source] + reward),
            rewarded=_with(self.rewarded, source, self.rewarded[source] + 1),
        )

    def learned(self, source: int, loss: float) -> Self:
        """After the mean loss of a chunk of this source has become known.

        The first loss of a source says nothing of improvement and gives no reward, nor does one
        that is no number.
        """
        before = self.losses[source]
        if not math.isfinite(loss):
            return self
        heard = self.heard + 1
        told = replace(self, heard=heard, last=_with(self.last, source, heard))
        if math.isnan(before):
            return replace(told, losses=_with(self.losses, source, loss))
        better = (before - loss) / (heard - self.last[source])
        weight = max(_MOVING, 1 / (self.rewarded[source] + 2))
        moved = replace(
            told,
            losses=_with(self.losses, source, before + weight * (loss - before)),
            recent=np.append(self.recent[-(WINDOW - 1) :], better),
        )
        return moved.rewarded_with(source, rank(better, self.recent))

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; `from_dict` is its inverse."""
        return {
            "draws": self.draws,
            "rewards": self.rewards,
            "rewarded": self.rewarded,
            "losses": [None if math.isnan(loss) else loss for loss in self.losses],
            "recent": self.recent.tolist(),
            "heard": self.heard,
            "last": self.last,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        losses = tuple(math.nan if loss is None else loss for loss in saved["losses"])
        counts = tuple(saved["draws"]), tuple(saved["rewards"]), tuple(saved["rewarded"])
        recent = np.array(saved["recent"], np.float64)
        return cls(*counts, losses, recent, saved["heard"], tuple(saved["last"]))

    def of(self, sources: Sequence[int | None]) -> Self:
        """The same for other sources: where each one was before, None for a new one."""

        def those(values: tuple, new: Any) -> tuple:
            return tuple(new if source is None else values[source] for source in sources)

        return replace(
            self,
            draws=those(self.draws, 0),
            rewards=those(self.rewards, 0.0),
            rewarded=those(self.rewarded, 0),
            losses=those(self.losses, math.nan),
            last=those(self.last, self.heard),
        )


def _with(values: tuple, place: int, value: Any) -> tuple:
    return (*values[:place], value, *values[place + 1 :])
