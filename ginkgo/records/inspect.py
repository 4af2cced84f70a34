"""`ginkgo inspect`: what was understood of each kifu.

In: files, archives, directories, globs or standard input. Out: a line a game (or JSON), with the
final position if asked for.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.records.game import Game, Refusal


@dataclass(frozen=True)
class InspectConfig:
    """Say what was understood of each game in files of any format."""

    files: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FILE […]")]
    """Files, archives, directories or globs; - is standard input."""

    board: bool = False
    """Draw the final position too."""
    moves: bool = False
    """List the moves too, in USI."""
    json: bool = False
    """One JSON object a game instead of text."""


def inspect(
    paths: Sequence[str], passed: Counter[str] | None = None
) -> Iterator[tuple[str, int, Game | Refusal]]:
    """(file, index of the game in it, game or why it cannot be used), every game replayed.

    Args:
        passed: counts the files that were passed over for their suffix, see `find_files`.

    Raises:
        GinkgoError: a path does not exist.
    """
    from ginkgo.records.kifu.reading import ReadOptions
    from ginkgo.records.kifu.stream import raw_games, read_raw
    from ginkgo.records.sources import files_at

    options = ReadOptions(variations=True)
    for path in files_at(paths, passed=passed):
        index = 0
        for raw in raw_games(path):
            if isinstance(raw, Refusal):
                yield raw.file, index, raw
                index += 1
                continue
            for _line, game in read_raw(raw, options):
                yield raw.file, index, _believed(raw.file, raw.line, game)
                index += 1


def _believed(file: str, line: int, game: Game | Refusal) -> Game | Refusal:
    """Game lines are not replayed when they are read; here everything is."""
    from ginkgo.records.replay import IllegalMove, played

    if isinstance(game, Refusal):
        return game
    if game.format == "usi":
        try:
            played(game)
        except IllegalMove as error:
            plies = int(str(error).split(":")[0].removeprefix("ply ")) - 1
            return Refusal(file, line, str(error), "illegal move", plies)
        except GinkgoError as error:
            return Refusal(file, line, str(error), "bad start position")
    return game


def as_json(file: str, index: int, game: Game | Refusal, moves: bool = False) -> dict[str, Any]:
    """What `--json` prints of a game."""
    if isinstance(game, Refusal):
        return {
            **{"file": file, "index": index, "format": game.format or None},
            **{"encoding": None, "start": None},
            **{"plies": game.plies, "winner": None, "end": None, "refused": _refused(game)},
            "notes": [],
        }
    found: dict[str, Any] = {
        "file": file,
        "index": index,
        "format": game.format,
        "encoding": game.encoding or None,
        "start": game.start,
        "plies": game.total,
        "winner": game.winner if game.winner in ("b", "w", "d") else None,
        "end": game.end,
        "refused": None,
        "notes": list(game.notes),
    }
    if game.black or game.white:
        found |= {"black": game.black, "white": game.white}
    if game.variations:
        found["variations"] = len(game.variations)
    if moves:
        found["moves"] = list(game.moves)
    return found


def _refused(refusal: Refusal) -> str:
    """Line and reason. In packed formats the line is the number of the game or position."""
    return f"line {refusal.line}: {refusal.reason}"


_WINNERS = {"b": "black wins", "w": "white wins", "d": "draw", "-": "no result"}


def as_text(file: str, index: int, game: Game | Refusal) -> str:
    """The line that is printed of a game."""
    name = f"{file}#{index + 1}" if index else file
    if isinstance(game, Refusal):
        return f"{name}: refused: {_refused(game)}"
    facts = [
        game.format + (f" ({game.encoding})" if game.encoding else ""),
        f"{game.total} plies",
        f"{_WINNERS[game.winner]} ({game.end})",
    ]
    if game.black or game.white:
        facts.append(f"{game.black or '?'} – {game.white or '?'}")
    if game.variations:
        facts.append(f"{len(game.variations)} variations")
    facts += game.notes
    return f"{name}: {'; '.join(facts)}"


def draw(game: Game) -> str:
    """The final position as a diagram of letters, with the hands."""
    from ginkgo.records.kifu.bod import diagram
    from ginkgo.records.kifu.pieces import position_after

    return diagram(position_after(game))


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, print.

    Returns:
        the exit status: 0; every file was read or refused with a reason.

    Raises:
        GinkgoError: a path does not exist.
    """
    config = tyro.cli(
        InspectConfig, prog="ginkgo inspect", args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    if not config.files:
        raise GinkgoError("no files given: expected files, directories, globs or -")
    passed: Counter[str] = Counter()
    games = 0
    for file, index, game in inspect(config.files, passed):
        games += 1
        if config.json:
            print(json.dumps(as_json(file, index, game, config.moves), ensure_ascii=False))
            continue
        print(as_text(file, index, game))
        if isinstance(game, Game):
            if config.moves and game.moves:
                print("  " + " ".join(game.moves))
            if config.board:
                print(draw(game))
        sys.stdout.flush()
    if not games:
        print(f"{', '.join(config.files)}: no game in it", file=sys.stderr)
    if passed:
        from ginkgo.records.files import passed_over

        print(passed_over(dict(passed.most_common())), file=sys.stderr)
    return 0
