"""`POSITION`: a position as about a hundred bytes, seen by the side that moves.

In: blocks of SFEN text, or boards from a replay. Out: numpy arrays of `POSITION`, and back.

Squares are numbered `sq = 9*(file-1) + (rank-1)`: 1a = 0, 1b = 1, …, 9i = 80. When White is to
move the colours are swapped and `sq -> 80 - sq`, so the side to move always plays up the board.

Pieces are numbered as cshogi does: 0 empty; 1–14 own P L N S B R G K +P +L +N +S +B +R; the
opponent's are the same plus 16. Hands are counts in the order P L N S B R G.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError

POSITION = np.dtype(
    [
        ("board", np.uint8, (81,)),  # piece by square, mover's view
        ("hand", np.uint8, (2, 7)),  # own, opponent's; P L N S B R G
        ("color", np.uint8),  # who moves: 0 Black, 1 White
        ("result", np.uint8),  # of the mover: LOSS, WIN, DRAW, NO_RESULT
        ("move", np.uint16),  # label dlshogi2187, mover's view
        ("ply", np.uint16),  # plies since the game's start, the first move is 1
        ("total", np.uint16),  # plies of the game
        ("source", np.uint16),  # number of the source
        ("game", np.uint32),  # number of the game within its source
        ("weight", np.float16),  # of the value target; 0 without a result
        ("score", np.float16),  # search score in centipawns, mover's view; NaN: none
        ("root_value", np.float16),  # win rate found by search in [0, 1], mover's view; NaN: none
        (
            "outcome",
            np.float16,
        ),  # mean result in [0, 1] of merged positions, mover's view; NaN: none
    ]
)

LOSS, WIN, DRAW, NO_RESULT = 0, 1, 2, 3

PIECES = "PLNSBRGK"
#: Letters by piece type 1–14 as SFEN writes them.
PIECE_LETTERS = [*PIECES, "+P", "+L", "+N", "+S", "+B", "+R"]
OPPONENT = 16

#: How many of each there can be, promoted or not: P L N S B R G.
_PIECE_LIMITS = np.array([18, 4, 4, 4, 2, 2, 4], np.int64)

# --- piece codes under change of view ---------------------------------------------------------

_SWAP = np.arange(32, dtype=np.uint8)
_SWAP[1:15], _SWAP[17:31] = np.arange(17, 31), np.arange(1, 15)

#: Square under the mirror that exchanges files 1 and 9.
MIRROR_SQUARE = np.array([9 * (8 - sq // 9) + sq % 9 for sq in range(81)])


def orient(
    board: NDArray[np.uint8], hands: NDArray[np.uint8], color: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """From Black's view to the mover's (its own inverse).

    Args:
        board: (n, 81) piece codes, Black 1–14, White 17–30.
        hands: (n, 2, 7), Black's then White's.
        color: (n,) 0 where Black is to move, 1 where White is.

    Returns:
        board and hands as `POSITION` keeps them.
    """
    white = color.astype(bool)
    board, hands = board.copy(), hands.copy()
    board[white] = _SWAP[board[white, ::-1]]
    hands[white] = hands[white, ::-1]
    return board, hands


def mirror(positions: NDArray) -> NDArray:
    """The positions with files 1 and 9 exchanged, move labels included."""
    from ginkgo.features.labels import MIRROR_LABEL

    mirrored = positions.copy()
    mirrored["board"] = positions["board"][:, MIRROR_SQUARE]
    mirrored["move"] = MIRROR_LABEL[positions["move"]]
    return mirrored


# --- SFEN, a block at a time ------------------------------------------------------------------

# By byte of the text: the code of the square that it fills, and how many squares it fills. A plus
# fills none and promotes what follows; a slash and a line end stand for themselves, so that a
# well-formed board has 90 entries.
_SLASH, _LINE_END, _PLUS, _STRANGE = 254, 253, 252, 255
_CODE, _SQUARES = np.full(256, _STRANGE, np.uint8), np.ones(256, np.uint8)
for _index, _letter in enumerate(PIECES):
    _CODE[ord(_letter)] = 1 + _index
    _CODE[ord(_letter.lower())] = 1 + _index + OPPONENT
for _digit in range(1, 10):
    _CODE[ord(str(_digit))], _SQUARES[ord(str(_digit))] = 0, _digit
_CODE[ord("/")], _CODE[ord("\n")] = _SLASH, _LINE_END
_CODE[ord("+")], _SQUARES[ord("+")] = _PLUS, 0
#: Code of a piece after a plus; gold, king and what is no piece cannot have one.
_PROMOTED = np.full(256, _STRANGE, np.uint8)
for _index in range(1, 7):
    _PROMOTED[_index], _PROMOTED[_index + OPPONENT] = _index + 8, _index + 8 + OPPONENT
# SFEN text goes rank by rank, from file 9 to file 1; `_TEXT_ORDER[sq]` is the place of sq in it.
_TEXT_ORDER = np.array([10 * (sq % 9) + (8 - sq // 9) for sq in range(81)])
_SLASHES = np.arange(9, 89, 10)
#: Code of the unpromoted piece type without colour, 0 for none.
_BASE_TYPE = np.zeros(32, np.uint8)
for _code in range(1, 15):
    _BASE_TYPE[_code] = _BASE_TYPE[_code + OPPONENT] = _code - 8 if _code > 8 else _code
#: (32, 7) whether a code is of that type, promoted or not.
_FAMILY = (_BASE_TYPE[:, None] == np.arange(1, 8)).astype(np.int64)
# By byte of a hands field: the slot of a piece letter (0–13), or what else it is.
_NUMBER, _END, _UNKNOWN = 20, 21, 22
_HAND_KIND, _DIGIT = np.full(256, _UNKNOWN, np.uint8), np.zeros(256, np.int64)
for _index, _letter in enumerate("PLNSBRGplnsbrg"):
    _HAND_KIND[ord(_letter)] = _index
for _digit in range(10):
    _HAND_KIND[ord(str(_digit))], _DIGIT[ord(str(_digit))] = _NUMBER, _digit
_HAND_KIND[ord("\n")] = _END


def decode_boards(boards: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The board fields of SFENs as piece codes.

    Args:
        boards: n first fields of SFENs.

    Returns:
        (n, 81) piece codes from Black's view, and (n,) whether the text was well formed; the
        row of a malformed one is empty.
    """
    decoded, good = _decode_text(boards)
    if decoded is None:  # some line is not 90 entries long: leave those out and try again
        good = np.array([_decode_text([board])[0] is not None for board in boards], bool)
        blank = b"9/9/9/9/9/9/9/9/9"
        decoded, well = _decode_text([b if g else blank for b, g in zip(boards, good, strict=True)])
        assert decoded is not None
        good &= well
    codes = decoded[:, _TEXT_ORDER]
    codes[~good] = 0
    return codes, good


def _decode_text(boards: list[bytes]) -> tuple[NDArray[np.uint8] | None, NDArray[np.bool_]]:
    """(n, 90) entries of n boards, and which are well formed; None if the lengths do not fit."""
    text = np.frombuffer(b"\n".join([*boards, b""]), np.uint8)
    codes = _CODE[text]
    plus = np.flatnonzero(codes == _PLUS)
    codes[plus + 1] = _PROMOTED[codes[plus + 1]]
    entries = np.repeat(codes, _SQUARES[text])
    if len(entries) != 90 * len(boards):
        return None, np.zeros(len(boards), bool)
    cells = entries.reshape(-1, 90)
    if not (cells[:, 89] == _LINE_END).all():
        return None, np.zeros(len(boards), bool)
    good = (cells[:, _SLASHES] == _SLASH).all(axis=1)
    good &= (cells[:, _TEXT_ORDER] < 32).all(axis=1)
    return cells, good


def decode_hands(hands: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """The hands fields of SFENs as counts.

    Args:
        hands: n third fields of SFENs.

    Returns:
        (n, 2, 7) counts, Black's P L N S B R G, then White's; and (n,) whether the text was well
        formed.

    >>> decode_hands([b"2Pb"])[0].tolist()
    [[[2, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0]]]
    """
    n = len(hands)
    # Line ends before and after, so that each byte of a line has two before it.
    text = np.frombuffer(b"\n\n" + b"\n".join([*hands, b""]), np.uint8)
    kinds, digits = _HAND_KIND[text], _DIGIT[text]
    ends = kinds == _END
    owner = (np.cumsum(ends) - ends)[2:] - 2
    kind, before, two_before = kinds[2:], kinds[1:-1], kinds[:-2]
    counted = before == _NUMBER
    tens = counted & (two_before == _NUMBER)
    number = np.where(counted, digits[1:-1] + np.where(tens, 10 * digits[:-2], 0), 1)
    piece = kind < 14
    slots = owner[piece] * 14 + kind[piece]
    table = np.bincount(slots, number[piece], 14 * n).reshape(n, 14)
    is_number = kind == _NUMBER
    too_long = is_number & tens
    leading_zero = is_number & ~counted & (digits[2:] == 0)
    of_nothing = (kind == _END) & counted
    good = np.ones(n, bool)
    good[owner[(kind == _UNKNOWN) | too_long | leading_zero | of_nothing]] = False
    good &= table.any(axis=1)
    empty = np.fromiter((hand == b"-" for hand in hands), bool, n)
    good |= empty
    table[~good] = 0
    return table.clip(0, 255).astype(np.uint8).reshape(n, 2, 7), good


def decode_hand(hand: bytes) -> list[int] | None:
    """One hands field as 14 counts, None if malformed.

    >>> decode_hand(b"2Pb")
    [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    """
    counts, good = decode_hands([hand])
    return counts.reshape(14).tolist() if good[0] else None


def impossible(board: NDArray[np.uint8], hands: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether a position cannot be: pieces, kings, or kings that touch.

    Args:
        board: (n, 81) piece codes from either view.
        hands: (n, 2, 7).
    """
    n = len(board)
    counts = np.bincount(
        (np.arange(n)[:, None] * 32 + board).reshape(-1), minlength=32 * n
    ).reshape(n, 32)  # fmt: skip
    kings = (counts[:, 8] != 1) | (counts[:, 8 + OPPONENT] != 1)
    own, other = (board == 8).argmax(1), (board == 8 + OPPONENT).argmax(1)
    apart = np.maximum(abs(own // 9 - other // 9), abs(own % 9 - other % 9))
    on_board = counts @ _FAMILY
    held = hands.astype(np.int64).sum(1)
    return kings | (apart < 2) | (on_board + held > _PIECE_LIMITS).any(axis=1)


def position_from_sfen(sfen: str) -> NDArray:
    """One position, without move and result, as an array of shape (1,).

    Raises:
        GinkgoError: the SFEN is malformed or its piece counts are impossible.

    >>> position_from_sfen("4k4/9/9/9/9/9/9/9/4K4 w - 2")["color"].tolist()
    [1]
    """
    fields = sfen.encode("ascii", "replace").split()
    if len(fields) not in (3, 4) or fields[1] not in (b"b", b"w"):
        raise GinkgoError(f"{sfen!r}: expected an SFEN of board, side to move, hands and ply")
    board, good = decode_boards(fields[:1])
    counts = decode_hand(fields[2])
    if not good[0] or counts is None:
        raise GinkgoError(f"{sfen!r}: malformed {'hands' if good[0] else 'board'} field")
    hands = np.array(counts, np.uint8).reshape(1, 2, 7)
    if impossible(board, hands)[0]:
        raise GinkgoError(f"{sfen!r}: impossible piece counts")
    ply = fields[3] if len(fields) == 4 else b"1"
    if not ply.isdigit() or int(ply) > 65535:
        raise GinkgoError(f"{sfen!r}: malformed ply field")
    position = np.zeros(1, POSITION)
    position["color"] = fields[1] == b"w"
    position["board"], position["hand"] = orient(board, hands, position["color"])
    position["ply"] = int(ply)
    position["result"] = NO_RESULT
    position["score"] = position["root_value"] = position["outcome"] = np.nan
    return position


def sfen_from_position(position: np.void) -> str:
    """The SFEN of one element of a `POSITION` array.

    >>> sfen_from_position(position_from_sfen("4k4/9/9/9/9/9/9/9/4K4 w 2Pb 2")[0])
    '4k4/9/9/9/9/9/9/9/4K4 w 2Pb 2'
    """
    color = np.atleast_1d(position["color"])
    board, hands = orient(position["board"][None], position["hand"][None], color)
    ranks = []
    for rank in range(9):
        text, empty = "", 0
        for file in range(8, -1, -1):
            code = int(board[0, 9 * file + rank])
            if code == 0:
                empty += 1
                continue
            letter = PIECE_LETTERS[code % OPPONENT - 1]
            text += (str(empty) if empty else "") + (letter.lower() if code > OPPONENT else letter)
            empty = 0
        ranks.append(text + (str(empty) if empty else ""))
    hand = ""
    for side in (0, 1):
        for index in (5, 4, 6, 3, 2, 1, 0):  # R B G S N L P
            count = int(hands[0, side, index])
            letter = PIECES[index].lower() if side else PIECES[index]
            hand += (str(count) if count > 1 else "") + letter if count else ""
    turn = "w" if position["color"] else "b"
    return f"{'/'.join(ranks)} {turn} {hand or '-'} {position['ply']}"


# --- playing a move on arrays -----------------------------------------------------------------


def play(
    board: NDArray[np.uint8],
    hands: NDArray[np.uint8],
    moves: NDArray[np.int32],
    color: NDArray[np.uint8] | None = None,
) -> None:
    """Play one move on each board, in place; the view stays.

    Args:
        board: (n, 81) mover's view, or Black's view where `color` is given.
        hands: (n, 2, 7) likewise.
        moves: (n,) cshogi moves **in the same view** (see `labels.rotate_moves`).
        color: (n,) who moves, 0 Black, 1 White. None: the mover's view.
    """
    rows = np.arange(len(board))
    side = np.zeros(len(board), np.uint8) if color is None else color
    to, origin, promote = moves & 0x7F, moves >> 7 & 0x7F, moves >> 14 & 1
    captured = _BASE_TYPE[board[rows, to]]
    taken = captured > 0
    hands[rows[taken], side[taken], captured[taken] - 1] += 1
    drop = origin >= 81
    normal = ~drop
    board[rows[normal], to[normal]] = (
        board[rows[normal], origin[normal]] + 8 * promote[normal]
    ).astype(np.uint8)
    board[rows[normal], origin[normal]] = 0
    piece = (origin[drop] - 80).astype(np.uint8)
    board[rows[drop], to[drop]] = piece + OPPONENT * side[drop]
    hands[rows[drop], side[drop], piece - 1] -= 1
