"""The picture of a rating list: Elo over training samples.

In: ratings, how many samples each model was trained on. Out: a PNG file. Players without samples
(other programs) are level lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ginkgo.arena.rating import Rating
from ginkgo.records.files import atomic_write

# Okabe and Ito's palette, as in the pictures of the training.
_MODEL, _OTHERS = "#0072B2", ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#555555")
_WIDTH, _HEIGHT, _DPI = 9, 6, 100


def draw_ratings(path: Path, ratings: Sequence[Rating], samples: Mapping[str, int | None]) -> None:
    """Write the picture.

    Args:
        samples: by name; None: not a model, or it does not say.

    Raises:
        GinkgoError: the file cannot be written.
    """
    figure = Figure((_WIDTH, _HEIGHT), _DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    models = sorted(
        (one for one in ratings if samples.get(one.name)), key=lambda one: samples[one.name] or 0
    )
    at = [float(samples[one.name] or 0) for one in models]
    errors = [[one.elo - one.low for one in models], [one.high - one.elo for one in models]]
    if models:
        axes.errorbar(
            at, [one.elo for one in models], errors,
            color=_MODEL, fmt="o", capsize=4, label="models, 95 %",
        )  # fmt: skip
        for one, x in zip(models, at, strict=True):
            axes.annotate(
                _short(one.name), (x, one.elo), xytext=(6, 6), textcoords="offset points",
                fontsize="small", parse_math=False,
            )  # fmt: skip
    others = [one for one in ratings if not samples.get(one.name)]
    for place, one in enumerate(others):
        color = _OTHERS[place % len(_OTHERS)]
        axes.axhline(one.elo, color=color, linestyle="--", label=_short(one.name))
        if one.high > one.low:
            axes.axhspan(one.low, one.high, color=color, alpha=0.1, linewidth=0)
    if not models:
        axes.set_xticks([])
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.set_xlabel("training samples")
    axes.set_ylabel("Elo")
    axes.grid(color="#D8D8D8")
    for text in axes.legend(loc="best", fontsize="small").get_texts():
        text.set_parse_math(False)  # a `$` in a name is one
    with atomic_write(path) as stream:
        figure.savefig(stream, format="png")


def _short(name: str) -> str:
    """The last part of a path, with its options."""
    words = name.removeprefix("usi:").split()
    return " ".join([words[0].rsplit("/", 1)[-1], *words[1:]])[:48]
