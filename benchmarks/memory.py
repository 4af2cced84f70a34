"""Whether memory grows with the data: peak memory of the loader with 1× and 10× the data.

A fresh process drains a loader for one epoch while this one sums, again and again, the
proportional set sizes (PSS) of that process and all below it, so that shared memory counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import common
import psutil

from ginkgo.pipeline import Loader, LoaderConfig, build_index

MIB = 2**20


def drain(paths: list[str], config: LoaderConfig, acknowledge: bool) -> None:
    """The process that is watched: takes all batches and says how many positions there were."""
    count = 0
    with Loader(build_index(paths, "all"), config, say=common.say) as loader:
        for batch in loader:
            count += len(batch.positions)
            if acknowledge:
                loader.acknowledge(batch.number)
    print(json.dumps({"positions": count}))


def tree_pss(process: psutil.Process) -> int:
    """Bytes of a process and all its descendants; those that have just ended count 0."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{one.pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += 1024 * int(line.split()[1])
    return total


def watch(command: list[str], interval: float) -> dict[str, float]:
    """Runs `drain` in a process of its own.

    Args:
        interval: seconds between looks.

    Returns:
        `peak_mib`, `positions`, `looks`.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak, looks = 0, 0
    root = psutil.Process(process.pid)
    while process.poll() is None:
        peak, looks = max(peak, tree_pss(root)), looks + 1
        time.sleep(interval)
    assert process.stdout is not None
    output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"the loader ended with status {process.returncode}")
    positions = json.loads(output.splitlines()[-1])["positions"]
    return {"peak_mib": peak / MIB, "positions": positions, "looks": looks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    parser.add_argument("--copies", type=int, default=10, help="how much more data")
    parser.add_argument("--pool", type=int, default=1 << 16)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--interval", type=float, default=0.02, help="seconds between looks")
    parser.add_argument(
        "--acknowledge", action="store_true", help="tell the loader of trained batches"
    )
    parser.add_argument("--epochs", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--drain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drain:
        config = LoaderConfig(
            batch_size=options.batch_size,
            pool=options.pool,
            workers=options.workers,
            epochs=options.epochs,
            seed=1,
        )
        drain(options.data, config, options.acknowledge)
        return
    if not Path("/proc/self/smaps_rollup").exists():
        raise SystemExit("this needs Linux: /proc/PID/smaps_rollup")
    machine = common.machine()
    common.print_machine(machine)
    command = [sys.executable, __file__, "--drain"]
    for name in ("pool", "batch_size", "workers"):
        command += ["--" + name.replace("_", "-"), str(getattr(options, name))]
    command += ["--acknowledge"] * options.acknowledge
    with (
        common.records(options.data, options.games) as once,
        common.records(once, copies=options.copies) as many,
    ):
        small = watch([*command, "--data", *once], options.interval)
        # As many positions from little data: what grows here grows with time, not with data.
        long = watch([*command, "--epochs", str(options.copies), "--data", *once], options.interval)
        large = watch([*command, "--data", *many], options.interval)
    growth = large["peak_mib"] / small["peak_mib"] - 1
    growth_with_time = long["peak_mib"] / small["peak_mib"] - 1
    more = f"{options.copies}×"
    rows = [
        ("1× the data, 1 epoch", small),
        (f"1× the data, {options.copies} epochs", long),
        (f"{more} the data, 1 epoch", large),
    ]
    common.table(
        ("", "positions", "peak MiB", "looks"),
        [(name, one["positions"], one["peak_mib"], one["looks"]) for name, one in rows],
    )
    common.say(f"{more} the data: {growth:+.1%} memory")
    if small["positions"] < 2 * options.pool:
        common.say("The data is less than two pools: the growth is not that of a full pool.")
    common.finish(
        {
            "growth": growth,
            "growth_with_time": growth_with_time,
            "peak_1x_mib": small["peak_mib"],
            "peak_10x_mib": large["peak_mib"],
            "peak_1x_long_mib": long["peak_mib"],
            "positions_1x": small["positions"],
            "positions_10x": large["positions"],
            "copies": options.copies,
            "pool": options.pool,
            "batch_size": options.batch_size,
            "workers": options.workers,
            "acknowledge": options.acknowledge,
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
