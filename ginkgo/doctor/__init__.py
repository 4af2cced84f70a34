"""`ginkgo doctor`: what this machine has, how fast it reads and trains, and what to set by it.

In: the options of the verb. Out: lines for people or one JSON object, and an exit status that says
whether training can work here.

`look` asks what is there, `device` (a process of its own, since a broken TensorFlow takes its
process with it) loads TensorFlow and times steps, `reading` times the input, `advice` draws the
conclusions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ginkgo.errors import GinkgoError


@dataclass(frozen=True)
class DoctorConfig:
    """Say what this machine has, how fast it reads and trains, and what to set by it."""

    data: tuple[Path, ...] = ()
    """Records or games that the input benchmark reads; by default the bundled sample."""
    network: str = ""
    """Blocks and filters for the step benchmark; empty: b10c192 on a GPU, else b5c64."""
    batch_sizes: tuple[int, ...] = ()
    """For the step benchmark; by default 256, 1024 and 4096 on a GPU, else 128 and 512."""
    seconds: float = 5.0
    """Of each of the two benchmarks, compiling not counted; 0: none."""
    runs: Path = Path("runs")
    """Where runs would be kept: is it writable, and how much is free there."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object."""


def main(argv: Sequence[str] | None = None) -> int:
    """Look, measure, print.

    Returns:
        the exit status: 0, or 1 where training cannot work here.

    Raises:
        GinkgoError: a user's mistake: seconds out of range, no such network, unreadable data.
    """
    config = tyro.cli(DoctorConfig, prog="ginkgo doctor", args=argv)
    if not 0 <= config.seconds <= 600:
        raise GinkgoError(f"--seconds {config.seconds:g}: expected 0 to 600")
    if any(size < 2 for size in config.batch_sizes):
        raise GinkgoError(f"--batch-sizes {min(config.batch_sizes)}: expected at least 2")
    report = examine(config)
    if config.json:
        print(json.dumps(report, ensure_ascii=False))
    else:
        for line in as_text(report):
            print(line)
    return 1 if report["faults"] else 0


def examine(config: DoctorConfig) -> dict[str, Any]:
    """All that the doctor finds, as `--json` prints it.

    Returns:
        `versions`, `tensorflow`, `gpu`, `machine`, `places`, `input`, `steps`, `advice` (a list of
        sentences) and `faults` (what keeps training from working; empty where it works).
    """
    from ginkgo.doctor import advice, look
    from ginkgo.doctor.device import ask
    from ginkgo.doctor.reading import time_reading

    report: dict[str, Any] = {
        "versions": look.versions(),
        "machine": look.machine(),
        "places": look.places(config.runs),
    }
    _say("loading TensorFlow and timing steps …")
    device = ask(config.network, config.seconds, config.batch_sizes)
    report["tensorflow"] = device["tensorflow"]
    report["gpu"] = look.gpu(device)
    report["steps"] = device["steps"]
    report["input"] = []
    if config.seconds:
        _say("timing the input …")
        report["input"] = time_reading(config.data, config.seconds)
    report["faults"] = advice.faults(report)
    report["advice"] = advice.advice(report)
    return report


def as_text(report: dict[str, Any]) -> list[str]:
    """The report for people, a line each."""
    found, machine, tensorflow = report["versions"], report["machine"], report["tensorflow"]
    lines = [f"ginkgo {found['ginkgo']}, Python {found['python']}, {machine['system']}"]
    lines.append("  " + ", ".join(f"{k} {v or 'missing'}" for k, v in found["packages"].items()))
    lines += [f"  ! {text}" for text in found["differences"]]
    lines.append(
        f"processor: {machine['processor']}, {machine['cores']} cores for this process of "
        f"{machine['cores_of_machine']}, load {machine['load']:.1f}"
    )
    lines.append(
        f"memory: {machine['memory_free_gib']:.1f} of {machine['memory_gib']:.1f} GiB free"
    )
    if tensorflow["error"]:
        lines.append(f"TensorFlow: {tensorflow['error']}")
    else:
        build = "with CUDA" if tensorflow["cuda"] else "without CUDA"
        lines.append(f"TensorFlow {tensorflow['version']}, built {build}")
    gpu = report["gpu"]
    lines.append("GPU: " + (", ".join(gpu["names"]) if gpu["names"] else f"none: {gpu['why']}"))
    for place in report["places"]:
        state = "writable" if place["writable"] else f"cannot be written to ({place['error']})"
        free = f", {place['free_gib']:.1f} GiB free" if place["free_gib"] is not None else ""
        lines.append(f"{place['what']}: {place['path']} {state}{free}")
    for entry in report["input"]:
        lines.append(
            f"input: {entry['positions_per_second']:,.0f} positions/s with {entry['workers']} "
            f"reader{'s' if entry['workers'] > 1 else ''} ({entry['data']})"
        )
    for entry in report["steps"]:
        rate = entry.get("positions_per_second")
        what = f"{rate:,.0f} positions/s" if rate else f"failed: {entry['error']}"
        lines.append(
            f"step of {entry['network']}, batch {entry['batch_size']}, {entry['precision']}: {what}"
        )
    lines += [f"advice: {text}" for text in report["advice"]]
    lines += [f"FAULT: {text}" for text in report["faults"]]
    if not report["faults"]:
        lines.append("ginkgo can train here")
    return lines


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
