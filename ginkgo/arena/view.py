"""What a person sees of a match: a live table on a terminal, plain lines elsewhere.

In: the `Tally`, again and again. Out: the table; the text of the result.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from ginkgo.arena.tally import PLY, Tally

if TYPE_CHECKING:
    from rich.table import Table

#: Seconds between two redraws, and between two plain lines.
_REDRAW, _LINE = 0.5, 30.0


def rows(result: dict[str, Any], names: tuple[str, str], limit: int) -> list[tuple[str, str]]:
    """The result as pairs of a title and a text.

    Args:
        result: of `Tally.result`. limit: games that were to be played.
    """
    games = result["games"]
    points = result["wins"] + result["draws"] / 2
    pairs = " ".join(map(str, result["pentanomial"]))
    lines = [
        ("A", names[0]),
        ("B", names[1]),
        ("games", f"{games:,} of {limit:,}"),
        ("A won, drew, lost", f"{result['wins']}, {result['draws']}, {result['losses']}"),
        ("points of A", f"{points:g} ({points / games:.1%})" if games else "0"),
        ("pairs 0 ½ 1 1½ 2", pairs),
        ("Elo of A over B", f"{_elo(result['elo'], points)}  [{_elo(result['elo_low'], 0)}, "
                            f"{_elo(result['elo_high'], 1)}]"),
        ("A is stronger", f"{result['los']:.1%}"),
    ]  # fmt: skip
    if result["llr_bounds"]:
        low, high = result["llr_bounds"]
        text = f"{result['llr']:.2f} ({low:.2f}, {high:.2f})  {result['verdict']}"
        lines.append(("log-likelihood ratio", text))
    if games:
        endings = ", ".join(f"{end} {count}" for end, count in result["endings"].items())
        lines += [
            ("Black's points", f"{result['black_score']:.1%}"),
            ("endings", endings),
            ("plies", f"{result['mean_plies']:.0f}"),
            ("distinct games", f"{result['distinct_games']:,}"),
            (f"positions at ply {PLY}", f"{result['distinct_positions']:,} in "
                                        f"{result[f'games_to_ply_{PLY}']:,} games"),
        ]  # fmt: skip
    for name, engine in zip(names, "ab", strict=True):
        if result["faults"][engine]:
            faults = ", ".join(f"{end} {n}" for end, n in result["faults"][engine].items())
            lines.append((f"faults of {engine.upper()}", f"{faults} ({name})"))
    return lines


def _elo(value: float | None, points: float) -> str:
    if value is None:
        return "+∞" if points else "−∞"
    return f"{value:+.1f}"


class View:
    """Shows a match while it runs, on standard error."""

    def __init__(self, tally: Tally, names: tuple[str, str], limit: int) -> None:
        self._tally, self._names, self._limit = tally, names, limit
        self._live: Any = None
        self._began = self._shown = time.monotonic()
        self._before = tally.played

    def __enter__(self) -> View:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(self._table(), console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """A game has ended."""
        now = time.monotonic()
        if now - self._shown < (_LINE if self._live is None else _REDRAW):
            return
        self._shown = now
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            return
        shown = dict(rows(self._tally.result(), self._names, self._limit))
        parts = [f"{shown['games']} games", f"{shown['A won, drew, lost']}", self._speed()]
        parts.insert(2, f"Elo {shown['Elo of A over B']}")
        if "log-likelihood ratio" in shown:
            parts.append(f"ratio {shown['log-likelihood ratio']}")
        print("; ".join(parts), file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line beside the table."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _speed(self) -> str:
        minutes = max(1e-9, time.monotonic() - self._began) / 60
        return f"{(self._tally.played - self._before) / minutes:.1f} games a minute"

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="dim")
        table.add_column(overflow="fold")
        for title, text in rows(self._tally.result(), self._names, self._limit):
            table.add_row(Text(title), Text(text))
        table.add_row(Text("speed"), Text(self._speed()))
        return table
