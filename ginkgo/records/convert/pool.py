"""The processes of a conversion.

In: calls of a function on chunks. Out: their results, in the order of the calls.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from ginkgo.errors import GinkgoError

_stop: Any = None


class _Stopped(Exception):
    """The conversion was broken off; raised in worker processes only."""


def check_stop() -> None:
    """Raise `_Stopped` if the conversion was broken off."""
    if _stop is not None and _stop.is_set():
        raise _Stopped


def _start_worker(stop: Any) -> None:
    global _stop
    _stop = stop
    # Ctrl-C reaches every process of the terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


Result = TypeVar("Result")


class Pool:
    """Maps over chunks, in order, with few of them in flight. One worker: in this process."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        if self._workers > 1:
            context = multiprocessing.get_context("spawn")
            self._event = context.Event()
            self._executor = ProcessPoolExecutor(
                self._workers, context, initializer=_start_worker, initargs=(self._event,)
            )
        return self

    def __exit__(self, kind: object, *_rest: object) -> None:
        if self._executor is not None:
            # A second Ctrl-C waits until the processes have gone; that takes a moment only.
            with _interrupts_held():
                if kind is not None:
                    self._event.set()
                self._executor.shutdown(wait=True, cancel_futures=True)

    def map(
        self, function: Callable[..., Result], calls: Iterable[tuple[str, tuple]]
    ) -> Iterator[Result]:
        """Results of `function(*arguments)` by call (what it is called, its arguments), in order.

        Raises:
            GinkgoError: as the function does, or because a process died.
        """
        if self._executor is None:
            for _, arguments in calls:
                yield function(*arguments)
            return
        pending: deque[tuple[str, Future[Result]]] = deque()
        try:
            for title, arguments in calls:
                with _interrupts_held():
                    pending.append((title, self._executor.submit(function, *arguments)))
                if len(pending) > 2 * self._workers:
                    yield pending[0][1].result()
                    pending.popleft()
            while pending:
                yield pending[0][1].result()
                pending.popleft()
        except BrokenProcessPool:
            title = pending[0][0] if pending else "?"
            raise GinkgoError(
                f"{title}: a process died at or soon after these games (out of memory?)"
            ) from None


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started in here are deaf to Ctrl-C from their first moment on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
