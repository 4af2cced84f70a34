"""What an evaluator has done, for figures of speed.

In: an evaluator. Out: the same, and counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ginkgo.search.evaluators import Batch, Evaluation, Evaluator, Note


@dataclass
class Used:
    """What evaluators did."""

    evaluated: int = 0
    """Positions that the network answered."""
    batches: int = 0
    """Calls."""
    seconds: float = 0.0
    """In them."""

    def __iadd__(self, other: Used) -> Used:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    @property
    def mean_batch(self) -> float:
        """Positions of a batch on average."""
        return self.evaluated / max(1, self.batches)


class Counting:
    """An evaluator that counts."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self._used = evaluator, Used()
        self.name = evaluator.name

    @property
    def note(self) -> Note | None:
        """The evaluator's own."""
        return self._evaluator.note

    def evaluate(self, batch: Batch) -> Evaluation:
        """As the evaluator does, counted and timed."""
        start = time.perf_counter()
        found = self._evaluator.evaluate(batch)
        self._used += Used(len(batch.counts), 1, time.perf_counter() - start)
        return found

    def take(self) -> Used:
        """What was done since the last time."""
        used, self._used = self._used, Used()
        return used
