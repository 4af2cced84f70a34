"""What is told of a conversion: counts by source, the report, the manifests, the table.

In: `Tally`s. Out: JSON and text.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ginkgo.records.convert.config import ConvertConfig
from ginkgo.records.convert.passes import ALL, Shard
from ginkgo.records.files import passed_over
from ginkgo.records.game import SPLITS, Refusal
from ginkgo.records.split import Split


@dataclass
class Tally:
    """Counts of one source."""

    split: Split = field(default_factory=Split)
    held: dict[int, str] = field(default_factory=dict)
    """Games that another source holds out, by hash, and why."""
    shards: dict[str, list[Shard]] = field(
        default_factory=lambda: {name: [] for name in (*SPLITS, ALL)}
    )
    refused: list[Refusal] = field(default_factory=list)
    left_out: int = 0
    duplicates: int = 0
    endings: Counter[str] = field(default_factory=Counter)

    def count(self, split: str) -> dict[str, int]:
        shards = self.shards[split]
        return {
            "games": sum(shard.games for shard in shards),
            "positions": sum(shard.positions for shard in shards),
        }


def manifest(shards: Sequence[Shard]) -> str:
    """The text of the `manifest.json` of a split."""
    files = {shard.name: {"games": shard.games, "positions": shard.positions} for shard in shards}
    return json.dumps({"format": "sfenx", "files": files}, indent=1, ensure_ascii=False) + "\n"


def report_of(tallies: dict[str, Tally], config: ConvertConfig) -> dict[str, Any]:
    """The report, as it is written as JSON."""
    parts = SPLITS if config.to == "sfenx" else (ALL,)

    def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
        counts = list(counts)
        return {key: sum(count[key] for count in counts) for key in ("games", "positions")}

    splits = {split: total(tally.count(split) for tally in tallies.values()) for split in parts}
    endings: Counter[str] = Counter()
    for tally in tallies.values():
        endings += tally.endings
    return {
        **total(splits.values()),
        "refused": [
            {"file": refusal.file, "line": refusal.line, "reason": refusal.reason}
            for tally in tallies.values()
            for refusal in tally.refused
        ],
        "left_out": sum(tally.left_out for tally in tallies.values()),
        "duplicates": sum(tally.duplicates for tally in tallies.values()),
        "endings": dict(sorted(endings.items())),
        "splits": splits,
        "sources": {
            name: {
                **total(tally.count(split) for split in parts),
                "refused": len(tally.refused),
                "left_out": tally.left_out,
                "duplicates": tally.duplicates,
                "thresholds": {"test": tally.split.test, "val": tally.split.val},
                "splits": {split: tally.count(split) for split in parts},
            }
            for name, tally in tallies.items()
        },
    }


def print_report(report: dict[str, Any]) -> None:
    """The report as a table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table("source")
    parts = list(report["splits"])
    for title in ("games", "positions", *parts, "left out", "duplicates", "refused"):
        table.add_column(title, justify="right")

    def add(name: str, row: dict[str, Any], refused: int) -> None:
        splits = [row["splits"][split]["games"] for split in parts]
        numbers = [row["games"], row["positions"], *splits, row["left_out"]]
        numbers += [row["duplicates"], refused]
        table.add_row(name, *(f"{number:,}" for number in numbers))

    for name, row in report["sources"].items():
        add(name, row, row["refused"])
    if len(report["sources"]) > 1:
        table.add_section()
        add("all", report, len(report["refused"]))
    # Where nobody looks at it a line may be long.
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    if passed := report["passed_over"]:
        print(passed_over(passed))
    if merged := report.get("merged_positions"):
        print(f"equal positions of train merged: {merged:,} are left")
