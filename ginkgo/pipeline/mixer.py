"""Decides, chunk after chunk, which source the next batches come from.

In: reports of the losses on batches, from the thread that trains. Out: numbers of sources, to the
thread that draws; the same for the same losses, whenever the reports arrive.

The pipeline is ahead of training by some batches, so a decision cannot wait for the batch before
it. It takes into account the chunks that ended `LAG` batches ago, neither fewer nor more: that far
back reports are there already, and where one is late the decision waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ginkgo.pipeline.coverage import Progress
from ginkgo.pipeline.mixing import Bandit, by_weight

#: Batches between a report and the first decision that knows it: more than wait ready between the
#: pools and the training loop, and than the loop keeps back before it looks at its losses.
LAG = 32


class Mixed(NamedTuple):
    """What has been decided on, and what it was decided by. A value."""

    source: int
    """Where the present chunk comes from."""
    bandit: Bandit
    known: int
    """Batches up to this one are in `bandit`."""


class Mixer:
    """Chooses among sources.

    Args:
        kind: `weights` or `ucb`.
        sources: how many there are.
        weights: by source; empty: all alike.
        chunk: batches in a row from one source.
        exploration: the constant of `mixing.ucb1`.
    """

    def __init__(
        self, kind: str, sources: int, weights: Sequence[float], chunk: int, exploration: float
    ) -> None:
        self._kind, self.chunk, self._exploration = kind, chunk, exploration
        self._weights = tuple(weights) or (1.0,) * sources
        self.now = Mixed(0, Bandit.new(sources), 0)
        #: By batch (sources,) sums of losses and numbers of positions.
        self._reports: dict[int, tuple[NDArray, NDArray]] = {}
        self._reported = 0
        self._news = threading.Condition()

    def report(self, batch: int, losses: NDArray, counts: NDArray) -> None:
        """Tell of a batch. All batches are reported, in order; `weights` has no use for them.

        Args:
            losses: (sources,) mean loss of its positions by source; of no meaning where there are
                none. counts: (sources,) positions by source.
        """
        if self._kind == "weights":
            return
        with self._news:
            self._reports[batch] = (np.asarray(losses, np.float64), np.asarray(counts, np.float64))
            self._reported = batch
            self._news.notify_all()

    def choose(
        self,
        batch: int,
        progress: Progress | None,
        allowed: Sequence[int],
        stopped: Callable[[], bool],
    ) -> int:
        """The source of the chunk that begins with this batch.

        Args:
            progress: what has been drawn before it; `weights` does without.
            allowed: the sources that have something to give.
            stopped: whether to give up waiting for reports.
        """
        if progress is None or self._kind == "weights":
            source = by_weight(self.now.bandit.draws, self._weights, allowed)
        else:
            self._learn(max(0, batch - 1 - LAG) // self.chunk * self.chunk, stopped)
            sources = range(len(progress.games))
            factors = [progress.bonus(source) * progress.penalty(source) for source in sources]
            source = self.now.bandit.choose(factors, self._exploration, allowed)
        self.now = Mixed(source, self.now.bandit.drawn(source), self.now.known)
        return source

    def _learn(self, batch: int, stopped: Callable[[], bool]) -> None:
        """Take in all chunks up to this batch, the last one of a chunk."""
        with self._news:
            while self._reported < batch and not stopped():
                self._news.wait(0.2)
            if self._reported < batch:
                return
            source, bandit, known = self.now
            while known < batch:
                chunk = [self._reports[known + number] for number in range(1, self.chunk + 1)]
                counts = np.sum([count for _, count in chunk], axis=0)
                # Where there are no positions the loss may be no number.
                parts = [np.where(count > 0, loss, 0) * count for loss, count in chunk]
                sums = np.sum(parts, axis=0)
                for number in np.flatnonzero(counts).tolist():
                    bandit = bandit.learned(number, float(sums[number] / counts[number]))
                known += self.chunk
            self.now = Mixed(source, bandit, known)

    def forget(self, mixed: Mixed) -> None:
        """No state before this one will be asked for: its reports are not needed any more."""
        with self._news:
            for batch in [batch for batch in self._reports if batch <= mixed.known]:
                del self._reports[batch]

    def state(self, mixed: Mixed, batch: int) -> dict[str, Any]:
        """What JSON can hold of `now` as it was after a batch, the reports up to it included.

        Raises:
            ValueError: the bandit waits for reports up to this batch, and one is missing.
        """
        with self._news:
            if self._kind == "ucb" and self._reported < batch:
                raise ValueError(f"batch {batch} has not been reported")
            reports = [
                [number, losses.tolist(), counts.tolist()]
                for number, (losses, counts) in self._reports.items()
                if mixed.known < number <= batch
            ]
        bandit = mixed.bandit.as_dict()
        return {"source": mixed.source, "bandit": bandit, "known": mixed.known, "reports": reports}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        bandit = Bandit.from_dict(state["bandit"])
        self.now = Mixed(state["source"], bandit, state["known"])
        self._reported = state["known"]
        for batch, losses, counts in state["reports"]:
            self.report(batch, losses, counts)

    def start_anew(self, bandit: Bandit) -> None:
        """Begin with what an earlier one knew of these sources."""
        self.now = Mixed(0, bandit, 0)
