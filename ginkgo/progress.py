"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere.

Both go to standard error, so that standard output holds nothing but the result.
"""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """Counts things done, phase after phase.

    Args:
        unit: what is counted.

    >>> with Progress("games") as progress:
    ...     progress.phase("reading", total=2)
    ...     progress.advance(2)
    """

    _INTERVAL_S = 10.0

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._bar: Any = None
        self._task: Any = None
        self._title = ""
        self._total: int | None = None
        self.done = 0

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            counted = TextColumn("{task.completed:,} " + self._unit)
            title = TextColumn("{task.description}")
            self._bar = Bar(
                title, BarColumn(), counted, TimeElapsedColumn(), console=Console(stderr=True)
            )
            self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def phase(self, title: str, total: int | None = None) -> None:
        """Begin counting anew."""
        self._title, self._total, self.done = title, total, 0
        self._said = time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task(title, total=total)

    def advance(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        if self._bar is not None:
            self._bar.advance(self._task, count)
        elif time.monotonic() - self._said >= self._INTERVAL_S:
            self._said = time.monotonic()
            of_all = f" of {self._total:,}" if self._total else ""
            print(f"{self._title}: {self.done:,}{of_all} {self._unit}", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line of text beside the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)
