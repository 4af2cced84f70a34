"""Requests of workers: models, tasks, uploads.

In: requests with a token. Out: the newest model, something to play, what became of games.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, HTTPException, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from ginkgo.fleet import matches, work
from ginkgo.fleet.config import TASK_GAMES
from ginkgo.fleet.database import Model
from ginkgo.fleet.http import (
    Anyone,
    At,
    ClientName,
    Name,
    Number,
    Worker,
    body_of,
    version_in,
)
from ginkgo.fleet.intake import Stored

router = APIRouter(tags=["workers"])

#: Seconds after which a worker without a task asks again.
_LATER = "10"
#: Bytes of a model that one answer holds at most; a client goes on with the next range.
_PART = 16 << 20
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{0,18})")


class TaskWish(BaseModel):
    """What a worker can do."""

    games: int = Field(32, ge=1, le=TASK_GAMES)
    rating: bool = True
    holding: list[Annotated[int, Field(ge=1, le=1 << 50)]] = Field([], max_length=1000)
    """Its tasks that are still being played; others of this worker are given up."""


class RatedGames(BaseModel):
    """Games of a match, as `ginkgo.arena.referee.Played.to_json` has them."""

    games: list[dict[str, Any]] = Field(max_length=TASK_GAMES)


class Became(BaseModel):
    """What became of games."""

    stored: int
    """New ones."""
    known: int
    """Those that had come before."""


def _became(response: Response, found: Stored) -> Became:
    response.status_code = 201 if found.stored else 200
    return Became(stored=found.stored, known=found.known)


@router.get("/account")
def account(user: Anyone) -> dict[str, str]:
    """Whose token this is."""
    return {"name": user.name, "role": user.role}


@router.get("/models/newest", responses={404: {"description": "there is none yet"}})
def newest(server: At, user: Anyone) -> dict[str, Any]:
    """The newest model: `name`, `sha256`, `size`, `about`."""
    with server.database.reading() as session:
        model = work.newest_model(session)
        if model is None:
            raise HTTPException(404, "there is no model yet")
        return work.described(model)


@router.get(
    "/models/{name}/file",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {}}},
        206: {"description": "a part, as `Range` asked for"},
        404: {"description": "no such model"},
        416: {"description": "it is not so long"},
    },
)
def model_file(
    server: At, user: Anyone, name: Name, range_: Annotated[str, Header(alias="Range")] = ""
) -> Response:
    """A model, an ONNX file.

    `Range: bytes=N-` goes on with a download that was broken off; an answer may hold less than
    asked for.
    """
    with server.database.reading() as session:
        model = session.scalar(select(Model).where(Model.name == name, Model.file != ""))
    if model is None:
        raise HTTPException(404, "no such model")
    first, last, status = 0, model.size, 200
    headers = {"Accept-Ranges": "bytes", "ETag": f'"{model.sha256}"'}
    if range_:
        match = _RANGE.fullmatch(range_)
        first = int(match[1]) if match else model.size
        if first >= model.size:
            raise HTTPException(
                416, "it is not so long", {"Content-Range": f"bytes */{model.size}"}
            )
        last = min(model.size, int(match[2]) + 1 if match and match[2] else model.size)
        last = max(first + 1, min(last, first + _PART))
        headers["Content-Range"] = f"bytes {first}-{last - 1}/{model.size}"
        status = 206
    data = server.storage.read(model.file, first, last)
    return Response(data, status, headers, "application/octet-stream")


@router.post("/tasks", responses={204: {"description": "nothing to do: ask again later"}})
def task(server: At, user: Worker, wish: TaskWish, worker: ClientName = "") -> Any:
    """Something to play: `kind` is `selfplay` or `rating`."""
    with server.database.session() as session:
        work.give_up(session, user, worker, wish.holding)
        if work.open_tasks(session, user) >= server.config.open_tasks:
            detail = "too many tasks of yours are open: upload their games first"
            raise HTTPException(429, detail, {"Retry-After": "60"})
        found = work.next_task(session, server.config, user, wish.games, wish.rating, worker)
    return found or Response(status_code=204, headers={"Retry-After": _LATER})


_REFUSALS: dict[int | str, dict[str, Any]] = {
    404: {"description": "no such task of yours"},
    409: {"description": "a game of this number is stored and is another one"},
    410: {"description": "the model has been replaced by newer ones"},
    413: {"description": "too large"},
    422: {"description": "refused; `kind` and `detail` say why"},
}


@router.post(
    "/tasks/{number}/games",
    responses=_REFUSALS,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def games(
    server: At, user: Worker, number: Number, request: Request, response: Response
) -> Became:
    """Games of a task of self-play, a file as `docs/FORMATS.md` describes it.

    The same games may be sent again, alone or with others, as often as an answer is lost.
    """
    data = await body_of(request)
    found = await run_in_threadpool(server.intake.take, user.id, number, data, version_in(request))
    return _became(response, found)


@router.post("/tasks/{number}/rated", responses=_REFUSALS)
def rated(
    server: At,
    user: Worker,
    number: Number,
    found: Annotated[RatedGames, Body()],
    response: Response,
) -> Became:
    """Games of a rating task."""
    return _became(response, matches.take_rated(server.database, user.id, number, found.games))
