"""The SFENs of a game, and its record lines, written by a compiled loop.

In: a start position, and moves as cshogi packs them in 32 bits: to-square, origin (81 and more: a
drop) << 7, promotion << 14, kind of the piece << 16, kind of the piece taken << 20. All legal.
Out: text.

cshogi writes an SFEN in some 2 µs, as long as all else that is done for a ply; this loop takes a
tenth of that. Importing it costs a third of a second, so it is imported where it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ginkgo.compiled import compiled
from ginkgo.records.kifu.pieces import PIECE_LETTERS, WHITE, cells_from_sfen

_PROMOTED = 8
#: Kinds of pieces in the order in which SFEN writes hands: R B G S N L P.
_HAND_ORDER = np.array([6, 5, 7, 4, 3, 2, 1])
#: Letter by kind of piece, promoted or not.
_LETTERS = np.frombuffer(b" PLNSBRGKPLNSBRG", np.uint8)
#: No board with both hands takes more bytes, nor do a total, a move and two numbers.
_LONGEST = 320


def write_sfens(start: str, played: Sequence[int]) -> list[str]:
    """The SFEN before each move.

    Args:
        start: a checked SFEN (`sfen.check_sfen`).

    >>> write_sfens("4k4/9/9/9/9/9/9/9/4K4 b P 1", [0])
    ['4k4/9/9/9/9/9/9/9/4K4 b P 1']
    """
    if len(played) < 2:  # packed positions are games of one ply
        return [start][: len(played)]
    return _written(start, played, b"", (b"\n", b"\n"), 0).decode().splitlines()


def write_records(
    start: str,
    played: Sequence[int],
    total: int,
    tails: tuple[bytes | None, bytes | None],
    first: int = 0,
) -> bytes:
    """The record lines of a game: `sfen,total,move` and a tail each.

    Args:
        tails: what follows the move, with the line end: of even and of odd indices; None: no line.
        first: index of the first move that gets a line.
    """
    return _written(start, played, b",%d," % total, tails, first)


def _written(
    start: str,
    played: Sequence[int],
    middle: bytes,
    tails: tuple[bytes | None, bytes | None],
    first: int,
) -> bytes:
    board, hands, white, ply = _numbers(start)
    moves = np.array(played, np.int64)
    texts = [np.frombuffer(text or b"", np.uint8) for text in (middle, *tails)]
    wanted = np.array([tail is not None for tail in tails])
    out = np.empty(len(moves) * (_LONGEST + max(map(len, texts))), np.uint8)
    size = _write(
        *(board.copy(), hands.copy(), white, ply, moves, texts[0], texts[1], texts[2], wanted),
        *(first, out),
    )
    return out[:size].tobytes()


@lru_cache(16)
def _numbers(sfen: str) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """(81,) pieces by 9·(file - 1) + rank - 1, (2, 8) hands by kind, 1: White moves, the ply."""
    cells, white = cells_from_sfen(sfen)
    board = np.array([cells[10 * (sq // 9 + 1) + sq % 9 + 1] for sq in range(81)], np.int64)
    hands, count = np.zeros((2, 8), np.int64), ""
    _, _, held, ply = sfen.split(" ")
    for sign in held.replace("-", ""):
        if sign.isdigit():
            count += sign
            continue
        hands[int(sign.islower()), PIECE_LETTERS.index(sign.upper())] += int(count or 1)
        count = ""
    return board, hands, int(white), int(ply)


@compiled
def _write(board, hands, white, ply, moves, middle, even_tail, odd_tail, wanted, first, out):
    """Writes the lines into `out` and returns their size. Board and hands are changed."""
    place = 0
    for index in range(len(moves)):
        move = moves[index]
        to, origin, promotes = move & 127, move >> 7 & 127, move >> 14 & 1
        if index >= first and wanted[index & 1]:
            place = _write_sfen(board, hands, white, ply + index, out, place)
            if len(middle):
                place = _copy(middle, out, place)
                place = _write_move(to, origin, promotes, out, place)
            place = _copy(odd_tail if index & 1 else even_tail, out, place)
        kind, taken = move >> 16 & 15, move >> 20 & 15
        if origin < 81:
            board[origin] = 0
            kind += _PROMOTED * promotes
        else:
            kind = origin - 80
            hands[white, kind] -= 1
        if taken:
            hands[white, taken - _PROMOTED if taken > _PROMOTED else taken] += 1
        board[to] = kind + WHITE * white
        white = 1 - white
    return place


@compiled
def _write_sfen(board, hands, white, ply, out, place):
    for rank in range(9):
        if rank:
            out[place] = ord("/")
            place += 1
        empty = 0
        for file in range(8, -1, -1):
            piece = board[9 * file + rank]
            if piece == 0:
                empty += 1
                continue
            if empty:
                out[place] = ord("0") + empty
                place, empty = place + 1, 0
            kind = piece & 15
            if kind > _PROMOTED:
                out[place] = ord("+")
                place += 1
            # Small letters stand 32 above the large ones.
            out[place] = _LETTERS[kind] + (32 if piece > WHITE else 0)
            place += 1
        if empty:
            out[place] = ord("0") + empty
            place += 1
    out[place] = ord(" ")
    out[place + 1] = ord("w") if white else ord("b")
    out[place + 2] = ord(" ")
    place += 3
    before = place
    for side in range(2):
        for kind in _HAND_ORDER:
            count = hands[side, kind]
            if count > 1:
                place = _write_number(count, out, place)
            if count:
                out[place] = _LETTERS[kind] + 32 * side
                place += 1
    if place == before:
        out[place] = ord("-")
        place += 1
    out[place] = ord(" ")
    return _write_number(ply, out, place + 1)


@compiled
def _write_move(to, origin, promotes, out, place):
    """A move in USI."""
    if origin < 81:
        out[place], out[place + 1] = ord("1") + origin // 9, ord("a") + origin % 9
    else:
        out[place], out[place + 1] = _LETTERS[origin - 80], ord("*")
    out[place + 2], out[place + 3] = ord("1") + to // 9, ord("a") + to % 9
    if promotes:
        out[place + 4] = ord("+")
        return place + 5
    return place + 4


@compiled
def _write_number(number, out, place):
    digits = 1
    while number >= 10**digits:
        digits += 1
    for digit in range(digits - 1, -1, -1):
        out[place + digit] = ord("0") + number % 10
        number //= 10
    return place + digits


@compiled
def _copy(text, out, place):
    for index in range(len(text)):
        out[place + index] = text[index]
    return place + len(text)
