"""`ginkgo analyze`: games with evaluations, best moves and marked blunders.

In: kifu of every format. Out: for each game a KIF with comments that GUIs show as evaluations, and
a graph of the win rate; a line a game on standard output, or JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ginkgo.errors import GinkgoError

if TYPE_CHECKING:
    from ginkgo.play.analysis import Judged, Loss
    from ginkgo.records.game import Game, Refusal


@dataclass(frozen=True)
class AnalyzeConfig:
    """Search every position of games; write them with evaluations, and win-rate graphs."""

    files: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="KIFU […]")]
    """Kifu of any format, archives, directories or globs; - is standard input."""

    model: str = "pretrained"
    """Model directory, ONNX file, VALUE+POLICY, or `pretrained`."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("analysis")
    """Directory to write NAME.kif and NAME.png into."""
    nodes: int = 400
    """Simulations of a position."""
    time: float = 0.0
    """Where given: seconds for a position, instead of a number of simulations."""
    mate_nodes: int = 10_000
    """Positions that a search for a forced mate looks at before; 0: none."""
    threads: int = 1
    """Of the network."""
    mistake: float = 0.1
    """Win rate from which on a move that loses it is marked as a mistake (疑問手)."""
    blunder: float = 0.2
    """The same for a blunder (悪手)."""
    json: bool = False
    """One JSON object a game on standard output instead of a line."""


def _check(config: AnalyzeConfig) -> None:
    if not config.files:
        raise GinkgoError("no files given: expected kifu, directories, globs or -")
    if config.nodes < 1:
        raise GinkgoError(f"--nodes {config.nodes}: expected 1 or more")
    if not 0 <= config.time < float("inf"):
        raise GinkgoError(f"--time {config.time}: expected 0 or more seconds")
    if config.mate_nodes < 0:
        raise GinkgoError(f"--mate-nodes {config.mate_nodes}: expected 0 or more")
    if config.threads < 1:
        raise GinkgoError(f"--threads {config.threads}: expected 1 or more")
    if not 0 < config.mistake <= config.blunder <= 1:
        raise GinkgoError(
            f"--mistake {config.mistake} --blunder {config.blunder}: expected "
            "0 < mistake <= blunder <= 1"
        )


class _Names:
    """Names for the games' files: that of the kifu, with a number where it holds several."""

    def __init__(self, directory: Path, inputs: Sequence[Path]) -> None:
        """Begin with no name taken.

        Args:
            directory: where they are written. inputs: files that must not be overwritten.
        """
        self._directory = directory
        self._inputs = {os.path.realpath(path) for path in inputs}
        self._taken: set[str] = set()

    def name(self, file: str, number: int) -> str:
        """A name that no game had before.

        Args:
            number: of the game in its file, from 1; 0: it is the only one.

        Raises:
            GinkgoError: an input would be overwritten.
        """
        from ginkgo.records.files import plain_stem
        from ginkgo.records.kifu.stream import INSIDE

        stem = "stdin" if file == "-" else plain_stem(file.rpartition(INSIDE)[2])
        base = f"{stem}-{number}" if number else stem
        name, again = base, 1
        while name.casefold() in self._taken:
            again += 1
            name = f"{base}({again})"
        self._taken.add(name.casefold())
        target = self._directory / f"{name}.kif"
        if os.path.realpath(target) in self._inputs:
            raise GinkgoError(f"{target}: would be overwritten; give another --output")
        return name


def _numbered(paths: Sequence[str]) -> Iterator[tuple[str, int, Game | Refusal]]:
    """The games at paths with their files and numbers: from 1, or 0 where a file has only one."""
    from ginkgo.records.inspect import inspect

    count = 0
    before: tuple[str, Game | Refusal] | None = None
    for file, _, game in inspect(paths):
        if before is not None:
            same = file == before[0]
            yield before[0], count if same or count > 1 else 0, before[1]
            count = count if same else 0
        count += 1
        before = file, game
    if before is not None:
        yield before[0], count if count > 1 else 0, before[1]


def _why_not(game: Game | Refusal) -> str:
    """Why a game cannot be analysed; empty: it can."""
    from ginkgo.records.game import Refusal

    if isinstance(game, Refusal):
        return f"line {game.line}: {game.reason}"
    if not game.moves:
        return "no moves"
    pieces = game.start.split()[0]
    return "" if "k" in pieces and "K" in pieces else "a problem with one king"


def main(argv: Sequence[str] | None = None) -> int:
    """Analyse game after game.

    Ctrl-C keeps what was done: the games before, and the one under way as far as it has come.

    Returns:
        the exit status: 1 where a game had to be left out.

    Raises:
        GinkgoError: a path does not exist, no such model, or nothing can be written.
    """
    config = tyro.cli(
        AnalyzeConfig, prog="ginkgo analyze", args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    _check(config)
    from ginkgo.play.analysis import Effort
    from ginkgo.progress import Progress
    from ginkgo.records.files import check_writable
    from ginkgo.records.game import Game
    from ginkgo.records.sources import files_at
    from ginkgo.search.evaluators import make_evaluator

    names = _Names(config.output, files_at(config.files))
    check_writable(config.output / ".ginkgo")
    evaluator = make_evaluator(config.model, threads=config.threads)
    effort = Effort(config.nodes, config.time, config.mate_nodes)
    left_out = analysed = 0
    with Progress("positions") as progress:
        for file, number, game in _numbered(config.files):
            place = f"{file}#{number}" if number else file
            if reason := _why_not(game):
                left_out += 1
                progress.say(f"{place}: left out: {reason}")
                continue
            assert isinstance(game, Game)
            analysed += 1
            name = names.name(file, number)
            progress.phase(name, game.total + 1)
            judged: list[Judged] = []
            try:
                _judge(game, evaluator, effort, judged, progress)
            finally:
                # Also where Ctrl-C ended it.
                if judged:
                    found = _write(config, evaluator.name, name, game, judged)
                    if config.json:
                        print(json.dumps({"file": file, **found}, ensure_ascii=False), flush=True)
                    else:
                        print(_summary(found), flush=True)
    if not analysed and not left_out:
        raise GinkgoError(f"{', '.join(config.files)}: no game in it")
    return 1 if left_out else 0


def _judge(game: Game, evaluator: Any, effort: Any, judged: list, progress: Any) -> None:
    from ginkgo.play.analysis import judge

    for one in judge(game, evaluator, effort):
        judged.append(one)
        progress.advance(1)


def _write(
    config: AnalyzeConfig, engine: str, name: str, game: Game, judged: list[Judged]
) -> dict[str, Any]:
    """Write a game's files; what `--json` prints of it."""
    from ginkgo.play.analysis import losses
    from ginkgo.play.comments import commented
    from ginkgo.play.graph import win_rate_graph
    from ginkgo.records.files import atomic_write
    from ginkgo.records.kifu.write import kif_file

    lost = losses(game, judged, config.mistake, config.blunder)
    kif, png = config.output / f"{name}.kif", config.output / f"{name}.png"
    first_ply = int(game.start.split()[3]) - 1
    title = f"{game.black} – {game.white}" if game.black and game.white else name
    with atomic_write(kif) as stream:
        stream.write(kif_file(commented(game, judged, lost, f"ginkgo {engine}")))
    with atomic_write(png) as stream:
        stream.write(win_rate_graph(title, first_ply, judged, lost))
    return {
        "kif": str(kif),
        "png": str(png),
        "black": game.black,
        "white": game.white,
        "start": game.start,
        "winner": game.winner if game.winner in ("b", "w", "d") else None,
        "end": game.end,
        "model": engine,
        "plies": game.total,
        "complete": len(judged) == game.total + 1,
        "positions": [_as_json(game, one, lost) for one in judged],
    }


def _as_json(game: Game, one: Judged, lost: list[Loss]) -> dict[str, Any]:
    """A position with the move that led to it. Rate, score and mate are of Black's view."""
    loss = lost[one.ply - 1] if one.ply else None
    return {
        "ply": one.ply,
        "move": game.moves[one.ply - 1] if one.ply else None,
        "loss": round(loss.rate, 4) if loss else None,
        "mark": (loss.mark or None) if loss else None,
        "rate": round(one.rate, 4),
        "score": one.score,
        "mate": one.mate or None,
        "best": one.best or None,
        "line": list(one.line),
        "nodes": one.nodes,
    }


def _summary(found: dict[str, Any]) -> str:
    """The line that is printed of a game."""
    parts = [f"{found['plies']} plies"]
    if not found["complete"]:
        parts.append(f"{len(found['positions'])} positions analysed")
    white_first = found["start"].split()[1] == "w"
    for side, white in (("Black", False), ("White", True)):
        of_side = [
            one["mark"]
            for one in found["positions"][1:]
            if (white_first != bool((one["ply"] - 1) % 2)) == white
        ]
        counts = [
            f"{of_side.count(mark)} {mark}{'' if of_side.count(mark) == 1 else 's'}"
            for mark in ("mistake", "blunder")
        ]
        parts.append(f"{side} {', '.join(counts)}")
    return f"{found['kif']}: {'; '.join(parts)}"
