"""How long a training loop waits for data: a stand-in device that eats at a fixed pace.

The loop takes batches as the trainer does, through `tf.data`, and is measured by the trainer's own
clock (`InputClock`). Batch k is due to be finished at start + k · batch / rate, whatever came
before, so a loop that was late once does not lower the pace that is asked for. The result counts
only where the device kept its pace: `consumed_per_second` at least 99 % of `rate`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import common
import numpy as np

from ginkgo.pipeline import Index, Loader, LoaderConfig, build_index

#: Less than this share of the pace, and the device did not eat what it was meant to.
PACE_KEPT = 0.99


def starve(
    index: Index, config: LoaderConfig, rate: float, warmup: float, seconds: float
) -> dict[str, Any]:
    """Runs the loop for `warmup` + `seconds` seconds of the device's time.

    Returns:
        `wait_fraction` (waits above the clock's floor ÷ wall time), `consumed_per_second`, and
        the waits in milliseconds.
    """
    # Imported here, since reader processes import this script and do without TensorFlow.
    from ginkgo.pipeline.tfdata import dataset_of
    from ginkgo.training.clock import InputClock

    with Loader(index, config, say=common.say, ahead=True) as loader:
        data = dataset_of(lambda: loader, config.parse.ragged, close=False, packed=True)
        clock = InputClock(iter(data))
        step = config.batch_size / rate
        skipped = max(1, round(warmup / step))
        total = skipped + max(1, round(seconds / step))
        waits: list[float] = []
        fills: list[int] = []
        start = counted_from = time.perf_counter()
        for number, batch in enumerate(clock):
            if number == 0:
                # The first batch waited for the pool to fill, and the clock for its floor.
                start = time.perf_counter()
            elif number > skipped:
                waits.append(clock.last_wait)
            batch_number, _epoch, fill = batch[1].numpy().tolist()
            fills.append(fill)
            loader.acknowledge(batch_number)
            left = start + (number + 1) * step - time.perf_counter()
            if left > 0:
                time.sleep(left)
            if number == skipped:
                counted_from = time.perf_counter()
            if number == total:
                break
        wall = time.perf_counter() - counted_from
    consumed = len(waits) * config.batch_size / wall
    above = max(0.0, sum(waits) - len(waits) * clock.floor)
    return {
        "wait_fraction": above / wall,
        "consumed_per_second": consumed,
        "pace_kept": consumed >= PACE_KEPT * rate,
        "floor_ms": 1e3 * clock.floor,
        "wait_ms": {
            "median": 1e3 * float(np.median(waits)),
            "p99": 1e3 * float(np.quantile(waits, 0.99)),
            "max": 1e3 * max(waits),
        },
        "pool_fill_min": min(fills[skipped:]),
        "batches": len(waits),
        "seconds": wall,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    parser.add_argument("--rate", type=float, default=100_000.0, help="positions per second")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--pool", type=int, default=1 << 18)
    parser.add_argument("--warmup", type=float, default=5.0, help="seconds that do not count")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds that count")
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)
    config = LoaderConfig(
        batch_size=options.batch_size,
        pool=max(options.pool, options.batch_size),
        workers=options.workers,
        seed=1,
    )
    with common.records(options.data, options.games) as paths:
        index = build_index(paths, "all")
        result = starve(index, config, options.rate, options.warmup, options.seconds)
    waits = result["wait_ms"]
    common.table(
        ("", "value"),
        [
            ("asked for, positions/s", options.rate),
            ("consumed, positions/s", result["consumed_per_second"]),
            ("wait fraction", f"{result['wait_fraction']:.3%}"),
            ("clock's floor, ms", result["floor_ms"]),
            ("wait for a batch, ms: median", waits["median"]),
            ("99 % are below", waits["p99"]),
            ("longest", waits["max"]),
            ("least positions in the pool", result["pool_fill_min"]),
        ],
    )
    if not result["pace_kept"]:
        common.say("The device did not keep its pace: the wait fraction does not count.")
    common.finish(
        {
            **result,
            "rate": options.rate,
            "workers": options.workers,
            "batch_size": options.batch_size,
            "pool": config.pool,
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
