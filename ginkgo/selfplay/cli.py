"""`ginkgo selfplay`: a model plays against itself, and the games are stored.

In: the options. Out: a run folder, and figures of its games.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import tyro

from ginkgo.selfplay.config import SelfplayConfig, check


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, play, print what the games are like.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = tyro.cli(SelfplayConfig, prog="ginkgo selfplay", args=_with_address(argv))
    check(config)
    from ginkgo.records.files import check_writable, make_folder, write_text
    from ginkgo.selfplay.run import open_run, play_run
    from ginkgo.selfplay.store import figures_of, run_folders

    if config.report is not None:
        check_writable(config.report)
    make_folder(config.out)
    run = open_run(config)
    earlier = [one for one in run_folders(config.out) if one.number < run.number]
    start = time.perf_counter()
    before = len(run.look().stored)
    plies = run.positions
    used = play_run(config, run, earlier, say=_say)
    seconds = time.perf_counter() - start
    threshold = run.options["resign_threshold"]
    figures = figures_of(run, threshold)
    figures |= {
        "run": str(run.path),
        "resign_threshold": threshold,
        "new_games": len(run.stored) - before,
        "seconds": seconds,
        "positions_per_second": (run.positions - plies) / seconds,
        "evaluated_per_second": used.evaluated / seconds,
        "mean_batch": used.mean_batch,
    }
    if config.report is not None:
        write_text(config.report, json.dumps(figures, indent=1) + "\n")
    print_figures(figures)
    return 0


def _with_address(argv: Sequence[str] | None) -> list[str]:
    """The arguments, `--ray` alone made `--ray local`.

    >>> _with_address(["--ray", "--games", "5"])
    ['--ray', 'local', '--games', '5']
    """
    found: list[str] = []
    for argument in [*(sys.argv[1:] if argv is None else argv), "-"]:
        if found and found[-1] == "--ray" and argument.startswith("-"):
            found.append("local")
        found.append(argument)
    return found[:-1]


def print_figures(figures: dict[str, Any]) -> None:
    """What the games of a run are like, for people."""
    endings = ", ".join(f"{end} {count:,}" for end, count in figures["endings"].items())
    rate = figures["resign_false_rate"]
    wrong = "none judged" if rate is None else f"{rate:.1%} of {figures['resign_judged']:,} wrong"
    print(f"{figures['run']}: {figures['games']:,} games, {figures['positions']:,} positions")
    print(f"  searched in full {figures['recorded']:,}, plies a game {figures['mean_plies']:.1f}")
    print(f"  black {figures['first_move']:.1%}, draws {figures['draws']:.1%}; {endings}")
    print(f"  resignation below {figures['resign_threshold']:.2f}: {wrong}")
    if figures["new_games"]:
        print(
            f"  {figures['positions_per_second']:,.0f} positions/s, "
            f"{figures['evaluated_per_second']:,.0f} evaluated/s, "
            f"batches of {figures['mean_batch']:.0f}"
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
