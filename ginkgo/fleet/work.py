"""What is to be played next, and by whom: tasks.

In: the newest run, the matches, the tasks that are open. Out: a task for a worker, or nothing for
the moment.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.orm import Session

from ginkgo.fleet.config import TASK_GAMES, ServeConfig
from ginkgo.fleet.database import Client, Match, Model, RatedGame, Run, Task, Upload, User
from ginkgo.fleet.intake import current_run

#: Games of a rating task at most; half of them pairs.
_RATING_GAMES = 32
#: A worker that was not heard of for so many seconds is taken to be gone; they say each minute that
#: they are there.
SILENT_S = 300.0


def described(model: Model) -> dict[str, Any]:
    """What is said of a model."""
    return {
        "name": model.name,
        "sha256": model.sha256,
        "size": model.size,
        "created": model.created,
        "about": model.about,
    }


def newest_model(session: Session) -> Model | None:
    """The model that the newest run is played with: the last one that was released."""
    run = session.scalar(select(Run).order_by(Run.number.desc()).limit(1))
    return None if run is None else session.get_one(Model, run.model_id)


def open_tasks(session: Session, user: User) -> int:
    """Tasks of a user whose games are still expected."""
    mine = (Task.user_id == user.id) & (Task.expires > time.time()) & (Task.stored < Task.games)
    return session.scalar(select(func.count()).select_from(Task).where(mine)) or 0


def give_up(session: Session, user: User, worker: str, holding: Sequence[int]) -> None:
    """Reckon no longer with the tasks of a worker that it no longer plays.

    Games of theirs that come all the same are taken. A worker without a name keeps its tasks.
    """
    if not worker:
        return
    now = time.time()
    mine = (Task.user_id == user.id) & (Task.worker == worker) & (Task.expires > now)
    session.execute(update(Task).where(mine, Task.id.not_in(holding)).values(expires=now))


def _under_way() -> ColumnElement[bool]:
    """Of tasks: games are still to be expected. Who has not been heard of for long plays none."""
    now = time.time()
    theirs = (Client.user_id == Task.user_id) & (Client.name == Task.worker)
    return (Task.expires > now) & theirs & (Client.seen > now - SILENT_S)


def next_task(
    session: Session, config: ServeConfig, user: User, games: int, rating: bool, worker: str
) -> dict[str, Any] | None:
    """Hand out work.

    Args:
        games: that the worker wants. rating: whether it plays rating games.
        worker: its name.

    Returns:
        the task as the worker gets it; None: nothing is to be done at the moment.
    """
    found = _rating_task(session, config, user, games, worker) if rating else None
    return found or _selfplay_task(session, config, user, games, worker)


def _new_task(session: Session, config: ServeConfig, user: User, **fields: Any) -> Task:
    now = time.time()
    task = Task(user_id=user.id, created=now, expires=now + 3600 * config.task_hours, **fields)
    session.add(task)
    session.flush()
    return task


# --- self-play --------------------------------------------------------------------------------


def expected_games(session: Session, run: int) -> int:
    """Games under way: of open tasks for that run's options, as far as they are not stored."""
    rows = session.execute(select(Task.games, Task.stored).where(Task.run == run, _under_way()))
    return sum(max(0, games - stored) for games, stored in rows)


def stored_games(session: Session, run: int) -> int:
    """Games of a run's data that are there and not revoked."""
    mine = (Upload.run == run) & Upload.revoked.is_(None)
    return session.scalar(select(func.coalesce(func.sum(Upload.games), 0)).where(mine)) or 0


def _selfplay_task(
    session: Session, config: ServeConfig, user: User, games: int, worker: str
) -> dict[str, Any] | None:
    run = session.scalar(select(Run).order_by(Run.number.desc()).limit(1))
    if run is None:
        return None
    filling = current_run(session)
    there = stored_games(session, filling) + expected_games(session, run.number)
    if there >= config.ahead * run.games:
        return None
    task = _new_task(
        session, config, user, worker=worker, run=run.number, first=0, games=min(games, TASK_GAMES)
    )
    task.first = task.id * TASK_GAMES
    return {
        "task": task.id,
        "kind": "selfplay",
        "model": described(session.get_one(Model, run.model_id)),
        "run": run.number,
        "first": task.first,
        "games": task.games,
        "options": run.options,
        "openings": run.openings,
        "resign_threshold": run.resign_threshold,
        "seed": run.seed,
        "expires": task.expires,
    }


# --- rating games -----------------------------------------------------------------------------


def _rating_task(
    session: Session, config: ServeConfig, user: User, games: int, worker: str
) -> dict[str, Any] | None:
    """The first pairs of games of the oldest match that has some to give."""
    for match in session.scalars(select(Match).where(Match.closed.is_(None)).order_by(Match.id)):
        stored = set(
            session.scalars(select(RatedGame.number).where(RatedGame.match_id == match.id))
        )
        taken = set(stored)
        for task in session.scalars(select(Task).where(Task.match_id == match.id, _under_way())):
            taken |= set(range(task.first, task.first + task.games))
        first = next((n for n in range(0, match.games, 2) if not {n, n + 1} & taken), None)
        if first is None:
            first = _torn(match, taken)
            if first is None:
                continue
        most = max(2, min(games, _RATING_GAMES))
        last = first + 2
        while last - first + 2 <= most and last < match.games and not {last, last + 1} & taken:
            last += 2
        task = _new_task(
            session, config, user, worker=worker, match_id=match.id, first=first, games=last - first
        )
        models = [session.get_one(Model, number) for number in (match.a_id, match.b_id)]
        return {
            "task": task.id,
            "kind": "rating",
            "models": [described(model) for model in models],
            "first": first,
            "games": last - first,
            "nodes": match.nodes,
            "max_ply": match.max_ply,
            "openings": match.openings[first // 2 : last // 2],
            "expires": task.expires,
        }
    return None


def _torn(match: Match, taken: set[int]) -> int | None:
    """A pair of which one game is there and the other will not come."""
    return next((n for n in range(0, match.games, 2) if {n, n + 1} - taken), None)
