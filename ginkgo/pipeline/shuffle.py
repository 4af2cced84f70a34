"""How well a pool shuffles: the share of positions that meet no other of their game in a batch.

The formulas hold for positions that arrive game by game.

In a pool of M positions with steady random replacement a position leaves with any given batch of b
with probability q = b/M, so the batch in which it leaves is geometrically distributed, and the one
that leaves k batches after it came meets each of its L − 1 mates with probability q(1−q)^k. Summed
over k that is close to the integral of (1 − q·u)^(L−1) over u from 0 to 1,

    (1 − (1 − q)^L) / (q·L),

about exp(−(b−1)(L−1)/(2M)) while q·L is small. A pool that holds the whole epoch of N positions
shuffles fully: exp(−(b−1)(L−1)/(N−1)).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def share_without_mate(batch: int, per_game: float, pool: int, epoch: int) -> float:
    """Expected share of positions without a game-mate in their batch.

    Args:
        batch: positions per batch. per_game: positions kept per game, on average.
        pool: positions in the pool. epoch: positions in an epoch.

    >>> round(1 - share_without_mate(256, 100, 32768, 10**9), 3)
    0.304
    """
    if epoch <= pool:
        return math.exp(-(batch - 1) * (per_game - 1) / max(1, epoch - 1))
    leaves = min(1.0, batch / pool)
    return (1 - (1 - leaves) ** per_game) / (leaves * per_game)


def measured_share_without_mate(positions: NDArray) -> float:
    """The same share in one batch of `POSITION`."""
    games = positions["source"].astype(np.int64) << 32 | positions["game"]
    _, inverse, counts = np.unique(games, return_inverse=True, return_counts=True)
    return float((counts[inverse] == 1).mean())
