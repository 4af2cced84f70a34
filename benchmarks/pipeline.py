"""Positions per second from SFEN text to shuffled batches that are ready to train on.

Beside it, in the same run, the naive loops of `naive.py`, and what dense planes would cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import common
import numpy as np
import psutil

from ginkgo.features import POSITION
from ginkgo.pipeline import Index, Loader, LoaderConfig, ParseOptions, build_index
from ginkgo.pipeline.batch import Batch


def run_loader(
    index: Index,
    config: LoaderConfig,
    warmup: int,
    positions: int,
    seconds: float,
    consume: Callable[[Batch], Any] | None = None,
) -> dict[str, float]:
    """Drains a loader as fast as it can, timing it once it is in its stride.

    Args:
        warmup: batches that do not count; the first has waited for the pool to fill.
        positions, seconds: it runs until both are reached.
        consume: called with each batch.

    Returns:
        `per_second`; `per_core_second`, by the CPU time of workers and parent together;
        `per_worker_core_second`, by that of the workers alone; `workers`, `positions`, `seconds`.
    """
    with Loader(index, config, say=common.say) as loader:
        stream = _acknowledged(loader)
        for _ in range(warmup):
            batch = next(stream)
            if consume:
                consume(batch)
        start, before = time.perf_counter(), _cpu_seconds(loader.pids)
        count, wall = 0, 0.0
        while wall < seconds or count < positions:
            batch = next(stream)
            if consume:
                consume(batch)
            count += len(batch.positions)
            wall = time.perf_counter() - start
        parent, workers = (
            after - earlier
            for after, earlier in zip(_cpu_seconds(loader.pids), before, strict=True)
        )
    return {
        "workers": config.workers,
        "per_second": count / wall,
        "per_core_second": count / (parent + workers),
        "per_worker_core_second": count / workers if workers else count / parent,
        "cores_used": (parent + workers) / wall,
        "positions": count,
        "seconds": wall,
    }


def _acknowledged(loader: Loader) -> Iterator[Batch]:
    """The batches, each acknowledged when the next is asked for, as the trainer does."""
    for batch in loader:
        yield batch
        loader.acknowledge(batch.number)


def _cpu_seconds(pids: list[int]) -> tuple[float, float]:
    """CPU seconds so far of this process and of the workers."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    own = time.process_time()
    return own, sum(one.user + one.system for one in times)


def plane_makers(batch_size: int) -> dict[str, Callable[[Batch], Any]]:
    """Ways to make the 119 planes of a batch, by name; compiled before they are returned."""
    import tensorflow as tf

    from ginkgo.features import dlshogi119

    @tf.function(jit_compile=True)
    def compiled(board: tf.Tensor, hand: tf.Tensor) -> tf.Tensor:
        return dlshogi119.planes_on_device(board, hand)

    def by_tensorflow(batch: Batch) -> Any:
        # Fetched, since TensorFlow may return before the work is done.
        return compiled(batch.positions["board"], batch.positions["hand"]).numpy()

    def by_numpy(batch: Batch) -> Any:
        return dlshogi119.planes_on_host(batch.positions["board"], batch.positions["hand"])

    compiled(np.zeros((batch_size, 81), np.uint8), np.zeros((batch_size, 2, 7), np.uint8))
    return {"dlshogi119_numpy": by_numpy, "dlshogi119_tensorflow": by_tensorflow}


def worker_counts(most: int) -> list[int]:
    """1, 2, 4, … and the number itself."""
    counts = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    return [*counts, most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    parser.add_argument("--workers", type=int, nargs="+", help="default: 1, 2, 4 … up to all cores")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--pool", type=int, default=1 << 18)
    parser.add_argument("--warmup", type=int, default=16, help="batches that do not count")
    parser.add_argument("--positions", type=int, default=1_000_000, help="at least so many")
    parser.add_argument("--seconds", type=float, default=10.0, help="at least so long")
    parser.add_argument("--plane-positions", type=int, default=200_000, help="with dense planes")
    parser.add_argument("--naive-seconds", type=float, default=10.0, help="for each baseline")
    parser.add_argument("--naive-shuffle", type=int, default=16384, help="tf.data's buffer")
    parser.add_argument("--naive-lines", type=int, default=20000)
    options = parser.parse_args()

    machine = common.machine()
    common.print_machine(machine)
    counts = options.workers or worker_counts(common.cores())
    with common.records(options.data, options.games) as paths:
        index = build_index(paths, "all")
        common.say(f"{index.games:,} games, {index.positions:,} positions")
        pool = max(options.batch_size, options.pool)

        def config(workers: int, features: str = "dlshogi119") -> LoaderConfig:
            parse = ParseOptions(features=features)
            return LoaderConfig(
                batch_size=options.batch_size, pool=pool, workers=workers, seed=1, parse=parse
            )

        def timed(workers: int, positions: int, seconds: float, **more: Any) -> dict[str, float]:
            features = more.pop("features", "dlshogi119")
            return run_loader(
                index, config(workers, features), options.warmup, positions, seconds, **more
            )

        # Before TensorFlow has threads, and in the order in which a person would look.
        by_workers = [timed(workers, options.positions, options.seconds) for workers in counts]
        most = by_workers[-1]
        sparse = timed(
            counts[-1], options.plane_positions, options.seconds / 2, features="ginkgo148"
        )
        planes = {
            name: timed(counts[-1], options.plane_positions, 0.0, consume=maker)
            for name, maker in plane_makers(options.batch_size).items()
        }

        # Imported here, so that readers, which import this script, need not have it.
        import naive

        lines = naive.read_lines(paths, options.naive_lines)
        baselines = naive.measure(
            lines, options.naive_seconds, options.batch_size, options.naive_shuffle
        )

    def row(name: str, figures: dict[str, float]) -> tuple:
        base = baselines["naive_packed"]["per_core_second"]
        rate = figures["per_core_second"]
        return name, figures["per_second"], rate, f"{rate / base:,.2f}"

    rows = [row(f"packed, {one['workers']:.0f} workers", one) for one in by_workers]
    rows += [row("packed with ginkgo148 codes", sparse)]
    rows += [row(f"then planes {name}", figures) for name, figures in planes.items()]
    rows += [row(name, figures) for name, figures in baselines.items()]
    common.table(("", "positions/s", "per core second", "× naive_packed"), rows)
    bytes_packed, bytes_planes = POSITION.itemsize, 119 * 81 * 4
    common.say(f"bytes per position: {bytes_packed} packed, {bytes_planes:,} as planes in float32")

    per_core = most["per_core_second"]
    common.finish(
        {
            "positions_per_second": most["per_second"],
            "workers": counts[-1],
            "positions_per_second_per_core": per_core,
            "ratio_to_naive": per_core / baselines["naive_packed"]["per_core_second"],
            "by_workers": by_workers,
            "naive_packed_per_second": baselines["naive_packed"]["per_second"],
            "naive_148_planes_per_second": baselines["naive_148_planes"]["per_second"],
            "from_generator_per_second": baselines["from_generator"]["per_second"],
            "ginkgo148_codes": sparse,
            "ratio_148_to_naive": sparse["per_core_second"]
            / baselines["naive_148_planes"]["per_core_second"],
            "planes": planes,
            "baselines": baselines,
            "bytes_per_position": {"packed": bytes_packed, "planes": bytes_planes},
            "batch_size": options.batch_size,
            "pool": pool,
            "positions_in_data": index.positions,
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
