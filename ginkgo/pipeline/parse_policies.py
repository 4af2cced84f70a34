"""The `policy` key of records: visits by move, as labels and shares."""

from __future__ import annotations

import itertools
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.labels import dead_end, labels_from_moves, rotate_moves
from ginkgo.pipeline.parse import USI_MOVES, policy_targets
from ginkgo.pipeline.ragged import Ragged

#: cshogi moves of 16 bits by their USI name as it stands in a file.
MOVES_BY_USI = {usi.encode(): move for usi, move in USI_MOVES.items()}


class Policies:
    """The `policy` keys of n records: visits by move.

    Args:
        texts: as written, empty where there is none.
        positions: (n,) oriented, for the moves' view.
    """

    def __init__(self, texts: list[bytes], positions: NDArray) -> None:
        self._lengths = np.zeros(len(texts), np.int64)
        moves: list[int] = []
        visits: list[int] = []
        for row, text in enumerate(texts):
            if text:
                if b"%" in text:
                    text = unquote_to_bytes(text)
                pairs = [pair.partition(b":") for pair in text.split(b"|")]
                found = [MOVES_BY_USI.get(usi, -1) for usi, _, _ in pairs]
                numbers = [_visits(number) for _, _, number in pairs]
                if len(set(found)) < len(found) or not sum(numbers):
                    found, numbers = [-1], [-1]
                moves += found
                visits += numbers
                self._lengths[row] = len(found)
        self._visits = np.array(visits, np.int64)
        bounds = np.concatenate([[0], np.cumsum(self._lengths)]).tolist()
        self.moves = [moves[low:high] for low, high in itertools.pairwise(bounds)]
        absolute = np.array(moves, np.int64)
        rows = np.repeat(np.arange(len(texts)), self._lengths)
        readable = (absolute >= 0) & (self._visits >= 0)
        turned = rotate_moves(np.maximum(absolute, 0), positions["color"][rows])
        self._labels = labels_from_moves(turned)
        #: (n,) whether a policy is well written and no move of it leads to a dead end.
        self.good = np.ones(len(texts), bool)
        self.good[rows[~readable | dead_end(positions["board"][rows], turned)]] = False

    def targets(self) -> Ragged:
        """Shares of the visits by label, `POLICY`."""
        return policy_targets(self._labels, self._visits, self._lengths)


def _visits(text: bytes) -> int:
    """A number of visits, -1 for anything else."""
    return int(text) if text.isdigit() and len(text) < 10 else -1
