"""A run of self-play: a model plays against itself, and the games are stored.

In: a `SelfplayConfig`. Out: a run folder, and figures of its games.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import ginkgo
from ginkgo.progress import Progress
from ginkgo.records.kifu.selfplay import PlayedGame
from ginkgo.selfplay.config import SelfplayConfig
from ginkgo.selfplay.counting import Used
from ginkgo.selfplay.resign import calibrated
from ginkgo.selfplay.store import RunFolder, played_on, run_folder, run_folders
from ginkgo.selfplay.worker import Players, play_here

#: Options that change nothing about a game.
_NEUTRAL = ("processes", "ray", "concurrent", "file_games", "report", "out", "cached", "games")


def deciding(config: SelfplayConfig) -> dict[str, Any]:
    """The options that decide what is played, as JSON."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(config).items()
        if name not in _NEUTRAL
    }


def open_run(config: SelfplayConfig) -> RunFolder:
    """The run folder to go on with, or a new one. See `SelfplayConfig.out`.

    Raises:
        GinkgoError: the folder cannot be read or written.
    """
    runs = run_folders(config.out)
    if runs:
        last = runs[-1].look()
        begun = last.options
        if not begun or (
            begun["options"] == deciding(config)
            and begun["games"] == config.games
            and not last.complete
        ):
            return last
    return run_folder(config.out, runs[-1].number + 1 if runs else 1)


def begin_run(
    config: SelfplayConfig, run: RunFolder, earlier: Sequence[RunFolder], trusted: bool
) -> None:
    """Note with which options a run is played, and when to resign.

    Args:
        earlier: runs whose games tell that. trusted: see `play_run`.
    """
    games = [game for other in earlier for game in played_on(other)]
    untold = config.resign if trusted else 0.0
    threshold = calibrated(games, config.false_resigns, untold)
    # Games tell of the model that played them. Random weights, sure of nothing but mates they
    # see, would have resigned rightly at whatever threshold; the model after them would not.
    before = earlier[-1].options["resign_threshold"] if earlier else 0.0
    threshold = min(threshold, max(config.resign, 2 * before)) if config.resign else 0.0
    run.begin(
        {
            "games": config.games,
            "resign_threshold": threshold,
            "options": deciding(config),
            "versions": versions(),
        }
    )


def play_run(
    config: SelfplayConfig,
    run: RunFolder,
    earlier: Sequence[RunFolder] = (),
    say: Callable[[str], None] = print,
    trusted: bool = True,
) -> Used:
    """Play the games of a run that are not stored yet.

    Args:
        run: where they go. earlier: runs whose games tell when to resign.
        say: told what happens.
        trusted: whether the model's win rates mean something before games have told: else nobody
            resigns until then.

    Returns:
        what the evaluators did.

    Raises:
        GinkgoError: the model cannot be played, a file cannot be written, a process has died.
    """
    with run.alone():
        return _play(config, run, earlier, say, trusted)


def _play(
    config: SelfplayConfig,
    run: RunFolder,
    earlier: Sequence[RunFolder],
    say: Callable[[str], None],
    trusted: bool,
) -> Used:
    if not run.options:
        begin_run(config, run, earlier, trusted)
    threshold = run.options["resign_threshold"]
    meta = {"model": config.model, "seed": config.seed, "resign_threshold": threshold}
    meta |= {"options": run.options["options"], "versions": versions()}
    numbers = [number for number in range(config.games) if number not in run.stored]
    if len(numbers) < config.games:
        say(f"{run.path}: {len(run.stored):,} games are there, {len(numbers):,} to go")
    used = Used()
    if not numbers:
        return used
    processes = config.processes or cores()
    waiting: list[PlayedGame] = []

    def take(found: Iterable[PlayedGame | Used]) -> None:
        for one in found:
            if isinstance(one, Used):
                used.__iadd__(one)
                continue
            waiting.append(one)
            if len(waiting) >= config.file_games:
                flush()

    def flush() -> None:
        if waiting:
            run.store(waiting, meta)
            progress.advance(len(waiting))
            waiting.clear()

    with Progress("games") as progress:
        progress.phase("playing", len(numbers))
        try:
            if config.ray:
                from ginkgo.selfplay.cluster import Cluster

                with Cluster(config, run.number, numbers, threshold, processes) as cluster:
                    take(cluster)
            elif processes == 1:
                take(play_here(config, run.number, numbers, threshold))
            else:
                with Players(config, run.number, numbers, threshold, processes) as players:
                    take(players)
        finally:
            flush()
    return used


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of what decides the games."""
    found = {"ginkgo": ginkgo.__version__}
    for name in ("cshogi", "numpy", "onnxruntime"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
