"""`ginkgo coverage RUN`: how much of its sources a run has seen.

In: the state file of a run. Out: a table, and a picture of the coverage in the course of the run.
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
from ginkgo.pipeline.history import read
from ginkgo.records.files import atomic_write
from ginkgo.training.report import print_sources


@dataclass(frozen=True)
class CoverageConfig:
    """Show how much of each source a run has seen."""

    run: Annotated[Path, tyro.conf.Positional]
    """A run's directory, or its state file."""
    plot: Path | None = None
    """Where the picture goes; by default coverage.png beside the state file."""
    json: bool = False
    """Print the figures as JSON instead of a table."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, draw the picture.

    Raises:
        GinkgoError: there is no state file, or the picture cannot be written.
    """
    config = tyro.cli(CoverageConfig, prog="ginkgo coverage", args=argv)
    path = find_state(config.run)
    saved = read(path)
    sources = figures(saved)
    if config.json:
        print(json.dumps({"step": saved["step"], "mix": saved["mix"], "sources": sources}))
    else:
        print(f"{path}: after step {saved['step']:,}, --mix {saved['mix']}")
        print_sources(sources)
    place = config.plot or path.with_name("coverage.png")
    from ginkgo.training.plots import coverage_plot, png

    with atomic_write(place) as stream:
        stream.write(png(coverage_plot(curves(saved))))
    print(f"picture {place}", file=sys.stderr)
    return 0


def figures(saved: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By source the figures of a state file, without what only programs read."""
    hidden = ("bitmap", "lengths", "digests", "bandit", "since")
    return {
        name: {key: value for key, value in entry.items() if key not in hidden}
        for name, entry in saved["sources"].items()
        if entry["games"]
    }


def curves(saved: dict[str, Any]) -> dict[str, list[tuple[int, float, float]]]:
    """By source (step, coverage, epochs) in the course of the run."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for step, moment in saved["history"]:
        for name, (coverage, _pulls, epochs) in moment.items():
            if saved["sources"].get(name, {}).get("games"):
                found.setdefault(name, []).append((step, coverage, epochs))
    return found


def find_state(run: Path) -> Path:
    """The state file of a run.

    Raises:
        GinkgoError: there is none, or there are several.
    """
    if run.is_file():
        return run
    if not run.is_dir():
        raise GinkgoError(f"{run}: no such run")
    found = sorted(run.glob("*.state.json"))
    if len(found) != 1:
        there = "no state file" if not found else f"{len(found)} state files"
        raise GinkgoError(f"{run}: {there} (of a training with --coverage); name the file")
    return found[0]
