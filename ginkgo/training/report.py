"""The short report at the end of a run, on the terminal.

In: the figures that the trainer returns. Out: a table: held-out figures beside their baselines,
by source and by ply, wait fraction, and where things are.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ginkgo.training.config import TrainConfig


def print_report(config: TrainConfig, directory: Path, report: dict[str, Any]) -> None:
    """The report at the end of a run."""
    print_figures(config.run, report)
    console = _console()
    if len(report["sources"]) > 1:
        print_sources(report["sources"])
    for kind, entry in report["dropped"].items():
        console.print(f"left out: {entry['count']:,} × {kind}, first {entry['first']}")
    console.print(
        f"{report['positions']:,} positions in {report['steps']:,} steps, "
        f"{report['positions_per_second']:,.0f} positions/s, "
        f"waited for input {report['wait_fraction']:.2%} of the time",
        highlight=False,
    )
    console.print(f"model  {directory}", highlight=False)
    console.print(f"curves tensorboard --logdir {directory / 'logs'}", highlight=False)


#: Title, and by column: heading, key, format.
_TABLES = {
    "Win prediction": [
        ("accuracy", "accuracy", ".4f"),
        ("material", "material_accuracy", ".4f"),
        ("majority", "majority_accuracy", ".4f"),
        ("log loss", "log_loss", ".4f"),
        ("material ", "material_log_loss", ".4f"),
        ("Brier", "brier", ".4f"),
    ],
    "Moves": [
        ("top-1", "policy_top1", ".4f"),
        ("top-5", "policy_top5", ".4f"),
        ("most frequent", "frequent_move_top1", ".4f"),
        ("of the piece", "piece_move_top1", ".4f"),
        ("cross-entropy", "policy_cross_entropy", ".4f"),
    ],
}


def print_figures(name: str, report: dict[str, Any], where: str = "held-out games") -> None:
    """Tables of the figures over all, by source and by ply, each beside its baselines.

    Args:
        name: of the run or model. report: of `evaluation.report_of`. where: which games.
    """
    rows = [("all", report["heldout"])]
    if len(report["by_source"]) > 1:
        rows += list(report["by_source"].items())
    rows += [(f"ply {ply}", figures) for ply, figures in report["by_ply"].items()]
    for title, columns in _TABLES.items():
        if columns[0][1] not in report["heldout"]:
            continue
        table = Table(title=f"{title} on {where} ({name})")
        table.add_column("games of", justify="left")
        for heading in ("games", *(heading for heading, _, _ in columns)):
            table.add_column(heading, justify="right")
        for row, figures in rows:
            cells = [format(figures[key], shape) for _, key, shape in columns]
            table.add_row(row, f"{figures['games']:,}", *cells)
        _console().print(table)


def print_sources(sources: dict[str, dict[str, Any]]) -> None:
    """A table of what has been drawn of each source, and what it taught.

    Args:
        sources: by name what `pipeline.history.figures` and `training.sources` say of it.
    """
    table = Table(title="Sources")
    table.add_column("source", justify="left")
    shown = [
        (heading, key, shape)
        for heading, key, shape in _SOURCES
        if any(entry.get(key) is not None for entry in sources.values())
    ]
    for heading, _, _ in shown:
        table.add_column(heading, justify="right")
    for name, entry in sources.items():
        cells = [entry.get(key) for _, key, _ in shown]
        texts = [
            "" if cell is None else format(cell, shape)
            for cell, (_, _, shape) in zip(cells, shown, strict=True)
        ]
        table.add_row(name, *texts)
    _console().print(table)


_SOURCES = (
    ("games", "games", ",d"),
    ("seen", "seen", ",d"),
    ("coverage", "coverage", ".1%"),
    ("drawn", "pulls", ",.0f"),
    ("epochs", "epochs", ".2f"),
    ("bonus", "bonus", ".2f"),
    ("penalty", "penalty", ".2f"),
    ("chunks", "chunks", ",d"),
    ("reward", "reward", ".3f"),
    ("loss", "loss", ".4f"),
)


def _console() -> Console:
    # Names of sources and files may hold brackets and colons.
    width = None if Console().is_terminal else 110
    return Console(width=width, markup=False, emoji=False)


def without_nan(value: Any) -> Any:
    """JSON has no NaN: figures of nothing become null."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
