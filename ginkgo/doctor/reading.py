"""How fast this machine reads: positions a second from files to shuffled batches.

In: paths and seconds. Out: dictionaries. TensorFlow is not needed for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ginkgo.doctor.look import cores

#: Small, so that the clock can start soon; the pool's size does not decide the pace.
_POOL, _BATCH = 16_384, 1_024
_SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def time_reading(data: Sequence[Path], seconds: float) -> list[dict[str, Any]]:
    """The loader's pace with one reader, and with one per core but one.

    Args:
        data: records or games; none: the bundled sample, where it is at hand.
        seconds: in all.

    Returns:
        of each try `workers`, `positions_per_second`, `data`; none where there is nothing to read.

    Raises:
        GinkgoError: paths that the user named cannot be read.
    """
    from ginkgo.pipeline.scan import Scan

    if not data and not _SAMPLE.is_dir():
        return []
    paths = data or (_SAMPLE,)
    index = Scan(paths).view("all")
    tries = sorted({1, max(1, min(8, cores() - 1))})
    name = " ".join(map(str, data)) or "bundled sample"
    return [
        {
            "workers": workers,
            "positions_per_second": _pace(index, workers, seconds / len(tries)),
            "data": name,
        }
        for workers in tries
    ]


def _pace(index: Any, workers: int, seconds: float) -> float:
    from ginkgo.pipeline.loader import Loader, LoaderConfig

    config = LoaderConfig(batch_size=_BATCH, pool=_POOL, workers=workers)
    with Loader(index, config, say=lambda _text: None) as batches:
        for _ in range(config.prefetch + 1):  # the start of the processes, and what lay ready
            next(batches)
        start, count = time.perf_counter(), 0
        while not count or time.perf_counter() - start < seconds:
            next(batches)
            count += 1
        return count * _BATCH / (time.perf_counter() - start)
