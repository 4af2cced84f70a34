"""Which devices train together, and which process speaks for all of them.

In: `--distribute` and, for several machines, the environment variable TF_CONFIG. Out: a
`Distribution`: the strategy under which weights are made and steps run, the share of the data that
this process reads, and the little that processes must agree on outside a step.

Every replica takes its part of a batch; gradients are added up, and the statistics of BatchNorm
averaged, so that all weights stay equal everywhere (synchronous data parallelism: Goyal et al.,
"Accurate, Large Minibatch SGD", 2017, section 2.3).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError

_EXPECTED = (
    'expected {"cluster": {"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}'
)


@dataclass(frozen=True)
class Distribution:
    """Who trains."""

    strategy: tf.distribute.Strategy
    worker: int = 0
    """Number of this process."""
    workers: int = 1
    """Processes that train together."""

    @property
    def replicas(self) -> int:
        """Devices of all processes."""
        return self.strategy.num_replicas_in_sync

    @property
    def replicas_here(self) -> int:
        """Devices of this process."""
        return self.replicas // self.workers

    @property
    def chief(self) -> bool:
        """Whether this process writes checkpoints, logs and the model, and talks to people."""
        return self.worker == 0

    def local_batch(self, batch_size: int) -> int:
        """This process's part of a batch.

        Raises:
            GinkgoError: the batch does not divide evenly.
        """
        if batch_size % self.replicas or batch_size // self.replicas < 2:
            expected = (
                f"a multiple of {self.replicas}, two or more for each device that trains"
                if self.replicas > 1
                else "at least 2"
            )
            raise GinkgoError(f"--batch-size {batch_size}: expected {expected}")
        return batch_size // self.workers

    def spread(self, parts: list[Any]) -> Any:
        """One element for each device of this process, as `strategy.run` takes it."""
        if self.replicas == 1:
            return parts[0]
        first = self.worker * self.replicas_here
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group - first]
        )

    def on_first_device(self, value: Any) -> Any:
        """What the first device of this process holds of a result that all have alike."""
        return self.strategy.experimental_local_results(value)[0]

    # --- between processes --------------------------------------------------------------------

    def total(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums over all processes, (n,) int64; all must call it, with arrays of one length."""
        if self.workers == 1:
            return numbers
        nothing = np.zeros_like(numbers)
        parts = [numbers, *[nothing] * (self.replicas_here - 1)]
        spread = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group % len(parts)])
        )
        return self.on_first_device(_sums(self.strategy)(spread)).numpy()

    def anywhere(self, flag: bool) -> bool:
        """Whether it is so in any process; all must call it."""
        return bool(self.total(np.array([flag], np.int64))[0])

    def gathered(self, data: bytes) -> list[bytes]:
        """What each process gives, in their order; all must call it."""
        if self.workers == 1:
            return [data]
        lengths = np.zeros(self.workers, np.int64)
        lengths[self.worker] = len(data)
        lengths = self.total(lengths)
        words = -(-lengths // 8)
        bounds = np.concatenate([[0], np.cumsum(words)])
        everything = np.zeros(bounds[-1], np.int64)
        mine = np.frombuffer(data.ljust(8 * int(words[self.worker]), b"\0"), np.int64)
        everything[bounds[self.worker] : bounds[self.worker + 1]] = mine
        everything = self.total(everything)
        return [
            everything[low:high].tobytes()[:length]
            for low, high, length in zip(bounds, bounds[1:], lengths, strict=False)
        ]


_compiled: dict[int, Callable] = {}


def _sums(strategy: tf.distribute.Strategy) -> Callable:
    """Adds up int64 vectors over all replicas, compiled once for a strategy."""

    def add(numbers):
        context = tf.distribute.get_replica_context()
        # The identity has a device, an argument has none, and a sum is made where its parts are.
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(numbers))

    if id(strategy) not in _compiled:
        _compiled[id(strategy)] = tf.function(
            lambda spread: strategy.run(add, (spread,)), reduce_retracing=True, autograph=False
        )
    return _compiled[id(strategy)]


def choose(distribute: str) -> Distribution:
    """The distribution that `--distribute` asks for.

    `multiworker` must come before TensorFlow does anything else.

    Args:
        distribute: empty, `mirrored` (all GPUs of this machine; without one, all logical CPUs),
            or `multiworker` (as TF_CONFIG says).

    Raises:
        GinkgoError: TF_CONFIG is missing or malformed, or the workers cannot reach each other.
    """
    match distribute:
        case "mirrored":
            kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
            devices = [device.name for device in tf.config.list_logical_devices(kind)]
            return Distribution(tf.distribute.MirroredStrategy(devices))
        case "multiworker":
            workers, index = _read_tf_config(os.environ.get("TF_CONFIG", ""))
            try:
                strategy = tf.distribute.MultiWorkerMirroredStrategy()
            except (tf.errors.OpError, RuntimeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise GinkgoError(f"the workers of TF_CONFIG did not meet: {reason}") from None
            return Distribution(strategy, index, workers)
    return Distribution(tf.distribute.get_strategy())


def _read_tf_config(text: str) -> tuple[int, int]:
    """Number of workers, and which of them this is."""
    if not text:
        raise GinkgoError(f"--distribute multiworker: TF_CONFIG is not set; {_EXPECTED}")
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        workers = cluster["worker"]
        index = int(task["index"])
        well = task["type"] == "worker" and set(cluster) == {"worker"} and len(workers) > 0
    except (ValueError, KeyError, TypeError):
        raise GinkgoError(f"TF_CONFIG {text}: {_EXPECTED}") from None
    if not well or not all(isinstance(worker, str) and ":" in worker for worker in workers):
        raise GinkgoError(f"TF_CONFIG {text}: {_EXPECTED}")
    if not 0 <= index < len(workers):
        raise GinkgoError(
            f"TF_CONFIG: task index {index}, but there are {len(workers)} workers, 0 to "
            f"{len(workers) - 1}"
        )
    return len(workers), index


def split_packed(packed: tuple[tf.Tensor, ...], parts: int) -> list[tuple[tf.Tensor, ...]]:
    """A packed batch (`tfdata.packed_signature`) in equal runs of positions."""
    rows, numbers, *ragged = packed
    size = tf.shape(rows)[0] // parts
    found = []
    for part in range(parts):
        low, high = part * size, (part + 1) * size
        mine = [rows[low:high], numbers]
        for values, offsets in zip(ragged[::2], ragged[1::2], strict=True):
            begin, end = offsets[low], offsets[high]
            mine += [values[begin:end], offsets[low : high + 1] - begin]
        found.append(tuple(mine))
    return found
