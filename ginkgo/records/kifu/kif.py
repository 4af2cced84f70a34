"""KIF (`.kif`, `.kifu`): one game, a move a line.

In: its text. Out: a `Reading`.

A line of KIF names destination, piece and origin, so that nothing is left for a library to do but
to check it; and what libraries leave out is what matters here: the line of each move, times of
every spelling, comments, a foul at the end, and that no line is skipped.

A file may list branches after the main line (変化：N手). Each begins before ply N of the line read
last, as its writer walked back from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ginkgo.records.kifu.japanese import (
    BLACK_MARKS,
    DIGITS,
    END_WORDS,
    MOVE_SIGNS,
    PIECE_PATTERN,
    PIECES,
    WHITE_MARKS,
    Header,
    hinted,
    is_coordinates,
    is_until,
    read_hint,
    until,
)
from ginkgo.records.kifu.pieces import GOLD, Misfit, Move, cells_from_sfen, usi_moves
from ginkgo.records.kifu.reading import Branch, Fault, Reading, ReadOptions, sides_of
from ginkgo.records.kifu.result import Statement

_MOVE = re.compile(
    r"[ \t　]*([0-9０-９]+)[ \t　.:：]*[▲△▼▽☗☖]?[ \t　]*"
    r"(?:(同)|([1-9１-９])([一二三四五六七八九1-9１-９]))[ \t　]*"
    rf"({PIECE_PATTERN})[ \t　]*[右左直上下引寄行入]*"
    r"(不成|生|成)?[ \t　]*(打)?[ \t　]*(?:[(（]([0-9０-９])([0-9０-９])[)）])?(.*)"
)
_NUMBERED = re.compile(r"[ \t　]*([0-9０-９]+)[ \t　.:：]+([^ \t　(（]+)(.*)")
_TIME = re.compile(r"[(（][ 　]*(?:([0-9]+):)?([0-9]+):([0-9]+(?:\.[0-9]+)?)[ 　]*[/／)）]")
_BRANCH = re.compile(r"[ \t　]*変化[：:][ \t　]*([0-9０-９]+)")
_TAIL = re.compile(r"[ \t　]*\+?[ \t　]*")


@dataclass
class _Line:
    """A run of moves: the main line, or a branch."""

    number: int
    ply: int = 1
    """Ply of its first move."""
    path: list[Move | None] = field(default_factory=list)
    """All moves from the start; None: cannot be read."""
    fault: str = ""


def read_kif(text: str, options: ReadOptions) -> Reading:
    """Read one game.

    Raises:
        Fault: a line of the main line that ought to be a move cannot be read.
    """
    reading = Reading("kif")
    header, lines = Header(), text.split("\n")
    moves: list[Move] = []
    places: list[int] = []
    times = reading.times
    first_label = last_to = 0
    until_plies = -1
    ended = False
    hint: Statement | None = None
    match_move = _MOVE.match
    rest_from = len(lines)
    for number, line in enumerate(lines):
        match = match_move(line)
        if match is not None:
            label, same, file, rank, kanji, promotion, drop, from_file, from_rank, tail = (
                match.groups()
            )
            if ended:
                raise Fault(number, f"a move after the end of the game: {line.strip()[:40]!r}")
            ply = int(label)
            if not moves:
                first_label = ply
            elif ply != first_label + len(moves):
                raise Fault(
                    number,
                    f"ply {ply} follows ply {first_label + len(moves) - 1}: a move is missing",
                    len(moves),
                )
            to = last_to if same else 10 * DIGITS[file] + DIGITS[rank]
            piece = PIECES[kanji]
            if not to:
                raise Fault(number, "同 without a move before it")
            origin = 0
            if from_file is not None:
                origin = 10 * int(from_file) + int(from_rank)
            elif not drop:
                raise Fault(number, f"ply {ply}: no origin: {line.strip()[:40]!r}", len(moves))
            if origin and (drop or origin < 11 or origin % 10 == 0):
                raise Fault(number, f"ply {ply}: cannot read {line.strip()[:40]!r}", len(moves))
            moves.append((origin, to, piece + 8 if promotion == "成" and piece < GOLD else piece))
            if promotion == "成" and piece >= GOLD:
                raise Fault(number, f"ply {ply}: {kanji}成 is no move", len(moves) - 1)
            places.append(number)
            last_to = to
            if tail and not _TAIL.fullmatch(tail):
                times.append(_seconds(tail))
            else:
                times.append(None)
            continue
        stripped = line.lstrip(" \t　")
        if not stripped:
            continue
        sign = stripped[0]
        if sign in "*＊":
            if options.comments:
                reading.comments.setdefault(len(moves), []).append(stripped[1:])
        elif sign == "#":
            hint = read_hint(stripped) or hint
        elif sign in "&＆":
            continue
        elif _BRANCH.match(line) or (sign == "変" and stripped.startswith("変化")):
            rest_from = number
            break
        elif is_until(line):
            if found_until := until(line, header):
                reading.statements.append(found_until[0])
                until_plies = found_until[1]
            ended = True
        elif (end := _NUMBERED.match(line)) and not is_coordinates(stripped):
            word = end[2].rstrip("+")
            if word in END_WORDS or not _looks_like_move(word):
                if not ended and moves and int(end[1]) != first_label + len(moves):
                    raise Fault(
                        number,
                        f"{word} at ply {int(end[1])} follows ply "
                        f"{first_label + len(moves) - 1}: a move is missing",
                        len(moves),
                    )
                reading.statements.append(_end(line.strip(), word, reading, number))
                ended = True
            else:
                raise Fault(
                    number, f"ply {int(end[1])}: cannot read {line.strip()[:40]!r}", len(moves)
                )
        elif MOVE_SIGNS.search(stripped) and (moves or sign in BLACK_MARKS + WHITE_MARKS):
            raise Fault(number, f"cannot read {stripped[:40]!r}", len(moves))
        elif header.take(number, stripped):
            continue
        elif moves:
            reading.notes.append(f"line {number + 1}: not understood: {stripped[:40]!r}")
    _set_start(reading, header, moves)
    cells, white = cells_from_sfen(reading.start)
    reading.lines = places
    try:
        reading.moves = usi_moves(cells, white, moves)
    except Misfit as error:
        raise Fault(places[error.ply - 1], str(error), error.ply - 1) from None
    _check_until(reading, until_plies, first_label)
    if hint is not None:
        reading.statements = hinted(reading.statements, hint)
    if options.variations and rest_from < len(lines):
        _read_branches(reading, lines, rest_from, moves, first_label)
    return reading


def _set_start(reading: Reading, header: Header, moves: list[Move]) -> None:
    reading.black, reading.white = header.name("b"), header.name("w")
    reading.start = header.start(moves[0][0] if moves else 0)
    sides_of(reading.start)
    if header.problem:
        reading.statements = [Statement(one.text, one.end, "-") for one in reading.statements]


def _seconds(tail: str) -> float | None:
    """The time of one move from what follows it; None: none is there that can be read."""
    if match := _TIME.search(tail):
        return 3600 * int(match[1] or 0) + 60 * int(match[2]) + float(match[3])
    return None


def _looks_like_move(text: str) -> bool:
    """Whether a numbered line has signs of a move in it: it is never passed over then."""
    return any(kanji in text for kanji in PIECES) or text[:1] in DIGITS or text[:1] == "同"


def _end(text: str, word: str, reading: Reading, number: int) -> Statement:
    if word not in END_WORDS:
        reading.notes.append(f"line {number + 1}: unknown end word {word[:20]!r}")
    end, rule = END_WORDS.get(word, ("unknown", "-"))
    return Statement(text.split("(")[0].strip(" 　"), end, rule)


def _check_until(reading: Reading, plies: int, first_label: int) -> None:
    """まで counts the moves, and some count the resignation too."""
    listed = len(reading.moves) + max(0, first_label - 1)
    if plies > 0 and plies not in (listed, listed + 1, len(reading.moves)):
        # That contradicts whatever is stated.
        reading.statements.append(Statement(f"{listed} moves listed", "chudan", "-"))


def _read_branches(
    reading: Reading, lines: list[str], begin: int, main: list[Move], first_label: int
) -> None:
    """The branches, each as a path from the start; what is odd about them becomes a note."""
    offset = max(1, first_label) - 1
    current: list[Move] = list(main)
    path: list[Move] = []
    branch_line, branch_ply = -1, 0
    fault = ""

    def close() -> None:
        nonlocal current
        if branch_line < 0:
            return
        if fault:
            reading.notes.append(f"line {branch_line + 1}: variation cut: {fault}")
        if len(path) >= branch_ply > 0:
            cells, white = cells_from_sfen(reading.start)
            try:
                reading.branches.append(
                    Branch(branch_line, branch_ply, usi_moves(cells, white, path))
                )
            except Misfit as error:
                reading.notes.append(f"line {branch_line + 1}: variation left out: {error}")
        if path:
            current = path

    for number in range(begin, len(lines)):
        line = lines[number]
        if match := _BRANCH.match(line):
            close()
            branch_line, branch_ply, fault = number, int(match[1]) - offset, ""
            path = []
            if not 1 <= branch_ply <= len(current) + 1:
                fault = f"it begins at ply {int(match[1])}, the line before it is shorter"
                continue
            path = current[: branch_ply - 1]
        elif branch_line < 0 or fault:
            continue
        elif match := _MOVE.match(line):
            move = _branch_move(match, path)
            ply = int(match[1]) - offset
            if move is None or ply != len(path) + 1:
                fault = f"line {number + 1}: cannot read {line.strip()[:40]!r}"
            else:
                path.append(move)
    close()


def _branch_move(match: re.Match[str], path: list[Move]) -> Move | None:
    _, same, file, rank, kanji, promotion, drop, from_file, from_rank, _ = match.groups()
    if same and not path:
        return None
    to = path[-1][1] if same else 10 * DIGITS[file] + DIGITS[rank]
    piece = PIECES[kanji]
    origin = 10 * int(from_file) + int(from_rank) if from_file is not None else 0
    if (not origin and not drop and from_file is None) or (origin and origin % 10 == 0):
        return None
    return origin, to, piece + 8 if promotion == "成" and piece < GOLD else piece
