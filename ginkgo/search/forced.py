"""Forced playouts at the root, and a policy target without them.

In: visits, values and priors of the root's moves. Out: which moves still owe a visit; the visits
that the target counts. After Wu, "Accelerating self-play learning in Go" (2019), section 3.2: noise
makes the search look at a move, forced playouts let it look long enough to see whether the move is
good, and pruning keeps out of the target what only noise and force have brought.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def wanted_visits(priors: NDArray[np.float64], total: float, factor: float) -> NDArray[np.float64]:
    """(m,) visits that each move is owed once it has had one: sqrt(k · P · ΣN).

    Args:
        priors: (m,), noise included. total: visits of all moves. factor: k, 2 in the paper.
    """
    return np.sqrt(factor * priors * total)


def forced_moves(
    visits: NDArray, priors: NDArray[np.float64], factor: float, most: int
) -> NDArray[np.int64]:
    """Indices of the moves that have been visited, but not as often as they are owed.

    Args:
        visits, priors: (m,). factor: k. most: how many at most.
    """
    owed = wanted_visits(priors, float(visits.sum()), factor)
    return np.flatnonzero((visits > 0) & (visits < owed))[:most]


def pruned_visits(
    visits: NDArray[np.float64],
    values: NDArray[np.float64],
    priors: NDArray[np.float64],
    exploration: float,
    factor: float,
) -> NDArray[np.float64]:
    """Visits less those that were forced.

    From each move but the most visited one as many forced visits are taken as leave its PUCT score
    not above the best move's; a single visit that is left goes too.

    Args:
        visits, values, priors: (m,), values of unvisited moves are ignored.
        exploration: PUCT's c.
        factor: k.
    """
    if not visits.any():
        return visits.copy()
    best, scale = int(visits.argmax()), exploration * np.sqrt(visits.sum())
    values = np.where(visits > 0, np.nan_to_num(values), 0.0)
    goal = values[best] + scale * priors[best] / (1 + visits[best])
    forced = wanted_visits(priors, float(visits.sum()), factor)
    # The fewest visits at which value + scale · prior / (1 + n) does not exceed the goal.
    room = np.maximum(goal - values, 1e-9)
    least = np.ceil(np.minimum(scale * priors / room - 1, visits))
    kept = np.clip(np.maximum(visits - np.floor(forced), least), 0, visits)
    kept[(kept <= 1) & (np.arange(len(kept)) != best)] = 0
    kept[best] = visits[best]
    return kept
