"""TensorFlow on this machine: does it load, which devices has it, how fast is a training step.

In: a network's name and seconds. Out: dictionaries.

It works in a process of its own (`python -m ginkgo.doctor.device`), which writes a line of JSON as
soon as something is known: a TensorFlow that takes its process with it (a processor without AVX, a
GPU out of memory) leaves what was found before. What TensorFlow logs is kept, for it says there
why it uses no GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from ginkgo.errors import GinkgoError

#: Networks that are timed unless another is asked for.
ON_GPU, ON_PROCESSOR = "b10c192", "b5c64"
#: Batch sizes that are timed.
GPU_BATCHES, PROCESSOR_BATCHES = (256, 1024, 4096), (128, 512)
#: The process may take so long besides its seconds of measuring: loading and compiling.
_PATIENCE_S = 600


def ask(network: str, seconds: float, batch_sizes: Sequence[int] = ()) -> dict[str, Any]:
    """What TensorFlow has and does here.

    Args:
        network: that is timed; empty: by the device.
        seconds: of timing in all; 0: none.
        batch_sizes: that are timed; empty: by the device.

    Returns:
        `tensorflow` (`version`, `cuda`, `error`), `gpus` (names), `log` (lines that TensorFlow
        wrote), `steps` (a dictionary each: `network`, `batch_size`, `precision`,
        `positions_per_second`, or `error`).

    Raises:
        GinkgoError: no network has this name.
    """
    found: dict[str, Any] = {
        "tensorflow": {"version": None, "cuda": None, "error": ""},
        "gpus": [],
        "log": [],
        "steps": [],
    }
    command = [sys.executable, "-m", "ginkgo.doctor.device", network, str(seconds)]
    command += map(str, batch_sizes)
    surroundings = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONUNBUFFERED": "1"}
    surroundings.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")  # as `ginkgo train` does
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env=surroundings,
            timeout=_PATIENCE_S + seconds,
        )
        output, log, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as slow:
        output, log, status = _text(slow.stdout), _text(slow.stderr), None
    for line in output.splitlines():
        if line.startswith("{"):
            said = json.loads(line)
            if "step" in said:
                found["steps"].append(said["step"])
            else:
                found.update(said)
    if "mistake" in found:
        raise GinkgoError(f"--network: {found['mistake']}")
    found["log"] = log.splitlines()
    if status != 0:
        _explain(found, status)
    return found


def _text(stream: bytes | str | None) -> str:
    return stream.decode(errors="replace") if isinstance(stream, bytes) else stream or ""


def _explain(found: dict[str, Any], status: int | None) -> None:
    """Why the process did not come to its end, where that belongs."""
    if status is None:
        why = f"no answer within {_PATIENCE_S} s"
    elif status < 0:
        why = f"ended by {signal.Signals(-status).name}"
    else:
        why = next((line for line in reversed(found["log"]) if line.strip()), f"status {status}")
    if found["tensorflow"]["version"] is None:
        found["tensorflow"]["error"] = f"does not load: {why}"
    else:
        last = {"network": "", "batch_size": 0, "precision": "", **found.get("trying", {})}
        found["steps"].append({**last, "error": why})


# --- in the process ---------------------------------------------------------------------------


def _tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _measure(network: str, seconds: float, batch_sizes: Sequence[int]) -> None:
    import tensorflow as tf

    from ginkgo.models import parse_network
    from ginkgo.training.recipe import choose_precision

    gpus = tf.config.list_physical_devices("GPU")
    names = [
        str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
        for gpu in gpus
    ]
    build = tf.sysconfig.get_build_info()
    _tell(
        tensorflow={
            "version": tf.__version__,
            "cuda": build.get("cuda_version") if build.get("is_cuda_build") else None,
            "error": "",
        },
        gpus=names,
    )
    if not seconds:
        return
    network = network or (ON_GPU if gpus else ON_PROCESSOR)
    try:
        parse_network(network)
    except GinkgoError as error:
        _tell(mistake=str(error))
        return
    precisions = ["float32"]
    if choose_precision("auto") == "bfloat16":
        precisions.insert(0, "bfloat16")
    batches = batch_sizes or (GPU_BATCHES if gpus else PROCESSOR_BATCHES)
    trials = [(batch, precision) for precision in precisions for batch in batches]
    for batch, precision in trials:
        trial = {"network": network, "batch_size": batch, "precision": precision}
        _tell(trying=trial)
        try:
            rate = _step_rate(network, batch, precision, seconds / len(trials))
        except tf.errors.ResourceExhaustedError:
            _tell(step={**trial, "error": "out of memory"})
            continue
        _tell(step={**trial, "positions_per_second": rate})


def _step_rate(network: str, batch_size: int, precision: str, seconds: float) -> float:
    """Positions per second of the training step with both heads, on constant data."""
    from pathlib import Path

    import numpy as np
    import tensorflow as tf

    from ginkgo.features.position import POSITION
    from ginkgo.models import build_network, parse_network
    from ginkgo.training.config import TrainConfig
    from ginkgo.training.recipe import WeightAverage, make_optimizer
    from ginkgo.training.step import TrainStep, channels_of

    config = TrainConfig(data=(Path(),), heads=("policy", "value"), network=network)
    channels = channels_of(config.features)
    model = build_network(parse_network(network), channels, config.heads, precision)
    step = TrainStep(model, make_optimizer(config, model), WeightAverage(model, config.ema), config)
    # Empty boards: what a step costs does not depend on what stands on them.
    positions = np.zeros(batch_size, POSITION)
    positions["weight"] = 1
    for name in ("score", "outcome", "root_value"):
        positions[name] = np.nan
    batch = {name: tf.constant(positions[name]) for name in POSITION.names or ()}
    for number in range(2):  # compiles, and touches the memory
        float(step(batch, 1e-3, number)["loss"])
    start, count = time.perf_counter(), 0
    while not count or time.perf_counter() - start < seconds:
        float(step(batch, 1e-3, count)["loss"])
        count += 1
    return count * batch_size / (time.perf_counter() - start)


if __name__ == "__main__":
    _measure(sys.argv[1], float(sys.argv[2]), [int(size) for size in sys.argv[3:]])
