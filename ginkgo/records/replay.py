"""Replaying a game by the rules.

In: a `Game` as read from a file. Out: the position before each of its moves, or a `GinkgoError`
that names the first move that the rules forbid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.records.game import STARTPOS, Game
from ginkgo.records.kifu.pieces import move16
from ginkgo.records.sfen import check_sfen

_USI = re.compile(r"[1-9][a-i][1-9][a-i]\+?|[PLNSGBR]\*[1-9][a-i]")
_PAWN, _LANCE, _KNIGHT, _ROOK = 1, 2, 3, 6


class IllegalMove(GinkgoError):
    """A move that cannot be played; its text names ply and move."""


def set_up(board: cshogi.Board, start: str) -> None:
    """Put a start position on the board.

    Raises:
        GinkgoError: the SFEN is malformed, or no game can have come to it.
    """
    if start == STARTPOS:
        board.reset()
        return
    sfen = check_sfen(start)
    pieces, turn, rest = sfen.split(" ", 2)
    # The library's own test for this prints to the terminal: ask the other side instead.
    board.set_sfen(f"{pieces} {'b' if turn == 'w' else 'w'} {rest}")
    if board.is_check():
        raise GinkgoError(f"{start!r}: the side that has just moved is in check")
    board.set_sfen(sfen)


def breaks_promotion(move: int, white: bool) -> bool:
    """Whether a move breaks the promotion rules, which the library's `is_legal` lets pass.

    A pawn, lance or knight must not come to rest where it can never move again, and only P L N
    S B R promote, by a move that starts or ends in the three farthest ranks.
    `ginkgo.features.labels.dead_end` is the same for whole arrays.

    Args:
        move: cshogi move with the piece type in bits 16–19; a drop has origin 81 + hand piece.
        white: whether White moves it.
    """
    to, origin = move & 0x7F, move >> 7 & 0x7F
    drop = origin >= 81
    piece = origin - 80 if drop else move >> 16 & 0xF
    rank = 8 - to % 9 if white else to % 9
    if move & 0x4000:
        from_rank = 8 - origin % 9 if white else origin % 9
        return drop or piece > _ROOK or (rank > 2 and from_rank > 2)
    return (rank == 0 and piece in (_PAWN, _LANCE, _KNIGHT)) or (rank == 1 and piece == _KNIGHT)


def replay(game: Game) -> list[str]:
    """The SFEN before each move of a game, with ply.

    Raises:
        IllegalMove: a move is no USI move or against the rules.
        GinkgoError: the start position is impossible.

    >>> replay(Game(moves=["7g7f", "3c3d"]))[1]
    'lnsgkgsnl/1r5b1/ppppppppp/9/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL w - 2'
    """
    if game.sfens is not None:
        return list(game.sfens)
    board = cshogi.Board()
    set_up(board, game.start)
    sfens: list[str] = []
    played = walk(board, game.moves, sfens)
    if played < game.total:
        usi = game.moves[played]
        known = _USI.fullmatch(usi)
        what = f"illegal move {usi}" if known else f"{usi!r} is no USI move"
        raise IllegalMove(f"ply {played + 1}: {what}")
    return sfens


def walk(board: cshogi.Board, moves: Sequence[str], sfens: list[str] | None = None) -> int:
    """Play moves on a board as far as the rules allow.

    Args:
        board: at the start position (see `set_up`); afterwards after the last legal move.
        moves: USI.
        sfens: gets the SFEN before each move that was played.

    Returns:
        how many were played.
    """
    white = board.turn == cshogi.WHITE
    unpack, is_legal, push, sfen = board.move_from_move16, board.is_legal, board.push, board.sfen
    played = 0
    for usi in moves:
        packed = _MOVES[usi]
        if packed < 0:
            break
        move = unpack(packed)
        # Only moves that end in the outer ranks or promote can break the promotion rules.
        if not move or ((usi[3] in "abhi" or usi[-1] == "+") and breaks_promotion(move, white)):
            break
        if not is_legal(move):
            break
        if sfens is not None:
            sfens.append(sfen())
        push(move)
        white = not white
        played += 1
    return played


class _Moves(dict):
    """cshogi's 16-bit move by USI text, -1 for what is none; there are some 13,000."""

    def __missing__(self, usi: str) -> int:
        if not _USI.fullmatch(usi):
            return -1
        self[usi] = packed = move16(usi)
        return packed


_MOVES = _Moves()
