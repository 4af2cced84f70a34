"""Moves as labels, scheme `dlshogi2187`: 81 × class + to-square, in the mover's view.

Classes: 0 up, 1 up-left, 2 up-right, 3 left, 4 right, 5 down, 6 down-left, 7 down-right,
8 knight-left, 9 knight-right, 10–19 the same with promotion, 20–26 drops P L N S B R G. Left
means toward higher files. Of the 2,187 labels 1,496 can occur.

In: cshogi move integers (to-square in bits 0–6, origin or 81 + hand piece in bits 7–13,
promotion in bit 14). Out: labels, and USI text back from label and board.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.position import MIRROR_SQUARE, OPPONENT

LABEL_SCHEME = "dlshogi2187"
LABELS = 2187
CLASSES = 27

# (file step toward the left = higher files, rank step downward = higher ranks) by class 0–7.
_DIRECTIONS = [(0, -1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (1, 1), (-1, 1)]
_KNIGHTS = [(1, -2), (-1, -2)]


def _class_table() -> NDArray[np.int16]:
    """Class by (origin, to) for moves on the board, -1 where no piece can go."""
    table = np.full((81, 81), -1, np.int16)
    for origin in range(81):
        file, rank = divmod(origin, 9)
        for index, (df, dr) in enumerate(_DIRECTIONS):
            for distance in range(1, 9):
                f, r = file + df * distance, rank + dr * distance
                if 0 <= f < 9 and 0 <= r < 9:
                    table[origin, 9 * f + r] = index
        for index, (df, dr) in enumerate(_KNIGHTS, 8):
            f, r = file + df, rank + dr
            if 0 <= f < 9 and 0 <= r < 9:
                table[origin, 9 * f + r] = index
    return table


_CLASS = _class_table()
_MIRROR_CLASS = [0, 2, 1, 4, 3, 5, 7, 6, 9, 8]
_MIRROR_CLASS += [10 + index for index in _MIRROR_CLASS] + list(range(20, 27))

#: Label of the mirrored move (files 1 and 9 exchanged), by label; its own inverse.
MIRROR_LABEL = np.array(
    [81 * _MIRROR_CLASS[label // 81] + MIRROR_SQUARE[label % 81] for label in range(LABELS)],
    np.uint16,
)


def rotate_moves(moves: NDArray[np.integer], color: NDArray[np.uint8]) -> NDArray[np.int32]:
    """cshogi moves turned into the mover's view: squares become 80 - sq where White moves."""
    moves = np.asarray(moves, np.int32)
    to, origin, promote = moves & 0x7F, moves >> 7 & 0x7F, moves >> 14 & 1
    white = np.asarray(color).astype(bool)
    to = np.where(white, 80 - to, to)
    origin = np.where(white & (origin < 81), 80 - origin, origin)
    return (to | origin << 7 | promote << 14).astype(np.int32)


def labels_from_moves(moves: NDArray[np.int32]) -> NDArray[np.uint16]:
    """Labels of moves that are in the mover's view already (`rotate_moves`).

    Args:
        moves: (n,) cshogi moves, any bits above the fifteenth are ignored.

    Returns:
        (n,) labels. A move that no piece can make has an undefined label.
    """
    to, origin, promote = moves & 0x7F, moves >> 7 & 0x7F, moves >> 14 & 1
    drop = origin >= 81
    on_board = _CLASS[np.where(drop, 0, origin), to] + 10 * promote
    return (81 * np.where(drop, 20 + origin - 81, on_board) + to).astype(np.uint16)


def dead_end(board: NDArray[np.uint8], moves: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Moves that break the promotion rules, which cshogi's `is_legal` lets pass.

    A pawn, lance or knight must not come to rest where it can never move again, and only P L N
    S B R promote, by a move that starts or ends in the three farthest ranks.

    Args:
        board: (n, 81) mover's view.
        moves: (n,) mover's view.
    """
    rows = np.arange(len(board))
    to, origin, promote = moves & 0x7F, moves >> 7 & 0x7F, (moves >> 14 & 1).astype(bool)
    drop = origin >= 81
    square = np.where(drop, 0, origin)
    piece = np.where(drop, origin - 80, board[rows, square])
    to_rank, from_rank = to % 9, square % 9
    stuck = ~promote & (
        ((to_rank == 0) & ((piece == 1) | (piece == 2) | (piece == 3)))
        | ((to_rank == 1) & (piece == 3))
    )
    zone = (to_rank < 3) | (from_rank < 3)
    wrong = promote & (drop | (piece > 6) | ~zone)
    return stuck | wrong


def _origin_table() -> NDArray[np.int16]:
    """Square by (class 0–9, to, distance 1–8) from which a piece comes, -1 off the board."""
    table = np.full((10, 81, 8), -1, np.int16)
    for index, (df, dr) in enumerate(_DIRECTIONS + _KNIGHTS):
        for to in range(81):
            for distance in range(1, 9 if index < 8 else 2):
                file, rank = to // 9 - df * distance, to % 9 - dr * distance
                if 0 <= file < 9 and 0 <= rank < 9:
                    table[index, to, distance - 1] = 9 * file + rank
    return table


_ORIGIN = _origin_table()


def moved_pieces(board: NDArray[np.uint8], labels: NDArray[np.integer]) -> NDArray[np.uint8]:
    """The piece that a label moves or drops: the nearest one on the line that it names.

    Args:
        board: (n, 81) mover's view.
        labels: (n,) in [0, 2187).

    Returns:
        (n,) piece types 1–14 before a promotion; 0 where the line is empty.
    """
    labels = np.asarray(labels, np.int64)
    move_class, to = labels // 81, labels % 81
    piece = np.where(move_class >= 20, move_class - 19, 0).astype(np.uint8)
    rows = np.arange(len(labels))
    for distance in range(8):
        origin = _ORIGIN[np.where(move_class >= 20, 0, move_class % 10), to, distance]
        found = np.where(origin >= 0, board[rows, origin], 0) % OPPONENT
        piece = np.where(piece == 0, found, piece)
    return piece


def origin_of(label: int, board: NDArray[np.uint8]) -> int | None:
    """The square that a label's move starts from: the nearest piece on the line that it names.

    Args:
        label: in [0, 2187). board: (81,) mover's view.

    Returns:
        None for a drop, or where the line is empty.
    """
    move_class, to = divmod(int(label), 81)
    if move_class >= 20:
        return None
    line = [square for square in _ORIGIN[move_class % 10, to].tolist() if square >= 0]
    return next((square for square in line if board[square]), None)


_LETTERS = "PLNSBRG"


def usi_square(square: int) -> str:
    """`sq` as USI writes it.

    >>> usi_square(0), usi_square(80)
    ('1a', '9i')
    """
    return f"{square // 9 + 1}{'abcdefghi'[square % 9]}"


def usi_from_label(label: int, board: NDArray[np.uint8], color: int) -> str | None:
    """The move that a label means on a board, or None where no own piece can make it.

    Only the piece's way of moving and the squares between are looked at, not legality.

    Args:
        label: in [0, 2187).
        board: (81,) mover's view.
        color: 0 Black, 1 White.
    """
    move_class, to = divmod(int(label), 81)

    def name(square: int) -> str:
        return usi_square(80 - square if color else square)

    if move_class >= 20:
        return f"{_LETTERS[move_class - 20]}*{name(to)}" if board[to] == 0 else None
    direction = move_class % 10
    df, dr = (_DIRECTIONS + _KNIGHTS)[direction]
    file, rank = divmod(to, 9)
    reach = 1 if direction >= 8 else 8
    for distance in range(1, reach + 1):
        f, r = file - df * distance, rank - dr * distance
        if not (0 <= f < 9 and 0 <= r < 9):
            return None
        origin = 9 * f + r
        piece = int(board[origin])
        if piece == 0:
            continue
        if piece > OPPONENT or not _moves_so(piece, direction, distance):
            return None
        return name(origin) + name(to) + ("+" if move_class >= 10 else "")
    return None


def _moves_so(piece: int, direction: int, distance: int) -> bool:
    """Whether an own piece (1–14) steps or slides that far in that direction (class 0–9)."""
    slides = {2: (0,), 5: (1, 2, 6, 7), 6: (0, 3, 4, 5), 13: (1, 2, 6, 7), 14: (0, 3, 4, 5)}
    if direction in slides.get(piece, ()):
        return True
    return distance == 1 and direction in STEPS[piece]


_GOLD = (0, 1, 2, 3, 4, 5)
#: One-square directions (classes 0–9) of each piece type 1–14; slides are apart.
STEPS: dict[int, tuple[int, ...]] = {
    1: (0,), 2: (), 3: (8, 9), 4: (0, 1, 2, 6, 7), 5: (), 6: (), 7: _GOLD,
    8: (0, 1, 2, 3, 4, 5, 6, 7), 9: _GOLD, 10: _GOLD, 11: _GOLD, 12: _GOLD,
    13: (0, 3, 4, 5), 14: (1, 2, 6, 7),
}  # fmt: skip
