"""What anybody may ask for: the state of the project.

In: requests without a token. Out: counts, ratings.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from sqlalchemy import func, select

from ginkgo.fleet import matches, work
from ginkgo.fleet.database import Model, PlayedRow, Quarantined, RatedGame, Run, Upload, User
from ginkgo.fleet.http import At
from ginkgo.fleet.intake import current_run

router = APIRouter(tags=["public"])

#: A worker is alive that was heard of within so many seconds.
ALIVE_S = 600.0


@router.get("/status")
def status(server: At) -> dict[str, Any]:
    """Counts of all that is there."""
    valid = Upload.revoked.is_(None)
    with server.database.session() as session:
        totals = select(
            *(func.coalesce(func.sum(column), 0) for column in (Upload.games, Upload.positions)),
            func.coalesce(func.sum(Upload.recorded), 0),
        ).where(valid)
        games, positions, recorded = session.execute(totals).one()
        model = work.newest_model(session)
        run = session.scalar(select(Run).order_by(Run.number.desc()).limit(1))
        reasons = session.execute(select(Quarantined.kind, func.count()).group_by(Quarantined.kind))
        flags = session.execute(
            select(PlayedRow.flags, func.count())
            .where(PlayedRow.flags != "")
            .group_by(PlayedRow.flags)
        )
        flagged: dict[str, int] = {}
        for words, count in flags:
            for word in words.split():
                flagged[word] = flagged.get(word, 0) + count
        alive = select(func.count()).where(
            User.role == "worker", User.seen > time.time() - ALIVE_S, User.token_hash.is_not(None)
        )
        return {
            "games": games,
            "positions": positions,
            "recorded": recorded,
            "rating_games": session.scalar(select(func.count()).select_from(RatedGame)),
            "workers_alive": session.scalar(alive),
            "models": session.scalar(select(func.count()).where(Model.file != "")),
            "newest_model": None if model is None else model.name,
            "run": None
            if run is None
            else {
                "number": current_run(session),
                "wanted": run.games,
                "stored": work.stored_games(session, current_run(session)),
            },
            "quarantined": {kind: count for kind, count in reasons},
            "flagged": flagged,
        }


@router.get("/statistics")
def statistics(server: At) -> dict[str, Any]:
    """Games and positions by day (UTC, oldest first) and by user, and how games ended."""
    valid = Upload.revoked.is_(None)
    sums = func.sum(Upload.games), func.sum(Upload.positions)
    # Whole days since 1970; databases do not agree on how a number becomes a date.
    day = func.floor(Upload.created / 86_400)
    with server.database.session() as session:
        days = session.execute(select(day, *sums).where(valid).group_by(day).order_by(day)).all()
        users = session.execute(
            select(User.name, *sums)
            .join(Upload, Upload.user_id == User.id)
            .where(valid)
            .group_by(User.name)
            .order_by(sums[0].desc())
            .limit(100)
        ).all()
        endings = session.execute(select(PlayedRow.end, func.count()).group_by(PlayedRow.end)).all()
    return {
        "days": [
            {
                "day": time.strftime("%Y-%m-%d", time.gmtime(86_400 * int(number))),
                "games": games,
                "positions": positions,
            }
            for number, games, positions in days
        ],
        "users": [
            {"user": name, "games": games, "positions": positions}
            for name, games, positions in users
        ],
        "endings": {end: count for end, count in endings},
    }


@router.get("/ratings")
def ratings(server: At) -> list[dict[str, Any]]:
    """Models by their rating games, the strongest first: `name`, `elo`, `low`, `high`, `games`."""
    with server.database.session() as session:
        return matches.ratings(session)
