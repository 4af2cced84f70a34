"""Opening books in YaneuraOu's text format, DB2016.

In: a file. Out: moves for a position. The format: a first line `#YANEURAOU-DB2016 1.00`; then for
each position a line `sfen SFEN` and one line for each move, `MOVE REPLY VALUE DEPTH COUNT`, where
`none` stands for no reply and the last fields may be missing. Lines that begin with `#` or `//`
are comments.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from ginkgo.errors import GinkgoError

HEADER = "#YANEURAOU-DB2016"


class BookMove(NamedTuple):
    """A move of the book."""

    move: str
    reply: str
    """The expected answer, empty where there is none."""
    value: int
    """In centipawns, of the side that moves."""
    depth: int
    games: int
    """How often it was played."""


def position_key(sfen: str) -> str:
    """An SFEN without its ply number, by which positions are found.

    >>> position_key("4k4/9/9/9/9/9/9/9/4K4 b 2P 12")
    '4k4/9/9/9/9/9/9/9/4K4 b 2P'
    """
    return " ".join(sfen.split()[:3])


class Book:
    """Moves by position."""

    def __init__(self, moves: dict[str, list[BookMove]]) -> None:
        self._moves = moves

    def __len__(self) -> int:
        return len(self._moves)

    def moves(self, sfen: str) -> list[BookMove]:
        """The moves of a position, whatever its ply; the one valued most first."""
        found = self._moves.get(position_key(sfen), [])
        return sorted(found, key=lambda one: (-one.value, -one.games))

    def choose(self, sfen: str, random: Random | None = None) -> BookMove | None:
        """A move for a position, None where the book has none.

        Args:
            random: draw by how often each was played; None: the move valued most.
        """
        moves = self.moves(sfen)
        if not moves or random is None:
            return moves[0] if moves else None
        return random.choices(moves, [max(1, move.games) for move in moves])[0]


def read_book(path: str | Path) -> Book:
    """Read a book.

    Raises:
        GinkgoError: the file cannot be read, or a line of it is no line of a book.
    """
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as stream:
            return parse_book(stream, str(path))
    except OSError as error:
        raise GinkgoError(f"{path}: cannot read the book: {error.strerror}") from None


def parse_book(lines: Iterable[str], path: str = "book") -> Book:
    """The same of lines of text."""
    moves: dict[str, list[BookMove]] = {}
    here: list[BookMove] | None = None
    for number, text in enumerate(lines, 1):
        line = text.strip()
        if number == 1 and not line.startswith(HEADER):
            raise GinkgoError(f"{path}:1: expected {HEADER} 1.00")
        if not line or line.startswith(("#", "//")):
            continue
        if line.startswith("sfen "):
            here = moves.setdefault(position_key(line[5:]), [])
            continue
        if here is None:
            raise GinkgoError(f"{path}:{number}: expected a line that begins with sfen")
        here.append(_parse_move(line, f"{path}:{number}"))
    return Book(moves)


def _parse_move(line: str, place: str) -> BookMove:
    fields = line.split()
    reply = fields[1] if len(fields) > 1 and fields[1].lower() != "none" else ""
    try:
        value, depth, games = (
            int(fields[index]) if len(fields) > index else default
            for index, default in ((2, 0), (3, 0), (4, 1))
        )
    except ValueError:
        raise GinkgoError(f"{place}: expected MOVE REPLY VALUE DEPTH COUNT") from None
    return BookMove(fields[0], reply, value, depth, games)
