"""The compiled step: compact batch -> planes -> loss -> update; and inference on positions.

In: dictionaries of compact tensors (`ginkgo.pipeline.tfdata.signature`). Out: metrics of the
batch; or logits. Planes exist only in here, on the device that trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ginkgo.features.encoding import encoding
from ginkgo.features.labels import LABELS, MIRROR_LABEL
from ginkgo.features.position import DRAW, MIRROR_SQUARE, NO_RESULT, POSITION, WIN
from ginkgo.pipeline.parse import Block
from ginkgo.pipeline.tfdata import unpack
from ginkgo.training.config import TrainConfig
from ginkgo.training.distribution import Distribution, choose
from ginkgo.training.recipe import WeightAverage


def planes_of(batch: dict[str, tf.Tensor], features: str) -> tf.Tensor:
    """Input planes of a compact batch, (n, 9, 9, channels) float32, [file, rank]."""
    return tf.transpose(encoding(features).on_device(batch), [0, 2, 3, 1])


def channels_of(features: str) -> int:
    """Number of input planes."""
    return encoding(features).planes


def mirror_half(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Every second position of a batch with files 1 and 9 exchanged, labels too.

    The order of a batch is random, so which position is mirrored is random as well.
    """
    odd = tf.range(tf.shape(batch["board"])[0]) % 2 == 1
    board = tf.gather(batch["board"], tf.constant(MIRROR_SQUARE, tf.int32), axis=1)

    def turned(labels: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        labels = tf.cast(labels, tf.int32)
        return tf.where(where, tf.gather(tf.constant(MIRROR_LABEL, tf.int32), labels), labels)

    mirrored = {
        **batch,
        "board": tf.where(odd[:, None], board, batch["board"]),
        "move": turned(batch["move"], odd),
    }
    if "policy_label" in batch:
        rows = row_of_each(batch["policy_offsets"])
        mirrored["policy_label"] = turned(batch["policy_label"], tf.gather(odd, rows))
    return mirrored


def row_of_each(offsets: tf.Tensor) -> tf.Tensor:
    """(k,) int64: which row each of k ragged values is in, from (n + 1,) offsets."""
    lengths = offsets[1:] - offsets[:-1]
    return tf.repeat(tf.range(tf.size(lengths, tf.int64)), lengths)


def played_moves(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """(n, 2187) float32, one-hot."""
    return tf.one_hot(tf.cast(batch["move"], tf.int32), LABELS)


def policy_targets(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """(n, 2187) float32: the visits of each position where it has some, else the move played."""
    played, offsets = played_moves(batch), batch["policy_offsets"]
    rows = row_of_each(offsets)
    places = tf.stack([rows, tf.cast(batch["policy_label"], tf.int64)], axis=1)
    shares = tf.cast(batch["policy_probability"], tf.float32)
    soft = tf.scatter_nd(places, shares, tf.shape(played, tf.int64))
    # Half precision does not quite sum to one.
    soft = tf.math.divide_no_nan(soft, tf.reduce_sum(soft, axis=1, keepdims=True))
    return tf.where((offsets[1:] > offsets[:-1])[:, None], soft, played)


def value_targets(
    result: tf.Tensor,
    score: tf.Tensor | None = None,
    share: float = 0.0,
    scale: float = 600.0,
    outcome: tf.Tensor | None = None,
    root_value: tf.Tensor | None = None,
    root_share: float = 0.0,
) -> tf.Tensor:
    """(n, 2) target [mover wins, mover loses]; a draw, and what has no result, is one half.

    Args:
        result: (n,). score: (n,) centipawns in the mover's view, NaN where there is none.
        share: of the score's win rate in the target, where there is a score.
        scale: centipawns, see `baselines.score_scale`.
        outcome: (n,) mean result that stands in place of `result`, NaN where there is none.
        root_value: (n,) win rate that a search found, NaN where there is none.
        root_share: of the root value in the target, where there is one.
    """
    win = tf.where(result == WIN, 1.0, 0.0)
    win = tf.where((result == DRAW) | (result == NO_RESULT), 0.5, win)
    if outcome is not None:
        outcome = tf.cast(outcome, tf.float32)
        win = tf.where(tf.math.is_finite(outcome), outcome, win)
    if share and score is not None:
        score = tf.cast(score, tf.float32)
        known = tf.math.is_finite(score)
        searched = tf.sigmoid(tf.where(known, score, 0.0) / scale)
        win = tf.where(known, (1 - share) * win + share * searched, win)
    if root_share and root_value is not None:
        root_value = tf.cast(root_value, tf.float32)
        mixed = (1 - root_share) * win + root_share * root_value
        win = tf.where(tf.math.is_finite(root_value), mixed, win)
    return tf.stack([win, 1.0 - win], axis=1)


#: Fields of a batch that the loss looks at.
TARGETS = ("move", "result", "weight", "score", "outcome", "root_value")


#: `tf.function` for code without branches or loops over tensors: not to look for them (AutoGraph)
#: saves three of the seven seconds before the first step.
traced = partial(tf.function, reduce_retracing=True, autograph=False)


class TrainStep:
    """One optimisation step as a compiled function.

    Calling it returns a dictionary of float32 scalars over the whole batch, all devices and
    processes together: `loss`, `gradient_norm`, and by head `value_loss`, `value_accuracy`,
    `policy_loss`, `policy_accuracy`. With `sources`, their number, also `by_source`, (2, sources):
    the mean loss of the positions of each, NaN where it has none, and how many there are.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        average: WeightAverage | None,
        config: TrainConfig,
        score_scale: float = 600.0,
        ragged: Mapping[str, np.dtype] = MappingProxyType({}),
        distribution: Distribution | None = None,
        sources: int = 0,
    ) -> None:
        self._scale, self._ragged, self._sources = score_scale, ragged, sources
        self._model, self._optimizer, self._average = model, optimizer, average
        self._config, self._distribution = config, distribution or choose("")
        self._update = self._on_planes
        if config.xla:
            self._update = tf.function(self._on_planes, jit_compile=True, autograph=False)
        self._statistics = [v.value for v in model.weights if not v.trainable]
        self.call = traced(partial(self._everywhere, self._on_batch))
        #: The same from planes (n, 9, 9, channels) on: what a benchmark compares the loop with.
        self.update = traced(
            lambda planes, batch, rate, step: self._everywhere(
                self._update, (planes, batch), rate, step
            )
        )
        self._packed = traced(partial(self._everywhere, self._on_packed))

    def on_packed(
        self, packed: tuple[tf.Tensor, ...], rate: float, step: int
    ) -> dict[str, tf.Tensor]:
        """A step on a batch as `tfdata.dataset_of(…, packed=True)` gives it.

        With several devices: on what `Distribution.spread` makes of its parts.
        """
        return self._packed((packed,), tf.constant(rate, tf.float32), tf.constant(step, tf.float32))

    def __call__(self, batch: dict[str, tf.Tensor], rate: float, step: int) -> dict[str, tf.Tensor]:
        """A step on a batch by name, as `tfdata.unpack` gives it."""
        return self.call((batch,), tf.constant(rate, tf.float32), tf.constant(step, tf.float32))

    def _everywhere(self, on_one, arguments, rate, step):
        """Run the step on each device with its part of the batch."""
        self._optimizer.learning_rate.assign(rate)
        metrics = self._distribution.strategy.run(on_one, arguments)
        if self._average is not None:
            self._average.update(step)
        return {name: self._distribution.on_first_device(value) for name, value in metrics.items()}

    # --- on one device ------------------------------------------------------------------------

    def _on_packed(self, packed):
        return self._on_batch(unpack(packed, self._ragged))

    def _on_batch(self, batch):
        config = self._config
        if config.mirror and encoding(config.features).mirrors:
            batch = mirror_half(batch)
        planes = planes_of(batch, config.features)
        # Only what has a fixed shape: XLA compiles anew for each number of ragged values.
        fixed = {name: batch[name] for name in TARGETS}
        if self._sources:
            fixed["source"] = tf.cast(batch["source"], tf.int32)
        if "policy_label" in batch:
            fixed["policy"] = policy_targets(batch)
        return self._update(planes, fixed)

    def _on_planes(self, planes, batch):
        config, model = self._config, self._model
        variables = [variable.value for variable in model.trainable_variables]
        counts = self._summed(_counts(batch))
        with tf.GradientTape() as tape:
            outputs = model(planes, training=True)
            metrics = self._losses(batch, outputs, counts)
        gradients = self._summed(tape.gradient(metrics["loss"], variables))
        norm = tf.linalg.global_norm(gradients)
        if config.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, config.clip, norm)
        self._optimizer.apply(gradients, model.trainable_variables)
        self._share_statistics()
        parts = metrics.pop("by_source", tf.zeros((4, 0)))
        names = list(metrics)
        scalars = tf.stack([metrics[name] for name in names])
        sums = self._summed(tf.concat([scalars, tf.reshape(parts, [-1])], 0))
        metrics = dict(zip(names, tf.unstack(sums[: len(names)], num=len(names)), strict=True))
        if self._sources:
            parts = tf.reshape(sums[len(names) :], (4, self._sources))
            metrics["by_source"] = self._means_by_source(parts)
        return {**metrics, "gradient_norm": norm}

    def _losses(self, batch, outputs, counts) -> dict[str, tf.Tensor]:
        """This device's share of loss and metrics: summed over all devices they are means.

        Args:
            counts: `_counts` of the whole batch.
        """
        config = self._config
        positions, weights, decided_positions = tf.unstack(counts, num=3)
        metrics: dict[str, tf.Tensor] = {}
        loss, of_moves, of_values = tf.constant(0.0), tf.constant(0.0), tf.constant(0.0)
        if "policy" in outputs:
            target = batch["policy"] if "policy" in batch else played_moves(batch)
            if config.label_smoothing:
                target = target * (1 - config.label_smoothing) + config.label_smoothing / LABELS
            crossed = tf.nn.softmax_cross_entropy_with_logits(target, outputs["policy"])
            metrics["policy_loss"] = tf.reduce_sum(crossed) / positions
            hit = tf.argmax(outputs["policy"], 1, tf.int32) == tf.cast(batch["move"], tf.int32)
            metrics["policy_accuracy"] = tf.reduce_sum(tf.cast(hit, tf.float32)) / positions
            loss, of_moves = metrics["policy_loss"], crossed
        if "value" in outputs:
            result, weight = batch["result"], tf.cast(batch["weight"], tf.float32)
            target = value_targets(
                result,
                batch["score"],
                config.score_share,
                self._scale,
                batch["outcome"],
                batch["root_value"],
                config.root_share,
            )
            if config.label_smoothing:
                target = target * (1 - config.label_smoothing) + config.label_smoothing / 2
            crossed = tf.nn.softmax_cross_entropy_with_logits(target, outputs["value"])
            of_values = weight * crossed
            metrics["value_loss"] = tf.math.divide_no_nan(tf.reduce_sum(of_values), weights)
            hit = (outputs["value"][:, 0] > outputs["value"][:, 1]) == (result == WIN)
            metrics["value_accuracy"] = tf.math.divide_no_nan(
                tf.reduce_sum(_decided(batch) * tf.cast(hit, tf.float32)), decided_positions
            )
            share = config.value_weight if "policy" in outputs else 1.0
            loss += share * metrics["value_loss"]
        metrics["loss"] = loss
        if self._sources:
            metrics["by_source"] = self._sums_by_source(batch, of_moves, of_values)
        return metrics

    def _sums_by_source(self, batch, of_moves, of_values) -> tf.Tensor:
        """(4, sources) sums on this device: losses of moves, of values, positions, weights."""
        weight = tf.cast(batch["weight"], tf.float32)
        columns = [of_moves, of_values, tf.ones_like(weight), weight]
        shape = tf.shape(weight)
        rows = [tf.broadcast_to(tf.cast(column, tf.float32), shape) for column in columns]
        rows = tf.stack(rows, axis=1)
        return tf.transpose(tf.math.unsorted_segment_sum(rows, batch["source"], self._sources))

    def _means_by_source(self, sums: tf.Tensor) -> tf.Tensor:
        """(2, sources) mean losses and positions of `_sums_by_source` of all devices."""
        config = self._config
        of_moves, of_values, positions, weights = tf.unstack(sums, num=4)
        if "policy" not in config.heads:
            loss = of_values / weights
        else:
            loss = of_moves / positions
            if "value" in config.heads:
                loss += config.value_weight * tf.math.divide_no_nan(of_values, weights)
        return tf.stack([loss, positions])

    def _summed(self, tensors):
        """Sums over all devices."""
        if self._distribution.replicas == 1:
            return tensors
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors)

    def _share_statistics(self) -> None:
        """Give all devices the mean of their BatchNorm statistics, which Keras keeps apart."""
        if self._distribution.replicas == 1 or not self._statistics:
            return
        shapes = [variable.shape for variable in self._statistics]
        flat = tf.concat([tf.reshape(variable, [-1]) for variable in self._statistics], 0)
        mean = self._summed(flat) / self._distribution.replicas
        parts = tf.split(mean, [shape.num_elements() for shape in shapes])
        for variable, part, shape in zip(self._statistics, parts, shapes, strict=True):
            variable.assign(tf.reshape(part, shape))


def _decided(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """(n,) float32: 1 where the game was won or lost."""
    result = batch["result"]
    return tf.cast((result != DRAW) & (result != NO_RESULT), tf.float32)


def _counts(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """(3,) positions, sum of their value weights, positions of decided games."""
    weight = tf.cast(batch["weight"], tf.float32)
    positions = tf.cast(tf.size(weight), tf.float32)
    return tf.stack([positions, tf.reduce_sum(weight), tf.reduce_sum(_decided(batch))])


class Inference:
    """A model's answers on positions, in batches."""

    def __init__(self, model: keras.Model, features: str, batch_size: int = 1024) -> None:
        self._model, self._features, self._batch_size = model, features, batch_size
        self.call = traced(self._infer)

    def _infer(self, batch):
        return self._model(planes_of(batch, self._features), training=False)

    def batches(self, block: Block):
        """Yield (slice, outputs) over a block; outputs are numpy logits by head."""
        for low in range(0, len(block.positions), self._batch_size):
            part = slice(low, min(low + self._batch_size, len(block.positions)))
            outputs = self.call(compact(block, part))
            yield part, {head: logits.numpy() for head, logits in outputs.items()}


def win_probability(logits: NDArray) -> NDArray[np.float64]:
    """Softmax over [wins, loses], the first: (n, 2) logits to (n,)."""
    difference = np.clip(logits[:, 1].astype(np.float64) - logits[:, 0], -60, 60)
    return 1 / (1 + np.exp(difference))


def compact(block: Block, part: slice) -> dict[str, Any]:
    """What `planes_of` needs of some positions of a block."""
    positions = block.positions[part]
    batch: dict[str, Any] = {
        name: tf.constant(np.ascontiguousarray(positions[name])) for name in ("board", "hand")
    }
    assert positions.dtype == POSITION
    if "codes" in block.ragged:
        codes = block.ragged["codes"].part(part.start, part.stop)
        batch["codes"] = tf.constant(codes.values)
        batch["codes_offsets"] = tf.constant(codes.offsets)
    return batch
