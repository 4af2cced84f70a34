"""JKF (`.jkf`): one game as JSON, in the form of json-kifu-format.

In: its text. Out: a `Reading`.

A move names origin, destination and piece in the CSA way (or only `same`, or, as in KI2, a
`relative` word beside the origin), so that only the JSON has to be walked. The walk uses no
recursion: opening trees nest hundreds of branches.
"""

from __future__ import annotations

import json
from typing import Any

from rsshogi.initial_positions import HANDICAP_TO_SFEN

from ginkgo.records.game import STARTPOS
from ginkgo.records.kifu.japanese import END_WORDS as JAPANESE_END_WORDS
from ginkgo.records.kifu.japanese import HANDICAPS, Header
from ginkgo.records.kifu.pieces import (
    CSA_PIECES,
    GOLD,
    WHITE,
    Misfit,
    Move,
    cells_from_sfen,
    empty_cells,
    sfen_from_cells,
    usi_moves,
)
from ginkgo.records.kifu.reading import (
    MOST_BRANCH_PLIES,
    Branch,
    Fault,
    Reading,
    ReadOptions,
    sides_of,
)
from ginkgo.records.kifu.result import END_WORDS, Statement
from ginkgo.records.kifu.scores import Scores

_PRESETS = {
    "HIRATE": STARTPOS,
    **{"KY": HANDICAPS["香落ち"], "KY_R": HANDICAPS["右香落ち"], "KA": HANDICAPS["角落ち"]},
    **{"HI": HANDICAPS["飛車落ち"], "HIKY": HANDICAPS["飛香落ち"]},
    **{"2": HANDICAPS["二枚落ち"], "3": HANDICAPS["三枚落ち"], "4": HANDICAPS["四枚落ち"]},
    **{"5": HANDICAPS["五枚落ち"], "5_L": HANDICAPS["左五枚落ち"], "6": HANDICAPS["六枚落ち"]},
    **{"7_L": HANDICAPS["左七枚落ち"], "7_R": HANDICAPS["右七枚落ち"]},
    **{"8": HANDICAP_TO_SFEN["八枚落ち"], "10": HANDICAP_TO_SFEN["十枚落ち"]},
}


def read_jkf(text: str, options: ReadOptions) -> Reading:
    """Read one game.

    Raises:
        Fault: the text is no JSON of this form, or names a move that cannot be read.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Fault(0, f"not JSON: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("moves"), list):
        raise Fault(0, "not JKF: no list of moves")
    reading = Reading("jkf")
    header = Header()
    fields = data.get("header")
    if isinstance(fields, dict):
        header.fields = {str(key): str(value) for key, value in fields.items()}
    reading.black, reading.white = header.name("b"), header.name("w")
    reading.start = _start(data.get("initial"), header)
    sides_of(reading.start)
    nodes, scores = data["moves"], Scores()
    moves: list[Move] = []
    forks: list[tuple[list[Move], int, Any]] = []  # the line, the ply of the fork, its nodes
    for index, node in enumerate(nodes):
        if not isinstance(node, dict):
            raise Fault(0, f"move {index}: not an object")
        _comments(node, reading, len(moves) + bool(node.get("move")), options, scores)
        if options.variations and isinstance(node.get("forks"), list):
            forks += [(moves, len(moves) + 1, fork) for fork in node["forks"]]
        if "move" in node:
            if reading.statements:
                raise Fault(0, "a move after the end of the game", len(moves))
            try:
                moves.append(_move(node["move"], moves))
            except (KeyError, TypeError, ValueError):
                raise Fault(0, f"ply {len(moves) + 1}: cannot read this move", len(moves)) from None
            reading.times.append(_seconds(node.get("time")))
        if "special" in node:
            reading.statements.append(_special(str(node["special"]), reading))
    reading.scores = scores.by_move(reading.start.split()[1] == "w", len(moves))
    reading.lines = [0] * len(moves)
    reading.named = moves
    if header.problem:
        reading.statements = [Statement(one.text, one.end, "-") for one in reading.statements]
    if options.variations:
        _read_forks(reading, forks)
    return reading


def _start(initial: Any, header: Header) -> str:
    if not isinstance(initial, dict):
        return header.start()
    preset = str(initial.get("preset", "HIRATE"))
    data = initial.get("data")
    if isinstance(data, dict):
        try:
            return _start_from_data(data)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise Fault(0, "initial position: cannot read it") from None
    if preset not in _PRESETS:
        raise Fault(0, f"unknown preset {preset[:20]!r} and no position")
    return _PRESETS[preset]


def _start_from_data(data: dict[str, Any]) -> str:
    cells = empty_cells()
    columns = data["board"]
    if len(columns) != 9 or any(len(column) != 9 for column in columns):
        raise ValueError("expected nine files of nine squares")
    for file, column in enumerate(columns, 1):
        for rank, cell in enumerate(column, 1):
            if cell and cell.get("kind"):
                piece = CSA_PIECES[cell["kind"]]
                cells[10 * file + rank] = piece + (WHITE if cell.get("color") else 0)
    hands = [
        {CSA_PIECES[name]: int(count) for name, count in hand.items()} for hand in data["hands"][:2]
    ]
    return sfen_from_cells(cells, bool(data.get("color")), (hands[0], hands[1]))


def _move(move: dict[str, Any], before: list[Move]) -> Move:
    to = _square(move["to"]) if move.get("to") else before[-1][1] if before else 0
    if not to:
        raise ValueError("no destination")
    origin = _square(move["from"]) if move.get("from") else 0
    if not origin and move.get("relative", "H") != "H":
        # As KI2 has it: one of several pieces on the board is meant, not one in hand.
        raise ValueError("no origin")
    piece = CSA_PIECES[move["piece"]]
    promote = bool(move.get("promote")) and piece < GOLD and origin > 0
    return origin, to, piece + 8 if promote else piece


def _square(place: dict[str, Any]) -> int:
    file, rank = int(place["x"]), int(place["y"])
    if not (1 <= file <= 9 and 1 <= rank <= 9):
        raise ValueError("no such square")
    return 10 * file + rank


def _seconds(time: Any) -> float | None:
    now = time.get("now") if isinstance(time, dict) else None
    if not isinstance(now, dict):
        return None
    try:
        time = 3600 * float(now.get("h") or 0) + 60 * float(now["m"]) + float(now["s"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return time if 0 <= time < 1e7 else None  # JSON knows numbers without end


def _comments(
    node: dict[str, Any], reading: Reading, ply: int, options: ReadOptions, scores: Scores
) -> None:
    comments = node.get("comments")
    if not isinstance(comments, list) or not comments:
        return
    for comment in map(str, comments):
        scores.note(ply, comment)
    if options.comments:
        reading.comments.setdefault(ply, []).extend(map(str, comments))


def _special(word: str, reading: Reading) -> Statement:
    if word in END_WORDS:
        return Statement(word, *END_WORDS[word])
    if word in JAPANESE_END_WORDS:
        return Statement(word, *JAPANESE_END_WORDS[word])
    reading.notes.append(f"unknown end word {word[:40]!r}")
    return Statement(word, "unknown", "-")


def _read_forks(reading: Reading, forks: list[tuple[list[Move], int, Any]]) -> None:
    """All branches, and theirs."""
    pending, left = list(reversed(forks)), MOST_BRANCH_PLIES
    while pending:
        base, ply, nodes = pending.pop()
        left -= ply
        if left < 0:
            reading.notes.append("too many variations: no more are read")
            return
        path = base[: ply - 1]
        if not isinstance(nodes, list):
            continue
        try:
            for node in nodes:
                for fork in node.get("forks") or ():
                    pending.append((path, len(path) + 1, fork))
                if "move" in node:
                    path.append(_move(node["move"], path))
            if len(path) >= ply:
                cells, white = cells_from_sfen(reading.start)
                reading.branches.append(Branch(0, ply, usi_moves(cells, white, path)))
        except (KeyError, TypeError, ValueError, AttributeError, Misfit):
            reading.notes.append(f"a variation at ply {ply} cannot be read: left out")
