"""A wire between workers and their server that knows what goes over it, and can be cut.

In: HTTP/1.1 requests with a stated length, which is what ginkgo's workers send. Out: the same, at
the server's port; and a book of the games that were handed out, sent and acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import re
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

_UPLOAD = re.compile(rb"POST /api/v1/tasks/([0-9]+)/games ")
_TASK = b"POST /api/v1/tasks "
#: Seconds, at most, from an upload that has been sent whole to the cut.
_LATE_S = 0.06


class Message(NamedTuple):
    """A request or an answer."""

    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    def header(self, name: bytes) -> bytes:
        found = re.search(rb"\r\n" + name + rb": *([^\r]*)", self.head, re.IGNORECASE)
        return found[1] if found else b""


async def _read(stream: asyncio.StreamReader) -> Message:
    head = await stream.readuntil(b"\r\n\r\n")
    message = Message(head, b"")
    length = int(message.header(b"content-length") or 0)
    return Message(head, await stream.readexactly(length) if length else b"")


@dataclass
class Cut:
    """An upload in the middle of which the server is to be killed.

    Args:
        share: of its body that the server gets; with all of it the cut comes a little later, before
            the answer.
        kill: kills the server.
    """

    share: float
    kill: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    games: list[int] = field(default_factory=list)
    """Numbers of the upload's games."""
    sent: tuple[int, int] = (0, 0)
    """Bytes of the body that went to the server, and all of them."""
    answered: bool = False
    """Whether the server had answered; the answer was lost."""


class Wire:
    """Runs in a thread of its own until `close`.

    Args:
        port: of the server. rng: chooses when a late cut comes.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self._server_port, self._rng = port, rng
        self.acknowledged: list[int] = []
        """Numbers of the games that the server has said it stores, again for each time."""
        self.handed: dict[str, set[int]] = defaultdict(set)
        """Of each token the numbers of games that it was asked to play."""
        self.cut: Cut | None = None
        self._loop = asyncio.new_event_loop()
        listening = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()
        listening.wait()

    def _run(self, listening: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        self._loop.run_forever()

    def close(self) -> None:
        """Cut everything."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other = None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = await _read(reader)
                if other is None:
                    other = await asyncio.open_connection("127.0.0.1", self._server_port)
                upload = _UPLOAD.match(request.head)
                cut = self.cut if upload else None
                if cut is not None:
                    self.cut = None
                    answer = await self._send_and_cut(request, *other, cut)
                else:
                    other[1].write(request.head + request.body)
                    answer = await _read(other[0])
                if answer is None:
                    break
                self._note(request, answer, upload is not None)
                writer.write(answer.head + answer.body)
                await writer.drain()
        for one in (writer, *(other[1:] if other else ())):
            one.close()

    async def _send_and_cut(
        self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: Cut
    ) -> Message | None:
        """None: cut; else the answer was too fast, and the cut waits for the next upload."""
        sent = int(len(request.body) * cut.share)
        writer.write(request.head + request.body[:sent])
        await writer.drain()
        answer = asyncio.ensure_future(_read(reader))
        pause = self._rng.uniform(0, _LATE_S) if cut.share == 1 else 0.1
        await asyncio.wait({answer}, timeout=pause)
        if answer.done():
            self.cut = cut
            return answer.result()
        await asyncio.to_thread(cut.kill)
        await asyncio.wait({answer}, timeout=1.0)  # the connection has ended: no waiting
        cut.answered = answer.done() and answer.exception() is None
        answer.cancel()
        cut.games, cut.sent = _numbers(request.body), (sent, len(request.body))
        cut.done.set()
        return None

    def _note(self, request: Message, answer: Message, upload: bool) -> None:
        if upload and answer.status in (200, 201):
            self.acknowledged += _numbers(request.body)
        elif request.head.startswith(_TASK) and answer.status == 200:
            task: dict[str, Any] = json.loads(answer.body)
            if task["kind"] == "selfplay":
                token = request.header(b"authorization").decode().removeprefix("Bearer ")
                first = task["first"]
                self.handed[token] |= set(range(first, first + task["games"]))


def _numbers(upload: bytes) -> list[int]:
    with np.load(io.BytesIO(upload)) as arrays:
        return arrays["number"].tolist()
