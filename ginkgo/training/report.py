"""The short report at the end of a run, on the terminal.

In: the figures that the trainer returns. Out: a table: held-out figures beside their baselines,
by source and by ply, wait fraction, and where things are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ginkgo.training.config import TrainConfig


def print_report(config: TrainConfig, directory: Path, report: dict[str, Any]) -> None:
    """Print it."""
    console = Console(width=None if Console().is_terminal else 110)
    heldout = report["heldout"]
    if "accuracy" in heldout:
        table = Table(title=f"Win prediction on held-out games ({config.run})")
        table.add_column("games of", justify="left")
        for name in (
            "games",
            "accuracy",
            "material",
            "majority",
            "log loss",
            "material ",
            "Brier",
        ):
            table.add_column(name, justify="right")
        rows = [("all", heldout)]
        if len(report["by_source"]) > 1:
            rows += list(report["by_source"].items())
        rows += [(f"ply {ply}", figures) for ply, figures in report["by_ply"].items()]
        for name, figures in rows:
            table.add_row(
                name,
                f"{figures['games']:,}",
                f"{figures['accuracy']:.4f}",
                f"{figures['material_accuracy']:.4f}",
                f"{figures['majority_accuracy']:.4f}",
                f"{figures['log_loss']:.4f}",
                f"{figures['material_log_loss']:.4f}",
                f"{figures['brier']:.4f}",
            )
        console.print(table)
    if "policy_top1" in heldout:
        console.print(
            f"Moves on held-out games: top-1 {heldout['policy_top1']:.4f}, top-5 "
            f"{heldout['policy_top5']:.4f}, cross-entropy {heldout['policy_cross_entropy']:.4f}; "
            f"the most frequent move alone {heldout['most_frequent_move']:.4f}"
        )
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
