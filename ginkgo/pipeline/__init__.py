"""Files to shuffled batches, asynchronously; which data to read next.

In: paths of records or games. Out: batches of compact positions, as a `tf.data.Dataset` (`dataset`)
or as an iterator that can be stopped and continued (`Loader`).

The stages, each testable alone: `scan`, `index` (what is there) -> `parse` (text to positions) ->
`worker`, `workers` (in other processes, through shared memory) -> `pool` (shuffling) ->
`stream` (order, epochs, one pool) -> `loader` (batches, state) -> `tfdata` (the face toward
TensorFlow). Which of several sources comes next is decided in `mixing` (formulas) and `mixer`
(reports and decisions); `coverage` counts the games seen, `history` keeps what is known of them.

Only `tfdata` imports TensorFlow. Reader processes are started by spawn, which imports the main
script again: scripts that use a loader keep their work under `if __name__ == "__main__":`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.batch import Batch
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.loader import Loader
from ginkgo.pipeline.parse import ParseOptions
from ginkgo.pipeline.scan import build_index
from ginkgo.pipeline.stream import LoaderConfig

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["Batch", "Index", "Loader", "LoaderConfig", "ParseOptions", "build_index", "dataset"]


def dataset(paths: Sequence[str | Path], *, split: str = "train", **config: Any) -> tf.data.Dataset:
    """Shuffled batches of compact positions as a `tf.data.Dataset`.

    Args:
        paths: records or games, as `build_index` takes them.
        split: `train`, `val`, `test` or `all`.
        config: fields of `LoaderConfig` (`batch_size`, `pool`, `workers`, `seed`, `parse`, …).

    Returns:
        A dataset of dictionaries with the fields of `POSITION` as tensors: `board` (b, 81) uint8,
        `hand` (b, 2, 7) uint8, `move` (b,) uint16, `result` (b,) uint8, `weight` (b,) float16, …
        `codes` with `ginkgo148`, and soft policy targets where `parse.policies` asks for them, are
        described at `tfdata.signature`. The reader processes end when the iterator is gone.

    Raises:
        GinkgoError: nothing usable at a path; `mix="ucb"`, for a dataset hears of no losses.
    """
    from ginkgo.pipeline.tfdata import dataset_of

    loader_config = LoaderConfig(**config)
    if loader_config.mix == "ucb":
        raise GinkgoError("mix='ucb' needs to be told losses: use a Loader and its report")
    index = build_index(paths, split)
    return dataset_of(lambda: Loader(index, loader_config), loader_config.parse.ragged)
