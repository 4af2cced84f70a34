"""The options of self-play: one dataclass, from which the command line is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.records.game import MAX_PLIES


@dataclass(frozen=True)
class PlayOptions:
    """How games of self-play are played."""

    playouts: int = 200
    """Playouts of a full search; its visits become a training target."""
    cheap_playouts: int = 40
    """Playouts of a cheap search, whose position is not trained on."""
    full_share: float = 0.25
    """Share of the moves that are searched in full (playout-cap randomisation)."""
    gumbel: int = 0
    """Moves that a Gumbel root search considers; 0: PUCT with noise and forced playouts."""
    noise: float = 0.25
    """Share of Dirichlet noise in the root's priors of a full search."""
    noise_alpha: float = 0.15
    """Of the Dirichlet noise; small: few moves get much."""
    forced_playouts: float = 2.0
    """Visits owed to each move of the root in a full search, as a factor under a square root; they
    are taken out of the target. 0: none."""
    temperature_plies: int = 30
    """Plies with temperature 1; after them moves become greedy."""
    temperature_halflife: float = 10.0
    """Plies in which the temperature halves from then on."""
    random_plies: int = 4
    """At most so many first moves are drawn at random, how many by chance."""
    openings: Path | None = None
    """File of start positions and moves, one a line as a GUI would send it; each game begins with
    one of them."""
    resign: float = 0.05
    """Win rate below which a side resigns, until enough games that were played on tell better;
    0: never."""
    never_resign: float = 0.1
    """Share of the games that are always played on, by which false resignations are counted."""
    false_resigns: float = 0.05
    """Share of false resignations that the threshold may cause."""
    max_ply: int = 320
    """Moves after which a game is drawn."""
    policy_temperature: float = 1.0
    """Of the softmax that makes priors; above 1 flatter than the network says."""
    batch: int = 8
    """Leaves of one game that are evaluated together."""


@dataclass(frozen=True)
class SelfplayConfig(PlayOptions):
    """Let a model play against itself and store the games."""

    model: str = "pretrained"
    """Model directory, exported file, `VALUE+POLICY`, or the word `pretrained`."""
    games: int = 1000
    """Games to play."""
    out: Annotated[Path, tyro.conf.arg(aliases=("-o",))] = Path("selfplay")
    """Where they go: OUT/training_data/run_001/games_00000.npz and so on. The last run there goes
    on if it was started with the same options and is not complete; else a new one begins."""
    evaluator: Literal["auto", "onnx", "int8", "keras"] = "auto"
    """Which file of a model directory to play with: the first that is there of int8, ONNX, Keras,
    or the one named."""
    processes: int = 0
    """Processes that play; 0: one per core."""
    ray: str = ""
    """Play with the actors of a Ray cluster: its address (`auto`, `ray://HOST:10001`), or `local`,
    also meant by --ray alone: one on this machine. --processes is how many; 0: one per core."""
    concurrent: int = 128
    """Games that each process plays at once."""
    file_games: int = 64
    """Games in a file."""
    cached: int = 65536
    """Evaluated positions that a process remembers, about 0.6 kB each."""
    seed: int = 0
    """Of everything random; the same seed and options give the same games."""
    report: Path | None = None
    """Write figures of the run to this JSON file."""


_SHARES = ("full_share", "noise", "resign", "never_resign", "false_resigns")
_AT_LEAST = {
    **dict.fromkeys(("playouts", "cheap_playouts", "games", "concurrent", "file_games"), 1),
    **dict.fromkeys(("batch",), 1),
    **dict.fromkeys(("gumbel", "forced_playouts", "temperature_plies", "random_plies"), 0),
    **dict.fromkeys(("processes", "cached", "seed"), 0),
}
_ABOVE_ZERO = ("noise_alpha", "temperature_halflife", "policy_temperature")


def check(config: PlayOptions) -> None:
    """Refuse values that cannot work.

    Raises:
        GinkgoError: the option as typed, and what was expected.
    """
    for name, value in vars(config).items():
        option = f"--{name.replace('_', '-')} {value}"
        if isinstance(value, float) and not math.isfinite(value):
            raise GinkgoError(f"{option}: expected a finite number")
        if name in _SHARES and not 0 <= value <= 1:
            raise GinkgoError(f"{option}: expected 0 to 1")
        if name in _AT_LEAST and value < _AT_LEAST[name]:
            raise GinkgoError(f"{option}: expected at least {_AT_LEAST[name]}")
        if name in _ABOVE_ZERO and value <= 0:
            raise GinkgoError(f"{option}: expected more than 0")
    if config.full_share == 0:
        raise GinkgoError("--full-share 0: expected more than 0: nothing would be trained on")
    if not 1 <= config.max_ply <= MAX_PLIES:
        raise GinkgoError(f"--max-ply {config.max_ply}: expected 1 to {MAX_PLIES}")
    if config.openings is not None and not config.openings.is_file():
        raise GinkgoError(f"{config.openings}: no such file")
