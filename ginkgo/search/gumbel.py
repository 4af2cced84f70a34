"""Gumbel root search: sequential halving over moves drawn without replacement.

In: logits and, step by step, visits and values of the root's moves. Out: which moves to visit
next, the move to play, the improved policy. After Danihelka, Guez, Schrittwieser and Silver,
"Policy improvement by planning with Gumbel" (ICLR 2022), sections 2 to 4; equation numbers are
theirs. Below the root moves are chosen by PUCT.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: σ(q) = (C_VISIT + the largest visit count) · C_SCALE · q, their equation 8.
C_VISIT, C_SCALE = 50.0, 1.0


def scaled(values: NDArray[np.float64], visits: NDArray) -> NDArray[np.float64]:
    """σ(q): values in [0, 1] on the scale of logits."""
    return (C_VISIT + visits.max(initial=0)) * C_SCALE * values


def improved_policy(
    logits: NDArray[np.float64],
    visits: NDArray,
    values: NDArray[np.float64],
    root_value: float,
) -> NDArray[np.float64]:
    """softmax(logits + σ(completed q)), their equation 11.

    Args:
        logits, visits, values: (m,) of the root's moves; values of unvisited ones are ignored.
        root_value: the network's value of the root.

    Returns:
        (m,) probabilities.
    """
    seen = np.asarray(visits) > 0
    prior = np.exp(logits - logits.max())
    prior /= prior.sum()
    mixed = root_value
    if seen.any():
        # Their appendix D: the network's value and the mean over visited moves, weighted by prior.
        mean = (prior[seen] * values[seen]).sum() / prior[seen].sum()
        total = float(np.sum(visits))
        mixed = (root_value + total * mean) / (1 + total)
    completed = np.where(seen, np.nan_to_num(values), mixed)
    score = logits + scaled(completed, np.asarray(visits))
    weight = np.exp(score - score.max())
    return weight / weight.sum()


class SequentialHalving:
    """The moves under consideration and how many visits each of them still gets."""

    def __init__(
        self,
        logits: NDArray[np.float64],
        considered: int,
        simulations: int,
        rng: np.random.Generator,
        scale: float = 1.0,
    ) -> None:
        """
        Args:
            logits: (m,) of all legal moves.
            considered: moves drawn without replacement (Gumbel top-k) at the start.
            simulations: the whole budget.
            scale: of the Gumbel numbers; 0: the moves with the largest logits, without chance.
        """
        self._logits = logits - logits.max()
        self._gumbel = scale * rng.gumbel(size=len(logits))
        considered = max(1, min(considered, len(logits), simulations))
        order = np.argsort(-(self._gumbel + self._logits), kind="stable")
        self._alive = order[:considered]
        self._rounds = max(1, int(np.ceil(np.log2(considered))))
        self._simulations = simulations
        self._before: NDArray[np.int64] | None = None
        self._wanted = np.zeros(0, np.int64)

    def _new_visits(self, visits: NDArray) -> NDArray[np.int64]:
        """(m,) visits since the first request: a tree that was kept may have had some before."""
        visits = np.asarray(visits, np.int64)
        if self._before is None:
            self._before = visits.copy()
        return visits - self._before

    def _begin_round(self, new: NDArray[np.int64], left: int) -> None:
        """Spread an equal share of the budget over the moves still alive."""
        alive = len(self._alive)
        share = np.full(alive, max(1, self._simulations // (self._rounds * alive)))
        if alive <= 2:  # the last round takes what is left
            share = left // alive + (np.arange(alive) < left % alive)
        self._wanted = new[self._alive] + share

    def request(self, visits: NDArray, values: NDArray[np.float64], most: int) -> NDArray[np.int32]:
        """Moves to visit next, as indices; all of one round, so that they can be a batch.

        What was asked for and not visited (the search met a leaf of the same batch again) is asked
        for anew: the moves of a round are compared after equally many visits.

        Args:
            visits, values: (m,) of all moves so far; nothing may be in flight.
            most: how many at most.
        """
        new = self._new_visits(visits)
        left = self._simulations - int(new.sum())
        if left <= 0:  # the budget is spent: go on with the best
            return np.full(most, self.best(visits, values), np.int32)
        if not len(self._wanted):
            self._begin_round(new, left)
        owed = self._wanted - new[self._alive]
        if not (owed > 0).any():
            if len(self._alive) > 2:
                score = self._score(visits, values)[self._alive]
                half = max(2, -(-len(self._alive) // 2))
                self._alive = self._alive[np.argsort(-score, kind="stable")[:half]]
            self._begin_round(new, left)
            owed = self._wanted - new[self._alive]
        # In turn, those that are behind first.
        in_turn = [self._alive[owed >= level] for level in range(int(owed.max()), 0, -1)]
        return np.concatenate(in_turn)[: min(most, left)].astype(np.int32)

    def _score(self, visits: NDArray, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """g + logits + σ(q), their equation 5 within the moves alive."""
        values = np.where(np.asarray(visits) > 0, np.nan_to_num(values), 0.0)
        return self._gumbel + self._logits + scaled(values, np.asarray(visits))

    def best(self, visits: NDArray, values: NDArray[np.float64]) -> int:
        """Of the most visited moves alive, that with the largest g + logits + σ(q).

        One visit less counts as equal: an odd budget leaves the last moves so.
        """
        new = self._new_visits(visits)[self._alive]
        among = self._alive[(new >= new.max() - 1) & ((new > 0) | (new.max() == 0))]
        return int(among[self._score(visits, values)[among].argmax()])
