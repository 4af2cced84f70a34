"""What all requests share: who sends them, how large they are, how they reach the parts of it all.

In: an HTTP request. Out: the user, the body within its limit, or a refusal.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, HTTPException, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ginkgo.fleet.accounts import TRAINER, Rates, user_of
from ginkgo.fleet.config import ServeConfig, version_of
from ginkgo.fleet.database import Client, Database, User
from ginkgo.fleet.intake import Intake
from ginkgo.fleet.remembered import Remembered
from ginkgo.fleet.storage import Storage

#: Bytes of a request that is neither games nor a model.
_SMALL = 1 << 20
_GAMES = re.compile(r"/api/v1/tasks/[0-9]+/games")
_MODEL = re.compile(r"/api/v1/models/[^/]+/file")
_AGENT = re.compile(r"ginkgo/([0-9.]{1,32})")
#: Seconds between two notes that a worker is there; days after which one is forgotten; workers that
#: a user may have.
_SEEN_S, _FORGOTTEN_DAYS, _CLIENTS = 30.0, 2, 1000
#: A client that is not ginkgo.
_FOREIGN = "?"


@dataclass
class Server:
    """The parts that requests need."""

    config: ServeConfig
    database: Database
    storage: Storage
    intake: Intake

    def __post_init__(self) -> None:
        self.rates = Rates(self.config.requests_per_minute)
        self.remembered = Remembered(self.config.figures_seconds)
        # Of their own: what they are made of is remembered too.
        self.replays = Remembered(self.config.figures_seconds)
        self.drawn = Remembered(self.config.figures_seconds)
        self._noted: dict[tuple[int, str], float] = {}

    def note(self, user: User, name: str, version: str) -> None:
        """Remember that a program of a user is there."""
        now = time.time()
        if now - self._noted.get((user.id, name), 0.0) < _SEEN_S:
            return
        # Of two requests at the same time one has noted it already.
        with contextlib.suppress(IntegrityError), self.database.session() as session:
            mine = Client.user_id == user.id
            client = session.get(Client, (user.id, name))
            if client is not None:
                client.seen, client.version = now, version
            else:
                old = Client.seen < now - 86_400 * _FORGOTTEN_DAYS
                session.execute(delete(Client).where(mine, old))
                if (session.scalar(select(func.count()).where(mine)) or 0) >= _CLIENTS:
                    raise HTTPException(429, "too many workers of one user")
                session.add(Client(user_id=user.id, name=name, version=version, seen=now))
        if len(self._noted) > 100_000:
            self._noted.clear()
        self._noted[user.id, name] = now


def server_of(request: Request) -> Server:
    """The parts of the server that a request came to."""
    return request.app.state.server


_bearer = HTTPBearer(auto_error=False, description="The token that `ginkgo serve --add-user` gave")
At = Annotated[Server, Depends(server_of)]
ClientName = Annotated[
    str,
    Header(
        alias="Ginkgo-Worker",
        pattern="^[0-9a-zA-Z-]{0,32}$",
        description="Which of the user's workers asks: a name that it keeps",
    ),
]


def _user(
    server: At,
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    worker: ClientName = "",
) -> User:
    """Whose request it is.

    Raises:
        HTTPException: 401 without a token that is good, 429 for too many requests.
    """
    refusal = HTTPException(401, "expected a token", {"WWW-Authenticate": "Bearer"})
    if credentials is None:
        raise refusal
    with server.database.reading() as session:
        user = user_of(session, credentials.credentials)
    if user is None:
        refusal.detail = "this token is not, or no longer, good"
        raise refusal
    wait = server.rates.wait(user.id)
    if wait:
        headers = {"Retry-After": str(int(wait) + 1)}
        raise HTTPException(429, "too many requests: wait a little", headers)
    server.note(user, worker, version_in(request))
    return user


Anyone = Annotated[User, Depends(_user)]


def version_in(request: Request) -> str:
    """Version of the client, as it says itself."""
    match = _AGENT.match(request.headers.get("user-agent", ""))
    return match[1] if match and version_of(match[1]) else _FOREIGN


def _worker(server: At, request: Request, user: Anyone) -> User:
    """Somebody who plays, with a client that is new enough.

    Raises:
        HTTPException: 426: it is not.
    """
    floor = version_of(server.config.oldest_client)
    if floor is not None and (version_of(version_in(request)) or ()) < floor:
        raise HTTPException(
            426,
            f"this server wants ginkgo {server.config.oldest_client} or newer, you have "
            f"{version_in(request)}: please upgrade",
            {"Upgrade": f"ginkgo/{server.config.oldest_client}"},
        )
    return user


def _trainer(user: Anyone) -> User:
    """The trainer.

    Raises:
        HTTPException: 403: it is somebody else.
    """
    if user.role != TRAINER:
        raise HTTPException(403, "only for the trainer")
    return user


Worker = Annotated[User, Depends(_worker)]
Trainer = Annotated[User, Depends(_trainer)]
#: Numbers of rows, and names of models and matches, in a path.
Number = Annotated[int, Path(ge=1, le=1 << 50)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$"
Name = Annotated[str, Path(pattern=NAME)]


async def body_of(request: Request) -> bytes:
    """The whole body; `BodyLimit` sees to its size.

    Raises:
        HTTPException: 413: it is too large.
    """
    parts = [part async for part in request.stream()]
    return b"".join(parts)


class BodyLimit:
    """Refuses a body that is too large.

    Before reading where its length is stated, else at the byte that is one too many.
    """

    def __init__(self, app: ASGIApp, config: ServeConfig) -> None:
        self._app, self._config = app, config

    def _most(self, path: str) -> int:
        if _GAMES.fullmatch(path):
            return self._config.largest_upload
        if _MODEL.fullmatch(path):
            return self._config.largest_model
        return _SMALL

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, as ASGI asks."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._most(scope["path"])
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if not stated.isdigit() or int(stated[:20]) > most:
            await _too_large(send, most)
            return
        got = 0

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > most:
                raise HTTPException(413, f"more than {most} bytes")
            return message

        await self._app(scope, counted, send)


async def _too_large(send: Send, most: int) -> None:
    text = f'{{"detail":"more than {most} bytes"}}'.encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text})
