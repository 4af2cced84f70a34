"""How well a pool shuffles: the share of positions that meet no other of their game in a batch.

The formulas hold for positions that arrive game by game. In a pool with steady random
replacement game-mates leave together half as often as in a full shuffle.
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

    >>> round(1 - share_without_mate(256, 32, 32768, 10**9), 3)
    0.114
    """
    if epoch <= pool:
        return math.exp(-(batch - 1) * (per_game - 1) / max(1, epoch - 1))
    return math.exp(-(batch - 1) * (per_game - 1) / (2 * pool))


def measured_share_without_mate(positions: NDArray) -> float:
    """The same share in one batch of `POSITION`."""
    games = positions["source"].astype(np.int64) << 32 | positions["game"]
    _, inverse, counts = np.unique(games, return_inverse=True, return_counts=True)
    return float((counts[inverse] == 1).mean())
