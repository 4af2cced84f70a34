"""Positions of 256 bits, decoded many at once.

In: (n, 32) bytes. Out: boards, hands and sides to move, and which of them are possible.

Bits are taken from the low end of each byte: 1 side to move, 7 and 7 the squares of the kings,
then the other 79 squares, then the pieces that are not on the board, up to the last bit. `hcp` is
Apery's code, `psfen` YaneuraOu's. Both write pieces that take no part (handicaps, problems) as
lying in the box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WHITE = 16
#: Bits in the order of reading, for P L N S B R G: the kind of a piece on the board.
_KINDS = {
    "hcp": ("10", "1100", "1110", "1101", "111110", "111111", "11110"),
    "psfen": ("10", "1100", "1101", "1110", "111110", "111111", "11110"),
}
#: Those in hand, in full: Black's; White's end with a one.
_HANDS = {
    "hcp": ("000", "10000", "11000", "10100", "1111100", "1111110", "11100"),
    "psfen": ("000", "10000", "10100", "11000", "1111000", "1111100", "11100"),
}
_BOX = {
    "hcp": ("010", "10010", "11010", "10110", "1111000", "1111010", "10111"),
    "psfen": ("010", "10010", "10110", "11010", "1111010", "1111110", "11011"),
}
_GOLD = 6
#: In place of a piece in hand: it lies in the box.
_IN_BOX = 15
_LIMITS = np.array([18, 4, 4, 4, 2, 2, 4])
#: Family 0–6 by piece 0–30: P L N S B R G; 7: none, or a king.
_FAMILY = np.array(([7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 7] * 2)[:32])


def _tables(kind: str) -> tuple[NDArray[np.uint8], ...]:
    """Piece and length by the next eight bits, on the board and in hand; length 0: no code."""
    board = {"0": 0}
    hand = {}
    for index, stem in enumerate(_KINDS[kind]):
        for white in (0, 1):
            hand[_HANDS[kind][index][:-1] + str(white)] = index + _WHITE * white
            if index == _GOLD:
                board[f"{stem}{white}"] = index + 1 + _WHITE * white
                continue
            for promoted in (0, 1):
                flags = f"{white}{promoted}" if kind == "hcp" else f"{promoted}{white}"
                board[stem + flags] = index + 1 + 8 * promoted + _WHITE * white
        hand[_BOX[kind][index]] = _IN_BOX
    found = []
    for codes in (board, hand):
        piece, length = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
        for bits, value in codes.items():
            low = int(bits[::-1], 2)
            for high in range(1 << (8 - len(bits))):
                piece[low | high << len(bits)] = value
                length[low | high << len(bits)] = len(bits)
        found += [piece, length]
    return tuple(found)


_TABLES = {kind: _tables(kind) for kind in _KINDS}


def unpack(
    rows: NDArray[np.uint8], kind: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.bool_]]:
    """Decode positions.

    Args:
        rows: (n, 32).
        kind: `hcp` or `psfen`.

    Returns:
        (n, 81) pieces from Black's view as `features.position` numbers them, (n, 2, 7) counts in
        hand of P L N S B R G, (n,) 1 where White is to move, and (n,) whether it is a position:
        kings apart, no more pieces than there are, every bit understood. Whether the side that
        has just moved stands in check needs a board.
    """
    n = len(rows)
    board = np.zeros((n, 81), np.uint8)
    hands = np.zeros((n, 2, 7), np.uint8)
    piece_of, length_of, hand_of, hand_length_of = _TABLES[kind]
    bits = np.unpackbits(np.ascontiguousarray(rows), axis=1, bitorder="little")
    # The eight bits from each place on, as a number; beyond the end there are zeros.
    padded = np.concatenate([bits, np.zeros((n, 8), np.uint8)], axis=1)
    window = np.zeros((n, 257), np.uint8)
    for bit in range(8):
        window |= padded[:, bit : bit + 257] << bit if bit + 257 <= 264 else padded[:, bit:] << bit
    color = bits[:, 0].copy()
    kings = np.stack([window[:, 1] & 127, window[:, 8] & 127], axis=1).astype(np.int64)
    every = np.arange(n)
    good = (kings < 81).all(axis=1) & (kings[:, 0] != kings[:, 1])
    kings = np.where(good[:, None], kings, [[0, 80]])
    board[every, kings[:, 0]], board[every, kings[:, 1]] = 8, 8 + _WHITE
    black, white = kings[:, 0].copy(), kings[:, 1].copy()
    place = np.full(n, 15)
    for square in range(81):
        free = (black != square) & (white != square)
        here = window[every, np.minimum(place, 256)]
        length = np.where(free, length_of[here], 0)
        board[:, square] = np.where(free, piece_of[here], board[:, square])
        good &= ~free | (length > 0)
        place += length
    counts = np.zeros((n, 32), np.int64)
    for _ in range(40):
        open_ = good & (place < 256)
        if not open_.any():
            break
        here = window[every, np.minimum(place, 256)]
        good &= ~open_ | (hand_length_of[here] > 0)
        counts[every, hand_of[here]] += open_
        place += np.where(open_, hand_length_of[here], 0)
    good &= place == 256
    counts[:, _IN_BOX] = 0
    hands[:, 0] = counts[:, :7].clip(0, 255)
    hands[:, 1] = counts[:, _WHITE : _WHITE + 7].clip(0, 255)
    used = hands.sum(axis=1, dtype=np.int64)
    family = _FAMILY[board]
    for index in range(7):
        used[:, index] += (family == index).sum(axis=1)
    good &= (used <= _LIMITS).all(axis=1)
    apart = np.maximum(
        abs(kings[:, 0] // 9 - kings[:, 1] // 9), abs(kings[:, 0] % 9 - kings[:, 1] % 9)
    )
    good &= apart > 1
    return board, hands, color, good
