"""Pictures of an evaluation for TensorBoard.

In: figures of `metrics`. Out: (height, width, 3) uint8 images, on an opaque white ground so that
they can be read on TensorBoard's dark page too. `tf.summary.image(name, image[None])` takes them;
`png` makes a file of one.

Drawn with matplotlib's Figure objects, never with pyplot, whose global state would pile up figures
in a training process and is not safe in threads.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ginkgo.training.metrics import Calibration, ply_buckets

WIDTH, HEIGHT, DPI = 900, 600, 100

Image = NDArray[np.uint8]

# Keeps figures legible where a line crosses them.
_HALO = withStroke(linewidth=4, foreground="white")

# Okabe and Ito's palette, told apart by colour-blind readers too; shapes and dashes say it again.
_COLORS = ("#0072B2", "#D55E00", "#555555", "#009E73", "#CC79A7", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", ":", "-.", "--", ":")
_TEXT, _GRID, _BARS = "#202020", "#D8D8D8", "#9AA5B1"


def calibration_plot(
    curves: Mapping[str, Calibration], title: str = "Calibration", least: float = 20
) -> Image:
    """Predicted win rate against the share of games won, and how often each was predicted.

    Args:
        curves: by name, the one that matters first; the legend gives each its calibration error.
        title: above the plot.
        least: points of fewer positions than this are noise and not drawn. The bars show all.

    Returns:
        (600, 900, 3) uint8.
    """
    figure, above, below = _panels(title)
    above.plot([0, 1], [0, 1], color=_BARS, linewidth=1.5, label="perfect")
    for index, (name, curve) in enumerate(curves.items()):
        shown = curve.counts >= least
        error = curve.error
        above.plot(
            curve.predicted[shown],
            curve.won[shown],
            label=f"{name}: error {error:.3f}" if error == error else name,
            **_style(index),
        )
        if curve.counts.sum() > 0:
            edges = np.linspace(0, 1, len(curve.counts) + 1)
            share = curve.counts / curve.counts.sum()
            look: dict[str, Any] = {"fill": True, "alpha": 0.35} if index == 0 else {"linewidth": 2}
            below.stairs(share, edges, color=_color(index), **look)
    above.set(ylabel="share won", xlim=(0, 1), ylim=(0, 1))
    below.set(xlabel="predicted probability that the mover wins", ylabel="positions")
    below.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    _legend(above, "upper left")
    return drawn(figure)


def by_ply_plot(
    curves: Mapping[str, Mapping[str, Mapping[str, float]]],
    title: str = "Accuracy by ply",
    coin: bool = True,
) -> Image:
    """Accuracy by plies since the game's start, and how many positions each bucket holds.

    Args:
        curves: by name, results of `metrics.by_ply`, the one that matters first; the counts are
            taken from it.
        title: above the plot.
        coin: draw the line at one half.

    Returns:
        (600, 900, 3) uint8.
    """
    figure, above, below = _panels(title)
    buckets = ply_buckets()
    place = np.arange(len(buckets))
    heights = []
    if coin:
        above.axhline(0.5, color=_BARS, linewidth=1.5, label="coin")
        heights.append(0.5)
    for index, (name, figures) in enumerate(curves.items()):
        accuracy = np.array([_figure(figures, bucket, "accuracy") for bucket in buckets])
        above.plot(place, accuracy, label=name, **_style(index))
        heights += accuracy[~np.isnan(accuracy)].tolist()
        if index == 0:
            _write_values(above, place, accuracy)
            counts = np.array([_figure(figures, bucket, "positions") for bucket in buckets])
            counts = np.nan_to_num(counts)
            bars = below.bar(place, counts, width=0.6, color=_BARS)
            labels = [f"{count:,.0f}" for count in counts]
            below.bar_label(bars, labels, fontsize=11, color=_TEXT, padding=2)
            below.margins(y=0.3)
    heights = heights or [0.0, 1.0]
    margin = 0.12 * max(0.1, max(heights) - min(heights))
    above.set(ylabel="accuracy", ylim=(max(0, min(heights) - margin), max(heights) + 2 * margin))
    below.set(xlabel="ply", ylabel="positions", xlim=(-0.5, len(buckets) - 0.5))
    below.set_xticks(place, buckets)
    below.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    _legend(above, "best")
    return drawn(figure)


def coverage_plot(
    curves: Mapping[str, Sequence[tuple[int, float, float]]], title: str = "Coverage"
) -> Image:
    """The share of each source's games that has been seen, and how often it was gone through.

    Args:
        curves: by source (step, coverage in [0, 1], epochs), step after step.

    Returns:
        (600, 900, 3) uint8.
    """
    figure, above, below = _panels(title)
    for index, (name, points) in enumerate(curves.items()):
        steps, coverage, epochs = zip((0, 0.0, 0.0), *points, strict=True)
        look = {**_style(index), "linewidth": 1.8, "markersize": 5}
        look["markevery"] = max(1, len(steps) // 12)
        above.plot(steps, coverage, label=f"{coverage[-1]:.1%} {name}", **look)
        below.plot(steps, epochs, **look)
    above.set(ylabel="games seen", ylim=(0, 1.05))
    above.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    below.set(xlabel="step", ylabel="epochs")
    below.set_ylim(bottom=0)
    _legend(above, "best")
    return drawn(figure)


def png(image: Image) -> bytes:
    """The image as the bytes of a PNG file."""
    buffer = io.BytesIO()
    imsave(buffer, image, format="png")
    return buffer.getvalue()


# --- helpers ----------------------------------------------------------------------------------


def _panels(title: str) -> tuple[Figure, Axes, Axes]:
    """A figure with a tall panel and a flat one under it that share their x axis."""
    figure = Figure((WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    # Margins in figures: to find them matplotlib would draw everything several times.
    margins = {"left": 0.115, "right": 0.98, "bottom": 0.11, "top": 0.93, "hspace": 0.07}
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1], gridspec_kw=margins)
    above.set_title(title, fontsize=16, color=_TEXT)
    for axes in (above, below):
        axes.set_facecolor("white")
        axes.grid(color=_GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=13, colors=_TEXT)
        axes.xaxis.label.set(fontsize=14, color=_TEXT)
        axes.yaxis.label.set(fontsize=14, color=_TEXT)
    below.yaxis.set_major_locator(MaxNLocator(3))
    return figure, above, below


def _style(index: int) -> dict[str, Any]:
    return {
        "color": _color(index),
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _DASHES[index % len(_DASHES)],
        "linewidth": 2.4 if index == 0 else 1.8,
        "markersize": 7,
    }


def _color(index: int) -> str:
    return _COLORS[index % len(_COLORS)]


def _figure(figures: Mapping[str, Mapping[str, float]], bucket: str, name: str) -> float:
    return float(figures[bucket][name]) if bucket in figures else float("nan")


def _write_values(axes: Axes, place: NDArray, values: NDArray) -> None:
    """The first curve's values above its points."""
    look: dict[str, Any] = {"ha": "center", "fontsize": 12, "color": _color(0), "weight": "bold"}
    for spot, value in zip(place, values, strict=True):
        if value == value:
            axes.annotate(
                f"{value:.3f}",
                (spot, value),
                (0, 10),
                textcoords="offset points",
                path_effects=[_HALO],
                **look,
            )


def _legend(axes: Axes, place: Literal["upper left", "best"]) -> None:
    legend = axes.legend(loc=place, fontsize=13, framealpha=0.9)
    for text in legend.get_texts():
        text.set_color(_TEXT)
        text.set_parse_math(False)  # a `$` in a name is one


def drawn(figure: Figure) -> Image:
    """A finished figure as an image."""
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    return np.array(canvas.buffer_rgba(), np.uint8)[:, :, :3]
