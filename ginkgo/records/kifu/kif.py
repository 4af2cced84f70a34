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

from ginkgo.records.kifu.japanese import (
    BLACK_MARKS,
    DIGITS,
    END_WORDS,
    MOVE_SIGNS,
    PIECE_PATTERN,
    PIECES,
    WHITE_MARKS,
    Header,
    is_coordinates,
    is_field,
    is_until,
    until,
)
from ginkgo.records.kifu.pieces import GOLD, Misfit, Move, cells_from_sfen, usi_moves
from ginkgo.records.kifu.reading import (
    MOST_BRANCH_PLIES,
    Branch,
    Fault,
    Reading,
    ReadOptions,
    sides_of,
)
from ginkgo.records.kifu.result import Statement, hinted, read_hint
from ginkgo.records.kifu.scores import Scores

#: What is possessive here (`*+`) keeps a line of a million blanks from taking hours.
_MOVE = re.compile(
    r"[ \t　]*+([0-9０-９]{1,6})[ \t　.:：]*+[▲△▼▽☗☖]?[ \t　]*+"
    r"(?:(同)|([1-9１-９])([一二三四五六七八九1-9１-９]))[ \t　]*+"
    rf"({PIECE_PATTERN})[ \t　]*+[右左直上下引寄行入]*+"
    r"(不成|生|成)?[ \t　]*+(打)?[ \t　]*+(?:[(（]([0-9０-９])([0-9０-９])[)）])?(.*)"
)
#: Nearly all moves are written so: ply, move, minutes and seconds.
_PLAIN = re.compile(
    r" *+([0-9]{1,6}) ([^ (]+(?:\([0-9]{2}\))?) *+(?:\( *+([0-9]{1,6}):([0-9]{2})/[0-9 :]*\))?"
)
_NUMBERED = re.compile(r"[ \t　]*+([0-9０-９]{1,6})[ \t　.:：]++([^ \t　(（]+)(.*)")
_TIME = re.compile(
    r"[(（][ 　]*+(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,6}(?:\.[0-9]{1,9})?)[ 　]*+[/／)）]"
)
_ORIGIN = re.compile(r"[(（][0-9０-９]{2}[)）]|打")
_BRANCH = re.compile(r"[ \t　]*変化[：:][ \t　]*([0-9０-９]{1,6})")
_TAIL = re.compile(r"[ \t　]*\+?[ \t　]*")


def read_kif(text: str, options: ReadOptions) -> Reading:
    """Read one game.

    Raises:
        Fault: a line of the main line that ought to be a move cannot be read.
    """
    lines = text.split("\n")
    main = _MainLine(options.comments)
    rest_from = len(lines)
    match_plain, match_move = _PLAIN.fullmatch, _MOVE.match
    for number, line in enumerate(lines):
        if (plain := match_plain(line)) and main.plain_move(number, *plain.groups()):
            continue
        match = match_move(line)
        if match is not None:
            main.move(number, match)
        elif stripped := line.lstrip(" \t　"):
            if stripped.startswith("変化"):
                rest_from = number
                break
            main.other(number, stripped)
    reading = main.finished()
    if options.variations and rest_from < len(lines):
        _read_branches(reading, lines, rest_from, main.moves, main.first_label)
    return reading


class _MainLine:
    """The lines of a file up to its first branch."""

    def __init__(self, comments: bool) -> None:
        self.reading = Reading("kif")
        self.moves: list[Move] = []
        self.first_label = 0
        """Number that the first move bears."""
        self._header = Header()
        self._comments = comments
        self._places: list[int] = []
        self._last_to = 0
        self._until_plies = 0
        self._ended = False
        self._hint: Statement | None = None
        self._unknown_end: tuple[int, str] | None = None
        """Where a line with an unknown word stands: nothing may follow that."""
        self._scores = Scores()

    def plain_move(self, number: int, ply: str, text: str, minutes: str, seconds: str) -> bool:
        """A line that most likely is a move; if it is and nothing is odd about it, it is taken."""
        move = _PLAIN_MOVES[text]
        if move is None or self._ended or not self.moves:
            return False
        if int(ply) != self.first_label + len(self.moves):
            return False
        if not move[1]:
            move = (move[0], self._last_to, move[2])
        self.moves.append(move)
        self._places.append(number)
        self._last_to = move[1]
        self.reading.times.append(60 * int(minutes) + float(seconds) if minutes else None)
        return True

    def move(self, number: int, match: re.Match[str]) -> None:
        """A line that is a move."""
        moves = self.moves
        if self._ended:
            raise Fault(number, f"a move after the end of the game: {match[0].strip()[:40]!r}")
        ply = int(match[1])
        if not moves:
            self.first_label = ply
        elif ply != self.first_label + len(moves):
            raise self._missing(number, f"ply {ply}")
        try:
            move = _move(match, self._last_to)
        except ValueError as error:
            reason = f"ply {ply}: {error}: {match[0].strip()[:40]!r}"
            raise Fault(number, reason, len(moves)) from None
        moves.append(move)
        self._places.append(number)
        self._last_to = move[1]
        tail = match[10]
        seconds = None
        if tail and not _TAIL.fullmatch(tail):
            time = _TIME.search(tail)
            if time:
                seconds = 3600 * int(time[1] or 0) + 60 * int(time[2]) + float(time[3])
                tail = tail[time.end() :]
            if MOVE_SIGNS.search(tail):
                raise Fault(number, f"two moves in a line: {match[0].strip()[:40]!r}", len(moves))
        self.reading.times.append(seconds)

    def _missing(self, number: int, what: str) -> Fault:
        before = self.first_label + len(self.moves) - 1
        return Fault(number, f"{what} follows ply {before}: a move is missing", len(self.moves))

    def other(self, number: int, line: str) -> None:
        """Any other line, without the blanks before it."""
        sign = line[0]
        if sign in "*＊":
            if line[1:2] in ("*", "#"):
                self._scores.note(len(self.moves), line[1:])
            if self._comments:
                self.reading.comments.setdefault(len(self.moves), []).append(line[1:])
        elif sign == "#":
            self._hint = read_hint(line) or self._hint
        elif sign in "&＆":
            return
        elif is_until(line):
            if found := until(line, self._header):
                self.reading.statements.append(found[0])
                self._until_plies = found[1]
            self._ended = True
        elif (match := _NUMBERED.match(line)) and not is_coordinates(line):
            self._numbered(number, match)
        elif self._may_be_move(line):
            raise Fault(number, f"cannot read {line[:40]!r}", len(self.moves))
        elif not self.moves:
            self._header.take(number, line)
        elif not line.startswith("手数"):
            # A diagram here would show the end of the game, not its start.
            self._note(number, f"not understood: {line[:40]!r}")

    def _may_be_move(self, line: str) -> bool:
        """Whether a line that cannot be read has signs of a move in it."""
        if not MOVE_SIGNS.search(line) or is_field(line):
            return False
        marked = line[0] in BLACK_MARKS + WHITE_MARKS
        return bool(self.moves or marked or _ORIGIN.search(line))

    def _numbered(self, number: int, match: re.Match[str]) -> None:
        """A line with a ply number that is no move: an end word, or damage."""
        ply, word = int(match[1]), match[2].rstrip("+")
        if word not in END_WORDS and _looks_like_move(word):
            raise Fault(
                number, f"ply {ply}: cannot read {match[0].strip()[:40]!r}", len(self.moves)
            )
        if self._unknown_end is not None:
            raise Fault(*self._unknown_end, len(self.moves))
        if not self._ended and self.moves and ply != self.first_label + len(self.moves):
            raise self._missing(number, f"{word} at ply {ply}")
        if word not in END_WORDS:
            self._note(number, f"unknown end word {word[:20]!r}")
            self._unknown_end = (number, f"ply {ply}: cannot read {match[0].strip()[:40]!r}")
        end, rule = END_WORDS.get(word, ("unknown", "-"))
        text = match[0].split("(")[0].strip(" 　")
        self.reading.statements.append(Statement(text, end, rule))
        self._ended = True

    def _note(self, number: int, text: str) -> None:
        self.reading.notes.append(f"line {number + 1}: {text}")

    def finished(self) -> Reading:
        """The game so far."""
        reading = self.reading
        _set_start(reading, self._header, self.moves)
        reading.lines = self._places
        reading.named = self.moves
        reading.scores = self._scores.by_move(reading.start.split()[1] == "w", len(self.moves))
        _check_until(reading, self._until_plies, self.first_label)
        if self._hint is not None:
            reading.statements = hinted(reading.statements, self._hint)
        return reading


def _move(match: re.Match[str], last_to: int) -> Move:
    """The move of a line.

    Args:
        last_to: destination of the move before it, 0: there is none.

    Raises:
        ValueError: it names no move.
    """
    _, same, file, rank, kanji, promotion, drop, from_file, from_rank, _ = match.groups()
    to = last_to if same else 10 * DIGITS[file] + DIGITS[rank]
    if not to:
        raise ValueError("同 without a move before it")
    piece = PIECES[kanji]
    origin = 0 if from_file is None else 10 * int(from_file) + int(from_rank)
    if from_file is None and not drop:
        raise ValueError("no origin")
    if origin and (drop or origin < 11 or origin % 10 == 0):
        raise ValueError("no such origin")
    if promotion != "成":
        return origin, to, piece
    if piece >= GOLD or not origin:
        raise ValueError("it cannot promote")
    return origin, to, piece + 8


class _PlainMoves(dict):
    """Move by its text in a plain line, with the destination 0 for 同; None: not so simple."""

    def __missing__(self, text: str) -> Move | None:
        found: Move | None = None
        match = _MOVE.fullmatch(f"1 {text}")
        if match is not None and not match[10]:
            try:
                origin, to, piece = _move(match, 1)
                found = (origin, 0 if match[2] else to, piece)
            except ValueError:
                found = None
        if len(self) < 1 << 16:
            self[text] = found
        return found


_PLAIN_MOVES = _PlainMoves()


def _set_start(reading: Reading, header: Header, moves: list[Move]) -> None:
    reading.black, reading.white = header.name("b"), header.name("w")
    reading.start = header.start(moves[0][0] if moves else 0)
    sides_of(reading.start)
    if header.problem:
        reading.statements = [Statement(one.text, one.end, "-") for one in reading.statements]


def _looks_like_move(text: str) -> bool:
    """Whether a numbered line has signs of a move in it: it is never passed over then."""
    return any(kanji in text for kanji in PIECES) or text[:1] in DIGITS or text[:1] == "同"


def _check_until(reading: Reading, plies: int, first_label: int) -> None:
    """まで counts the moves, and some count the resignation too."""
    listed = len(reading.named) + max(0, first_label - 1)
    if plies > 0 and plies not in (listed, listed + 1, len(reading.named)):
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
    fault, left = "", MOST_BRANCH_PLIES

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
            left -= branch_ply
            if left < 0:
                reading.notes.append(f"line {number + 1}: too many variations: no more are read")
                return
        elif branch_line < 0 or fault:
            continue
        elif match := _MOVE.match(line):
            try:
                move = _move(match, path[-1][1] if path else 0)
                if int(match[1]) - offset != len(path) + 1:
                    raise ValueError("a move is missing")
            except ValueError as error:
                fault = f"line {number + 1}: {error}: {line.strip()[:40]!r}"
            else:
                path.append(move)
    close()
