"""Learning-rate schedules, optimisers, and the average of the weights.

In: a `TrainConfig`. Out: pure functions of the step, and Keras optimisers set up so that weight
decay touches kernels alone.
"""

from __future__ import annotations

import math
from pathlib import Path

import keras
import tensorflow as tf

from ginkgo.training.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """The learning rate of step `step` (from 0) out of `steps`: linear warm-up, then the schedule.

    Cosine after Loshchilov & Hutter, "SGDR" (2017), section 3, to a hundredth of the peak.
    """
    warmup = max(1, round(config.warmup * steps))
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    match config.schedule:
        case "cosine":
            factor = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        case "step":
            factor = 0.1 ** sum(done >= border for border in (0.5, 0.75, 0.9))
        case _:
            factor = 1.0
    return config.learning_rate * factor


def make_optimizer(config: TrainConfig, model: keras.Model) -> keras.optimizers.Optimizer:
    """AdamW or SGD with Nesterov momentum; decay is decoupled (Loshchilov & Hutter 2019)."""
    decay = config.weight_decay or None
    if config.optimizer == "adamw":
        optimizer = keras.optimizers.AdamW(config.learning_rate, weight_decay=decay or 0.0)
    else:
        optimizer = keras.optimizers.SGD(
            config.learning_rate, momentum=0.9, nesterov=True, weight_decay=decay
        )
    if decay:
        plain = [v for v in model.trainable_variables if not is_kernel(v)]
        optimizer.exclude_from_weight_decay(var_list=plain)
    optimizer.build(model.trainable_variables)
    # The step sums gradients over all devices itself, for their norm is clipped after that; Keras
    # must not sum them again. No public way leads there; a Keras without it must not go unseen.
    assert hasattr(optimizer, "_all_reduce_sum_gradients")
    optimizer._all_reduce_sum_gradients = lambda pairs: pairs
    return optimizer


def is_kernel(variable: keras.Variable) -> bool:
    """Whether weight decay applies: matrices and filters, not biases and scales."""
    return len(variable.shape) > 1


class WeightAverage:
    """Exponential moving average of all weights, the statistics of BatchNorm included.

    The decay starts low so that the random first weights are soon forgotten:
    min(decay, (1 + step) / (10 + step)).
    """

    def __init__(self, model: keras.Model, decay: float) -> None:
        self.decay = decay
        self._sources = [weight.value for weight in model.weights]
        self.values = [
            tf.Variable(tf.cast(weight, tf.float32), trainable=False) for weight in self._sources
        ]

    def update(self, step: tf.Tensor) -> None:
        """To be called inside the compiled step, after the optimiser, outside `strategy.run`.

        Args:
            step: float32 scalar.
        """
        decay = tf.minimum(self.decay, (1.0 + step) / (10.0 + step))
        for average, source in zip(self.values, self._sources, strict=True):
            average.assign_sub((1.0 - decay) * (average - tf.cast(source, tf.float32)))


def choose_precision(wanted: str) -> str:
    """`bfloat16` or `float32`; auto asks what the device gains from.

    GPUs from compute capability 8.0 on have bfloat16 tensor cores, some CPUs AMX or AVX512-BF16.
    """
    if wanted != "auto":
        return wanted
    for gpu in tf.config.list_physical_devices("GPU"):
        capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
        return "bfloat16" if capability and capability >= (8, 0) else "float32"
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "float32"
    return "bfloat16" if "amx_bf16" in flags or "avx512_bf16" in flags else "float32"
