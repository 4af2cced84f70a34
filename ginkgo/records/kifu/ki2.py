"""KI2 (`.ki2`, `.ki2u`): one game, moves as they are printed in books.

In: its text. Out: a `Reading`.

A move names destination and piece; where several pieces of a kind can go there, words tell which
(右 左 直 上 引 寄: Japan Shogi Association, 棋譜の表記方法). What can go there the rules decide.
"""

from __future__ import annotations

import re

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.records.kifu.japanese import (
    BLACK_MARKS,
    DIGITS,
    MOVE_SIGNS,
    PIECE_PATTERN,
    PIECES,
    WHITE_MARKS,
    Header,
    is_field,
    is_until,
    until,
)
from ginkgo.records.kifu.pieces import (
    BISHOP,
    CSA_PIECES,
    GOLD,
    SQUARE_NAMES,
    WHITE,
    cells_from_sfen,
)
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
from ginkgo.records.replay import breaks_promotion, set_up

_MARKS = BLACK_MARKS + WHITE_MARKS
TOKEN = re.compile(
    rf"([{_MARKS}])[ \t　]*(?:(同)|([1-9１-９])([一二三四五六七八九1-9１-９]))[ \t　]*"
    rf"({PIECE_PATTERN})[ \t　]*([右左直上下引寄行入]*)(不成|生|成)?(打)?"
)
_BRANCH = re.compile(r"[ \t　]*変化[：:][ \t　]*([0-9０-９]+)")
_LETTERS = "?PLNSBRG"
_MAJORS = (BISHOP, CSA_PIECES["HI"], CSA_PIECES["UM"], CSA_PIECES["RY"])


class Unclear(GinkgoError):
    """A move that no piece, or several, could make."""


class Board:
    """A position that moves are resolved in."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.cells, self.white = cells_from_sfen(start)
        self.moves: list[str] = []
        self.last_to = 0
        pieces = start.split()[0]
        self._slow = None
        if "k" in pieces and "K" in pieces:
            self._board = cshogi.Board()
            set_up(self._board, start)
        else:
            # cshogi reads beyond its tables where a king is missing.
            import shogi

            self._slow = shogi.Board(start)

    def legal(self, usi: str) -> bool:
        """Whether a move is legal here."""
        if self._slow is not None:
            import shogi

            return self._slow.is_legal(shogi.Move.from_usi(usi))
        move = self._board.move_from_usi(usi)
        white = self.white
        return bool(move) and not breaks_promotion(move, white) and self._board.is_legal(move)

    def push(self, usi: str) -> None:
        """Play a move that is known to be legal."""
        if self._slow is not None:
            self._slow.push_usi(usi)
        else:
            self._board.push_usi(usi)
        to = 10 * int(usi[2]) + "abcdefghi".index(usi[3]) + 1
        if usi[1] == "*":
            piece = _LETTERS.index(usi[0]) + (WHITE if self.white else 0)
        else:
            origin = 10 * int(usi[0]) + "abcdefghi".index(usi[1]) + 1
            piece = self.cells[origin] + (8 if usi[-1] == "+" else 0)
            self.cells[origin] = 0
        self.cells[to] = piece
        self.white = not self.white
        self.last_to = to
        self.moves.append(usi)

    def replayed(self, moves: list[str]) -> Board:
        """Another board at the end of such moves, which are known to be legal."""
        board = Board(self.start)
        for usi in moves:
            board.push(usi)
        return board


def read_ki2(text: str, options: ReadOptions) -> Reading:
    """Read one game.

    Raises:
        Fault: a move of the main line cannot be read, or several pieces could make it.
    """
    reading = Reading("ki2")
    header, lines, scores = Header(), text.split("\n"), Scores()
    tokens: list[tuple[int, re.Match[str]]] = []
    until_plies, ended, rest_from = 0, False, len(lines)
    hint: Statement | None = None
    for number, line in enumerate(lines):
        stripped = line.strip(" \t　")
        if not stripped or stripped[0] in "#&＆":
            hint = read_hint(stripped) or hint
            continue
        if stripped[0] in "*＊":
            scores.note(len(tokens), stripped[1:])
            if options.comments:
                reading.comments.setdefault(len(tokens), []).append(stripped[1:])
        elif stripped.startswith("変化"):
            rest_from = number
            break
        elif stripped[0] in _MARKS:
            if ended:
                raise Fault(number, f"a move after the end of the game: {stripped[:40]!r}")
            tokens += [(number, match) for match in _tokens(number, stripped, len(tokens))]
        elif is_until(stripped):
            if found := until(stripped, header):
                reading.statements.append(found[0])
                until_plies = found[1]
            ended = True
        elif tokens and MOVE_SIGNS.search(stripped) and not is_field(stripped):
            raise Fault(number, f"cannot read {stripped[:40]!r}", len(tokens))
        elif tokens:
            reading.notes.append(f"line {number + 1}: not understood: {stripped[:40]!r}")
        else:
            header.take(number, stripped)
    _set_start(reading, header, tokens)
    sides_of(reading.start)
    try:
        board = Board(reading.start)
    except GinkgoError as error:
        raise Fault(0, f"start position: {error}") from None
    reading.lines = [number for number, _ in tokens]
    for ply, (number, match) in enumerate(tokens, 1):
        last = ply == len(tokens)
        try:
            usi = _play(board, match)
        except Unclear as error:
            raise Fault(number, f"ply {ply}: {error}", ply - 1) from None
        if not usi.endswith("!"):
            continue
        if not last:
            raise Fault(number, f"ply {ply}: illegal move {match[0]}", ply - 1)
        reading.moves = [*board.moves, usi[:-1]]
    reading.moves = reading.moves or board.moves
    reading.scores = scores.by_move(reading.start.split()[1] == "w", len(reading.moves))
    listed = len(tokens)
    if until_plies and until_plies not in (listed, listed + 1):
        # That contradicts whatever is stated.
        reading.statements.append(Statement(f"{listed} moves listed", "chudan", "-"))
    if hint is not None:
        reading.statements = hinted(reading.statements, hint)
    if options.variations and rest_from < len(lines):
        _read_branches(reading, lines, rest_from, board)
    return reading


def _tokens(number: int, line: str, ply: int) -> list[re.Match[str]]:
    found = list(TOKEN.finditer(line))
    left = TOKEN.sub("", line).strip(" \t　")
    if left.strip("+"):
        raise Fault(number, f"cannot read {left[:40]!r}", ply + len(found))
    return found


def _set_start(reading: Reading, header: Header, tokens: list[tuple[int, re.Match[str]]]) -> None:
    reading.black, reading.white = header.name("b"), header.name("w")
    if header.rows and not header.turn and tokens:
        header.turn = "w" if tokens[0][1][1] in WHITE_MARKS else "b"
    reading.start = header.start()
    if header.problem:
        reading.statements = [Statement(one.text, one.end, "-") for one in reading.statements]


def _play(board: Board, match: re.Match[str]) -> str:
    """Play what a token says, see `meant`; what is against the rules is not played."""
    usi = meant(board, match)
    if not usi.endswith("!"):
        board.push(usi)
    return usi


def meant(board: Board, match: re.Match[str]) -> str:
    """The move that a token (see `TOKEN`) says.

    Returns:
        USI; with an exclamation mark: it is against the rules.

    Raises:
        Unclear: no piece, or several, could be meant.
    """
    mark, same, file, rank, kanji, words, promotion, drop = match.groups()
    if (mark in WHITE_MARKS) != board.white:
        raise Unclear(f"{match[0]}: the other side is to move")
    to = board.last_to if same else 10 * DIGITS[file] + DIGITS[rank]
    if not to:
        raise Unclear("同 without a move before it")
    piece = PIECES[kanji]
    plus = "+" if promotion == "成" else ""
    if plus and piece >= GOLD:
        raise Unclear(f"{match[0]} is no move")
    side = WHITE if board.white else 0
    squares = []
    if not drop:
        squares = _where(board.cells, piece + side)
    target = SQUARE_NAMES[to]
    able = [sq for sq in squares if board.legal(f"{SQUARE_NAMES[sq]}{target}{plus}")]
    if able:
        if len(able) > 1:
            able = _which(able, to, words, piece, board.white)
        if len(able) != 1:
            raise Unclear(f"{match[0]}: {len(able) or 'no'} pieces could be meant")
        return f"{SQUARE_NAMES[able[0]]}{target}{plus}"
    if piece <= GOLD and not plus and board.legal(f"{_LETTERS[piece]}*{target}"):
        return f"{_LETTERS[piece]}*{target}"
    if len(squares) == 1:
        return f"{SQUARE_NAMES[squares[0]]}{target}{plus}!"
    if piece <= GOLD and not plus and (drop or not squares):
        return f"{_LETTERS[piece]}*{target}!"
    raise Unclear(f"illegal move {match[0]}")


def _where(cells: list[int], piece: int) -> list[int]:
    """The squares of a piece, rising; looking at all 81 in a loop would take most of the time."""
    found: list[int] = []
    for _ in range(cells.count(piece)):
        found.append(cells.index(piece, found[-1] + 1 if found else 0))
    return found


def _which(able: list[int], to: int, words: str, piece: int, white: bool) -> list[int]:
    """Those of several pieces that the words mean."""
    if white:  # from the mover's view
        turned = {110 - square: square for square in able}
        return [turned[one] for one in _which(list(turned), 110 - to, words, piece, False)]
    file, rank = divmod(to, 10)
    for word in words:
        if word in "上行入":
            able = [square for square in able if square % 10 > rank]
        elif word in "引下":
            able = [square for square in able if square % 10 < rank]
        elif word == "寄":
            able = [square for square in able if square % 10 == rank]
        elif word == "直":
            able = [sq for sq in able if sq // 10 == file and sq % 10 == rank + 1]
            if piece in _MAJORS:
                return []
    for word in words:
        if word not in "右左" or len(able) < 2:
            continue
        # Of two bishops or rooks the one that stands further to that side; of other pieces the
        # one that comes from that side of the square, or stands further to it.
        beyond = [sq for sq in able if (sq // 10 < file if word == "右" else sq // 10 > file)]
        if piece in _MAJORS or len(beyond) != 1:
            ends = [square // 10 for square in able]
            end = min(ends) if word == "右" else max(ends)
            beyond = [square for square in able if square // 10 == end]
        able = beyond
    return able


def _read_branches(reading: Reading, lines: list[str], begin: int, main: Board) -> None:
    """The branches; what is odd about them becomes a note."""
    current = list(main.moves)
    board: Board | None = None
    branch_line, ply, left = 0, 0, MOST_BRANCH_PLIES

    def close() -> None:
        nonlocal current
        if board is not None:
            if len(board.moves) >= ply:
                reading.branches.append(Branch(branch_line, ply, board.moves))
            current = board.moves

    for number in range(begin, len(lines)):
        stripped = lines[number].strip(" \t　")
        if match := _BRANCH.match(stripped):
            close()
            branch_line, ply, board = number, int(match[1]), None
            left -= ply
            if left < 0:
                reading.notes.append(f"line {number + 1}: too many variations: no more are read")
                return
            if 1 <= ply <= len(current) + 1:
                board = main.replayed(current[: ply - 1])
            else:
                reading.notes.append(
                    f"line {number + 1}: variation left out: it begins at ply {ply}, "
                    "the line before it is shorter"
                )
        elif board is not None and stripped[:1] in tuple(_MARKS):
            try:
                for token in _tokens(number, stripped, 0):
                    usi = _play(board, token)
                    if usi.endswith("!"):
                        raise Fault(number, f"illegal move {token[0]}")
            except GinkgoError as error:
                reading.notes.append(f"line {number + 1}: variation cut: {error}")
                close()
                board = None
    close()
