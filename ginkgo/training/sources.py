"""What a run learns of each of its sources, on its way from the steps to where it is wanted.

In: by step the losses by source, as tensors on the device. Out: reports to the loader, which
chooses by them; curves for TensorBoard; the state that checkpoints and `<run>.state.json` keep;
the table at the end.

The tensors wait until the loop looks at its metrics anyway: looking at each at once would make
every step wait for the device. Which games a batch has is noted by the loader, in its own thread.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ginkgo.pipeline.coverage import Progress
from ginkgo.pipeline.history import document, figures, merged_progress
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.loader import Loader, Seen
from ginkgo.records.files import write_text
from ginkgo.training.distribution import Distribution
from ginkgo.training.monitor import SOURCE_CURVES

#: Parts of a game that are counted when processes add up what they have drawn.
_FINE = 1_000_000


class Sources:
    """The sources of a run.

    Args:
        index: of all training data.
        loader: of this process, with `LoaderConfig.coverage`.
        path: of the state file.
        before: the document of the checkpoint that the run goes on from.
    """

    def __init__(
        self,
        index: Index,
        loader: Loader,
        distribution: Distribution,
        path: Path,
        before: dict[str, Any] | None = None,
    ) -> None:
        self._index, self._loader, self._distribution = index, loader, distribution
        self._path, self._document = path, before
        self._pending: list[tuple[int, tf.Tensor]] = []
        count = len(index.sources)
        self._sums, self._counts = np.zeros(count), np.zeros(count)
        #: Mean loss of late by name of the source.
        self.losses: dict[str, float] = {}
        if before is not None:
            known = before["sources"]
            self.losses = {name: known[name]["loss"] for name in known if "loss" in known[name]}
            for number, name in enumerate(index.names):
                if name in known:
                    self._sums[number], self._counts[number] = known[name]["since"]
            self.write()

    def add(self, batch: int, by_source: tf.Tensor) -> None:
        """Keep the report of a step: `by_source` of `TrainStep`."""
        self._pending.append((batch, by_source))

    def look(self) -> None:
        """Read what has been kept; waits for the device."""
        for batch, by_source in self._pending:
            losses, counts = by_source.numpy()
            self._loader.report(batch, losses, counts)
            known = np.isfinite(losses)
            self._sums[known] += losses[known] * counts[known]
            self._counts[known] += counts[known]
        self._pending.clear()

    def curves(self) -> dict[str, float]:
        """Values for TensorBoard by tag, as of the last step; all processes must call it."""
        self.look()
        for number in np.flatnonzero(self._counts).tolist():
            mean = float(self._sums[number] / self._counts[number])
            self.losses[self._index.names[number]] = mean
        self._sums[:], self._counts[:] = 0, 0
        seen, found = self._seen_everywhere(), {}
        for number, name in enumerate(self._index.names):
            if not self._index.sources[number].games:
                continue
            entry = figures(seen.progress, seen.bandit, number)
            if name in self.losses:
                entry["loss"] = self.losses[name]
            for key in _CURVES:
                if key in entry:
                    found[f"{SOURCE_CURVES}{key}/{name}"] = float(entry[key])
        return found

    def _seen_everywhere(self) -> Seen:
        """What all processes have drawn; they read games of their own each."""
        mine = self._loader.seen()
        assert mine is not None
        seen, pulls = mine.progress.seen, mine.progress.pulls
        fine = np.rint(np.array(pulls) * _FINE).astype(np.int64)
        total = self._distribution.total(np.concatenate([np.array(seen, np.int64), fine]))
        count = len(seen)
        summed = (total[count:] / _FINE).tolist()
        whole = Progress((0,) * count, tuple(total[:count].tolist()), tuple(summed))
        return Seen(merged_progress(self._index, [whole]), mine.bandit)

    def document(self, states: list[dict[str, Any]], step: int) -> dict[str, Any]:
        """What is known now, for a checkpoint.

        Args:
            states: of the loaders of all processes.
        """
        losses = {name: loss for name, loss in self.losses.items() if math.isfinite(loss)}
        self._document = document(self._index, states, step, losses, self._document)
        # What the next point of the curves begins with.
        for name, *since in zip(self._index.names, self._sums, self._counts, strict=True):
            self._document["sources"][name]["since"] = list(map(float, since))
        return self._document

    def write(self) -> None:
        """Put the last document into the state file.

        Raises:
            GinkgoError: it cannot be written.
        """
        write_text(self._path, json.dumps(self._document) + "\n")

    def report(self) -> dict[str, dict[str, Any]]:
        """By source the figures of the last document."""
        sources = (self._document or {}).get("sources", {})
        return {
            name: {key: entry[key] for key in _FIGURES if key in entry}
            for name, entry in sources.items()
            if entry["games"]
        }


_CURVES = ("pulls", "coverage", "bonus", "penalty", "reward", "loss")
_FIGURES = (
    *("games", "positions", "seen", "coverage", "pulls", "epochs", "bonus", "penalty"),
    *("chunks", "reward", "loss"),
)


def state_path(directory: Path) -> Path:
    """The state file of a run."""
    return directory / f"{directory.name}.state.json"
