"""Answers that are kept for a while.

In: a function that makes one. Out: what it returned, now or a little earlier.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Remembered:
    """Figures that cost too much to be counted for each stranger who asks.

    They are made by one thread at a time, and again when they are too old.

    Args:
        seconds: after which they are. size: of how many are kept.
    """

    def __init__(self, seconds: float, size: int = 100) -> None:
        self._seconds, self._size = seconds, size
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returned, now or a while ago."""
        with self._lock:
            then, value = self._kept.get(key, (-float("inf"), None))
            if time.monotonic() - then >= self._seconds:
                value = make()
                self._kept[key] = time.monotonic(), value
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
            return value
