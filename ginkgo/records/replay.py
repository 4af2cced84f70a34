"""Replaying a game by the rules.

In: a `Game` as read from a file. Out: its moves as cshogi packs them, or the position before each
of them; or a `GinkgoError` that names the first move that the rules forbid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.records.game import STARTPOS, Game
from ginkgo.records.kifu.pieces import GOLD, ROOK, SQUARE_NAMES, Misfit, Move, move16
from ginkgo.records.sfen import check_sfen

_USI = re.compile(r"[1-9][a-i][1-9][a-i]\+?|[PLNSGBR]\*[1-9][a-i]")
_PAWN, _LANCE, _KNIGHT = 1, 2, 3
_PROMOTES = 0x4000
#: Ranks where a piece may stand that can never move again.
_OUTER = "abhi"


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
    if move & _PROMOTES:
        from_rank = 8 - origin % 9 if white else origin % 9
        return drop or piece > ROOK or (rank > 2 and from_rank > 2)
    return (rank == 0 and piece in (_PAWN, _LANCE, _KNIGHT)) or (rank == 1 and piece == _KNIGHT)


def replay(game: Game) -> list[str]:
    """The SFEN before each move of a game, with ply.

    Raises:
        IllegalMove: a move is no USI move or against the rules.
        GinkgoError: the start position is impossible.

    >>> replay(Game(moves=["7g7f", "3c3d"]))[1]
    'lnsgkgsnl/1r5b1/ppppppppp/9/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL w - 2'
    """
    from ginkgo.records.positions import write_sfens

    return write_sfens(canonical_start(game), played(game))


def canonical_start(game: Game) -> str:
    """The start position as `check_sfen` writes it."""
    return game.start if game.start == STARTPOS or game.played else check_sfen(game.start)


def played(game: Game) -> Sequence[int]:
    """The moves of a game as cshogi packs them (see `positions`), all of them legal.

    Raises:
        GinkgoError: as `replay` does.
    """
    if game.played is not None:
        return game.played
    board = cshogi.Board()
    set_up(board, game.start)
    found: list[int] = []
    legal = walk(board, game.moves, found)
    if legal < game.total:
        usi = game.moves[legal]
        known = _USI.fullmatch(usi)
        what = f"illegal move {usi}" if known else f"{usi!r} is no USI move"
        raise IllegalMove(f"ply {legal + 1}: {what}")
    return found


def walk(board: cshogi.Board, moves: Sequence[str], packed: list[int] | None = None) -> int:
    """Play moves on a board as far as the rules allow.

    Args:
        board: at the start position (see `set_up`); afterwards after the last legal move.
        moves: USI.
        packed: gets the moves that were played, as cshogi packs them.

    Returns:
        how many were played.
    """
    white = board.turn == cshogi.WHITE
    unpack, is_legal, push = board.move_from_move16, board.is_legal, board.push
    note = ([] if packed is None else packed).append
    count = 0
    for usi in moves:
        bits = _MOVES[usi]
        if bits < 0:
            break
        move = unpack(bits)
        # Only moves that end in the outer ranks or promote can break the promotion rules.
        if not move or ((usi[3] in _OUTER or usi[-1] == "+") and breaks_promotion(move, white)):
            break
        if not is_legal(move):
            break
        push(move)
        note(move)
        white = not white
        count += 1
    return count


def walk_named(
    board: cshogi.Board, moves: Sequence[Move], usi: list[str], packed: list[int]
) -> str:
    """Play moves that name the piece after the move, as kifu do, as far as the rules allow.

    Args:
        board: as for `walk`.
        usi, packed: get the moves that were played, in USI and as cshogi packs them.

    Returns:
        the first move that the rules forbid, in USI; empty: all were played.

    Raises:
        Misfit: a piece does not stand where a move takes it from.
    """
    white = board.turn == cshogi.WHITE
    unpack, is_legal, push = board.move_from_move16, board.is_legal, board.push
    note, note_usi, named = packed.append, usi.append, _NAMED
    for one in moves:
        bits, text, after, stuck = named[one]
        if bits < 0:
            raise Misfit(len(usi) + 1, text)
        move = unpack(bits)
        kind = move >> 16 & 15
        if kind != after:
            if not 1 <= kind <= ROOK or kind + 8 != after:
                raise Misfit(len(usi) + 1, f"{text}: the piece there is not the one named")
            move, text, stuck = move | _PROMOTES, f"{text}+", True
        if (stuck and breaks_promotion(move, white)) or not is_legal(move):
            return text
        push(move)
        note(move)
        note_usi(text)
        white = not white
    return ""


class _Moves(dict):
    """cshogi's 16-bit move by USI text, -1 for what is none; there are some 13,000."""

    def __missing__(self, usi: str) -> int:
        if not _USI.fullmatch(usi) or usi[:2] == usi[2:4]:
            return -1
        self[usi] = packed = move16(usi)
        return packed


class _Named(dict):
    """What is known of a move as kifu name it.

    cshogi's 16 bits (-1: none), USI (or what is wrong with it), the kind of the piece after the
    move (0: a drop), and whether that may be stuck there.
    """

    def __missing__(self, move: Move) -> tuple[int, str, int, bool]:
        origin, to, after = move
        target = SQUARE_NAMES[to]
        if origin == to:
            found = (-1, f"{target} to {target} is no move", 0, False)
        elif not origin and after > GOLD:
            found = (-1, f"a piece cannot be dropped so on {target}", 0, False)
        else:
            usi = (SQUARE_NAMES[origin] if origin else f"{'?PLNSBRG'[after]}*") + target
            stuck = after <= _KNIGHT and target[1] in _OUTER
            found = (move16(usi), usi, after if origin else 0, stuck)
        if len(self) < 1 << 17:
            self[move] = found
        return found


_MOVES, _NAMED = _Moves(), _Named()
