"""What to set by what was found.

In: the doctor's report. Out: sentences.
"""

from __future__ import annotations

import math
from typing import Any

#: A larger batch must be so much faster to be worth it: small ones learn more from a position.
_WORTH = 1.1
#: Readers should be so much faster than the device, so that it never waits.
_HEADROOM = 1.25
#: GiB: a run with checkpoints and curves, and some records.
_LITTLE_DISK = 2.0
#: GiB: the default pool, a validation set, TensorFlow and its readers.
_LITTLE_MEMORY = 3.0
#: GiB of shared memory below which readers may fail.
_LITTLE_SHARED = 0.1


def faults(report: dict[str, Any]) -> list[str]:
    """What keeps training from working here."""
    found = []
    if report["tensorflow"]["error"]:
        found.append(f"TensorFlow {report['tensorflow']['error']}")
    for name, version in report["versions"]["packages"].items():
        if version is None and not (name == "tensorflow" and report["tensorflow"]["version"]):
            found.append(f"{name} is missing: pip install -r requirements.txt")
    for place in report["places"]:
        if not place["writable"]:
            found.append(f"{place['what']}: {place['path']}: {place['error']}")
    return found


def advice(report: dict[str, Any]) -> list[str]:
    """Workers, batch size, precision, and what is short."""
    found = []
    best = best_step(report["steps"])
    if best is not None:
        found.append(
            f"--batch-size {best['batch_size']} --precision {best['precision']} for "
            f"{best['network']}: {best['positions_per_second']:,.0f} positions/s"
        )
    if best is not None and report["input"]:
        found.append(workers_advice(best["positions_per_second"], report))
    if report["gpu"]["driver"] and not report["gpu"]["names"]:
        found.append("the GPU is not used: see above")
    machine = report["machine"]
    if machine["load"] > 0.5 * machine["cores"]:
        found.append(
            f"other work goes on here (load {machine['load']:.1f}): the figures are too low"
        )
    if machine["memory_free_gib"] < _LITTLE_MEMORY:
        found.append("little memory is free: --pool 131072 takes less")
    for place in report["places"]:
        shared = place["what"] == "shared memory"
        least = _LITTLE_SHARED if shared else _LITTLE_DISK
        if place["free_gib"] is not None and place["free_gib"] < least:
            cure = "; a container gets more by --shm-size 1g" if shared else ""
            found.append(f"{place['path']}: only {place['free_gib']:.2f} GiB free{cure}")
    return found


def best_step(steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The trial to go by: the smallest batch that a larger one does not clearly outrun.

    >>> trial = {"precision": "float32", "network": "b5c64"}
    >>> rates = ((256, 900.0), (1024, 2000.0), (4096, 2100.0))
    >>> steps = [{**trial, "batch_size": b, "positions_per_second": r} for b, r in rates]
    >>> best_step(steps)["batch_size"]
    1024
    """
    timed = [entry for entry in steps if entry.get("positions_per_second")]
    fastest = max((entry["positions_per_second"] for entry in timed), default=0.0)
    enough = [entry for entry in timed if entry["positions_per_second"] * _WORTH >= fastest]
    return min(enough, key=lambda entry: entry["batch_size"], default=None)


def workers_advice(step_rate: float, report: dict[str, Any]) -> str:
    """How many readers keep a device of this pace busy.

    Args:
        step_rate: positions a second that the device trains.
    """
    each = max(entry["positions_per_second"] / entry["workers"] for entry in report["input"])
    needed = max(1, math.ceil(_HEADROOM * step_rate / each))
    if needed <= max(1, report["machine"]["cores"] - 1):
        return f"--workers {needed}: a reader gives {each:,.0f} positions/s, more than is needed"
    return (
        f"one step trains {step_rate:,.0f} positions/s, a reader gives {each:,.0f}: that takes "
        f"{needed} readers on {report['machine']['cores']} cores, so expect input/wait_fraction in "
        "TensorBoard to be high; SFEN records (ginkgo convert) are read faster than games"
    )
