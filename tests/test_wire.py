"""The wire of `benchmarks/fleet_kills.py`: what it notes, and where it cuts."""

from __future__ import annotations

import io
import json
import random
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest
from fleet_kills import kind_of
from wire import Cut, Wire


@contextmanager
def answering(body: bytes, status: int = 200):
    """A server that answers everything alike; its port, and the bodies that it got."""
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, got
    finally:
        server.shutdown()
        server.server_close()


def upload_of(*numbers: int) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, number=np.array(numbers))
    return stream.getvalue()


@pytest.mark.parametrize(("status", "noted"), [(200, [4, 5]), (201, [4, 5]), (503, [])])
def test_only_what_the_server_stores_is_acknowledged(status, noted):
    with answering(b"{}", status) as (port, got), closing(Wire(port, random.Random(0))) as wire:
        url = f"http://127.0.0.1:{wire.port}/api/v1/tasks/7/games"
        body = upload_of(4, 5)
        assert httpx.post(url, content=body).status_code == status
        assert got == [body]
        assert wire.acknowledged == noted


def test_games_that_were_handed_out():
    task = json.dumps({"kind": "selfplay", "first": 30, "games": 3}).encode()
    with answering(task) as (port, _), closing(Wire(port, random.Random(0))) as wire:
        headers = {"Authorization": "Bearer secret"}
        httpx.post(f"http://127.0.0.1:{wire.port}/api/v1/tasks", headers=headers)
        assert wire.handed == {"secret": {30, 31, 32}}


def test_half_an_upload():
    """The server never has it, the worker has no answer, the next upload goes through."""
    killed = threading.Event()
    with answering(b"{}") as (port, got), closing(Wire(port, random.Random(0))) as wire:
        url = f"http://127.0.0.1:{wire.port}/api/v1/tasks/7/games"
        cut = wire.cut = Cut(0.5, killed.set)
        body = upload_of(*range(1000))
        with pytest.raises(httpx.TransportError):
            httpx.post(url, content=body)
        assert cut.done.wait(10)
        assert killed.is_set()
        assert cut.sent == (len(body) // 2, len(body))
        assert cut.games == list(range(1000))
        assert wire.acknowledged == []
        assert httpx.post(url, content=body).status_code == 200
        assert body in got
        assert wire.acknowledged == list(range(1000))


def test_kinds_of_temporary_files():
    assert kind_of(".games_00012.npz.99.tmp") == kind_of(".games_00900.npz.7.tmp") == "games_.npz"
    assert kind_of(".step-300.npz.1.tmp") == "step-.npz"
