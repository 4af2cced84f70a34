"""The options of the loop, and what of them follows for the games of a generation.

In: the command line of `ginkgo reinforce`. Out: checked options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.selfplay.config import PlayOptions, SelfplayConfig, check

#: Uses of a position at most, whatever is asked for.
MOST_USES = 8


@dataclass(frozen=True)
class ReinforceConfig(PlayOptions):
    """Get stronger by self-play: games, training on them, a gate, and again.

    The same command goes on with a run that was stopped or killed.
    """

    run: str = "reinforce"
    """Name of the run; all of it goes to RUNS/NAME."""
    runs: Path = Path("runs")
    """Where runs are kept."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from", metavar="MODEL")] = None
    """Model directory to start from, or the word `pretrained`; otherwise random weights."""
    network: str = "b3c48"
    """Blocks and filters of the network where it starts from random weights."""
    generations: int = 0
    """Generations after the first model; 0: without end."""
    minutes: float = 0.0
    """Begin no generation that would not be over within so many minutes of work in all; 0: no
    such limit."""

    games: int = 400
    """Games of each generation."""
    curriculum: tuple[str, ...] = ()
    """STEP:PLAYOUTS or STEP:PLAYOUTS:MAX_PLY: from that training step on full searches have so many
    playouts (cheap ones in proportion), and games so many plies."""
    evaluator: Literal["onnx", "int8", "keras"] = "onnx"
    """What plays: the model as an ONNX file, the same in int8, or Keras."""
    processes: int = 0
    """Processes that play; 0: one per core."""
    concurrent: int = 128
    """Games that each process plays at once."""
    file_games: int = 32
    """Games in a file; so many, at most, are played anew after a kill, besides those under way."""
    side_by_side: bool = False
    """Play the next generation's games while the model is being trained, with the model before."""
    seed: int = 0
    """Of everything random."""

    window: int = 20_000
    """Positions in the replay window at least; it grows with the data, more slowly than they do."""
    exponent: float = 0.65
    """Of that growth."""
    reuse: int = 4
    """Uses of a position at most, 8 being the limit."""
    steps: int = 0
    """Training steps of a generation at most; 0: as many as there are tokens for, REUSE for each
    new position."""
    batch_size: int = 256
    """Positions of a training step."""
    learning_rate: float = 1e-3
    """Of all generations, after a short rise in each."""
    weight_decay: float = 1e-4
    """Decoupled weight decay on kernels."""
    root_share: float = 0.25
    """Share of the root value in the value target; the rest is the result."""
    value_weight: float = 1.0
    """Weight of the value loss."""
    mirror: bool = True
    """Mirror half of each batch left to right."""
    kl_target: float = 0.0
    """Wanted change of the policy in a generation (KL of old and new, nats): above twice that the
    learning rate is divided by 1.5, below half it is multiplied, above four times training ends
    early; 0: leave the rate alone."""

    gate: str = "none"
    """When a new model plays on: `sprt`, `match` (a fixed match), `every-N` (so many steps after
    the last one that did) or `none` (at once)."""
    gate_games: int = 400
    """Games of the gate at most, an even number."""
    gate_elo: float = 20.0
    """By how much a new model must win a fixed match; a sequential test sets this against 0."""
    gate_playouts: int = 0
    """Playouts of a move in matches; 0: those of full searches."""
    elo_games: int = 40
    """Games between each new model and the one before, for the Elo curve, where the gate plays
    none; 0: no curve."""
    disk: float = 10.0
    """Gigabytes that the run may take: games that the window has left go first."""


class Phase(NamedTuple):
    """A part of the curriculum."""

    step: int
    """First training step."""
    playouts: int
    max_ply: int
    """0: as before."""


def phases(config: ReinforceConfig) -> list[Phase]:
    """The curriculum.

    Raises:
        GinkgoError: it is malformed.
    """
    found = []
    for text in config.curriculum:
        numbers = text.split(":")
        if len(numbers) not in (2, 3) or not all(number.isdecimal() for number in numbers):
            raise GinkgoError(
                f"--curriculum {text}: expected STEP:PLAYOUTS or STEP:PLAYOUTS:MAX_PLY, "
                "such as 2000:64:256"
            )
        step, playouts, *max_ply = map(int, numbers)
        if not playouts:
            raise GinkgoError(f"--curriculum {text}: expected at least one playout")
        found.append(Phase(step, playouts, max_ply[0] if max_ply else 0))
    return sorted(found)


def play_config(config: ReinforceConfig, model: Path, step: int) -> SelfplayConfig:
    """How a generation's games are played.

    Args:
        model: that plays. step: training steps so far, for the curriculum.
    """
    shared = {one.name: getattr(config, one.name) for one in fields(PlayOptions)}
    play = SelfplayConfig(
        **shared,
        model=str(model),
        games=config.games,
        out=config.runs / config.run,
        evaluator=config.evaluator,
        processes=config.processes,
        concurrent=config.concurrent,
        file_games=config.file_games,
        seed=config.seed,
    )
    for phase in phases(config):
        if step >= phase.step:
            cheap = max(1, round(config.cheap_playouts * phase.playouts / config.playouts))
            play = replace(play, playouts=phase.playouts, cheap_playouts=cheap)
            if phase.max_ply:
                play = replace(play, max_ply=phase.max_ply)
    return play


_AT_LEAST = {
    **dict.fromkeys(("generations", "minutes", "steps", "gate_playouts", "elo_games"), 0),
    **dict.fromkeys(("kl_target", "weight_decay", "processes", "seed"), 0),
    **dict.fromkeys(("games", "concurrent", "file_games", "window", "reuse"), 1),
    **dict.fromkeys(("batch_size", "gate_games"), 2),
}
_GATE = re.compile(r"sprt|match|none|every-[1-9][0-9]*")


def check_loop(config: ReinforceConfig) -> None:
    """Refuse values that cannot work.

    Raises:
        GinkgoError: the option as typed, and what was expected.
    """
    check(config)
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value < least:
            raise GinkgoError(f"--{name.replace('_', '-')} {value}: expected at least {least}")
    if not config.run or config.run.startswith(".") or set(config.run) & {"/", "\\", ":"}:
        raise GinkgoError(f"--run {config.run!r}: expected a plain name; its folder is in --runs")
    if config.reuse > MOST_USES:
        raise GinkgoError(f"--reuse {config.reuse}: expected at most {MOST_USES}")
    if not 0 < config.exponent <= 1:
        raise GinkgoError(f"--exponent {config.exponent}: expected more than 0, at most 1")
    for name in ("root_share",):
        if not 0 <= getattr(config, name) < 1:
            raise GinkgoError(f"--root-share {config.root_share}: expected 0 to less than 1")
    for name in ("learning_rate", "value_weight", "disk"):
        if getattr(config, name) <= 0:
            raise GinkgoError(f"--{name.replace('_', '-')}: expected more than 0")
    if not _GATE.fullmatch(config.gate):
        raise GinkgoError(f"--gate {config.gate}: expected sprt, match, every-N or none")
    for name in ("gate_games", "elo_games"):
        if getattr(config, name) % 2:
            raise GinkgoError(
                f"--{name.replace('_', '-')} {getattr(config, name)}: expected an even number, "
                "each opening is played twice"
            )
    phases(config)
