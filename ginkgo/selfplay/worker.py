"""A process that plays: its games, its evaluator, and a pipe to the process that stores.

In: a configuration and the numbers of games. Out: over the pipe, games as they end, then what the
evaluator did.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection

from ginkgo.errors import GinkgoError
from ginkgo.records.kifu.selfplay import PlayedGame
from ginkgo.selfplay.config import SelfplayConfig
from ginkgo.selfplay.counting import Counting, Used

#: Seconds between two accounts of what the evaluator did.
_EVERY_S = 2.0


def play_here(
    config: SelfplayConfig, run: int, numbers: Sequence[int], threshold: float
) -> Iterator[PlayedGame | Used]:
    """Play games in this process.

    Args:
        run: its number. numbers: of the games.
        threshold: win rate below which a side resigns.

    Yields:
        games as they end, and now and then what the evaluator has done since the last time.
    """
    from ginkgo.search.evaluators import make_evaluator
    from ginkgo.search.many import play_many
    from ginkgo.search.queue import Queue
    from ginkgo.selfplay.game import load_openings, play_game

    openings = load_openings(config.openings)
    evaluator = Counting(make_evaluator(config.model, config.evaluator, threads=1))
    queue = Queue(evaluator, config.cached)
    seed = (config.seed, run)
    games = (play_game(number, config, openings, threshold, seed) for number in numbers)
    told = time.monotonic()
    for game in play_many(games, [[queue]], config.concurrent):
        yield game
        if time.monotonic() - told > _EVERY_S:
            yield evaluator.take()
            told = time.monotonic()
    yield evaluator.take()


def end_with_parent() -> None:
    """End this process soon after the one that started it, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="ginkgo-parent", daemon=True).start()


def _main(
    pipe: Connection, config: SelfplayConfig, run: int, numbers: list[int], threshold: float
) -> None:
    # Ctrl-C reaches every process of the terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    try:
        for found in play_here(config, run, numbers, threshold):
            pipe.send(found)
        pipe.send(None)
    except GinkgoError as error:
        pipe.send(error)
    except (BrokenPipeError, OSError):
        pass  # the parent has gone: nothing is left to do


class Players:
    """Processes that play the games of `numbers`, dealt out in turn.

    Close it (or use it in a `with` block) to end them.
    """

    def __init__(
        self,
        config: SelfplayConfig,
        run: int,
        numbers: Sequence[int],
        threshold: float,
        processes: int,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: dict[Connection, multiprocessing.process.BaseProcess] = {}
        for first in range(min(processes, len(numbers))):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_main,
                args=(theirs, config, run, list(numbers[first::processes]), threshold),
                daemon=True,
                name="ginkgo-player",
            )
            process.start()
            theirs.close()
            self._pipes[ours] = process

    def __enter__(self) -> Players:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process numbers."""
        return [process.pid or 0 for process in self._pipes.values()]

    def __iter__(self) -> Iterator[PlayedGame | Used]:
        """What the processes say, until all have played all.

        Raises:
            GinkgoError: a process could not play, or has died.
        """
        while self._pipes:
            ready = connection.wait(list(self._pipes))
            for pipe in [pipe for pipe in self._pipes if pipe in ready]:
                process = self._pipes[pipe]
                try:
                    found = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    raise GinkgoError(
                        f"a process that plays has died (status {process.exitcode}); what is "
                        "stored is safe, the same command goes on"
                    ) from None
                if isinstance(found, GinkgoError):
                    raise found
                if found is None:
                    self._end(pipe)
                else:
                    yield found

    def _end(self, pipe: Connection) -> None:
        process = self._pipes.pop(pipe)
        pipe.close()
        process.join(2.0)
        if process.is_alive():
            process.kill()
            process.join()

    def close(self) -> None:
        """End all processes."""
        for process in self._pipes.values():
            process.kill()
        for pipe in list(self._pipes):
            self._end(pipe)
