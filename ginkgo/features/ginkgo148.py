"""Input planes `ginkgo148`: a pair of planes for each piece, where it stands and where it can go.

Every piece of the set has a slot of two planes, 74 in all: its placement and the squares that a
legal move takes it to; +1 for own pieces, -1 for the opponent's. Slots by family and first plane:

    K2 0, R2 4, +R2 8, B2 12, +B2 16, G4 20, S4 28, +S4 36, N4 44, +N4 52, L4 60, +L4 68, P18 76,
    +P18 112, end 148

A piece has one index over its family, plain and promoted together, and uses the slot of that
index in both: own pieces come before the opponent's, those on the board in square order (mover's
view, whatever their state) before those in hand. A piece in hand has an empty placement plane and
its drop squares in the move plane, every copy its own. A move that promotes is written in the
promoted family's slot, any other in the slot of the piece as it is.

The opponent's moves are those that would be legal if it were the opponent's turn; with a check
on the board the checking side could take the king, and these captures are left out. Legal means
all legal moves: cshogi's list holds the pointless non-promotions as well, and equals rsshogi's.
Mate by a dropped pawn is judged as cshogi and rsshogi do. The one place where that is not the
letter of the rule is a turned position that is in check already: a drop whose mate rests on that
other check counts as legal.

In: a `cshogi.Board`, or an array of `POSITION`. Out: ragged uint16 codes, one for each nonzero
square, `plane * 81 + sq` for own pieces and 11,988 more for the opponent's; then planes
(n, 148, 9, 9), indexed [file, rank], of -1, 0 and 1. Workers pack, for which legal moves and
hence cshogi are needed; the device that trains scatters.

The mirror cannot be had from codes, on the device or elsewhere: slots follow the order of
squares, which the mirror changes. Mirror the positions (`position.mirror`), then pack them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cshogi
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.encoding import Encoding
from ginkgo.features.labels import rotate_moves
from ginkgo.features.position import OPPONENT, impossible, orient

if TYPE_CHECKING:
    import tensorflow as tf

PLANES = 148

#: What the code of an opponent's square has on top of `plane * 81 + sq`.
OPPONENT_CODE = PLANES * 81

_KING = 8
#: First plane of each family by piece type 1–14 (P L N S B R G K +P +L +N +S +B +R).
_FIRST_PLANE = [0, 76, 60, 44, 28, 12, 4, 20, 0, 112, 68, 52, 36, 16, 8]
# Positions that are mapped together: few enough for the processor's cache.
_BLOCK = 512

# The tables below are by piece code: 1–14 own, 17–30 the opponent's.
_TYPE = np.arange(32) % OPPONENT
#: Family of a piece, promoted or not, 0–7 in the order P L N S B R G K, 8 more for the opponent's.
_FAMILY = np.where(_TYPE > _KING, _TYPE - 9, np.maximum(_TYPE - 1, 0)) + 8 * (np.arange(32) // 16)
#: Code of square 1a on the placement plane of the family's first slot.
_FIRST_CODE = np.zeros(32, np.int32)
#: What promotion adds to a code.
_PROMOTION = np.zeros(32, np.int32)
for _type in range(1, 15):
    _FIRST_CODE[[_type, _type + OPPONENT]] = 81 * _FIRST_PLANE[_type]
    if _type < 7:
        _PROMOTION[[_type, _type + OPPONENT]] = 81 * (
            _FIRST_PLANE[_type + _KING] - _FIRST_PLANE[_type]
        )
_FIRST_CODE[OPPONENT:] += OPPONENT_CODE
# One byte for each of the 16 families, held in two integers so that one running sum over the
# squares counts all of them. No count reaches 256, so that nothing is carried over.
_ONE = np.zeros((32, 16), np.uint8)
for _code in (*range(1, 15), *range(17, 31)):
    _ONE[_code, _FAMILY[_code]] = 1
_ONE = _ONE.view(np.uint64)

# cshogi orders a hand P L N S G B R where `POSITION` has P L N S B R G.
_FROM_CSHOGI = [0, 1, 2, 3, 5, 6, 4]
_TO_CSHOGI = [0, 1, 2, 3, 6, 4, 5]

# A move starts from one of 95 places: 81 squares, 7 own hand pieces, 7 of the opponent's.
_PLACES = 95
_HAND_PIECES = np.concatenate([np.arange(1, 8), np.arange(17, 24)]).astype(np.uint8)


class Packer:
    """Turns boards into the codes of their planes, many at a time.

    >>> packer = Packer()
    >>> packer.add(cshogi.Board())
    >>> codes, offsets = packer.finish()
    >>> codes.dtype, offsets.tolist()  # 40 pieces, 30 moves of each side
    (dtype('uint16'), [0, 100])
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[np.uint16], NDArray[np.int64]]] = []
        self._clear()

    def _clear(self) -> None:
        self._boards: list[bytes] = []
        self._hands: list[bytes] = []
        self._colors: list[int] = []
        self._moves = array("i")
        self._move_counts: list[tuple[int, int]] = []

    def add(self, board: cshogi.Board, color: int | None = None) -> None:
        """Record a position.

        Args:
            board: both kings on it; left as it was.
            color: whose view, `cshogi.BLACK` or `cshogi.WHITE`; the side to move if None.
                `view="after"` means the side that is not, once its move has been pushed.

        Raises:
            GinkgoError: impossible piece counts, found here or by a later call.
        """
        own = board.turn if color is None else color
        black, white = board.pieces_in_hand
        self._move_counts.append(_list_moves(board, own, self._moves))
        self._boards.append(bytes(board.pieces))
        self._hands.append(bytes(black + white))
        self._colors.append(own)
        if len(self._boards) == _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not self._boards:
            return
        color = np.array(self._colors, np.uint8)
        board, hand = orient(
            np.frombuffer(b"".join(self._boards), np.uint8).reshape(-1, 81),
            np.frombuffer(b"".join(self._hands), np.uint8).reshape(-1, 2, 7)[:, :, _FROM_CSHOGI],
            color,
        )
        move_counts = np.array(self._move_counts, np.int64)
        moves = np.frombuffer(self._moves, np.int32)
        moves = rotate_moves(moves, np.repeat(color, move_counts.sum(axis=1)))
        self._clear()
        if impossible(board, hand).any():
            raise GinkgoError("a position to pack has impossible piece counts")
        self._blocks.append(_codes(board, hand, moves, move_counts))

    def finish(self) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """The codes of all positions added, which the packer forgets.

        Returns:
            codes (k,), and offsets (n + 1,): those of position i are
            `codes[offsets[i] : offsets[i + 1]]`, each once, in no particular order.
        """
        self._flush()
        blocks, self._blocks = self._blocks, []
        return _joined(blocks)


def pack_positions(positions: NDArray) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """The codes of an array of `POSITION`; of its fields only board and hand matter.

    For `view="after"` play the move with `position.play` first: own pieces stay the mover's.

    Args:
        positions: (n,).

    Returns:
        codes (k,) and offsets (n + 1,), as from `Packer.finish`.

    Raises:
        GinkgoError: impossible piece counts.
    """
    # cshogi numbers Black's pieces as `POSITION` numbers own ones, and asks for kings.
    if impossible(positions["board"], positions["hand"]).any():
        raise GinkgoError("a position to pack has impossible piece counts")
    scratch = cshogi.Board()
    blocks = []
    for start in range(0, len(positions), _BLOCK):
        board, hand = (positions[name][start : start + _BLOCK] for name in ("board", "hand"))
        moves = array("i")
        move_counts = []
        for pieces, hands in zip(board.tolist(), hand[:, :, _TO_CSHOGI].tolist(), strict=True):
            scratch.set_pieces(pieces, tuple(hands))
            move_counts.append(_list_moves(scratch, cshogi.BLACK, moves))
        blocks.append(_codes(board, hand, np.frombuffer(moves, np.int32), np.array(move_counts)))
    return _joined(blocks)


def _list_moves(board: cshogi.Board, own: int, moves: array[int]) -> tuple[int, int]:
    """Append the legal moves of colour `own`, then the other's; how many there are of each."""
    turn = board.turn
    # Not push_pass: it refuses in check, and leaves a check on the other king unnoticed.
    board.turn = own
    own_moves = list(board.legal_moves)
    board.turn = 1 - own
    opponents = list(board.legal_moves)
    board.turn = turn
    moves.fromlist(own_moves)
    moves.fromlist(opponents)
    return len(own_moves), len(opponents)


def _joined(
    blocks: list[tuple[NDArray[np.uint16], NDArray[np.int64]]],
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Codes and offsets from blocks of codes and counts."""
    codes = np.concatenate([np.zeros(0, np.uint16), *(codes for codes, _ in blocks)])
    counts = np.concatenate([np.zeros(1, np.int64), *(counts for _, counts in blocks)])
    return codes, np.cumsum(counts)


def _codes(
    board: NDArray[np.uint8],
    hand: NDArray[np.uint8],
    moves: NDArray[np.int32],
    move_counts: NDArray[np.int64],
) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Codes of n positions, and how many each has.

    Args:
        board: (n, 81). hand: (n, 2, 7). Both mover's view.
        moves: (m,) mover's view, the own moves of a position and then the opponent's.
        move_counts: (n, 2) number of own and of opponent's moves.
    """
    n = len(board)
    # Index of the piece within its family, and from that the code of square 1a on its placement
    # plane, at each place. In hand it is the first of the copies.
    running = np.cumsum(_ONE[board], axis=1).view(np.uint8).reshape(n, 81, 16)
    on_board = running[:, -1].reshape(n, 2, 8).astype(np.int32)
    held = np.zeros((n, 2, 8), np.int32)
    held[:, :, :7] = hand
    first = np.zeros((n, 2, 8), np.int32)
    first[:, 1] = on_board[:, 0] + held[:, 0]
    first_held = (first + on_board)[:, :, :7].reshape(n, 14)
    family = _FAMILY[board]
    index = np.empty((n, _PLACES), np.int32)
    index[:, :81] = np.take_along_axis(running, family[:, :, None], axis=2)[:, :, 0]
    index[:, :81] += np.take_along_axis(first.reshape(n, 16), family, axis=1) - 1
    index[:, 81:] = first_held
    piece = np.concatenate([board, np.broadcast_to(_HAND_PIECES, (n, 14))], axis=1)
    base = _FIRST_CODE[piece] + 162 * index
    copies = np.ones((n, _PLACES), np.int32)
    copies[:, 81:] = hand.reshape(n, 14)

    row = np.repeat(np.arange(n), move_counts.sum(axis=1))
    side = np.repeat(np.tile([0, 1], n), move_counts.ravel())
    takes_king = board[row, moves & 0x7F] % OPPONENT == _KING
    if takes_king.any():
        row, side, moves = row[~takes_king], side[~takes_king], moves[~takes_king]
    to, origin, promotes = moves & 0x7F, moves >> 7 & 0x7F, moves >> 14 & 1
    place = row * _PLACES + origin + 7 * side * (origin >= 81)
    reached = base.ravel()[place] + 81 + to + promotes * _PROMOTION[piece.ravel()[place]]
    # A drop is a move of each copy in hand.
    repeats = copies.ravel()[place]
    copy = _ranks(repeats)
    reached = np.repeat(reached, repeats) + 162 * copy
    row = np.repeat(row, repeats)

    at = np.flatnonzero(board)
    placed_row, square = np.divmod(at, 81)
    placed = base[placed_row, square] + square
    placed_counts = np.bincount(placed_row, minlength=n)
    reached_counts = np.bincount(row, minlength=n)
    counts = placed_counts + reached_counts
    start = np.cumsum(counts) - counts
    codes = np.empty(counts.sum(), np.uint16)
    codes[np.repeat(start, placed_counts) + _ranks(placed_counts)] = placed
    codes[np.repeat(start + placed_counts, reached_counts) + _ranks(reached_counts)] = reached
    return codes, counts


def _ranks(counts: NDArray) -> NDArray[np.int64]:
    """0, 1, … count - 1 for each count in turn.

    >>> _ranks(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def planes_on_host(codes: ArrayLike, offsets: ArrayLike) -> NDArray[np.float32]:
    """The planes by numpy.

    Args:
        codes: (k,) uint16; any beyond the last offset are padding.
        offsets: (n + 1,), the first one 0.

    Returns:
        (n, 148, 9, 9) float32 of -1, 0 and 1.
    """
    offsets = np.asarray(offsets)
    codes = np.asarray(codes)[: offsets[-1]].astype(np.int64)
    n = len(offsets) - 1
    planes = np.zeros((n, PLANES * 81), np.float32)
    theirs, cell = np.divmod(codes, OPPONENT_CODE)
    planes[np.repeat(np.arange(n), np.diff(offsets)), cell] = 1 - 2 * theirs
    return planes.reshape(n, PLANES, 9, 9)


def planes_on_device(codes: tf.Tensor, offsets: tf.Tensor, n: int | None = None) -> tf.Tensor:
    """The planes by TensorFlow operations, for use inside a compiled step.

    Args:
        codes: (k,) uint16; any beyond the last offset are padding, so that batches can share one
            shape and XLA compiles once.
        offsets: (n + 1,) int32 or int64, the first one 0.
        n: the number of positions where the shape of `offsets` does not tell.

    Returns:
        (n, 148, 9, 9) float32 of -1, 0 and 1.
    """
    import tensorflow as tf

    offsets, codes = tf.cast(offsets, tf.int32), tf.cast(codes, tf.int32)
    if n is None:
        n = offsets.shape[0] - 1 if offsets.shape[0] is not None else tf.shape(offsets)[0] - 1
    # The position of each code: how many positions end before it. A running sum, since XLA turns
    # tf.searchsorted into a comparison of every code with every offset.
    ends = offsets[1:]
    row = tf.scatter_nd(ends[:, None], tf.ones_like(ends), [tf.shape(codes)[0] + 1])
    row = tf.cumsum(row)[:-1]
    theirs, inside = codes >= OPPONENT_CODE, row < n
    # Padding adds nothing to the first square.
    value = tf.where(inside, tf.where(theirs, -1.0, 1.0), 0.0)
    cell = tf.where(inside, codes + (row - tf.cast(theirs, tf.int32)) * OPPONENT_CODE, 0)
    planes = tf.scatter_nd(cell[:, None], value, [n * OPPONENT_CODE])
    return tf.reshape(planes, [n, PLANES, 9, 9])


ENCODING = Encoding(
    inputs={"input": PLANES},
    on_host=lambda positions: planes_on_host(*pack_positions(positions)),
    on_device=lambda batch: planes_on_device(batch["codes"], batch["codes_offsets"]),
    pack=pack_positions,
    mirrors=False,
)
