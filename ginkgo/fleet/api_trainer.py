"""Requests of the trainer: models, runs, matches out; games in.

In: requests with a trainer's token. Out: what is stored. Each can be sent again.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from dataclasses import fields
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from ginkgo.errors import GinkgoError
from ginkgo.fleet import matches, work
from ginkgo.fleet.database import Match, Model, Run, Upload
from ginkgo.fleet.http import NAME, At, Name, Number, Server, Trainer, body_of
from ginkgo.fleet.intake import start_of
from ginkgo.search.rules import Line, split_position
from ginkgo.selfplay.config import PlayOptions, check

router = APIRouter(tags=["trainer"])

RunNumber = Annotated[int, Path(ge=1, le=1_000_000)]


class ModelNotice(BaseModel):
    """A model that is to come."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=1, le=1 << 40)
    about: dict[str, Any] = {}


class RunWish(BaseModel):
    """Games that are wanted."""

    model: str = Field(pattern=NAME)
    games: int = Field(ge=1, le=100_000_000)
    options: dict[str, int | float]
    openings: list[str] = Field([], max_length=100_000)
    resign_threshold: float = Field(0.0, ge=0, le=1)
    seed: int = Field(0, ge=0, lt=1 << 31)


class MatchWish(BaseModel):
    """Rating games that are wanted."""

    a: str = Field(pattern=NAME)
    b: str = Field(pattern=NAME)
    games: int = Field(ge=2, le=100_000, multiple_of=2)
    nodes: int = Field(ge=1, le=1_000_000)
    max_ply: int = Field(ge=1, le=512)
    openings: list[str] = Field(max_length=50_000)


def _model(session: Session, name: str) -> Model:
    model = session.scalar(select(Model).where(Model.name == name, Model.file != ""))
    if model is None:
        raise HTTPException(404, f"no model {name}")
    return model


@router.put("/models/{name}", responses={409: {"description": "another model has this name"}})
def announce(server: At, user: Trainer, name: Name, notice: ModelNotice) -> dict[str, Any]:
    """Announce a model; `there` says whether its file has come."""
    if notice.size > server.config.largest_model:
        raise HTTPException(413, f"more than {server.config.largest_model} bytes")
    with server.database.session() as session:
        model = session.scalar(select(Model).where(Model.name == name))
        if model is None:
            model = Model(name=name, created=time.time(), file="", **notice.model_dump())
            session.add(model)
        elif model.sha256 != notice.sha256:
            raise HTTPException(409, "another model has this name")
        return {"there": bool(model.file)}


@router.put(
    "/models/{name}/file",
    responses={422: {"description": "not what was announced"}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def publish(server: At, user: Trainer, name: Name, request: Request) -> dict[str, Any]:
    """The file of a model that was announced. From now on it is there to be played with."""
    return await run_in_threadpool(_publish, server, name, await body_of(request))


def _publish(server: Server, name: str, data: bytes) -> dict[str, Any]:
    with server.database.session() as session:
        model = session.scalar(select(Model).where(Model.name == name))
        if model is None:
            raise HTTPException(404, f"no model {name}: announce it first")
    if len(data) != model.size or hashlib.sha256(data).hexdigest() != model.sha256:
        raise HTTPException(422, "not the file that was announced: size or SHA-256 differ")
    if not model.file:
        file = f"models/{model.id}-{secrets.token_hex(8)}.onnx"
        server.storage.put(file, data)
        with server.database.session() as session:
            session.get_one(Model, model.id).file = file
    return {"there": True}


@router.put("/runs/{number}", responses={409: {"description": "it has other options"}})
def open_run(server: At, user: Trainer, number: RunNumber, wish: RunWish) -> dict[str, Any]:
    """Ask for the games of a run; from now on its tasks are handed out."""
    known = {one.name: one for one in fields(PlayOptions) if one.name != "openings"}
    if wish.options.keys() != known.keys():
        raise HTTPException(422, f"options: expected {', '.join(known)}")
    values: dict[str, Any] = dict(wish.options)
    for name, value in values.items():
        whole = str(known[name].type) == "int"
        if not math.isfinite(value) or abs(value) > 1e9 or (whole and not isinstance(value, int)):
            raise HTTPException(422, f"options: {name}: {value} cannot be")
    try:
        check(PlayOptions(**values))
        for line in wish.openings:
            Line(*split_position(line))
            start_of(line)
    except GinkgoError as error:
        raise HTTPException(422, str(error)) from None
    with server.database.session() as session:
        model = _model(session, wish.model)
        run = session.get(Run, number)
        if run is None:
            others = wish.model_dump(exclude={"model"})
            run = Run(number=number, model_id=model.id, opened=time.time(), **others)
            session.add(run)
            session.flush()
        elif run.model_id != model.id or run.options != wish.options:
            raise HTTPException(409, "this run has another model or other options")
        return _state(session, run)


def _state(session: Session, run: Run) -> dict[str, Any]:
    return {
        "number": run.number,
        "games": run.games,
        "stored": work.stored_games(session, run.number),
        "under_way": work.expected_games(session, run.number),
        "closed": run.closed is not None,
    }


def _run(session: Session, number: int) -> Run:
    run = session.get(Run, number)
    if run is None:
        raise HTTPException(404, f"no run {number}")
    return run


@router.get("/runs/{number}")
def run_state(server: At, user: Trainer, number: RunNumber) -> dict[str, Any]:
    """How many games of a run are there."""
    with server.database.reading() as session:
        return _state(session, _run(session, number))


@router.post("/runs/{number}/close")
def close_run(server: At, user: Trainer, number: RunNumber) -> dict[str, Any]:
    """Let no more games come to a run: what comes now goes to the next one."""
    with server.database.session() as session:
        for run in session.scalars(select(Run).where(Run.number <= number).with_for_update()):
            run.closed = run.closed or time.time()
        session.flush()
        return _state(session, _run(session, number))


@router.get("/runs/{number}/uploads")
def uploads(server: At, user: Trainer, number: RunNumber) -> list[dict[str, Any]]:
    """The files of a run: `upload`, `sha256`, `games`, `revoked`."""
    with server.database.reading() as session:
        rows = session.scalars(select(Upload).where(Upload.run == number).order_by(Upload.id))
        return [
            {
                "upload": row.id,
                "sha256": row.file_sha256,
                "games": row.games,
                "revoked": row.revoked is not None,
            }
            for row in rows
        ]


@router.get("/uploads/{number}/file", response_class=Response)
def upload_file(server: At, user: Trainer, number: Number) -> Response:
    """A file of games."""
    with server.database.reading() as session:
        upload = session.get(Upload, number)
    if upload is None:
        raise HTTPException(404, "no such upload")
    return Response(server.storage.read(upload.file), media_type="application/octet-stream")


@router.put("/matches/{name}", responses={409: {"description": "it is another match"}})
def open_match(server: At, user: Trainer, name: Name, wish: MatchWish) -> dict[str, Any]:
    """Ask for rating games; the answer is the result so far."""
    if len(wish.openings) != wish.games // 2:
        raise HTTPException(422, "openings: expected one for every two games")
    try:
        for line in wish.openings:
            Line(*split_position(line))
    except GinkgoError as error:
        raise HTTPException(422, str(error)) from None
    with server.database.session() as session:
        ids = {"a_id": _model(session, wish.a).id, "b_id": _model(session, wish.b).id}
        others = wish.model_dump(exclude={"a", "b"})
        match = session.scalar(select(Match).where(Match.name == name))
        if match is None:
            match = Match(name=name, created=time.time(), **ids, **others)
            session.add(match)
            session.flush()
        elif any(getattr(match, key) != value for key, value in {**ids, **others}.items()):
            raise HTTPException(409, "another match has this name")
        return matches.result_of(session, match)


def _match(session: Session, name: str) -> Match:
    match = session.scalar(select(Match).where(Match.name == name))
    if match is None:
        raise HTTPException(404, "no such match")
    return match


@router.get("/matches/{name}")
def match_result(server: At, user: Trainer, name: Name) -> dict[str, Any]:
    """The result of a match so far, as `ginkgo match --json` writes it."""
    with server.database.reading() as session:
        return matches.result_of(session, _match(session, name))


@router.post("/matches/{name}/close")
def close_match(server: At, user: Trainer, name: Name) -> dict[str, Any]:
    """Hand out no more games of a match: it is decided. Those under way are still taken."""
    with server.database.session() as session:
        match = _match(session, name)
        match.closed = match.closed or time.time()
        return matches.result_of(session, match)
