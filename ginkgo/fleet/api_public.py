"""What anybody may ask for: the state of the project.

In: requests without a token. Out: counts, ratings, games to replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, HTTPException, Query
from sqlalchemy.orm import Session

from ginkgo.fleet import figures, matches
from ginkgo.fleet.http import At, Number, Server

router = APIRouter(tags=["public"])

T = TypeVar("T")


def remembered(server: Server, make: Callable[[Session], T]) -> T:
    """Figures, counted now or a little while ago."""

    def count() -> T:
        with server.database.reading() as session:
            return make(session)

    return server.remembered.get(make.__name__, count)


@router.get("/status")
def status(server: At) -> dict[str, Any]:
    """Counts of all that is there."""
    return remembered(server, figures.status)


@router.get("/statistics")
def statistics(server: At) -> dict[str, Any]:
    """Games and positions by day (UTC, oldest first) and by user, and how games ended."""
    return remembered(server, figures.statistics)


@router.get("/ratings")
def ratings(server: At) -> list[dict[str, Any]]:
    """Models by their rating games, the strongest first: `name`, `elo`, `low`, `high`, `games`."""
    return remembered(server, matches.ratings)


@router.get("/models")
def models(server: At) -> list[dict[str, Any]]:
    """The newest models, the newest first."""
    return remembered(server, figures.models)


@router.get("/games")
def games(
    server: At, count: Annotated[int, Query(ge=1, le=figures.LISTED)] = figures.LISTED
) -> list[dict[str, Any]]:
    """The newest games of self-play."""
    return remembered(server, figures.recent_games)[:count]


@router.get("/games/{number}", responses={404: {"description": "none of the newest games"}})
def game(server: At, number: Number) -> dict[str, Any]:
    """One of the newest games of self-play, to replay: `sfens`, `moves`, `rates` of Black."""
    found = server.replays.get(number, lambda: figures.game_to_replay(server, number))
    if found is None:
        raise HTTPException(404, "none of the newest games has this number")
    return found
