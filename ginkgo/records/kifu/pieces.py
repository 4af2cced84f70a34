"""Where the pieces stand while the moves of a kifu are read: from piece names to USI moves.

In: a start position, and moves as (origin, destination, piece after the move). Out: USI moves.
Only whether the named piece is there is looked at; `reading.finish` asks the rules.

Squares are 10·file + rank, as kifu write them; 0 as origin is a drop. Pieces are numbered as
cshogi does: 1–14 P L N S B R G K +P +L +N +S +B +R, White's plus 16.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ginkgo.errors import GinkgoError
from ginkgo.records.game import Game

PAWN, LANCE, KNIGHT, SILVER, BISHOP, ROOK, GOLD, KING = range(1, 9)
WHITE = 16

#: Piece by its CSA name.
CSA_PIECES = {
    **{"FU": 1, "KY": 2, "KE": 3, "GI": 4, "KA": 5, "HI": 6, "KI": 7, "OU": 8},
    **{"TO": 9, "NY": 10, "NK": 11, "NG": 12, "UM": 13, "RY": 14},
}
CSA_NAMES = {number: name for name, number in CSA_PIECES.items()}

PIECE_LETTERS = ["", *"PLNSBRGK", "+P", "+L", "+N", "+S", "+B", "+R"]
_NUMBER = {letter: number for number, letter in enumerate(PIECE_LETTERS) if letter}
SQUARE_NAMES = [f"{sq // 10}{'abcdefghi'[sq % 10 - 1]}" if sq % 10 else "" for sq in range(100)]
#: The hands field of an SFEN, in its order.
HAND_ORDER = (ROOK, BISHOP, GOLD, SILVER, KNIGHT, LANCE, PAWN)

Move = tuple[int, int, int]
"""(origin, destination, piece after the move without its colour)."""


class Misfit(GinkgoError):
    """A move of a piece that is not there."""

    def __init__(self, ply: int, reason: str) -> None:
        super().__init__(f"ply {ply}: {reason}")
        self.ply = ply


def empty_cells() -> list[int]:
    """A board without pieces, by square as kifu number them (11 to 99)."""
    return [0] * 100


def cells_from_sfen(sfen: str) -> tuple[list[int], bool]:
    """Pieces by square, and whether White is to move. The SFEN is well formed."""
    board, turn = sfen.split(" ", 2)[:2]
    return list(_cells_of(board)), turn == "w"


@lru_cache(64)
def _cells_of(board: str) -> tuple[int, ...]:
    cells = empty_cells()
    for rank, row in enumerate(board.split("/"), 1):
        file, promoted = 9, 0
        for sign in row:
            if sign.isdigit():
                file -= int(sign)
            elif sign == "+":
                promoted = 8
            else:
                white = WHITE if sign.islower() else 0
                cells[10 * file + rank] = _NUMBER[sign.upper()] + promoted + white
                file, promoted = file - 1, 0
    return tuple(cells)


def sfen_from_cells(
    cells: list[int], white: bool, hands: tuple[dict[int, int], dict[int, int]], ply: int = 1
) -> str:
    """The SFEN of a position.

    Args:
        hands: Black's and White's, counts by piece.
    """
    rows = []
    for rank in range(1, 10):
        row, empty = "", 0
        for file in range(9, 0, -1):
            piece = cells[10 * file + rank]
            if not piece:
                empty += 1
                continue
            letter = PIECE_LETTERS[piece % WHITE]
            row += (str(empty) if empty else "") + (letter.lower() if piece > WHITE else letter)
            empty = 0
        rows.append(row + (str(empty) if empty else ""))
    held = ""
    for side, counts in enumerate(hands):
        for piece in HAND_ORDER:
            if count := counts.get(piece, 0):
                letter = PIECE_LETTERS[piece].lower() if side else PIECE_LETTERS[piece]
                held += (str(count) if count > 1 else "") + letter
    return f"{'/'.join(rows)} {'w' if white else 'b'} {held or '-'} {ply}"


def usi_moves(cells: list[int], white: bool, moves: Iterable[Move]) -> list[str]:
    """USI for moves that name their origin and the piece after the move.

    Args:
        cells: changed to the position after the moves.
        white: whether White makes the first.

    Raises:
        Misfit: the named piece is not on the origin, or the move is none.
    """
    found: list[str] = []
    side = WHITE if white else 0
    names, letters = SQUARE_NAMES, PIECE_LETTERS
    for origin, to, after in moves:
        piece = after + side
        if origin:
            was = cells[origin]
            if origin == to:
                raise Misfit(len(found) + 1, f"{names[to]} to {names[to]} is no move")
            if was == piece:
                found.append(names[origin] + names[to])
            elif was + 8 == piece and was % WHITE <= ROOK:
                found.append(names[origin] + names[to] + "+")
            else:
                raise Misfit(
                    len(found) + 1,
                    f"{names[origin]}{names[to]}: the piece there is not the one named",
                )
            cells[origin] = 0
        else:
            if after > GOLD:
                raise Misfit(len(found) + 1, f"a piece cannot be dropped so on {names[to]}")
            found.append(f"{letters[after]}*{names[to]}")
        cells[to] = piece
        side ^= WHITE
    return found


def position_after(game: Game) -> str:
    """The SFEN after the last move of a game whose moves are legal."""
    pieces = game.start.split()[0]
    if "k" not in pieces or "K" not in pieces:
        import shogi

        problem = shogi.Board(game.start)
        for usi in game.moves:
            problem.push_usi(usi)
        return problem.sfen()
    import cshogi

    board = cshogi.Board(game.start)
    for usi in game.moves:
        board.push_usi(usi)
    return board.sfen()


def move16(usi: str) -> int:
    """A USI move as cshogi packs it: to-square, origin (81 and more: a drop) << 7, promotion << 14.

    >>> move16("7g7f")
    7739
    """
    to = 9 * (int(usi[2]) - 1) + "abcdefghi".index(usi[3])
    if usi[1] == "*":
        return to | (81 + "PLNSBRG".index(usi[0])) << 7
    origin = 9 * (int(usi[0]) - 1) + "abcdefghi".index(usi[1])
    return to | origin << 7 | (0x4000 if usi[-1] == "+" else 0)
