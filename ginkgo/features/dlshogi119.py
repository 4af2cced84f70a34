"""Planes `dlshogi119`: dlshogi's input, 119 planes of 9×9, from the compact position.

Planes 0–61, for own pieces then the opponent's, 31 each: placement of the 14 piece types
(P L N S B R G K +P +L +N +S +B +R), squares that each of the 14 types attacks (blockers
respected), squares attacked by at least 1, 2 and 3 pieces. Planes 62–117, own hand then the
opponent's, 28 each: full planes, as many as there are pieces in hand, at most P8 L4 N4 S4 G4 B2
R2. Plane 118: the side to move is in check.

In: boards and hands as `POSITION` keeps them. Out: (n, 119, 9, 9), indexed [file, rank]. The
TensorFlow version runs on the device that trains; the numpy version serves hosts without
TensorFlow. Both are compared with `cshogi.dlshogi.make_input_features` in the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.encoding import Encoding
from ginkgo.features.labels import STEPS

if TYPE_CHECKING:
    import tensorflow as tf

PLANES = 119

_OPPONENT = 16
# Planes of each hand piece, in the order in which dlshogi stacks them, by index into `hand`.
_HAND_PLANES = [(0, 8), (1, 4), (2, 4), (3, 4), (6, 4), (4, 2), (5, 2)]
_HAND_INDEX = np.array([index for index, count in _HAND_PLANES for _ in range(count)])
_HAND_LEVEL = np.array([level for _, count in _HAND_PLANES for level in range(1, count + 1)])

# (file step, rank step) by direction 0–9, as in `labels`, for own pieces; the opponent's are
# turned round.
_STEP = [(0, -1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (1, 1), (-1, 1), (1, -2), (-1, -2)]
# Sliding pieces by direction 0–7.
_SLIDERS = {0: (2, 6, 14), 3: (6, 14), 4: (6, 14), 5: (6, 14)}
_SLIDERS |= dict.fromkeys((1, 2, 6, 7), (5, 13))


def _step_tables() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """For each side: (14, 10) which piece type steps where, and (10, 81, 81) shifts from-to."""
    uses = np.zeros((14, 10), np.float32)
    for piece, directions in STEPS.items():
        uses[piece - 1, list(directions)] = 1
    shifts = np.zeros((10, 81, 81), np.float32)
    for direction, (df, dr) in enumerate(_STEP):
        for square in range(81):
            f, r = square // 9 + df, square % 9 + dr
            if 0 <= f < 9 and 0 <= r < 9:
                shifts[direction, square, 9 * f + r] = 1
    return uses, shifts


def _attack_table() -> NDArray[np.float32]:
    """(2, 14, 81, 81): whether a piece of that side and type on `from` steps to `to`."""
    uses, shifts = _step_tables()
    own = np.einsum("pd,dft->pft", uses, shifts)
    return np.stack([own, own[:, ::-1, ::-1]])


_STEPS_TO = _attack_table()


def planes_on_host(board: NDArray[np.uint8], hand: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The planes by numpy.

    Args:
        board: (n, 81) mover's view. hand: (n, 2, 7).

    Returns:
        (n, 119, 9, 9) float32 of 0 and 1.
    """
    n = len(board)
    codes = np.stack([np.arange(1, 15), np.arange(1, 15) + _OPPONENT])
    placed = (board[:, None, None, :] == codes[None, :, :, None]).astype(np.float32)
    counts = np.matmul(placed.transpose(1, 2, 0, 3), _STEPS_TO).transpose(2, 0, 1, 3)
    empty = (board == 0).reshape(n, 9, 9)
    counts = counts.reshape(n, 2, 14, 9, 9).copy()
    squares = placed.reshape(n, 2, 14, 9, 9)
    for side in (0, 1):
        turn = 1 if side == 0 else -1
        for direction, pieces in _SLIDERS.items():
            df, dr = _STEP[direction][0] * turn, _STEP[direction][1] * turn
            for piece in pieces:
                ray = _shifted(squares[:, side, piece - 1], df, dr)
                reach = ray.copy()
                for _ in range(7):
                    ray = _shifted(ray * empty, df, dr)
                    reach = reach + ray
                counts[:, side, piece - 1] += reach
    total = counts.sum(axis=2)
    levels = np.stack([total >= level for level in (1, 2, 3)], axis=2)
    sides = np.concatenate([squares, counts > 0, levels], axis=2).reshape(n, 62, 9, 9)
    held = hand[:, :, _HAND_INDEX] >= _HAND_LEVEL
    hands = np.broadcast_to(held.reshape(n, 56, 1, 1), (n, 56, 9, 9))
    king = squares[:, 0, 7]
    check = (king * (total[:, 1] > 0)).sum(axis=(1, 2)) > 0
    check = np.broadcast_to(check.reshape(n, 1, 1, 1), (n, 1, 9, 9))
    return np.concatenate([sides, hands, check], axis=1).astype(np.float32)


def _shifted(grid: NDArray, df: int, dr: int) -> NDArray:
    """(…, 9, 9) moved by df files and dr ranks, zeros coming in."""
    moved = np.zeros_like(grid)
    source = grid[..., max(0, -df) : 9 - max(0, df), max(0, -dr) : 9 - max(0, dr)]
    moved[..., max(0, df) : 9 + min(0, df), max(0, dr) : 9 + min(0, dr)] = source
    return moved


def planes_on_device(board: tf.Tensor, hand: tf.Tensor) -> tf.Tensor:
    """The planes by TensorFlow operations, for use inside a compiled step.

    Args:
        board: (n, 81) uint8, mover's view. hand: (n, 2, 7) uint8.

    Returns:
        (n, 119, 9, 9) float32 of 0 and 1.
    """
    import tensorflow as tf

    n = tf.shape(board)[0]
    codes = tf.constant(np.stack([np.arange(1, 15), np.arange(1, 15) + _OPPONENT]), tf.uint8)
    placed = tf.cast(board[:, None, None, :] == codes[None, :, :, None], tf.float32)
    counts = tf.einsum("nspf,spft->nspt", placed, tf.constant(_STEPS_TO))
    squares = tf.reshape(placed, [n, 2, 14, 9, 9])
    empty = tf.cast(tf.reshape(board == 0, [n, 1, 9, 9]), tf.float32)
    # Sliders of both sides that go the same way on the board travel together: for the
    # opponent, whose directions are turned round, that is the opposite direction.
    rays: dict[tuple[int, int], list] = {(side, piece): [] for side in (0, 1) for piece in
                                         (2, 5, 6, 13, 14)}  # fmt: skip
    for direction, (df, dr) in enumerate(_STEP[:8]):
        back = _STEP[:8].index((-df, -dr))
        riders = [(0, piece) for piece in _SLIDERS[direction]]
        riders += [(1, piece) for piece in _SLIDERS[back]]
        ray = tf.stack([squares[:, side, piece - 1] for side, piece in riders], axis=1)
        reach = ray = _shift(ray, df, dr)
        for _ in range(7):
            ray = _shift(ray * empty, df, dr)
            reach += ray
        for index, rider in enumerate(riders):
            rays[rider].append(reach[:, index])
    zero = tf.zeros([n, 9, 9])
    slides = [
        tf.add_n(rays[side, piece]) if (side, piece) in rays else zero
        for side in (0, 1)
        for piece in range(1, 15)
    ]
    counts = tf.reshape(counts, [n, 2, 14, 9, 9])
    counts += tf.reshape(tf.stack(slides, axis=1), [n, 2, 14, 9, 9])
    total = tf.reduce_sum(counts, axis=2, keepdims=True)
    levels = tf.concat([tf.cast(total >= level, tf.float32) for level in (1.0, 2.0, 3.0)], 2)
    attacked = tf.cast(counts > 0, tf.float32)
    sides = tf.reshape(tf.concat([squares, attacked, levels], axis=2), [n, 62, 9, 9])
    held = tf.gather(tf.cast(hand, tf.int32), tf.constant(_HAND_INDEX), axis=2)
    hands = tf.cast(held >= tf.constant(_HAND_LEVEL, tf.int32), tf.float32)
    hands = tf.broadcast_to(tf.reshape(hands, [n, 56, 1, 1]), [n, 56, 9, 9])
    in_check = tf.reduce_max(squares[:, 0, 7] * levels[:, 1, 0], axis=[1, 2])
    check = tf.broadcast_to(tf.reshape(in_check, [n, 1, 1, 1]), [n, 1, 9, 9])
    return tf.concat([sides, hands, check], axis=1)


def _shift(grid: tf.Tensor, df: int, dr: int) -> tf.Tensor:
    """(n, c, 9, 9) moved by df files and dr ranks, zeros coming in."""
    import tensorflow as tf

    part = grid[:, :, max(0, -df) : 9 - max(0, df), max(0, -dr) : 9 - max(0, dr)]
    return tf.pad(part, [[0, 0], [0, 0], [max(0, df), max(0, -df)], [max(0, dr), max(0, -dr)]])


ENCODING = Encoding(
    inputs={"input1": 62, "input2": 57},
    on_host=lambda positions: planes_on_host(positions["board"], positions["hand"]),
    on_device=lambda batch: planes_on_device(batch["board"], batch["hand"]),
)
