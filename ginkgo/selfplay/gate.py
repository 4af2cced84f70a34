"""Is the new model better, and by how much? Matches of the arena.

In: two models. Out: a verdict, and the difference in Elo.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ginkgo.errors import GinkgoError
from ginkgo.selfplay.config import PlayOptions
from ginkgo.selfplay.reinforce import ReinforceConfig

#: Scores are taken to lie between these: a match that was won throughout has no finite Elo.
_LEAST, _MOST = 0.002, 0.998


@dataclass(frozen=True)
class Difference:
    """New model minus old, in Elo, with the interval of 95 %."""

    elo: float
    low: float
    high: float
    games: int
    score: float
    """Of the new model, a draw as half; NaN without a game."""

    @property
    def error(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


#: Nothing has been played.
UNKNOWN = Difference(0.0, 0.0, 0.0, 0, float("nan"))


def play_match(
    config: ReinforceConfig, new: Path, old: Path, play: PlayOptions, games: int, folder: Path,
    seed: int, sprt: tuple[float, float] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Play a match, or go on with it.

    Args:
        new, old: model directories. play: how long searches and games are. games: at most.
        folder: of the match. seed: of its openings. sprt: the two Elo of a sequential test.

    Returns:
        the arena's result.

    Raises:
        GinkgoError: a model cannot be played.
    """
    from ginkgo.arena.config import MatchConfig, checked
    from ginkgo.arena.run import run_match

    match = MatchConfig(
        str(new),
        str(old),
        out=folder,
        games=games,
        sprt=sprt,
        nodes=config.gate_playouts or play.playouts,
        max_ply=play.max_ply,
        concurrency=min(games, config.concurrent),
        seed=seed,
        kifu=False,
        json=folder / "match.json",
    )
    with contextlib.redirect_stdout(sys.stderr):
        if run_match(checked(match)):
            raise KeyboardInterrupt
    return json.loads((folder / "match.json").read_text())


def difference_of(result: dict[str, Any]) -> Difference:
    """The difference that a match shows; one more drawn pair is counted."""
    from ginkgo.arena.statistics import elo_of, estimate, score_of

    counts = np.array(result["pentanomial"], np.int64)
    counts[2] += 1
    found = estimate(counts)
    low, elo, high = (
        elo_of(min(_MOST, max(_LEAST, score_of(value) if math.isfinite(value) else value > 0)))
        for value in (found.low, found.elo, found.high)
    )
    games = int(result["games"])
    score = (result["wins"] + result["draws"] / 2) / games if games else float("nan")
    return Difference(elo, low, high, games, score)


def judge(
    config: ReinforceConfig,
    new: Path,
    old: Path,
    play: PlayOptions,
    folder: Path,
    generation: int,
    steps: int,
    arrange: Callable[..., dict[str, Any]],
) -> tuple[bool, Difference]:
    """Whether a new model takes the place of the one that plays.

    Args:
        play: how games are played at this point of the curriculum. folder: for the match.
        generation: of the new model.
        steps: trained since the one that plays.
        arrange: plays a match, as `play_match` without its first argument.

    Raises:
        GinkgoError: a model cannot be played.
    """

    def match(games: int, sprt: tuple[float, float] | None = None) -> dict[str, Any]:
        return arrange(new, old, play, games, folder, generation, sprt)

    if config.gate == "sprt":
        found = match(config.gate_games, (0.0, config.gate_elo))
        return found["verdict"] == "accepted", difference_of(found)
    if config.gate == "match":
        shown = difference_of(match(config.gate_games))
        return shown.elo >= config.gate_elo, shown
    shown = difference_of(match(config.elo_games)) if config.elo_games else UNKNOWN
    if config.gate == "none":
        return True, shown
    word, _, every = config.gate.partition("-")
    if word != "every":
        raise GinkgoError(f"--gate {config.gate}: expected sprt, match, every-N or none")
    return steps >= int(every), shown
