"""Batches as a `tf.data.Dataset`.

In: a loader. Out: a dataset of dictionaries of compact tensors, one element a batch; or, for a loop
that must not wait, the same as few tensors, which `unpack` takes apart inside a compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from ginkgo.features.position import POSITION
from ginkgo.pipeline.batch import Batch
from ginkgo.pipeline.loader import TFDATA_PREFETCH, Loader
from ginkgo.pipeline.ragged import as_bytes


def signature(ragged: Mapping[str, np.dtype]) -> dict[str, tf.TensorSpec]:
    """The element specification.

    The fields of `POSITION`; and for each name of `ragged` (`ParseOptions.ragged`) its values, one
    after another, and where each position's begin: `codes` and `codes_offsets`; `policy_label`,
    `policy_probability` and `policy_offsets`.
    """
    spec = {}
    for name in POSITION.names or ():
        dtype, shape = POSITION[name].base, POSITION[name].shape
        spec[name] = tf.TensorSpec((None, *shape), tf.as_dtype(dtype))
    spec["number"] = tf.TensorSpec((), tf.int64)
    spec["epoch"] = tf.TensorSpec((), tf.int64)
    spec["pool_fill"] = tf.TensorSpec((), tf.int64)
    for name, dtype in ragged.items():
        spec[f"{name}_offsets"] = tf.TensorSpec((None,), tf.int64)
        if dtype.names is None:
            spec[name] = tf.TensorSpec((None,), tf.as_dtype(dtype))
        for field in dtype.names or ():
            spec[f"{name}_{field}"] = tf.TensorSpec((None,), tf.as_dtype(dtype[field]))
    return spec


def packed_signature(ragged: Mapping[str, np.dtype]) -> tuple[tf.TensorSpec, ...]:
    """The element specification of `dataset_of(…, packed=True)`."""
    parts = [
        tf.TensorSpec((None, POSITION.itemsize), tf.uint8),
        tf.TensorSpec((3,), tf.int64),
    ]
    for dtype in ragged.values():
        parts += [tf.TensorSpec((None, dtype.itemsize), tf.uint8), tf.TensorSpec((None,), tf.int64)]
    return tuple(parts)


def _packed(batch: Batch) -> tuple[Any, ...]:
    """A batch as few arrays.

    What Python does between two batches holds the interpreter's lock, and the training loop then
    waits for it; cutting the fields apart is left to TensorFlow (`unpack`), which does not.
    """
    parts: list[Any] = [
        as_bytes(batch.positions),
        np.array([batch.number, batch.epoch, batch.pool_fill]),
    ]
    for rows in batch.ragged.values():
        parts += [as_bytes(rows.values), rows.offsets]
    return tuple(parts)


def unpack(packed: Sequence[tf.Tensor], ragged: Mapping[str, np.dtype]) -> dict[str, tf.Tensor]:
    """The dictionary that `signature` describes.

    Args:
        packed: an element that `packed_signature` describes: (n, POSITION.itemsize) uint8; (3,)
            int64 batch, epoch, positions in the pool; and two for each name of `ragged`.
    """
    rows, numbers, *rest = packed
    assert POSITION.fields is not None
    fields = {name: _cut(rows, *field[:2]) for name, field in POSITION.fields.items()}
    fields["number"], fields["epoch"], fields["pool_fill"] = tf.unstack(numbers, num=3)
    for (name, dtype), values, offsets in zip(ragged.items(), rest[::2], rest[1::2], strict=True):
        fields[f"{name}_offsets"] = offsets
        if dtype.fields is None:
            fields[name] = _cut(values, dtype, 0)
            continue
        for part, field in dtype.fields.items():
            fields[f"{name}_{part}"] = _cut(values, *field[:2])
    return fields


def _cut(rows: tf.Tensor, field: np.dtype, offset: int) -> tf.Tensor:
    """A field of rows of bytes, (n, itemsize) uint8."""
    base, shape = field.base, field.shape
    part = rows[:, offset : offset + field.itemsize]
    if base.itemsize == 1:
        return tf.reshape(part, (-1, *shape))
    return tf.bitcast(tf.reshape(part, (-1, *shape, base.itemsize)), tf.as_dtype(base))


def dataset_of(
    open_loader: Callable[[], Loader],
    ragged: Mapping[str, np.dtype] = MappingProxyType({}),
    close: bool = True,
    packed: bool = False,
) -> tf.data.Dataset:
    """A dataset over the batches of the loader that `open_loader` returns.

    Args:
        open_loader: called once for each iterator over the dataset.
        ragged: `ParseOptions.ragged` of the loader.
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

    data = tf.data.Dataset.from_generator(batches, output_signature=packed_signature(ragged))
    if not packed:
        data = data.map(lambda *packed: unpack(packed, ragged))
        assert data.element_spec == signature(ragged)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options).prefetch(TFDATA_PREFETCH)
