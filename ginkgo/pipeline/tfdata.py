"""Batches as a `tf.data.Dataset`.

In: a loader. Out: a dataset of dictionaries of compact tensors, one element a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ginkgo.features.position import POSITION
from ginkgo.pipeline.loader import Batch, Loader


def signature(features: str) -> dict[str, tf.TensorSpec]:
    """The element specification: the fields of `POSITION`, and what the features add."""
    spec = {}
    for name in POSITION.names or ():
        dtype, shape = POSITION[name].base, POSITION[name].shape
        spec[name] = tf.TensorSpec((None, *shape), tf.as_dtype(dtype))
    spec["number"] = tf.TensorSpec((), tf.int64)
    spec["epoch"] = tf.TensorSpec((), tf.int64)
    spec["pool_fill"] = tf.TensorSpec((), tf.int64)
    if features == "ginkgo148":
        spec["codes"] = tf.TensorSpec((None,), tf.uint16)
        spec["offsets"] = tf.TensorSpec((None,), tf.int64)
    return spec


def element(batch: Batch) -> dict[str, Any]:
    """A batch as the dictionary that `signature` describes."""
    fields: dict[str, Any] = {
        name: np.ascontiguousarray(batch.positions[name]) for name in POSITION.names or ()
    }
    fields["number"] = np.int64(batch.number)
    fields["epoch"] = np.int64(batch.epoch)
    fields["pool_fill"] = np.int64(batch.pool_fill)
    if batch.codes is not None:
        fields["codes"], fields["offsets"] = batch.codes, batch.offsets
    return fields


def dataset_of(
    open_loader: Callable[[], Loader], features: str = "dlshogi119", close: bool = True
) -> tf.data.Dataset:
    """A dataset over the batches of the loader that `open_loader` returns.

    Args:
        open_loader: called once for each iterator over the dataset.
        close: end the loader's processes with the iterator.
    """

    def batches() -> Iterator[dict[str, Any]]:
        loader = open_loader()
        try:
            for batch in loader:
                yield element(batch)
        finally:
            if close:
                loader.close()

    data = tf.data.Dataset.from_generator(batches, output_signature=signature(features))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options).prefetch(2)
