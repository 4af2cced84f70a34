"""The options of `ginkgo match`. Nothing heavy is imported here: a mistake is answered at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ginkgo.errors import GinkgoError

#: Games at most, without and with a sequential test.
_GAMES, _GAMES_SPRT = 100, 20_000
#: Below this are all numbers; some systems cannot wait for longer.
_MOST = 10**9
#: A score that is so near to 0 or 1 that no match would tell it from more.
_MOST_ELO = 1000
#: Games of models that run at the same time, and bytes that their trees may take.
_TOGETHER, _MEMORY = 128, 2 << 30


@dataclass(frozen=True)
class MatchConfig:
    """Play two engines against each other and say how much stronger the first one is.

    An engine is a model (directory, ONNX file, VALUE+POLICY, pretrained, uniform) or
    usi:COMMAND, either with options behind a colon: pretrained:nodes=400,
    "usi:/usr/bin/engine --flag:nodes=3000,Skill Level=20". docs/ARENA.md lists them.
    """

    a: Annotated[str, tyro.conf.Positional]
    """The first engine."""
    b: Annotated[str, tyro.conf.Positional]
    """The second engine."""

    out: Annotated[Path | None, tyro.conf.arg(aliases=("-o",), metavar="DIR")] = None
    """Where games, kifu and settings go; by default a folder in matches/ named after the engines.
    A match that was broken off there goes on."""
    games: int = 0
    """Games at most, an even number: each opening is played twice, with colours swapped; 0: 100,
    with --sprt 20000."""
    sprt: tuple[float, float] | None = None
    """End as soon as it is clear whether the difference is the first Elo or the second."""
    alpha: float = 0.05
    """Chance that --sprt accepts the second Elo where the first is true."""
    beta: float = 0.05
    """Chance that --sprt rejects the second Elo where it is true."""
    elo_model: Literal["logistic", "normalized"] = "logistic"
    """Unit of the two Elo of --sprt."""
    openings: Path | None = None
    """File with an opening a line: SFEN, `startpos moves …`, `sfen … moves …`, game lines.
    Otherwise openings are made: random moves that lose no material."""
    opening_plies: int = 0
    """Moves of each opening; 0: all that the file gives, 8 where openings are made."""
    nodes: int = 0
    """Simulations (nodes) for each move of engines that name no limit of their own."""
    time: str = ""
    """Time of engines that name no limit of their own, in milliseconds: main=60000,increment=500
    or byoyomi=1000 or movetime=1000."""
    max_ply: int = 320
    """Moves after which a game is drawn."""
    adjudicate: tuple[int, int] | None = None
    """SCORE PLIES: the side to move resigns when both engines have agreed for so many plies that
    it is so many centipawns behind."""
    declare: bool = False
    """Award a win where the 27-point rule allows a declaration and the engine says nothing."""
    concurrency: int = 0
    """Games at a time; 0: 128 between models (fewer with large searches), one for each core
    with other engines."""
    patience: float = 60.0
    """Seconds that an engine may take to start, or for a move where no clock runs."""
    margin: int = 500
    """Milliseconds by which an engine may overstep its time."""
    seed: int = 0
    """Of the openings, and of their order."""
    kifu: bool = True
    """Write each game as CSA and KIF."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the result to this JSON file."""


def checked(config: MatchConfig) -> MatchConfig:
    """The configuration with the number of games settled.

    Raises:
        GinkgoError: a value that means nothing.
    """
    if config.seed < 0:
        raise GinkgoError(f"--seed {config.seed}: expected 0 or more")
    for name in ("games", "nodes", "opening_plies", "max_ply", "concurrency", "margin"):
        if not 0 <= getattr(config, name) < _MOST:
            raise GinkgoError(f"--{name.replace('_', '-')} {getattr(config, name)}: expected 0 to "
                              f"{_MOST - 1:,}")  # fmt: skip
    if config.games % 2:
        raise GinkgoError(
            f"--games {config.games}: expected an even number, each opening is played twice"
        )
    if not 0 < config.patience < _MOST:
        raise GinkgoError(f"--patience {config.patience}: expected more than 0, below {_MOST:,}")
    if config.sprt is not None and not -_MOST_ELO <= config.sprt[0] < config.sprt[1] <= _MOST_ELO:
        raise GinkgoError(
            f"--sprt {config.sprt[0]} {config.sprt[1]}: expected the smaller first, both within "
            f"{_MOST_ELO}"
        )
    for name in ("alpha", "beta"):
        if not 0 < getattr(config, name) < 0.5:
            raise GinkgoError(f"--{name} {getattr(config, name)}: expected more than 0, below .5")
    if config.adjudicate is not None and min(config.adjudicate) < 1:
        raise GinkgoError("--adjudicate: expected a score and a number of plies above 0")
    return replace(config, games=config.games or (_GAMES_SPRT if config.sprt else _GAMES))


def cores() -> int:
    """Cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def games_together(config: MatchConfig, size: int) -> int:
    """How many games run at the same time.

    Args:
        size: bytes that a game's trees may take in this process; 0: engines are processes.
    """
    if config.concurrency:
        return min(config.concurrency, config.games)
    if size:
        return max(1, min(_TOGETHER, config.games, _MEMORY // size))
    return min(cores(), config.games)
