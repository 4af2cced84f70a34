"""Opening books in YaneuraOu's text format, DB2016.

In: a file. Out: moves for a position. The format: a first line `#YANEURAOU-DB2016 1.00`; then for
each position a line `sfen SFEN` and one line for each move, `MOVE REPLY VALUE DEPTH COUNT`, where
`none` stands for no reply and the last fields may be missing. Lines that begin with `#` or `//`
are comments.

Books have millions of positions. Only where each begins is remembered, sixteen bytes a position;
its moves are read from the file when they are asked for.
"""

from __future__ import annotations

import mmap
import re
from array import array
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from ginkgo.errors import GinkgoError

HEADER = b"#YANEURAOU-DB2016"
_BOM = b"\xef\xbb\xbf"
_POSITION = re.compile(rb"^sfen[ \t]+([^\r\n]*)", re.MULTILINE)
_MOVE_LINE = re.compile(rb"[^\r\n]*[^ \t\r\n][^\r\n]*")


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

    def __init__(self, data: bytes | mmap.mmap = HEADER, path: str = "book") -> None:
        """Find where each position begins.

        Args:
            data: the text of a book. path: its name in messages.

        Raises:
            GinkgoError: it is none.
        """
        self._data, self._path = data, path
        begin = len(_BOM) if data[: len(_BOM)] == _BOM else 0
        if data[begin : begin + len(HEADER)] != HEADER:
            raise GinkgoError(f"{path}:1: expected {HEADER.decode()} 1.00")
        hashes, places = array("q"), array("q")
        for match in _POSITION.finditer(data):
            hashes.append(hash(b" ".join(match[1].split()[:3])))
            places.append(match.start())
        self._hashes = np.array(hashes, np.int64)
        self._places = np.array(places, np.int64)
        order = np.argsort(self._hashes, kind="stable")
        self._hashes, self._places = self._hashes[order], self._places[order]
        first = int(self._places.min(initial=len(data)))
        for place, line in self._lines(begin, first):
            raise self._wrong(place, line, "expected a line that begins with sfen")

    def __len__(self) -> int:
        """Positions, one that stands in the file more than once counted as often."""
        return len(self._hashes)

    def moves(self, sfen: str) -> list[BookMove]:
        """The moves of a position, whatever its ply; the one valued most first.

        Raises:
            GinkgoError: they are malformed.
        """
        key = position_key(sfen).encode()
        begin = np.searchsorted(self._hashes, hash(key), "left")
        end = np.searchsorted(self._hashes, hash(key), "right")
        found = []
        for place in self._places[begin:end].tolist():
            match = _POSITION.match(self._data, place)
            if match is None or b" ".join(match[1].split()[:3]) != key:
                continue
            following = _POSITION.search(self._data, match.end())
            stop = following.start() if following else len(self._data)
            found += [self._move(at, line) for at, line in self._lines(match.end(), stop)]
        return sorted(found, key=lambda one: (-one.value, -one.games))

    def choose(self, sfen: str, random: Random | None = None) -> BookMove | None:
        """A move for a position, None where the book has none.

        Args:
            random: draw by how often each was played; None: the move valued most.

        Raises:
            GinkgoError: its moves are malformed.
        """
        moves = self.moves(sfen)
        if not moves or random is None:
            return moves[0] if moves else None
        return random.choices(moves, [max(1, move.games) for move in moves])[0]

    def _lines(self, begin: int, end: int) -> list[tuple[int, bytes]]:
        """(place, text) of the lines between two places that are neither blank nor comments."""
        found = []
        for match in _MOVE_LINE.finditer(self._data, begin, end):
            line = match[0].strip()
            if not line.startswith((b"#", b"//")):
                found.append((match.start(), line))
        return found

    def _move(self, place: int, line: bytes) -> BookMove:
        fields = line.decode("utf-8", "replace").split()
        reply = fields[1] if len(fields) > 1 and fields[1].lower() != "none" else ""
        try:
            value, depth, games = (
                int(fields[index]) if len(fields) > index else default
                for index, default in ((2, 0), (3, 0), (4, 1))
            )
        except ValueError:
            raise self._wrong(place, line, "expected MOVE REPLY VALUE DEPTH COUNT") from None
        return BookMove(fields[0], reply, value, depth, games)

    def _wrong(self, place: int, line: bytes, expected: str) -> GinkgoError:
        number = self._data[:place].count(b"\n") + 1
        text = line[:40].decode("utf-8", "replace")
        return GinkgoError(f"{self._path}:{number}: {expected}, not {text!r}")


def read_book(path: str | Path) -> Book:
    """The book in a file.

    Raises:
        GinkgoError: the file cannot be read, or is none.
    """
    try:
        with open(path, "rb") as stream:
            if not stream.read(1):
                return Book(b"", str(path))
            return Book(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), str(path))
    except OSError as error:
        raise GinkgoError(f"{path}: cannot read the book: {error.strerror}") from None
