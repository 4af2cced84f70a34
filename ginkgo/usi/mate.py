"""The search for a forced mate, in a process of its own.

In: positions as SFEN. Out: the mating line, or that there is none, or that it was not found.

cshogi's depth-first proof-number search (Nagai, "Df-pn algorithm for searching AND/OR trees and
its applications", 2002) cannot be interrupted and holds the interpreter's lock: so it runs in a
child process (`serve`) that can be ended at any time. A line of its input is `NODES MAX_PLY SFEN`,
a line of its output `mate MOVES…`, `nomate`, `unknown` or `unable`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from ginkgo.usi.tsume import one_king, search_problem


@dataclass(frozen=True)
class MateResult:
    """What a mate search found."""

    moves: tuple[str, ...] = ()
    """The mating line in USI; empty where none was found."""
    refuted: bool = False
    """Whether it is certain that there is none."""
    unable: bool = False
    """Whether the position is of a kind that it cannot search."""


def search_mate(sfen: str, nodes: int, max_ply: int = 0) -> MateResult:
    """Search in this process.

    Every line that is returned has been replayed: each move of the attacker gives check, the last
    position is mate.

    Args:
        sfen: of a possible position, or of one without the attacker's king.
        nodes: positions to look at, at most.
        max_ply: moves after which the game is drawn; 0: never.
    """
    if one_king(sfen.split()[0]):
        return search_problem(sfen, nodes, max_ply)
    found = run_dfpn(sfen, nodes, max_ply)
    return found if not found.moves or is_mating_line(sfen, found.moves) else MateResult()


def run_dfpn(sfen: str, nodes: int, max_ply: int) -> MateResult:
    """What the library says, whose lines are not replayed yet; arguments of `search_mate`."""
    import cshogi

    board = cshogi.Board(sfen)
    # The library counts plies of the game from the position's own number.
    last = max_ply if max_ply else board.move_number + 2**20
    search = cshogi.DfPn(1600, nodes, last)
    if not search.search(board):
        return MateResult(refuted=search.searched_node < nodes)
    return MateResult(tuple(cshogi.move_to_usi(move) for move in search.get_pv(board)))


def is_mating_line(sfen: str, line: list[str] | tuple[str, ...]) -> bool:
    """Whether moves are legal, the attacker's all give check, and the last one mates."""
    from ginkgo.errors import GinkgoError
    from ginkgo.search.rules import Line

    try:
        played = Line(sfen)
        for place, move in enumerate(line):
            played.push_usi(move)
            if place % 2 == 0 and not played.checks[-1]:
                return False
    except GinkgoError:
        return False
    return len(line) % 2 == 1 and not any(True for _ in played.board.legal_moves)


class MateProcess:
    """The child process; started when it is first asked, and again after it was ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._done = threading.Event()
        self._done.set()
        self._result: MateResult | None = None
        self._renewal: threading.Thread | None = None

    def start(self, sfen: str, nodes: int, max_ply: int = 0) -> None:
        """Begin to search a position; a search under way is ended first, which takes a while."""
        if self._renewal is not None:
            self._renewal.join()
            self._renewal = None
        if not self._done.is_set():
            self.close()
        if self._process is None or self._process.poll() is not None:
            try:
                self._process = _spawn()
            except OSError:  # no memory, no more processes: the engine plays without
                self._done, self._result = threading.Event(), MateResult()
                self._done.set()
                return
        self._done, self._result = threading.Event(), None
        thread = threading.Thread(
            target=self._ask,
            args=(self._process, f"{nodes} {max_ply} {sfen}\n", self._done),
            daemon=True,
        )
        thread.start()

    def start_soon(self, sfen: str, nodes: int, max_ply: int = 0) -> bool:
        """The same where a clock runs: it never waits.

        Returns:
            whether the search has begun. It has not where the process is still busy with another
            position; then it is replaced in the meantime.
        """
        if self._renewal is not None and self._renewal.is_alive():
            return False
        if self._done.is_set() and self._process is not None and self._process.poll() is None:
            self.start(sfen, nodes, max_ply)
            return True
        self._renewal = threading.Thread(target=self._renew, daemon=True)
        self._renewal.start()
        return False

    def _renew(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            self._process = _spawn()

    def _ask(self, process: subprocess.Popen[str], line: str, done: threading.Event) -> None:
        answer = ""
        with contextlib.suppress(OSError, ValueError):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
        words = answer.split()
        if done is self._done:
            moves = tuple(words[1:]) if words[:1] == ["mate"] else ()
            self._result = MateResult(moves, words[:1] == ["nomate"], words[:1] == ["unable"])
        done.set()

    def poll(self, seconds: float = 0.0) -> MateResult | None:
        """The result, if it is there within so many seconds."""
        return self._result if self._done.wait(seconds) else None

    def close(self) -> None:
        """End the process."""
        if self._renewal is not None and self._renewal is not threading.current_thread():
            self._renewal.join()
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        self._done.wait(1)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _spawn() -> subprocess.Popen[str]:
    # The child must find the same modules, whatever lies in the folder that a GUI starts it in.
    code = f"import sys; sys.path[:] = {sys.path!r}; from ginkgo.usi import mate; mate.serve()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )


def serve() -> None:
    """The child's loop. It gives way to the search of the engine, which matters more."""
    import os

    with contextlib.suppress(AttributeError, OSError):
        os.nice(5)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        for text in sys.stdin:
            nodes, max_ply, sfen = text.rstrip("\n").split(" ", 2)
            with _ended_with_parent():
                found = search_mate(sfen, int(nodes), int(max_ply))
            if found.moves:
                print("mate", *found.moves, flush=True)
            else:
                word = "nomate" if found.refuted else "unable" if found.unable else "unknown"
                print(word, flush=True)


@contextlib.contextmanager
def _ended_with_parent() -> Iterator[None]:
    """Inside, the process ends when the other end of its input goes.

    A search of minutes, which nothing else can interrupt, must not outlive an engine that was
    killed. That makes the system send SIGIO, whose default is the end of the process.
    """
    try:
        import fcntl
        import os
        import signal

        flags = fcntl.fcntl(0, fcntl.F_GETFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):  # not on this system
        yield
        return
    try:
        yield
    finally:
        fcntl.fcntl(0, fcntl.F_SETFL, flags)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
