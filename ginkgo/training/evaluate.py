"""`ginkgo evaluate`: how good a model is on games that it has not seen.

In: a model directory, records or games. Out: a table, or one JSON object: figures of value and
moves beside their baselines, over all, by source and by ply.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.progress import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ginkgo.pipeline.index import Index
    from ginkgo.pipeline.scan import Scan


@dataclass(frozen=True)
class EvaluateConfig:
    """Judge a model on games that it was not trained on."""

    model: Annotated[Path, tyro.conf.Positional]
    """Model directory, or the word `pretrained`."""
    data: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Records or games: files, directories or globs."""

    split: Literal["auto", "test", "val", "train", "all"] = "auto"
    """Which games. auto: all of data that are new to the model, else the test games."""
    seen: bool = False
    """Evaluate games that the model was trained on or chosen by, too."""
    features: str = ""
    """Refuse a model with other input planes; empty: whatever it has."""
    labels: str = ""
    """Refuse a model with another numbering of the moves; empty: whatever it has."""
    positions: int = 0
    """At most about so many positions, as many games as possible; 0: all."""
    min_ply: int = 1
    """First ply that is used."""
    val_fraction: float = 0.05
    """Share of the games in validation and in test, where files are split here."""
    batch_size: int = 1024
    """Positions per call of the network."""
    json: bool = False
    """Print one JSON object instead of a table."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, evaluate, print.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = tyro.cli(EvaluateConfig, prog="ginkgo evaluate", args=argv)
    if not config.data:
        raise GinkgoError("no data given: expected files, directories or globs")
    for name, least in (("positions", 0), ("min_ply", 1), ("batch_size", 1)):
        if getattr(config, name) < least:
            option = name.replace("_", "-")
            raise GinkgoError(f"--{option} {getattr(config, name)}: expected at least {least}")
    if not 0 <= config.val_fraction <= 0.45:
        raise GinkgoError(f"--val-fraction {config.val_fraction}: expected 0 to 0.45")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    report = evaluate(config)
    if config.json:
        print(json.dumps(machine_readable(report)))
    else:
        from ginkgo.training.report import print_figures

        where = "games that it has not seen"
        if config.seen or config.split in ("train", "val"):
            where = f"{config.split} games" if config.split in ("train", "val") else "games"
        print_figures(str(config.model), report, where)
        print(
            f"{report['positions']:,} positions; {report['left_out_games']:,} games left out since "
            f"the model has seen them; {report['dropped_lines']:,} unusable lines"
        )
    return 0


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """The figures of `evaluation.report_of`, and `positions` counted.

    Raises:
        GinkgoError: the model or the data are unusable, or nothing is left to judge it on.
    """
    from ginkgo.models import load_baselines, load_games, load_model
    from ginkgo.pipeline.load import join_blocks, load_block
    from ginkgo.pipeline.parse import ParseOptions
    from ginkgo.pipeline.scan import Scan
    from ginkgo.training.baselines import Baselines
    from ginkgo.training.evaluation import answers_of, report_of
    from ginkgo.training.heldout import why_none
    from ginkgo.training.step import Inference

    model, description = load_model(config.model)
    for name in ("features", "labels"):
        wanted = getattr(config, name)
        if wanted and description[name] != wanted:
            raise GinkgoError(
                f"{config.model}: {name} {description[name]}, but {wanted} was asked for"
            )
    seen = load_games(config.model)
    # Whoever asks for the validation games gets them.
    trained = seen.train if config.split == "val" else seen.all
    try:
        baselines = Baselines.from_dict(load_baselines(config.model))
    except (KeyError, TypeError, ValueError) as error:
        raise GinkgoError(f"{config.model}: baselines of another version: {error!r}") from None
    scan = Scan(config.data, fraction=config.val_fraction)
    options = ParseOptions(
        min_ply=config.min_ply, view=description["view"], features=description["features"]
    )
    indices, dropped = choose_games(scan, config, trained)
    games, names = sum(index.games for index in indices), ", ".join(map(str, config.data))
    if not games:
        why = f"; {dropped:,} games the model has seen (--seen evaluates them)" if dropped else ""
        raise GinkgoError(f"{names}: no games to evaluate{why or why_none(scan)}")
    share = [config.positions * index.games // games for index in indices]
    block = join_blocks(
        [
            load_block(index, options, max(1, limit) if config.positions else 0)
            for index, limit in zip(indices, share, strict=True)
            if index.games
        ]
    )
    if not len(block.positions):
        raise GinkgoError(
            f"{', '.join(map(str, config.data))}: no usable position in {games} games"
        )
    with Progress("positions") as progress:
        progress.phase("evaluating", len(block.positions))
        inference = Inference(model, description["features"], config.batch_size)
        answers = answers_of(inference, block, progress.advance)
    report = report_of(block.positions, answers, baselines, indices[0].names)
    report["positions"] = len(block.positions)
    report["left_out_games"] = dropped
    report["dropped_lines"] = len(block.bad) + len(scan.bad)
    return report


def choose_games(
    scan: Scan, config: EvaluateConfig, trained: NDArray[np.uint64]
) -> tuple[list[Index], int]:
    """The games to judge a model on, as indices over disjoint sources.

    Args:
        trained: hashes of the games trained on, or chosen by.

    Returns:
        the indices, and how many games were left out because the model was trained on them.
    """
    import numpy as np

    everything = scan.view("all")
    known = np.isin(everything.hashes, trained)
    left_out = None if config.seen else trained
    if config.split != "auto":
        index = scan.view(config.split, left_out)
        return [index], scan.view(config.split).games - index.games
    # Sources of which some games were trained on: their test games alone.
    firsts = np.cumsum([0, *(source.games for source in everything.sources)])
    old = [
        known[low:high].any() or np.isin(source.merged, trained).any()
        for source, (low, high) in zip(everything.sources, itertools.pairwise(firsts), strict=True)
    ]
    parts, dropped = [], 0
    for split, wanted in (("test", True), ("all", False)):
        index = scan.view(split, left_out)
        before = scan.view(split)
        for number, source in enumerate(index.sources):
            if old[number] == wanted:
                dropped += before.sources[number].games - source.games
            else:
                index.sources[number] = replace(source, segments=[], games=0, positions=0)
        parts.append(index)
    return parts, dropped


#: Keys that are there, with null, where the model lacks the head too.
_ALWAYS = (
    *("policy_top1", "policy_top5", "policy_cross_entropy", "value_accuracy", "value_log_loss"),
    *("value_brier", "material_accuracy", "material_log_loss"),
)


def machine_readable(report: dict[str, Any]) -> dict[str, Any]:
    """One flat object of the figures over all, and the same under `by_source` and `by_ply`."""
    from ginkgo.training.metrics import FULL_NAMES
    from ginkgo.training.report import without_nan

    def renamed(figures: dict[str, Any]) -> dict[str, Any]:
        found = {FULL_NAMES.get(key, key): value for key, value in figures.items()}
        return dict.fromkeys(_ALWAYS) | found

    flat = renamed(report["heldout"]) | {
        "positions": report["positions"],
        "left_out_games": report["left_out_games"],
        "dropped_lines": report["dropped_lines"],
    }
    for group in ("by_source", "by_ply"):
        flat[group] = {name: renamed(figures) for name, figures in report[group].items()}
    return without_nan(flat)
