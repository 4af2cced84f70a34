"""What the benchmarks share: where the data comes from, what the machine is, how figures go out.

Importing this puts the checkout on the path, so that the scripts run without an installation; it
is imported before anything of ginkgo. It does not import TensorFlow: reader processes import the
script that started them once more.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SAMPLE = ROOT / "data" / "sample"
_LIBRARIES = (
    "numpy",
    "numba",
    "onnxruntime",
    "tensorflow",
    "keras",
    "cshogi",
    "python-shogi",
    "rsshogi",
    "psutil",
)


# --- the machine ------------------------------------------------------------------------------


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the figures were measured on; call it before the work begins, for the load."""
    import psutil

    versions = {}
    for name in _LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libraries": versions,
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def print_machine(what: dict[str, Any]) -> None:
    """One line about the machine, and a warning where it is not idle."""
    say(
        f"{what['cpu']}, {what['cores']} cores, {what['memory_gib']} GiB, "
        f"Python {what['python']}, load {what['load_average'][0]}"
    )
    say(", ".join(f"{name} {version}" for name, version in what["libraries"].items()))
    if what["load_average"][0] > 0.5:
        say("The machine was not idle at the start: the figures are worth little.")


# --- data -------------------------------------------------------------------------------------


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """`--data` and `--games`, which `records` takes."""
    parser.add_argument(
        "--data",
        nargs="+",
        default=[str(SAMPLE)],
        metavar="PATH",
        help="SFEN records, or games, which are converted first (default: data/sample)",
    )
    parser.add_argument(
        "--games", type=int, default=0, metavar="N", help="only the first N games (0: all)"
    )


@contextlib.contextmanager
def records(data: Sequence[str], games: int = 0, copies: int = 1) -> Iterator[list[str]]:
    """Paths of SFEN records, in a temporary folder where they have to be made.

    Args:
        data: records or games, as the user gave them.
        games: only so many games of game files; 0: all.
        copies: how often everything is there, each time under other names of games.
    """
    from ginkgo.records.files import plain_suffix
    from ginkgo.records.sources import RECORD_SUFFIXES, find_sources

    files = [file for source in find_sources(data) for file in source.files]
    with tempfile.TemporaryDirectory(prefix="ginkgo-bench-") as scratch:
        folder = Path(scratch)
        if any(plain_suffix(file) not in RECORD_SUFFIXES for file in files):
            files = _converted(files, games, folder / "converted")
        if copies == 1:
            yield [str(file) for file in files]
            return
        yield [str(file) for file in _copied(files, copies, folder / "copies")]


def _converted(files: Sequence[Path], games: int, folder: Path) -> list[Path]:
    """All splits of what `ginkgo convert` makes of these files of games."""
    from ginkgo.records.convert import ConvertConfig
    from ginkgo.records.convert.run import convert
    from ginkgo.records.files import open_binary

    if games:
        few = folder.with_name("few.usi")
        with few.open("wb") as stream:
            for file in files:
                with open_binary(file) as lines:
                    stream.writelines(itertools.islice(lines, games))
        files = [few]
    sources = tuple(str(file) for file in files)
    convert(ConvertConfig(sources=sources, out=str(folder), workers=1 if games else 0))
    return sorted(folder.glob("*/*.sfenx"))


def _copied(files: Sequence[Path], copies: int, folder: Path) -> list[Path]:
    """Distinct copies of the files as shards of one source, their games renamed."""
    from ginkgo.records.files import open_binary

    folder.mkdir()
    copied = []
    for file in files:
        with open_binary(file) as stream:
            text = stream.read()
        for copy in range(copies):
            path = folder / f"copies-{len(copied):05d}.sfenx"
            path.write_bytes(re.sub(rb"(,game=[^,\n]*)", rb"\1.%d" % copy, text))
            copied.append(path)
    return copied


# --- results ----------------------------------------------------------------------------------


def say(text: str = "") -> None:
    """A line for the person who watches; stdout is for the JSON."""
    print(text, file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for the person who watches, numbers to the right."""
    cells = [[_cell(value) for value in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    say()
    for row in cells:
        parts = [
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(parts).rstrip())
    say()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def finish(result: dict[str, Any]) -> None:
    """The result as the last line of stdout."""
    print(json.dumps(_rounded(result)), flush=True)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
