"""Storing games once, whatever comes how often, and setting aside what is refused.

In: uploads, as bytes, with the task that they belong to. Out: a file in the storage and rows in the
database; or `Refused`, with a copy in quarantine.

The order is: check, write the file, write the rows in one transaction. The numbers of games are a
primary key, so that of two uploads with the same game at the same time one is turned back and
looks again. An answer goes out only after the transaction.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ginkgo.fleet.config import ServeConfig
from ginkgo.fleet.database import Database, Model, PlayedRow, Quarantined, Run, Task, Upload
from ginkgo.fleet.storage import Storage
from ginkgo.fleet.upload import Refused
from ginkgo.fleet.validate import CheckedGame, Expected, Validators
from ginkgo.records.game import ENDINGS, STARTPOS
from ginkgo.records.kifu.selfplay import FORMAT
from ginkgo.records.sfen import check_sfen
from ginkgo.search.rules import split_position

#: Times that storing is tried when others store the same games.
_TRIES = 5
#: First moves are flagged that began less than one game in so many, once there are so many games.
_RARE = 2000


@dataclass(frozen=True)
class Stored:
    """What became of an upload."""

    stored: int
    """Games that are new."""
    known: int
    """Games that were there already."""


class Intake:
    """Takes uploads of self-play games."""

    def __init__(
        self, config: ServeConfig, database: Database, storage: Storage, validators: Validators
    ) -> None:
        self._config, self._database = config, database
        self._storage, self._validators = storage, validators
        self._lock = threading.Lock()
        self._first_moves: Counter[str] = Counter()

    def take(self, user: int, task_id: int, data: bytes, version: str) -> Stored:
        """Check an upload and store what is new in it.

        Args:
            user, task_id: numbers. version: of the client.

        Raises:
            Refused: it is not taken; a copy is in quarantine if it belongs to a task of the user.
            GinkgoError: the storage fails.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        with self._database.reading() as session:
            task = session.get(Task, task_id)
            if task is None or task.user_id != user or task.run is None:
                raise Refused("task", "no task of yours for self-play has this number")
            known = session.scalar(
                select(Upload).where(Upload.task_id == task_id, Upload.sha256 == sha256)
            )
            if known is not None:
                return Stored(0, known.games)
            expected = self._expected(session, task)
        try:
            self._check_current(expected.model)
            games = self._validators.check(data, expected)
            for _ in range(_TRIES):
                found = self._store(user, task_id, sha256, games, expected, version)
                if found is not None:
                    return found
        except Refused as refused:
            if refused.kind != "busy":
                self._quarantine(user, task_id, data, sha256, refused)
            raise
        raise Refused("busy", "the same games came several times at once; send them again")

    def _expected(self, session: Session, task: Task) -> Expected:
        run = session.get_one(Run, task.run)
        model = session.get_one(Model, run.model_id)
        starts = tuple({start_of(line) for line in run.openings} or {STARTPOS})
        return Expected(
            task.first, task.games, model.name, run.options, run.resign_threshold, starts
        )

    def _check_current(self, model: str) -> None:
        with self._database.reading() as session:
            names = session.scalars(
                select(Model.name).join(Run, Run.model_id == Model.id).order_by(Run.number.desc())
            )
            newest = list(dict.fromkeys(names))[: self._config.models_accepted]
        if model not in newest:
            raise Refused("old model", f"{model} has been replaced by newer ones")

    def _store(
        self,
        user: int,
        task_id: int,
        sha256: str,
        games: Sequence[CheckedGame],
        expected: Expected,
        version: str,
    ) -> Stored | None:
        """Store the games that are new; None: another upload came between."""
        with self._database.reading() as session:
            new = self._new(session, games)
            run = current_run(session)
        if not new:
            return Stored(0, len(games))
        file = f"games/run_{run:05d}/{task_id}-{secrets.token_hex(8)}.npz"
        packed = pack(new, expected, version)
        self._storage.put(file, packed)
        try:
            with self._database.session() as session:
                # No game comes to a run that is being closed, and read, meanwhile.
                newest = select(Run.number).order_by(Run.number.desc()).limit(1)
                session.execute(newest.with_for_update())
                upload = Upload(
                    user_id=user,
                    task_id=task_id,
                    run=current_run(session),
                    sha256=sha256,
                    file=file,
                    file_sha256=hashlib.sha256(packed).hexdigest(),
                    games=len(new),
                    positions=sum(game.plies for game in new),
                    recorded=sum(game.recorded for game in new),
                    version=version,
                    created=time.time(),
                )
                seldom = self._seldom(session, new)
                again = set(
                    session.scalars(
                        select(PlayedRow.hash).where(PlayedRow.hash.in_([g.hash for g in new]))
                    )
                )
                session.add(upload)
                session.flush()
                for game in new:
                    flags = list(game.flags)
                    if game.hash in again:
                        flags.append("duplicate")
                    if game.first_move in seldom:
                        flags.append("first-move")
                    again.add(game.hash)
                    session.add(_row(game, upload.id, flags))
                stored = Task.stored + len(new)
                session.execute(update(Task).where(Task.id == task_id).values(stored=stored))
        except IntegrityError:
            self._storage.remove(file)
            return None
        # After any other fault the rows may have been kept all the same: the file stays.
        with self._lock:
            self._first_moves.update(game.first_move for game in new)
        return Stored(len(new), len(games) - len(new))

    def _new(self, session: Session, games: Sequence[CheckedGame]) -> list[CheckedGame]:
        """The games that are not stored.

        Raises:
            Refused: one is, and is another game.
        """
        numbers = [game.number for game in games]
        rows = session.execute(
            select(PlayedRow.number, PlayedRow.digest).where(PlayedRow.number.in_(numbers))
        )
        known = {number: digest for number, digest in rows}
        for game in games:
            if known.get(game.number, game.digest) != game.digest:
                raise Refused("conflict", f"game {game.number} is stored, and is another game")
        return [game for game in games if game.number not in known]

    def _seldom(self, session: Session, games: Sequence[CheckedGame]) -> set[str]:
        """First moves of these games with which few others began; none: too few games to say.

        The games that are there are counted once, then those that come are added.
        """
        with self._lock:
            if not self._first_moves:
                rows = session.execute(
                    select(PlayedRow.first_move, func.count()).group_by(PlayedRow.first_move)
                )
                self._first_moves.update({move: count for move, count in rows})
            total = self._first_moves.total()
            if total < _RARE:
                return set()
            moves = {game.first_move for game in games}
            return {move for move in moves if self._first_moves[move] * _RARE < total}

    def _quarantine(
        self, user: int, task_id: int, data: bytes, sha256: str, refused: Refused
    ) -> None:
        with self._database.reading() as session:
            kept = session.scalar(
                select(func.count())
                .select_from(Quarantined)
                .where(Quarantined.user_id == user, Quarantined.file != "")
            )
        file = ""
        if (kept or 0) < self._config.quarantined_files:
            file = f"quarantine/{user}-{secrets.token_hex(8)}.bin"
            self._storage.put(file, data)
        with self._database.session() as session:
            session.add(
                Quarantined(
                    user_id=user,
                    task_id=task_id,
                    kind=refused.kind[:32],
                    reason=refused.reason[:500],
                    sha256=sha256,
                    file=file,
                    created=time.time(),
                )
            )


def start_of(opening: str) -> str:
    """The start position of an opening as a GUI would send it."""
    start = split_position(opening)[0]
    return start if start == STARTPOS else check_sfen(start)


def current_run(session: Session) -> int:
    """The number of the run to whose data games are added that come now."""
    closed = session.scalar(select(func.max(Run.number)).where(Run.closed.is_not(None)))
    return (closed or 0) + 1


def pack(games: Sequence[CheckedGame], expected: Expected, version: str) -> bytes:
    """A file of self-play games, its `meta` made by the server."""
    arrays = {
        name: np.concatenate([game.arrays[name] for game in games]) for name in games[0].arrays
    }
    meta: dict[str, Any] = {
        "format": FORMAT,
        "endings": ENDINGS,
        "model": expected.model,
        "resign_threshold": expected.resign_threshold,
        "options": expected.options,
        "versions": {"ginkgo": version},
    }
    stream = io.BytesIO()
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez_compressed(stream, meta=text, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def _row(game: CheckedGame, upload: int, flags: Sequence[str]) -> PlayedRow:
    return PlayedRow(
        number=game.number,
        upload_id=upload,
        digest=game.digest,
        hash=game.hash,
        plies=game.plies,
        winner=game.winner,
        end=game.end,
        first_move=game.first_move,
        flags=" ".join(flags),
    )
