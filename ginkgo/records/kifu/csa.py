"""CSA game records (`.csa`, versions 1 to 3.0): one game.

In: its text. Out: a `Reading`.

A line of CSA names origin, destination and the piece after the move, so that nothing is left for a
library to do but to check it; comments, endings and ratings are written by servers and clients in
more ways than the format knows.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ginkgo.records.game import STARTPOS
from ginkgo.records.kifu.pieces import (
    CSA_PIECES,
    GOLD,
    HAND_ORDER,
    KING,
    WHITE,
    Move,
    cells_from_sfen,
    empty_cells,
    sfen_from_cells,
)
from ginkgo.records.kifu.reading import Fault, Reading, ReadOptions
from ginkgo.records.kifu.result import END_WORDS, Statement, hinted, read_hint
from ginkgo.records.kifu.scores import Scores
from ginkgo.records.sfen import LIMITS

#: What the shogi server gives as reason in its `'summary` line, as end words.
_SUMMARY_WORDS = {
    "toryo": "TORYO",
    "kachi": "KACHI",
    "illegal kachi": "ILLEGAL_KACHI",
    "time up": "TIME_UP",
    "illegal move": "ILLEGAL_MOVE",
    "uchifuzume": "ILLEGAL_MOVE",
    "sennichite": "SENNICHITE",
    "oute_sennichite": "OUTE_SENNICHITE",
    "jishogi": "JISHOGI",
    "max_moves": "MAX_MOVES",
    "abnormal": "ABNORMAL",
}
#: What other programs write for an end: who has won, and how.
_FOREIGN_END = re.compile(r"(SENTE|GOTE)_WIN_([A-Z_]+)|(DRAW)_([A-Z_]+)")
_FOREIGN_WORDS = {
    "TORYO": "toryo",
    "TIMEOUT": "time_up",
    "DISCONNECT": "time_up",
    "CHECKMATE": "tsumi",
    "ENTERINGKING": "kachi",
    "OUTE_SENNICHI": "perpetual",
    "SENNICHI": "sennichite",
}
_SUMMARY = re.compile(r"'summary:([^:]+):(.*)")
_RATE = re.compile(r"'(black|white)_rate:(.*):(-?[0-9]{1,7}(?:\.[0-9]*)?)\s*")
_SCORE = re.compile(r"'\*\*\s*([+-]?[0-9]+)(?:\s|[+-]|$)")
_CELL = re.compile(r"([+-])([A-Z]{2})|\*")
_PLACED = re.compile(r"([0-9])([0-9])([A-Z]{2})")
#: Nearly all lines are moves and their times; they are taken at once. No time is longer than this.
_LINES = re.compile(r"([+-])([0-9]{4}[A-Z]{2})\n(?:T([0-9]{1,7})\n)?|(.*)\n")
_TIME = re.compile(r"T([0-9]{1,7}(?:\.[0-9]+)?)\s*")
_VERSION = re.compile(r"V(?:1|1\.0|2|2\.[0-2]|3|3\.0)\s*")
_MOVE_LIKE = re.compile(r"[0-9]{4}[A-Z]{2}")


class _Moves(dict):
    """Move by the text of a CSA line without its sign; None for what is no move."""

    def __missing__(self, text: str) -> Move | None:
        found: Move | None = None
        if len(text) == 6 and text[:4].isdecimal() and text.isascii() and text[4:] in CSA_PIECES:
            origin, to = int(text[:2]), int(text[2:4])
            if to % 10 and to > 10 and (origin == 0 or (origin % 10 and origin > 10)):
                found = (origin, to, CSA_PIECES[text[4:]])
        if len(self) < 1 << 16:
            self[text] = found
        return found


_MOVES = _Moves()


def read_csa(text: str, options: ReadOptions) -> Reading:
    """Read one game.

    Raises:
        Fault: a line that looks like a move or a position cannot be read.
    """
    game = _Lines(options.comments)
    note_sign, note_move = game.signs.append, game.moves.append
    note_time, note_line = game.times.append, game.lines.append
    statements = game.reading.statements
    number = 0
    for sign, move, time, other in _LINES.findall(f"{text}\n"):
        if not move:
            if other:
                game.other(number, other)
            number += 1
            continue
        if statements:
            raise game.fault(number, f"a move after the end of the game: {sign}{move}")
        note_sign(sign)
        note_move(move)
        note_time(float(time) if time else None)
        note_line(number)
        number += 2 if time else 1
    return game.finished()


class _Lines:
    """What the lines of a game say."""

    def __init__(self, comments: bool) -> None:
        self.reading = Reading("csa")
        self.moves: list[str] = []
        """As written, without the sign of the colour."""
        self.signs: list[str] = []
        self.times: list[float | None] = self.reading.times
        """By move."""
        self.lines: list[int] = []
        """By move its line."""
        self._comments = comments
        self._setup: list[tuple[int, str]] = []
        """Lines that describe the start position."""
        self._turn = ""
        self._summary: tuple[str, str] | None = None
        self._hint: Statement | None = None
        self._names: dict[str, str] = {}
        """Side by name, as the server knows them."""
        self._scores = Scores()
        """Those that are written as in KIF."""

    def fault(self, number: int, reason: str) -> Fault:
        return Fault(number, reason, len(self.moves))

    def other(self, number: int, line: str) -> None:
        """A line that is neither a plain move nor the time after one."""
        if line[0] == "'":
            self._comment(line)
        elif line[0] in "N$V#":
            self._header(number, line)
        else:
            self._statements(number, line)

    def _comment(self, line: str) -> None:
        """A line with an apostrophe: what servers say, scores, text."""
        reading = self.reading
        if line.startswith("'**"):
            if not _read_score(line, reading, len(self.moves), self.signs):
                self._scores.note(len(self.moves), line[2:])
        elif match := _SUMMARY.match(line):
            self._summary = (match[1].strip(), match[2])
        elif match := _RATE.fullmatch(line):
            self._names[match[2]] = "b" if match[1] == "black" else "w"
            if match[1] == "black":
                reading.rate_b = float(match[3])
            else:
                reading.rate_w = float(match[3])
        elif line.startswith("'#"):
            self._hint = read_hint(line[1:]) or self._hint
        elif line.startswith("'*"):
            if line[2:3] == "#":
                self._scores.note(len(self.moves), line[2:])
            if self._comments:
                reading.comments.setdefault(len(self.moves), []).append(line[2:])

    def _header(self, number: int, line: str) -> None:
        """Names, facts, the version, and what a client noted of the server."""
        reading = self.reading
        if _MOVE_LIKE.match(line, 1):
            raise self.fault(number, f"cannot read {line[:40]!r}")
        if self.moves and (line[:2] in ("N+", "N-") or _VERSION.fullmatch(line)):
            raise self.fault(number, "another game begins, without a line of '/' before it")
        if line.startswith("N+"):
            reading.black = line[2:].strip()
        elif line.startswith("N-"):
            reading.white = line[2:].strip()
        elif line[0] == "V" and not _VERSION.fullmatch(line):
            self._note(number, f"unknown version {line.strip()!r}")
        elif line[0] == "#" and line[1:].strip() in END_WORDS:
            reading.statements.append(_statement(line.strip(), line[1:]))

    def _statements(self, number: int, line: str) -> None:
        """All other lines: statements joined by commas, positions, endings, foreign things."""
        for part in map(str.strip, line.split(",")):
            if part[:1] == "'" or (part[:1] == "*" and self.moves):
                if part[0] == "*":
                    self._not_understood(number, part)
                return
            if part:
                self._statement(number, part)

    def _statement(self, number: int, part: str) -> None:
        reading = self.reading
        if part in ("+", "-"):
            self._turn = self._turn or part
        elif part[0] in "+-":
            self._move(number, part)
        elif part[0] == "P" and not self.moves:
            self._setup.append((number, part))
        elif part[0] == "T" and (match := _TIME.fullmatch(part)):
            if self.moves and not reading.statements:
                self.times[-1] = float(match[1])
        elif part[0] == "%" and not _MOVE_LIKE.match(part, 1):
            reading.statements.append(_statement(part, part[1:]))
            if part[1:] not in END_WORDS:
                self._note(number, f"unknown end word {part[:40]!r}")
        elif match := _FOREIGN_END.fullmatch(part):
            reading.statements.append(_foreign(part, match))
            self._note(number, f"foreign end word {part!r}")
        elif (_MOVE_LIKE.search(part) and part[0] != "*") or part[0] == "P":
            raise self.fault(number, f"cannot read {part[:40]!r}")
        else:
            self._not_understood(number, part)

    def _move(self, number: int, part: str) -> None:
        """A move that has something behind it in its line."""
        ply = len(self.moves) + 1
        if _MOVES[part[1:]] is None:
            raise self.fault(number, f"ply {ply}: cannot read {part[:40]!r}")
        if self.reading.statements:
            raise self.fault(number, f"a move after the end of the game: {part}")
        self.signs.append(part[0])
        self.moves.append(part[1:])
        self.times.append(None)
        self.lines.append(number)

    def _note(self, number: int, text: str) -> None:
        self.reading.notes.append(f"line {number + 1}: {text}")

    def _not_understood(self, number: int, part: str) -> None:
        self._note(number, f"not understood: {part[:40]!r}")

    def finished(self) -> Reading:
        """The game."""
        reading = self.reading
        _set_position(reading, self._setup, self._turn or (self.signs or "+")[0])
        self._check_turns()
        reading.lines = self.lines
        found = list(map(_MOVES.__getitem__, self.moves))
        if None in found:
            ply = found.index(None)
            text = self.signs[ply] + self.moves[ply]
            raise Fault(self.lines[ply], f"ply {ply + 1}: cannot read {text!r}", ply)
        reading.named = found  # type: ignore[assignment]
        white = reading.start.split()[1] == "w"
        for place, score in enumerate(self._scores.by_move(white, len(self.moves))):
            if score is not None:
                _put_score(reading, place + 1, score)
        if self._summary is not None:
            _add_summary(reading, self._summary, self._names)
        if self._hint is not None:
            reading.statements = hinted(reading.statements, self._hint)
        return reading

    def _check_turns(self) -> None:
        """Moves must alternate: a line that was lost would shift the rest to the other side."""
        turns = ["-", "+"] if self.reading.start.split()[1] == "w" else ["+", "-"]
        expected = (turns * (len(self.signs) // 2 + 1))[: len(self.signs)]
        if self.signs != expected:
            pairs = enumerate(zip(self.signs, expected, strict=True))
            ply, sign = next((ply, sign) for ply, (sign, due) in pairs if sign != due)
            raise Fault(self.lines[ply], f"ply {ply + 1}: {sign} moves twice", ply)


def _put_score(reading: Reading, ply: int, score: int) -> None:
    """Set the score of a move (from 1); the list need not be so long yet."""
    reading.scores.extend([None] * (ply - len(reading.scores)))
    reading.scores[ply - 1] = score


def _read_score(line: str, reading: Reading, ply: int, signs: list[str]) -> bool:
    """Whether a comment holds a score as floodgate writes it.

    That is from Black's view, after the move that it led to.
    """
    match = _SCORE.match(line)
    if match and ply and len(match[1]) < 9:
        score = int(match[1])
        _put_score(reading, ply, score if signs[-1] == "+" else -score)
    return match is not None


def _statement(text: str, word: str) -> Statement:
    end, rule = END_WORDS.get(word.strip(), ("unknown", "-"))
    return Statement(text, end, rule)


def _foreign(text: str, match: re.Match[str]) -> Statement:
    end = _FOREIGN_WORDS.get(match[2] or match[4] or "", "unknown")
    winner = {"SENTE": "b", "GOTE": "w"}.get(match[1] or "", "d")
    return Statement(text, end, winner)


def _add_summary(reading: Reading, summary: tuple[str, str], names: dict[str, str]) -> None:
    """What the server said. Its names come in an order that changed: they are looked up."""
    word = _SUMMARY_WORDS.get(summary[0], "")
    if not word:
        return
    end, rule = END_WORDS[word]
    text = f"'summary:{summary[0]}:{summary[1]}"[:80]
    reading.statements.append(Statement(text, end, rule, server=True))
    if end in ("perpetual", "sennichite"):
        return  # Old servers called a perpetual check a draw: the moves decide.
    known = {reading.black: "b", reading.white: "w"} if reading.black != reading.white else {}
    for name, side in names.items():
        known.setdefault(name.partition("+")[0], side)
    for player in summary[1].split(":"):
        name, _, result = player.rpartition(" ")
        if result == "win" and name in known:
            reading.statements.append(Statement(text, "unknown", known[name], server=True))


def _set_position(reading: Reading, setup: list[tuple[int, str]], turn: str) -> None:
    """The start position from PI, P1 … P9, P+ and P- lines."""
    if setup:
        try:
            reading.start = _start(tuple(line for _, line in setup), turn == "-")
        except Fault as error:
            raise Fault(setup[error.line][0], str(error)) from None
    else:
        if turn == "-":
            reading.start = STARTPOS.replace(" b ", " w ")
        reading.notes.append("no position: the even start is assumed")


@lru_cache(64)
def _start(setup: tuple[str, ...], white: bool) -> str:
    """The SFEN that position lines describe; faults name the number of the line among them."""
    cells = empty_cells()
    hands: tuple[dict[int, int], dict[int, int]] = ({}, {})
    rest = 0
    rows: list[str] = []
    for number, line in enumerate(setup):
        body = line[2:]
        if line.startswith("PI"):
            if number:
                raise Fault(number, "PI after other lines of the position")
            cells, _ = cells_from_sfen(STARTPOS)
            _take_away(cells, body, number)
        elif line[1:2] in tuple("123456789"):
            if line[1] in rows or any(cells[10 * file + int(line[1])] for file in range(1, 10)):
                raise Fault(number, f"P{line[1]}: there are pieces on this rank already")
            rows.append(line[1])
            _set_row(cells, int(line[1]), body, number)
        elif line[1:2] in ("+", "-"):
            side = 0 if line[1] == "+" else 1
            if body.strip() == "00AL":
                rest = side + 1
                continue
            _place(cells, hands[side], side, body, number)
        else:
            raise Fault(number, f"cannot read position line {line!r}")
    if rows and len(rows) < 9:
        missing = " ".join(f"P{rank}" for rank in range(1, 10) if str(rank) not in rows)
        raise Fault(len(setup) - 1, f"the position lacks {missing}")
    if rest:
        _all_the_rest(cells, hands, rest - 1)
    return sfen_from_cells(cells, white, hands)


def _take_away(cells: list[int], body: str, number: int) -> None:
    body = body.strip()
    if len(body) % 4 or not re.fullmatch(r"(?:[1-9][1-9][A-Z]{2})*", body):
        raise Fault(number, f"cannot read position line 'PI{body}'")
    for file, rank, name in _PLACED.findall(body):
        square = 10 * int(file) + int(rank)
        if cells[square] % WHITE != CSA_PIECES.get(name):
            raise Fault(number, f"PI: no {name} stands on {file}{rank}")
        cells[square] = 0


def _set_row(cells: list[int], rank: int, body: str, number: int) -> None:
    found = list(_CELL.finditer(body))
    if len(found) != 9 or _CELL.sub("", body).strip():
        raise Fault(number, f"cannot read position line 'P{rank}{body}': expected nine squares")
    for file, match in zip(range(9, 0, -1), found, strict=True):
        piece = 0
        if match[1]:
            if match[2] not in CSA_PIECES:
                raise Fault(number, f"P{rank}: unknown piece {match[2]!r}")
            piece = CSA_PIECES[match[2]] + (WHITE if match[1] == "-" else 0)
        cells[10 * file + rank] = piece


def _place(cells: list[int], hand: dict[int, int], side: int, body: str, number: int) -> None:
    body = body.strip()
    if len(body) % 4 or not re.fullmatch(r"(?:[0-9][0-9][A-Z]{2})*", body):
        raise Fault(number, f"cannot read position line 'P{'+-'[side]}{body}'")
    for file, rank, name in _PLACED.findall(body):
        piece = CSA_PIECES.get(name, 0)
        if file + rank == "00" and 1 <= piece <= GOLD:
            hand[piece] = hand.get(piece, 0) + 1
        elif piece and "0" not in file + rank:
            square = 10 * int(file) + int(rank)
            if cells[square]:
                raise Fault(number, f"{name} on {file}{rank}: a piece stands there already")
            cells[square] = piece + WHITE * side
        else:
            raise Fault(number, f"cannot place {name} on {file}{rank}")


def _all_the_rest(
    cells: list[int], hands: tuple[dict[int, int], dict[int, int]], side: int
) -> None:
    """`P+00AL`: whatever is not on the board nor in a hand."""
    used: dict[int, int] = {}
    for piece in filter(None, cells):
        kind = piece % WHITE
        kind = kind - 8 if kind > KING else kind
        used[kind] = used.get(kind, 0) + 1
    letters = dict(zip(HAND_ORDER, "RBGSNLP", strict=True))
    for piece, letter in letters.items():
        held = hands[0].get(piece, 0) + hands[1].get(piece, 0)
        left = LIMITS[letter] - used.get(piece, 0) - held
        if left > 0:
            hands[side][piece] = hands[side].get(piece, 0) + left
