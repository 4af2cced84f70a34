"""Boards with what a net thinks of them, for TensorBoard.

In: positions, logits of moves, win rates. Out: (height, width, 3) uint8 images in the manner of
`plots`: the side to move is below, the three best legal moves are arrows, thicker and darker the
more probable, the move that was played is ringed.
"""

from __future__ import annotations

from dataclasses import dataclass

import cshogi
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from ginkgo.features.labels import labels_from_moves, origin_of, rotate_moves
from ginkgo.features.position import (
    DRAW,
    NO_RESULT,
    OPPONENT,
    PIECE_LETTERS,
    PIECES,
    WIN,
    sfen_from_position,
)
from ginkgo.training.plots import DPI, Image, drawn

#: Moves shown as arrows.
BEST = 3
_WOOD, _LINE, _INK, _PROMOTED = "#F5DEB3", "#6B4F2A", "#101010", "#B00020"
_ARROWS = ("#0072B2", "#009E73", "#E69F00")


@dataclass(frozen=True)
class Opinion:
    """What a net says of one position; None where it lacks the head."""

    win: float | None
    moves: list[tuple[int, float]] | None
    """The best legal labels with their probabilities among the legal ones, best first."""


def opinion(position: np.void, win: float | None, logits: NDArray | None) -> Opinion:
    """A net's answers in terms of legal moves.

    Args:
        position: of `POSITION`. win: win rate of the mover. logits: (2187,).
    """
    if logits is None:
        return Opinion(win, None)
    board = cshogi.Board(sfen_from_position(position))
    moves = np.array(list(board.legal_moves), np.int64)
    color = np.full(len(moves), position["color"], np.uint8)
    labels = labels_from_moves(rotate_moves(moves, color))
    chosen = logits[labels].astype(np.float64)
    shares = np.exp(chosen - chosen.max(initial=-np.inf))
    shares /= max(shares.sum(), 1e-30)
    order = np.argsort(-shares, kind="stable")[:BEST]
    return Opinion(win, [(int(labels[row]), float(shares[row])) for row in order])


def boards_image(positions: NDArray, opinions: list[Opinion], title: str) -> Image:
    """Up to six boards in a picture.

    Args:
        positions: (n,) `POSITION`. opinions: n of them. title: above all.

    Returns:
        (900, 1350, 3) uint8, or half as high for three boards or fewer.
    """
    rows = 1 if len(positions) <= 3 else 2
    height = 4.5 * rows
    figure = Figure((13.5, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=16, y=1 - 0.2 / height, va="center")
    # Margins in figures: to find them, matplotlib would measure every piece, several times over.
    margins = {"left": 0.01, "right": 0.99, "bottom": 0.1 / height, "top": 1 - 0.75 / height}
    places = figure.subplots(
        rows, 3, squeeze=False, gridspec_kw={**margins, "wspace": 0.03, "hspace": 0.12}
    ).reshape(-1)
    for axes in places:
        axes.set_axis_off()
    for axes, position, said in zip(places, positions, opinions, strict=False):
        _draw(axes, position, said)
    return drawn(figure)


def _center(square: int) -> tuple[float, float]:
    """Where a square is drawn: file 1 at the right, rank 1 at the top."""
    return 8.5 - square // 9, 8.5 - square % 9


def _draw(axes: Axes, position: np.void, said: Opinion) -> None:
    axes.set(xlim=(-1.6, 10.6), ylim=(-0.2, 9.6), aspect="equal")
    axes.add_patch(Rectangle((0, 0), 9, 9, facecolor=_WOOD, edgecolor=_LINE, linewidth=2))
    axes.hlines(range(1, 9), 0, 9, color=_LINE, linewidth=0.7)
    axes.vlines(range(1, 9), 0, 9, color=_LINE, linewidth=0.7)
    for square, code in enumerate(position["board"].tolist()):
        if code:
            _piece(axes, *_center(square), code % OPPONENT, code > OPPONENT)
    for side, place, step in ((0, (9.7, 0.4), 0.75), (1, (-0.7, 8.6), -0.75)):
        x, y = place
        for index in (5, 4, 6, 3, 2, 1, 0):  # R B G S N L P
            count = int(position["hand"][side, index])
            if count:
                text = PIECES[index] + (str(count) if count > 1 else "")
                axes.text(x, y, text, fontsize=11, ha="center", va="center", color=_INK)
                y += step
    _arrows(axes, position, said)
    axes.set_title(_caption(position, said), fontsize=11)


def _piece(axes: Axes, x: float, y: float, kind: int, opponents: bool) -> None:
    color = _PROMOTED if kind > 8 else _INK
    weight = "normal" if opponents else "bold"
    axes.text(
        x, y, PIECE_LETTERS[kind - 1], fontsize=11, ha="center", va="center", color=color,
        weight=weight, rotation=180 if opponents else 0,
    )  # fmt: skip


def _arrows(axes: Axes, position: np.void, said: Opinion) -> None:
    for (label, share), color in reversed(list(zip(said.moves or [], _ARROWS, strict=False))):
        to = label % 81
        origin = origin_of(label, position["board"])
        width = 1 + 5 * share
        if origin is None:
            x, y = _center(to)
            axes.add_patch(
                Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, fill=False, edgecolor=color,
                          linewidth=width)
            )  # fmt: skip
            letter = PIECES[(label // 81 - 20)]
            axes.text(x - 0.28, y + 0.25, letter, fontsize=8, ha="center", color=color)
        else:
            arrow = FancyArrowPatch(
                _center(origin), _center(to), arrowstyle="-|>", mutation_scale=8 + 10 * share,
                linewidth=width, color=color, alpha=0.8, shrinkA=3, shrinkB=3,
            )  # fmt: skip
            axes.add_patch(arrow)
    played = Circle(_center(int(position["move"]) % 81), 0.47, fill=False, edgecolor="#D55E00")
    axes.add_patch(played)


def _caption(position: np.void, said: Opinion) -> str:
    result = int(position["result"])
    outcome = {WIN: "won", DRAW: "drawn", NO_RESULT: "no result"}.get(result, "lost")
    mover = "White" if position["color"] else "Black"
    parts = [f"ply {position['ply']}, {mover}"]
    if said.win is not None:
        parts.append(f"wins {said.win:.0%} ({outcome})")
    if said.moves:
        parts.append("moves " + " ".join(f"{share:.0%}" for _, share in said.moves))
    return ", ".join(parts)
