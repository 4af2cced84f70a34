"""A client for other engines: start one, ask it for moves, and survive whatever it does.

In: the command of an engine, positions, times. Out: its moves with its last reports, or an
`EngineError` that says what it did instead: it died, did not answer in time, or answered nonsense.

    with Client(["./engine"], {"USI_Hash": "256"}) as engine:
        answer = engine.go("startpos moves 7g7f", "byoyomi 1000", seconds=3)
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ginkgo.errors import GinkgoError

_MOVE = re.compile(r"[1-9][a-i][1-9][a-i]\+?|[PLNSGBR]\*[1-9][a-i]")
#: Lines of an engine that are kept for an error message, and their length at most.
_KEPT, _LONGEST = 20, 400
#: Lines that wait until they are wanted; while there are so many only answers are added. An engine
#: that talks without end in its opponent's time would fill the memory.
_WAITING = 100_000
_ANSWERS = ("usiok", "readyok", "bestmove")


class EngineError(GinkgoError):
    """An engine did not do what the protocol asks of it."""


class EngineDied(EngineError):
    """The engine's process has ended, or closed its output."""


class EngineTimeout(EngineError):
    """The engine did not answer in time."""


class EngineNonsense(EngineError):
    """The engine answered something that the protocol does not know."""


class UnknownOption(EngineNonsense):
    """The engine does not name an option that was to be set."""


@dataclass
class Info:
    """What an engine said last about its first line of play."""

    depth: int = 0
    nodes: int = 0
    nps: int = 0
    time: int = 0
    cp: int | None = None
    """Centipawns, of the side to move."""
    mate: int | None = None
    """Plies to mate, negative against the side to move."""
    pv: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """The answer to a `go`."""

    move: str
    """In USI, or `resign`, or `win`."""
    ponder: str
    """Empty where none was named."""
    info: Info
    seconds: float
    """From the command to the answer, by the client's clock."""


class Client:
    """One engine."""

    def __init__(
        self,
        command: Sequence[str],
        options: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        seconds: float = 60.0,
    ) -> None:
        """Start the engine and bring it to `readyok`.

        Args:
            command: program and arguments.
            options: sent as `setoption`; those that the engine does not name are an error.
            directory: to run it in.
            seconds: that it may take for `usiok` and for `readyok`.

        Raises:
            EngineError: it cannot be started, or does not come that far.
        """
        self.command = list(command)
        self.name = Path(self.command[0]).name
        self.author = ""
        self.options: dict[str, str] = {}
        """The `option` lines, by name."""
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._last: deque[str] = deque(maxlen=_KEPT)
        try:
            # A group of its own, so that the children of a shell script end with it.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=directory,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineDied(f"{self.command[0]}: cannot start: {error.strerror}") from None
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._greet(options or {}, seconds)
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- lines --------------------------------------------------------------------------------

    def _read(self) -> None:
        """The reading thread: lines into the queue, None at the end.

        It closes the engine's output itself: whoever else did would wait for it, without end where
        a process that has left the engine's group keeps the pipe open.
        """
        assert self._process.stdout is not None
        with contextlib.suppress(OSError), self._process.stdout as output:
            # An engine may print without end and without a line break.
            for raw in iter(lambda: output.readline(65536), b""):
                line = raw.decode("utf-8", "backslashreplace").strip()
                if self._lines.qsize() < _WAITING or line.startswith(_ANSWERS):
                    self._lines.put(line)
        self._lines.put(None)

    def send(self, line: str) -> None:
        """Send a command.

        Raises:
            EngineDied: it does not read any more.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise EngineDied(f"{self.name}: died before {line.split(' ')[0]!r}") from None

    def _receive(self, deadline: float, what: str) -> str:
        """The next line.

        Args:
            deadline: on `time.monotonic`. what: is waited for, for the message.
        """
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise EngineTimeout(f"{self.name}: no {what} in time{self._tail()}") from None
        if line is None:
            self._lines.put(None)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            status = self._process.returncode
            raise EngineDied(
                f"{self.name}: ended (status {status}) instead of {what}{self._tail()}"
            )
        self._last.append(line[:_LONGEST])
        return line

    def _tail(self) -> str:
        return f"; its last line was {self._last[-1]!r}" if self._last else ""

    def _drain(self) -> None:
        """Forget what came before the next command."""
        with contextlib.suppress(queue.Empty):
            while True:
                if self._lines.get_nowait() is None:
                    self._lines.put(None)
                    return

    # --- the protocol -------------------------------------------------------------------------

    def _greet(self, options: Mapping[str, str], seconds: float) -> None:
        self.send("usi")
        deadline = time.monotonic() + seconds
        while (line := self._receive(deadline, "usiok")) != "usiok":
            words = line.split()
            if line.startswith("id name "):
                self.name = line[8:].strip() or self.name
            elif line.startswith("id author "):
                self.author = line[10:].strip()
            elif words[:2] == ["option", "name"] and "type" in words:
                self.options[" ".join(words[2 : words.index("type")])] = line
        for name, value in options.items():
            # USI_Hash and USI_Ponder exist in every engine, named or not.
            if name not in self.options and not name.startswith("USI_"):
                raise UnknownOption(f"{self.name}: has no option {name!r}")
            self.send(f"setoption name {name} value {value}")
        self.ready(seconds)

    def ready(self, seconds: float = 60.0) -> None:
        """`isready`, until `readyok`.

        Raises:
            EngineError: it does not come.
        """
        self._drain()
        self.send("isready")
        deadline = time.monotonic() + seconds
        while self._receive(deadline, "readyok") != "readyok":
            pass

    def new_game(self) -> None:
        """`usinewgame`."""
        self.send("usinewgame")

    def go(self, position: str, limits: str, seconds: float, grace: float | None = None) -> Reply:
        """Ask for a move.

        Args:
            position: rest of a `position` command. limits: rest of a `go` command.
            seconds: after which the engine is told to stop.
            grace: seconds after that, when it is given up; as long again by default, at least
                one.

        Raises:
            EngineDied, EngineTimeout: no answer. EngineNonsense: an answer that is no move.
        """
        self._drain()
        self.send(f"position {position}")
        began = time.monotonic()
        self.send(f"go {limits}".rstrip())
        info, told = Info(), False
        deadline = began + seconds
        while True:
            try:
                line = self._receive(deadline, "bestmove")
            except EngineTimeout:
                if told:
                    raise
                told = True
                deadline = time.monotonic() + (max(1.0, seconds) if grace is None else grace)
                self.send("stop")
                continue
            words = line.split()
            if words[:1] == ["info"]:
                read_info(words, info)
            elif words[:1] == ["bestmove"]:
                break
        move = words[1] if len(words) > 1 else ""
        if move not in ("resign", "win") and not _MOVE.fullmatch(move):
            raise EngineNonsense(f"{self.name}: {line[:_LONGEST]!r} names no move")
        named = words[3] if words[2:3] == ["ponder"] and len(words) > 3 else ""
        ponder = named if _MOVE.fullmatch(named) else ""
        return Reply(move, ponder, info, time.monotonic() - began)

    def game_over(self, result: str) -> None:
        """`gameover win`, `lose` or `draw`."""
        with contextlib.suppress(EngineDied):
            self.send(f"gameover {result}")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def close(self, seconds: float = 2.0) -> None:
        """`quit`, and the end of the process in any case."""
        with contextlib.suppress(EngineDied):
            self.send("quit")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End the process and its children at once."""
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()


def read_info(words: Sequence[str], info: Info) -> None:
    """Take over what an `info` line says; what is malformed is passed over.

    Only the first of several lines of play (`multipv`) counts.

    Args:
        words: of the line. info: changed in place.
    """
    if "string" in words:
        words = words[: words.index("string")]
    if "multipv" in words and words[words.index("multipv") + 1 :][:1] != ["1"]:
        return
    place = 1
    while place < len(words):
        word, rest = words[place], words[place + 1 :]
        if word == "pv":
            moves = []
            for move in rest:
                if not _MOVE.fullmatch(move):
                    break
                moves.append(move)
            info.pv = moves or info.pv
            return
        if word in ("depth", "nodes", "nps", "time") and rest:
            with contextlib.suppress(ValueError):
                setattr(info, word, int(rest[0]))
            place += 1
        elif word == "score" and len(rest) > 1:
            with contextlib.suppress(ValueError):
                # `mate +` and `mate -` name a side without a distance.
                text = {"+": "1", "-": "-1"}.get(rest[1], rest[1])
                if rest[0] == "cp":
                    info.cp, info.mate = int(text), None
                elif rest[0] == "mate":
                    info.cp, info.mate = None, int(text)
            place += 2
        place += 1
