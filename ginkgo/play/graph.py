"""Black's win rate over a game, as a picture.

In: what was found of its positions. Out: the bytes of a PNG. The labels are English, so that no
Japanese font is needed; players' names are left out where no font has their signs.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from ginkgo.play.analysis import Judged, Loss

_WIDTH, _HEIGHT, _DPI = 1000, 420, 100
#: Fonts that are asked whether they have a name's signs.
_FONTS = (
    *("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans JP", "IPAexGothic", "IPAGothic"),
    *("Yu Gothic", "Meiryo", "MS Gothic", "Hiragino Sans"),
)
#: Okabe and Ito's palette, told apart by colour-blind readers too; shapes say it again.
_LINE, _MISTAKE, _BLUNDER = "#0072B2", "#E69F00", "#D55E00"
_TEXT, _GRID = "#202020", "#D8D8D8"


def win_rate_graph(
    title: str, first_ply: int, judged: Sequence[Judged], lost: Sequence[Loss]
) -> bytes:
    """A PNG of 1,000 × 420 points.

    Args:
        title: above the graph, left out where no font can show it.
        first_ply: moves that had been made before the start position.
        judged: the positions. lost: what moves cost; mistakes and blunders are marked.
    """
    figure = Figure((_WIDTH / _DPI, _HEIGHT / _DPI), dpi=_DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    places = [first_ply + one.ply for one in judged]
    rates = [100 * one.rate for one in judged]
    axes.axhline(50, color="#999999", linewidth=1)
    axes.fill_between(places, rates, 50, color=_LINE, alpha=0.15, linewidth=0)
    axes.plot(places, rates, color=_LINE, linewidth=2)
    # Some marks lie on the edge of the axes.
    for mark, color, shape in (("mistake", _MISTAKE, "o"), ("blunder", _BLUNDER, "X")):
        marked = [loss.ply for loss in lost if loss.mark == mark]
        if marked:
            axes.plot(
                [first_ply + ply for ply in marked],
                [rates[ply] for ply in marked],
                shape,
                color=color,
                markersize=9,
                markeredgecolor="white",
                clip_on=False,
                label=f"{mark}s ({len(marked)})",
            )
    axes.set(ylim=(0, 100), xlim=(first_ply, max(places[-1], first_ply + 1)))
    axes.set_xlabel("ply", fontsize=12, color=_TEXT)
    axes.set_ylabel("Black's win rate, %", fontsize=12, color=_TEXT)
    axes.set_yticks(range(0, 101, 25))
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=11, colors=_TEXT)
    font = _font_for(title)
    if font is not None:
        axes.set_title(title, fontproperties=font, color=_TEXT)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=11, framealpha=0.9)
    figure.tight_layout()
    buffer = io.BytesIO()
    canvas.print_png(buffer)
    return buffer.getvalue()


def _font_for(text: str) -> FontProperties | None:
    """A font with all signs of a text; None where none of those known is here."""
    if not text.isprintable():
        return None
    for family in _FONTS:
        font = FontProperties(family=family, size=14)
        try:
            face = get_font(findfont(font, fallback_to_default=False))
        except ValueError:
            continue
        if all(face.get_char_index(ord(sign)) for sign in text if sign != " "):
            return font
    return None
