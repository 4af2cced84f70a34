"""`ginkgo play`: a small web server for one person on this machine.

In: HTTP requests of the page. Out: the page, and after each request the state of the game.
"""

from __future__ import annotations

import json
import math
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ginkgo.errors import GinkgoError

if TYPE_CHECKING:
    from ginkgo.play.game import Game

#: What the page is made of, by its path.
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/board.js": ("board.js", "text/javascript; charset=utf-8"),
    "/board.css": ("board.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
#: A request of the page is a few words.
_LONGEST = 10_000


@dataclass(frozen=True)
class PlayConfig:
    """Play against a network in the browser."""

    model: Annotated[str, tyro.conf.Positional] = "pretrained"
    """Model directory, ONNX file, VALUE+POLICY, or `pretrained`."""
    seconds: float = 1.0
    """That the engine thinks about a move."""
    max_ply: int = 512
    """Moves after which the game is drawn."""
    port: int = 8000
    """Of the page, on this machine only; 0: any that is free."""
    browser: bool = True
    """Open the page."""


def make_server(game: Game, port: int) -> ThreadingHTTPServer:
    """A server for one game on the loopback address.

    Raises:
        GinkgoError: the port is taken.
    """
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in _FILES:
                name, kind = _FILES[self.path]
                self._answer(200, kind, Path(__file__).with_name(name).read_bytes())
            elif self.path == "/state":
                self._obey("state", "")
            else:
                self._answer(404, "text/plain", b"not found")

        def do_POST(self) -> None:
            # Pages of other origins can send requests too, but none of this type.
            if self.headers.get("Content-Type") != "application/json":
                self._answer(415, "text/plain", b"expected application/json")
                return
            length = int(self.headers.get("Content-Length") or 0)
            try:
                words = json.loads(self.rfile.read(min(length, _LONGEST)))
                verb, argument = str(words["do"]), str(words.get("with", ""))
            except (ValueError, KeyError, TypeError, AttributeError):
                self._answer(400, "text/plain", b"expected do and with")
                return
            self._obey(verb, argument)

        def _obey(self, verb: str, argument: str) -> None:
            error = ""
            with lock:
                try:
                    if verb == "move":
                        game.play(argument)
                    elif verb == "new":
                        game.new(argument)
                    elif verb == "back":
                        game.take_back()
                except GinkgoError as mistake:
                    error = str(mistake)
                state: dict[str, Any] = {**game.state(), "error": error}
            self._answer(200, "application/json", json.dumps(state).encode())

        def _answer(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise GinkgoError(f"--port {port}: {error.strerror or error}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C.

    Raises:
        GinkgoError: no such model, or the port is taken.
    """
    config = tyro.cli(PlayConfig, prog="ginkgo play", args=argv)
    if not 0 < config.seconds < math.inf:
        raise GinkgoError(f"--seconds {config.seconds}: expected more than 0")
    if config.max_ply < 1:
        raise GinkgoError(f"--max-ply {config.max_ply}: expected at least 1")
    if not 0 <= config.port < 1 << 16:
        raise GinkgoError(f"--port {config.port}: expected 0 to {(1 << 16) - 1:,}")
    from ginkgo.play.game import new_game

    server = make_server(new_game(config.model, config.seconds, config.max_ply), config.port)
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    print(f"{address}  (Ctrl-C ends it)", flush=True)
    if config.browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0
