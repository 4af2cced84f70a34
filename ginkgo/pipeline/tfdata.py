"""Batches as a `tf.data.Dataset`.

In: a loader. Out: a dataset of dictionaries of compact tensors, one element a batch; or, for a loop
that must not wait, the same as few tensors, which `unpack` takes apart inside a compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ginkgo.features.position import POSITION
from ginkgo.pipeline.loader import TFDATA_PREFETCH, Batch, Loader


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


def packed_signature(features: str) -> tuple[tf.TensorSpec, ...]:
    """The element specification of `dataset_of(…, packed=True)`."""
    parts = [
        tf.TensorSpec((None, POSITION.itemsize), tf.uint8),
        tf.TensorSpec((3,), tf.int64),
    ]
    if features == "ginkgo148":
        parts += [tf.TensorSpec((None,), tf.uint16), tf.TensorSpec((None,), tf.int64)]
    return tuple(parts)


def _packed(batch: Batch) -> tuple[Any, ...]:
    """A batch as few arrays.

    What Python does between two batches holds the interpreter's lock, and the training loop then
    waits for it; cutting the fields apart is left to TensorFlow (`unpack`), which does not.
    """
    positions = np.ascontiguousarray(batch.positions)
    rows = positions.view(np.uint8).reshape(len(positions), POSITION.itemsize)
    parts: list[Any] = [rows, np.array([batch.number, batch.epoch, batch.pool_fill])]
    if batch.codes is not None:
        parts += [batch.codes, batch.offsets]
    return tuple(parts)


def unpack(rows: tf.Tensor, numbers: tf.Tensor, *sparse: tf.Tensor) -> dict[str, tf.Tensor]:
    """The dictionary that `signature` describes.

    Args:
        rows: (n, POSITION.itemsize) uint8. numbers: (3,) int64 batch, epoch, positions in the pool.
        sparse: codes and offsets, where the features have them.
    """
    assert POSITION.fields is not None
    fields: dict[str, tf.Tensor] = {}
    for name, (field, offset, *_) in POSITION.fields.items():
        base, shape = field.base, field.shape
        part = rows[:, offset : offset + field.itemsize]
        if base.itemsize > 1:
            part = tf.reshape(part, (-1, *shape, base.itemsize))
            fields[name] = tf.bitcast(part, tf.as_dtype(base))
        else:
            fields[name] = tf.reshape(part, (-1, *shape))
    fields["number"], fields["epoch"], fields["pool_fill"] = tf.unstack(numbers, num=3)
    if sparse:
        fields["codes"], fields["offsets"] = sparse
    return fields


def dataset_of(
    open_loader: Callable[[], Loader],
    features: str = "dlshogi119",
    close: bool = True,
    packed: bool = False,
) -> tf.data.Dataset:
    """A dataset over the batches of the loader that `open_loader` returns.

    Args:
        open_loader: called once for each iterator over the dataset.
        close: end the loader's processes with the iterator.
        packed: leave `unpack` to the caller. Taking fifteen tensors from a dataset costs a loop
            1.4 ms a batch on a busy machine, taking two costs a fifth of that.
    """

    def batches() -> Iterator[tuple[Any, ...]]:
        loader = open_loader()
        try:
            for batch in loader:
                yield _packed(batch)
        finally:
            if close:
                loader.close()

    data = tf.data.Dataset.from_generator(batches, output_signature=packed_signature(features))
    if not packed:
        data = data.map(unpack)
        assert data.element_spec == signature(features)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options).prefetch(TFDATA_PREFETCH)
