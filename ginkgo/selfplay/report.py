"""What a person sees of a run of reinforcement.

A line, a page and a picture for each generation, and curves in TensorBoard.

In: the objects of `generations.jsonl`. Out: `report/00001.md`, `report/00001.png`, `logs/`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ginkgo.records.files import atomic_write, write_text
from ginkgo.records.kifu.reading import Fault, ReadOptions
from ginkgo.records.kifu.selfplay import games_of_arrays, select_games
from ginkgo.selfplay.store import run_folder

#: Scalars in TensorBoard, by key of a line.
_CURVES = {
    "elo": "reinforce/elo",
    "elo_low": "reinforce/elo_low",
    "elo_high": "reinforce/elo_high",
    "match_score": "reinforce/match_score",
    "mean_plies": "games/mean_plies",
    "draws": "games/draws",
    "first_move": "games/first_move",
    "resign_threshold": "games/resign_threshold",
    "resign_false_rate": "games/resign_false_rate",
    "resign_judged": "games/resign_judged",
    "surprise": "training/policy_surprise",
    "surprise_after": "training/policy_surprise_after",
    "kl": "training/policy_change",
    "explained_variance": "training/explained_variance",
    "explained_variance_after": "training/explained_variance_after",
    "rate_factor": "training/rate_factor",
    "window": "window/positions",
    "mean_use": "window/mean_use",
    "max_use": "window/max_use",
    "tokens": "window/tokens",
    "seconds": "time/generation_seconds",
    "selfplay_seconds": "time/selfplay_seconds",
    "training_seconds": "time/training_seconds",
    "gate_seconds": "time/gate_seconds",
}
#: Positions of the game that is drawn.
_BOARDS = 6


def summary(line: dict[str, Any]) -> str:
    """A generation in one line."""
    parts = [f"generation {line['generation']}: {Path(line['model']).name}"]
    if line.get("match_games"):
        parts.append(f"scores {line['match_score']:.1%} in {line['match_games']} games")
    if line["generation"]:
        error = (line["elo_high"] - line["elo_low"]) / 2
        parts.append(f"Elo {line['elo']:+.0f} ± {error:.0f}")
        parts.append("plays on" if line["accepted"] else "rejected")
        parts.append(f"plies {line['mean_plies']:.0f}, draws {line['draws']:.1%}")
    parts.append(f"{line['seconds']:,.0f} s")
    return "; ".join(parts)


def complete(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Write what is missing of the reports, and the curves."""
    for count, line in enumerate(lines, 1):
        number = line["generation"]
        page = folder / "report" / f"{number:05d}.md"
        if number and not page.exists():
            picture = page.with_suffix(".png")
            with atomic_write(picture) as stream:
                stream.write(_curves_png(lines[:count]))
            sample = page.with_name(f"{number:05d}-game.png")
            drawn = _game_png(folder, number)
            if drawn is not None:
                with atomic_write(sample) as stream:
                    stream.write(drawn)
            write_text(page, page_of(line, picture.name, sample.name if drawn else ""))
        _write_events(folder / "logs", line)


def page_of(line: dict[str, Any], picture: str, sample: str) -> str:
    """The page of a generation, in Markdown."""
    rows = []
    for name, value in line.items():
        if isinstance(value, float):
            value = f"{value:.4g}"
        elif isinstance(value, dict):
            value = ", ".join(f"{key} {count}" for key, count in value.items())
        rows.append(f"| {name} | {'–' if value is None else value} |")
    parts = [
        f"# Generation {line['generation']}",
        summary(line) + ".",
        f"![Elo, length of games, draws, use of the data]({picture})",
        "\n".join(["| | |", "|---|---|", *rows]),
    ]
    if sample:
        parts.append(f"A game of those that it was trained on:\n\n![six positions]({sample})")
    return "\n\n".join(parts) + "\n"


# --- pictures ---------------------------------------------------------------------------------


def _curves_png(lines: Sequence[dict[str, Any]]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ginkgo.training.plots import drawn, png

    figure = Figure(figsize=(12, 7), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    (elo, plies), (shares, uses) = figure.subplots(2, 2)
    samples = [line["samples"] for line in lines]
    low = [line["elo"] - line["elo_low"] for line in lines]
    high = [line["elo_high"] - line["elo"] for line in lines]
    elo.errorbar(
        samples,
        [line["elo"] for line in lines],
        [low, high],
        marker="o",
        capsize=3,
        color="#0072B2",
    )
    elo.set(title="Elo above generation 0", xlabel="positions trained on")
    later = lines[1:]
    numbers = [line["generation"] for line in later]

    def curve(axes: Any, name: str, label: str, color: str, scale: float = 1.0) -> None:
        values = [math.nan if line.get(name) is None else scale * line[name] for line in later]
        axes.plot(numbers, values, marker="o", label=label, color=color)

    curve(plies, "mean_plies", "plies", "#D55E00")
    plies.set(title="plies of a game", xlabel="generation")
    curve(shares, "draws", "draws", "#555555", 100)
    curve(shares, "first_move", "Black's score", "#009E73", 100)
    curve(shares, "resign_false_rate", "false resignations", "#CC79A7", 100)
    shares.set(title="share of the games, %", xlabel="generation")
    shares.legend()
    curve(uses, "max_use", "most used position", "#0072B2")
    curve(uses, "mean_use", "mean use", "#E69F00")
    uses.set(title="uses of a position", xlabel="generation")
    uses.legend()
    for axes in (elo, plies, shares, uses):
        axes.grid(color="#D8D8D8")
    return png(drawn(figure))


def _game_png(folder: Path, number: int) -> bytes | None:
    """Six positions of the run's middle game, with what the searches thought of them."""
    from ginkgo.features.labels import labels_from_moves, rotate_moves
    from ginkgo.features.position import DRAW, LOSS, WIN, position_from_sfen
    from ginkgo.pipeline.parse import USI_MOVES
    from ginkgo.records.replay import replay
    from ginkgo.training.boards import Opinion, boards_image
    from ginkgo.training.plots import png

    for _, meta, arrays in run_folder(folder, number).arrays():
        middle = int(np.argsort(arrays["plies"])[len(arrays["plies"]) // 2])
        one = select_games(arrays, middle, middle + 1)
        game = next(games_of_arrays(meta, one, ReadOptions()))
        if isinstance(game, Fault) or game.total < _BOARDS:
            return None
        plies = np.linspace(game.total // _BOARDS, game.total, _BOARDS).astype(int) - 1
        sfens = replay(game)
        positions = np.concatenate([position_from_sfen(sfens[ply]) for ply in plies])
        moves = np.array([USI_MOVES[game.moves[ply]] for ply in plies], np.int32)
        positions["move"] = labels_from_moves(rotate_moves(moves, positions["color"]))
        won = np.array([{"b": 0, "w": 1}.get(game.winner, 2)] * _BOARDS)
        positions["result"] = np.where(
            won == 2, DRAW, np.where(won == positions["color"], WIN, LOSS)
        )
        opinions = [Opinion(game.root_values[ply], None) for ply in plies]
        title = f"{game.black}: {game.total} plies, {game.end}"
        return png(boards_image(positions, opinions, title))
    return None


# --- TensorBoard ------------------------------------------------------------------------------


def _write_events(logs: Path, line: dict[str, Any]) -> None:
    """The scalars of a generation, as a file of events of its own, over positions trained on.

    Made without TensorFlow, which takes seconds and half a gigabyte to load.
    """
    path = logs / f"events.out.tfevents.{1_000_000_000 + line['generation']}.reinforce"
    if path.exists():
        return
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [
        Summary.Value(tag=tag, simple_value=float(line[name]))
        for name, tag in _CURVES.items()
        if isinstance(line.get(name), int | float)
    ]
    when = float(line.get("ended", 0.0))
    events = [
        Event(wall_time=when, file_version="brain.Event:2"),
        Event(wall_time=when, step=line["samples"], summary=Summary(value=values)),
    ]
    with atomic_write(path) as stream:
        for event in events:
            stream.write(_framed(event.SerializeToString()))


def _framed(data: bytes) -> bytes:
    """A record of TensorFlow's record files: length, its checksum, data, their checksum."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, turned and shifted as the format has it."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    return struct.pack("<I", masked_crc32c(data))
