"""Positions per second that a model answers, by evaluator and batch size.

The same network as Keras plays it and as exported: ONNX in float and int8, LiteRT in float and
int8. All get planes that are there already, on as many threads as each takes by itself; `--cores`
pins the process.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

FORMATS = {
    "onnx": ("onnx", ""),
    "onnx_int8": ("onnx", "int8"),
    "litert": ("litert", ""),
    "litert_int8": ("litert", "int8"),
}


def speed(run: Callable[[np.ndarray], Any], planes: np.ndarray, seconds: float) -> float:
    """Positions per second of calling `run` again and again."""
    for _ in range(3):
        run(planes)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        run(planes)
        count += len(planes)
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pretrained", help="model directory")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each figure")
    parser.add_argument("--cores", type=int, default=0, help="pin to so many cores; 0: all")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--data", nargs="+", type=Path, default=[common.SAMPLE], metavar="PATH")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    machine = common.machine()
    common.print_machine(machine)

    from ginkgo.models import load_config, load_model
    from ginkgo.models.export import export, real_planes, runner_of

    features = load_config(options.model)["features"]
    planes = real_planes(options.data, features, 1024)
    model, _ = load_model(options.model)
    runners: dict[str, Callable[[np.ndarray], Any]] = {
        "keras": lambda part: model.predict_on_batch(part.transpose(0, 2, 3, 1))
    }
    agreement = {}
    with tempfile.TemporaryDirectory(prefix="ginkgo-bench-") as scratch:
        for name in options.formats:
            to, quantize = FORMATS[name]
            path = Path(scratch) / name
            found = export(options.model, path, to, planes[:512], planes[512:], quantize)
            agreement[name] = found.top1_agreement
            runners[name] = runner_of(path, to)
    figures: dict[str, dict[str, float]] = {}
    for name, run in runners.items():
        figures[name] = {}
        for size in options.batch_sizes:
            figures[name][str(size)] = speed(run, planes[:size], options.seconds)
    common.table(
        ("positions/s", *(f"batch {size}" for size in options.batch_sizes), "same best move"),
        [(name, *found.values(), agreement.get(name, 1.0)) for name, found in figures.items()],
    )
    common.finish(
        {"positions_per_second": figures, "top1_agreement": agreement,
         "model": str(options.model), "machine": machine}
    )  # fmt: skip


if __name__ == "__main__":
    main()
