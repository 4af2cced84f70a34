"""What the loop's time goes to: waiting for batches, and everything else.

In: batches, times. Out: the share of the time that was spent waiting, positions a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

#: Steps at the start that do not count toward speed and wait: compiling, first touch of memory.
WARMUP_STEPS = 10


class InputClock:
    """Iterates over a dataset and measures how long each `next` blocks.

    The clock has a floor: what `next` costs when nothing needs to be waited for, measured on
    constant tensors of the same shapes. It is taken off where wait fractions are computed. The
    calls are as far apart as the loop's own: called again at once, `next` finds its code in the
    cache and takes a quarter of the time.
    """

    _FLOOR_CALLS = 30
    #: Batches after which the floor is measured; the loop's pace is known then.
    _FLOOR_AFTER = 5
    _LONGEST_PAUSE_S = 0.02

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self.floor = 0.0
        self.last_wait = 0.0
        self._mark = self._before = time.perf_counter()

    def __iter__(self) -> Iterator[Any]:
        steps: list[float] = []
        before, measured = 0.0, False
        while True:
            start = time.perf_counter()
            if before:
                steps.append(start - before)
            try:
                batch = next(self._iterator)
            except StopIteration:
                return
            self.last_wait = time.perf_counter() - start
            if len(steps) == self._FLOOR_AFTER and not measured:
                measured = True
                pause = min(self._LONGEST_PAUSE_S, float(np.median(steps)))
                passed = time.perf_counter()
                self.floor = self._measure_floor(batch, pause)
                self._mark += time.perf_counter() - passed  # no part of the loop's time
            before = time.perf_counter() if len(steps) < self._FLOOR_AFTER else 0.0
            yield batch

    def _measure_floor(self, batch: Any, pause: float) -> float:
        constant = iter(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))
        times = []
        for _ in range(self._FLOOR_CALLS):
            time.sleep(pause)
            start = time.perf_counter()
            next(constant)
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    def since_last(self) -> float:
        """Seconds since this was last called (or since `restart`)."""
        now = time.perf_counter()
        passed, self._mark = now - self._mark, now
        return passed

    def restart(self) -> None:
        """Leave out what has passed (an evaluation, a checkpoint)."""
        self._mark = time.perf_counter()


class Speed:
    """How fast a loop trains; evaluations, checkpoints and the first steps are left out."""

    def __init__(self) -> None:
        self._steps = self._timed = self._positions = 0
        self._seconds = self._wait = self._floor = 0.0

    def count(self, positions: int, clock: InputClock) -> None:
        """A step on so many positions is over."""
        seconds = clock.since_last()
        self._steps += 1
        if self._steps <= WARMUP_STEPS:
            return
        self._timed += 1
        self._positions += positions
        self._seconds += seconds
        self._wait += clock.last_wait
        self._floor = clock.floor

    @property
    def wait_fraction(self) -> float:
        """Share of the loop's time spent waiting for a batch, above the clock's floor."""
        if not self._seconds:
            return 0.0
        return max(0.0, self._wait - self._timed * self._floor) / self._seconds

    @property
    def positions_per_second(self) -> float:
        """Positions trained on per second of the loop."""
        return self._positions / self._seconds if self._seconds else 0.0
