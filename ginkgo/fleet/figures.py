"""What anybody may know: counts, ratings, games to replay.

In: the database and the storage. Out: what JSON can hold, for programs and for the page.
"""

from __future__ import annotations

import time
from typing import Any

import cshogi
import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ginkgo.errors import GinkgoError
from ginkgo.fleet import work
from ginkgo.fleet.accounts import WORKER
from ginkgo.fleet.database import (
    Client,
    Model,
    PlayedRow,
    Quarantined,
    RatedGame,
    Run,
    Upload,
    User,
)
from ginkgo.fleet.http import Server
from ginkgo.fleet.intake import current_run
from ginkgo.records.kifu.selfplay import read_arrays, select_games
from ginkgo.records.replay import set_up

#: Newest games that can be looked at, and those that are listed; models and users that are listed.
_GAMES, LISTED, _MODELS, _USERS = 500, 30, 200, 100
_VALID = Upload.revoked.is_(None)


def status(session: Session) -> dict[str, Any]:
    """Counts of all that is there."""
    sums = (Upload.games, Upload.positions, Upload.recorded)
    totals = [
        int(session.scalar(select(func.coalesce(func.sum(column), 0)).where(_VALID)) or 0)
        for column in sums
    ]
    model = work.newest_model(session)
    run = session.scalar(select(Run).order_by(Run.number.desc()).limit(1))
    filling = current_run(session)
    reasons = session.execute(select(Quarantined.kind, func.count()).group_by(Quarantined.kind))
    flags = session.execute(
        select(PlayedRow.flags, func.count()).where(PlayedRow.flags != "").group_by(PlayedRow.flags)
    )
    flagged: dict[str, int] = {}
    for words, count in flags:
        for word in words.split():
            flagged[word] = flagged.get(word, 0) + count
    alive = (
        select(func.count())
        .select_from(Client)
        .join(User, User.id == Client.user_id)
        .where(User.role == WORKER, User.token_hash.is_not(None))
        .where(Client.seen > time.time() - work.SILENT_S)
    )
    return {
        **dict(zip(("games", "positions", "recorded"), totals, strict=True)),
        "rating_games": session.scalar(select(func.count()).select_from(RatedGame)),
        "workers_alive": session.scalar(alive),
        "models": session.scalar(select(func.count()).where(Model.file != "")),
        "newest_model": None if model is None else model.name,
        "run": None
        if run is None
        else {
            "number": filling,
            "wanted": run.games,
            "stored": work.stored_games(session, filling),
        },
        "quarantined": {kind: count for kind, count in reasons},
        "flagged": flagged,
    }


def statistics(session: Session) -> dict[str, Any]:
    """Games and positions by day (UTC, oldest first) and by user, and how games ended."""
    sums = func.sum(Upload.games), func.sum(Upload.positions)
    # Whole days since 1970; databases do not agree on how a number becomes a date.
    day = func.floor(Upload.created / 86_400)
    days = session.execute(select(day, *sums).where(_VALID).group_by(day).order_by(day)).all()
    users = session.execute(
        select(User.name, *sums, func.max(Upload.created))
        .join(Upload, Upload.user_id == User.id)
        .where(_VALID)
        .group_by(User.name)
        .order_by(sums[0].desc(), User.name)
        .limit(_USERS)
    ).all()
    endings = session.execute(select(PlayedRow.end, func.count()).group_by(PlayedRow.end)).all()
    return {
        "days": [
            {
                "day": time.strftime("%Y-%m-%d", time.gmtime(86_400 * int(number))),
                "games": int(games),
                "positions": int(positions),
            }
            for number, games, positions in days
        ],
        "users": [
            {"user": name, "games": int(games), "positions": int(positions), "last": last}
            for name, games, positions, last in users
        ],
        "endings": {end: count for end, count in endings},
    }


def models(session: Session) -> list[dict[str, Any]]:
    """The newest models that are there, the newest first: `name`, `created`, `size`."""
    rows = session.scalars(
        select(Model).where(Model.file != "").order_by(Model.id.desc()).limit(_MODELS)
    )
    return [{"name": row.name, "created": row.created, "size": row.size} for row in rows]


def recent_games(session: Session, count: int = LISTED) -> list[dict[str, Any]]:
    """The newest games of self-play, the newest first."""
    rows = session.execute(
        select(PlayedRow, User.name, Upload.created)
        .join(Upload, Upload.id == PlayedRow.upload_id)
        .join(User, User.id == Upload.user_id)
        .where(_VALID)
        .order_by(PlayedRow.upload_id.desc(), PlayedRow.number.desc())
        .limit(min(count, _GAMES))
    )
    return [
        {
            "number": game.number,
            "user": name,
            "plies": game.plies,
            "winner": game.winner,
            "end": game.end,
            "flags": game.flags.split(),
            "created": created,
        }
        for game, name, created in rows
    ]


def game_to_replay(server: Server, number: int) -> dict[str, Any] | None:
    """A game of self-play, one of the newest.

    Returns:
        `sfens` (plies + 1), `moves` (USI), `rates` (Black's win rate at each move, None: not
        searched), `winner`, `end`, `model`, `number`; None: there is none to be looked at.

    Raises:
        GinkgoError: its file cannot be read.
    """
    with server.database.reading() as session:
        row = session.get(PlayedRow, number)
        upload = None if row is None else session.get(Upload, row.upload_id)
        if row is None or upload is None or upload.revoked is not None:
            return None
        newest = session.scalar(
            select(PlayedRow.upload_id).order_by(PlayedRow.upload_id.desc()).offset(_GAMES).limit(1)
        )
        if newest is not None and upload.id <= newest:
            return None
    meta, arrays = read_arrays(server.storage.read(upload.file))
    places = np.flatnonzero(arrays["number"] == number)
    if not len(places):
        raise GinkgoError(f"{upload.file}: game {number} is not in it")
    game = select_games(arrays, int(places[0]), int(places[0]) + 1)
    board = cshogi.Board()
    set_up(board, str(game["start"][0]))
    sfens, moves, rates = [board.sfen()], [], []
    for packed, value in zip(game["move"].tolist(), game["root_value"].tolist(), strict=True):
        black = board.turn == cshogi.BLACK
        rates.append(None if value != value else round(value if black else 1 - value, 4))
        board.push(board.move_from_move16(packed))
        moves.append(cshogi.move_to_usi(packed))
        sfens.append(board.sfen())
    return {
        "number": number,
        "model": meta["model"],
        "winner": row.winner,
        "end": row.end,
        "moves": moves,
        "sfens": sfens,
        "rates": rates,
    }
