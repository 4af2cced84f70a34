"""The USI engine: reads commands, keeps the position, answers.

In: lines on standard input. Out: lines on standard output, flushed one by one.

One thread reads, another thinks, so that `stop` and `ponderhit` are heard at once. Every `go` is
answered by exactly one `bestmove` (or `checkmate`), whatever comes between, unless the program is
told to quit. A command that cannot be understood is passed over with an `info string`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from ginkgo import __version__
from ginkgo.errors import GinkgoError, run_main
from ginkgo.usi.clock import FOREVER, Go, parse_go
from ginkgo.usi.mate import MateProcess
from ginkgo.usi.options import BY_NAME, OPTIONS, parse_setoption

if TYPE_CHECKING:
    from ginkgo.search.rules import Line
    from ginkgo.usi.thinker import Clock, Thinker

#: Positions that `go mate` looks at, at most; its memory is bounded, its time by the GUI.
_MATE_NODES = 100_000_000
#: Seconds of loading after which the GUI is told that it goes on.
_PATIENCE = 3.0


class Engine:
    """The protocol's state."""

    def __init__(self, options: dict[str, Any] | None = None, output: TextIO | None = None) -> None:
        """Begin with the default options; nothing is loaded.

        Args:
            options: values by name that differ from the defaults.
            output: where answers go; standard output by default.
        """
        self._options: dict[str, Any] = {option.name: option.default for option in OPTIONS}
        self._options.update(options or {})
        self._output = output or sys.stdout
        self._lock = threading.Lock()
        self._thinker: Thinker | None = None
        self._line: Line | None = None
        self._rejected = False
        self._problem = ""
        self._clock: Clock | None = None
        self._thread: threading.Thread | None = None
        self._mate = MateProcess()
        self._mate_stop = threading.Event()
        self._commands = {
            "usi": self._usi,
            "isready": self._isready,
            "setoption": self._setoption,
            "usinewgame": self._usinewgame,
            "position": self._position,
            "go": self._go,
            "stop": self._stop,
            "ponderhit": self._ponderhit,
            "gameover": self._gameover,
        }

    def say(self, line: str) -> None:
        """Print a line for the GUI."""
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):
            self._output.write(line + "\n")
            self._output.flush()

    def run(self, lines: Iterable[str]) -> None:
        """Obey commands until `quit` or the end of the input.

        Raises:
            GinkgoError: the model or the book cannot be used.
        """
        try:
            for line in lines:
                words = line.split()
                if not words:
                    continue
                if words[0] == "quit":
                    break
                self._obey(words)
        finally:
            self._finish_thinking()
            self._mate.close()

    def _obey(self, words: list[str]) -> None:
        command = self._commands.get(words[0])
        if command is None:
            self.say(f"info string unknown command {words[0]}")
            return
        try:
            command(words[1:])
        except GinkgoError as error:
            self.say(f"info string error: {error}")
            if words[0] == "isready":
                raise

    # --- commands -----------------------------------------------------------------------------

    def _usi(self, _words: list[str]) -> None:
        self.say(f"id name ginkgo {__version__}")
        self.say("id author the ginkgo authors")
        for option in OPTIONS:
            self.say(option.line())
        self.say("usiok")

    def _setoption(self, words: list[str]) -> None:
        option, value = parse_setoption(words)
        self._finish_thinking()
        changed = self._options[option.name] != value
        self._options[option.name] = value
        if changed and option.reload and self._thinker is not None:
            self._thinker = None

    def _isready(self, _words: list[str]) -> None:
        self._finish_thinking()
        self._ready()
        self.say("readyok")

    def _ready(self) -> Thinker:
        if self._thinker is None:
            with self._kept_alive():
                from ginkgo.usi.thinker import Thinker

                self._thinker = Thinker(self._options, self.say, self._mate)
            self.say(f"info string model {self._thinker.evaluator.name}")
        return self._thinker

    @contextlib.contextmanager
    def _kept_alive(self) -> Iterator[None]:
        """Inside, say something now and then: GUIs give up an engine that keeps silent."""
        done = threading.Event()

        def tell() -> None:
            while not done.wait(_PATIENCE):
                self.say("info string still loading")

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _usinewgame(self, _words: list[str]) -> None:
        self._finish_thinking()
        self._line, self._rejected, self._problem = None, False, ""
        if self._thinker is not None:
            self._thinker.new_game()

    def _position(self, words: list[str]) -> None:
        from ginkgo.search.rules import line_of
        from ginkgo.usi.tsume import problem_of

        self._finish_thinking()
        self._rejected, self._problem = True, ""
        self._problem = problem_of(" ".join(words))
        if not self._problem:
            self._line = line_of(" ".join(words))
            self._rejected = False

    def _go(self, words: list[str]) -> None:
        from ginkgo.search.rules import Line

        self._finish_thinking()
        go = parse_go(words)
        if self._rejected and not (go.mate and self._problem):
            # Whatever move it named would be one of another position.
            why = (
                "has one king: only go mate can search it"
                if self._problem
                else "was not understood"
            )
            self.say(f"info string the position {why}")
            self.say("checkmate timeout" if go.mate else "bestmove resign")
            return
        line = self._line or Line()
        if go.mate:
            self._mate_stop = threading.Event()
            arguments: tuple = (self._problem or line.board.sfen(), go, self._mate_stop)
            self._thread = threading.Thread(target=self._solve, args=arguments, daemon=True)
        else:
            try:
                thinker = self._ready()
            except GinkgoError:
                self.say("bestmove resign")
                raise
            self._clock = thinker.clock_for(line, go)
            arguments = (thinker, line, go, self._clock)
            self._thread = threading.Thread(target=self._think, args=arguments, daemon=True)
        self._thread.start()

    def _think(self, thinker: Thinker, line: Line, go: Go, clock: Clock) -> None:
        try:
            answer = thinker.think(line, go, clock).line()
        except Exception as error:  # whatever it is, the GUI must have its answer
            self.say(f"info string error: {type(error).__name__}: {error}")
            thinker.search.forget()
            move = next(iter(line.board.legal_moves), None)
            import cshogi

            answer = "bestmove " + (cshogi.move_to_usi(move) if move else "resign")
        self.say(answer)

    def _solve(self, sfen: str, go: Go, stop: threading.Event) -> None:
        """Answer `go mate`."""
        process = self._mate
        began = time.perf_counter()
        process.start(sfen, _MATE_NODES)
        # The answer must be there when the time is over, not begin to come.
        limit = go.mate_time / 1000 - min(0.05, go.mate_time / 10000)
        answer = "checkmate timeout"
        while not stop.is_set() and (spent := time.perf_counter() - began) < limit:
            found = process.poll(min(0.02, max(0.0, limit - spent)))
            if found is not None:
                if found.moves:
                    self.say(
                        f"info depth {len(found.moves)} time {int(1000 * spent)} "
                        f"score mate {len(found.moves)} pv {' '.join(found.moves)}"
                    )
                    answer = "checkmate " + " ".join(found.moves)
                elif found.refuted:
                    answer = "checkmate nomate"
                elif found.unable:
                    self.say(
                        "info string expected a king to mate, and room for the other in a corner"
                    )
                    answer = "checkmate notimplemented"
                elif go.mate_time == FOREVER:
                    stop.wait()
                break
        if answer == "checkmate timeout":
            process.close()
        self.say(answer)

    def _stop(self, _words: list[str]) -> None:
        self._finish_thinking()

    def _ponderhit(self, _words: list[str]) -> None:
        if self._clock is not None:
            self._clock.hit()

    def _gameover(self, _words: list[str]) -> None:
        self._finish_thinking()

    def _finish_thinking(self) -> None:
        """Have the answer to a `go` under way given, and wait for it."""
        if self._thread is None:
            return
        self._mate_stop.set()
        if self._clock is not None:
            self._clock.stop()
        self._thread.join()
        self._thread = self._clock = None


@dataclass(frozen=True)
class UsiConfig:
    """Play through the USI protocol, as a GUI asks for it."""

    model: str = "pretrained"
    """Model directory, ONNX file, VALUE+POLICY, `pretrained`, or `uniform` (plays without a
    network). A GUI can change it: option Model."""
    options: tuple[str, ...] = ()
    """Other options as NAME=VALUE; docs/ENGINE.md explains them."""


def _config(argv: Sequence[str]) -> UsiConfig:
    if not argv:  # as GUIs start it: the parser of options would take as long as all the rest
        return UsiConfig()
    import tyro

    return tyro.cli(UsiConfig, prog="ginkgo usi", args=argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the engine on standard input and output.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = _config(sys.argv[1:] if argv is None else argv)
    values: dict[str, Any] = {"Model": config.model}
    for text in config.options:
        name, equals, value = text.partition("=")
        option = BY_NAME.get(name.lower())
        if option is None or not equals:
            raise GinkgoError(f"--options {text}: expected NAME=VALUE with the name of an option")
        values[option.name] = option.parse(value)
    Engine(values).run(_input())
    sys.stdout.flush()
    # Threads of libraries may still be at work; nothing is left to be written.
    os._exit(0)


def _input() -> Iterable[str]:
    """Lines of standard input, whatever bytes are in them."""
    for line in iter(sys.stdin.buffer.readline, b""):
        yield line.decode("utf-8", "replace")


def program() -> None:
    """The program `ginkgo-usi`."""
    run_main(main)


if __name__ == "__main__":
    program()
