"""The charts of the server's page, drawn by matplotlib.

In: figures. Out: SVG, as wide as the page lets it be. Figure objects, never pyplot, whose global
state is not safe in threads; the settings are global all the same, hence the lock.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

#: Days that are drawn, and inches: of a phone, where letters must still be read.
_DAYS, _WIDTH, _HEIGHT = 30, 4.6, 2.7
#: Of Okabe and Ito's palette, told apart by colour-blind readers too.
_BLUE, _ORANGE, _TEXT, _GRID = "#0072B2", "#D55E00", "#202020", "#D8D8D8"
_lock = threading.Lock()


def per_day(days: Sequence[dict[str, Any]], what: str, today: date | None = None) -> bytes:
    """Bars of the last thirty days.

    Args:
        days: of `figures.statistics`. what: `games` or `positions`. today: the last day drawn.
    """
    last = today or datetime.now(UTC).date()
    dates = [last - timedelta(days=back) for back in range(_DAYS - 1, -1, -1)]
    counts = {one["day"]: one[what] for one in days}
    heights = [counts.get(day.isoformat(), 0) for day in dates]

    def draw(axes: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        axes.bar(range(_DAYS), heights, color=_BLUE if what == "games" else _ORANGE)
        shown = range(_DAYS - 1, -1, -7)
        axes.set_xticks(list(shown), [f"{dates[at]:%b} {dates[at].day}" for at in shown])
        axes.set_ylim(0, 1.1 * max(1, *heights))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter("{x:,.0f}")

    return _svg(f"{what} per day", draw)


def elo(ratings: Sequence[dict[str, Any]], models: Sequence[dict[str, Any]]) -> bytes:
    """Elo of the models over the time of their release, with the interval of 95 %.

    Args:
        ratings: of `matches.ratings`. models: of `figures.models`.
    """
    when = {one["name"]: one["created"] for one in models}
    rated = sorted((when[one["name"]], one) for one in ratings if one["name"] in when)
    times = [datetime.fromtimestamp(created, UTC) for created, _ in rated]
    found = [one for _, one in rated]

    def draw(axes: Any) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        if not found:
            axes.text(0.5, 0.5, "no rating games yet", ha="center", transform=axes.transAxes)
            axes.set_xticks([])
            axes.set_yticks([])
            return
        levels = [one["elo"] for one in found]
        below = [one["elo"] - one["low"] for one in found]
        above = [one["high"] - one["elo"] for one in found]
        axes.errorbar(
            times, levels, [below, above], marker="o", markersize=4, capsize=2, color=_BLUE
        )
        locator = AutoDateLocator(minticks=2, maxticks=5)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))

    return _svg("Elo above the first model", draw)


def _svg(title: str, draw: Any) -> bytes:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with _lock, matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ginkgo"}):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained", facecolor="none")
        axes = figure.subplots()
        axes.set_facecolor("none")
        draw(axes)
        axes.set_title(title, fontsize=11, color=_TEXT)
        axes.grid(axis="y", color=_GRID)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9, colors=_TEXT)
        axes.spines[["top", "right"]].set_visible(False)
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None, "Title": title})
    return stream.getvalue().encode()
