"""Rating games: what a worker says of them, replayed, and what they say of the models.

In: games of a match as a worker sends them. Out: stored games, the result of a match as `ginkgo
match --json` has it, a rating list.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ginkgo.arena.openings import Opening
from ginkgo.arena.rating import rate
from ginkgo.arena.referee import Pairing, Played, Referee, Rules
from ginkgo.arena.tally import Tally
from ginkgo.errors import GinkgoError
from ginkgo.fleet.database import Database, Match, Model, RatedGame, Task
from ginkgo.fleet.intake import Stored
from ginkgo.fleet.upload import Refused
from ginkgo.search.rules import split_position

#: Times that storing is tried when others store the same games.
_TRIES = 5
#: Endings that two models in one process can come to.
_ENDINGS = ("tsumi", "sennichite", "perpetual", "max_moves", "kachi")


def opening_of(text: str) -> Opening:
    """An opening of its text.

    Raises:
        GinkgoError: it is none.
    """
    start, moves = split_position(text)
    return Opening(start, tuple(moves))


def check_game(found: dict[str, Any], pairing: Pairing, max_ply: int) -> Played:
    """A game of a match, by the referee.

    Args:
        found: `Played.to_json`; only its moves and its scores are believed, and whether the last
            mover's opponent declared a win.

    Raises:
        Refused: the rules do not bear it out.
    """
    number = pairing.number
    try:
        said = Played.from_json(found)
        moves, scores = said.moves, said.scores
        if len(moves) > max_ply or any(not isinstance(move, str) for move in moves):
            raise ValueError
        if not all(one is None or (type(one) is int and abs(one) <= 1e6) for one in scores):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Refused("damaged", f"game {number}: no game of a match") from None
    referee = Referee(pairing, Rules(max_ply=max_ply))
    given = len(pairing.opening.moves)
    if moves[:given] != pairing.opening.moves or len(scores) != len(moves):
        raise Refused("range", f"game {number}: another opening, or scores that do not fit")
    for move, score in zip(moves[given:], scores[given:], strict=True):
        if referee.over:
            raise Refused("result", f"game {number}: goes on after its end")
        referee.answer(move, score)
    if not referee.over and said.end == "kachi":
        referee.answer("win")
    if not referee.over:
        raise Refused("result", f"game {number}: is not over")
    played = referee.played()
    if played.end not in _ENDINGS:
        raise Refused("illegal", f"game {number}: {played.end} {played.reason}".rstrip())
    if (played.winner, played.end) != (said.winner, said.end):
        raise Refused("result", f"game {number}: the board says {played.end}, {played.winner}")
    return played


def take_rated(
    database: Database, user: int, task_id: int, games: Sequence[dict[str, Any]]
) -> Stored:
    """Check games of a match and store what is new.

    Raises:
        Refused: a game is not what it should be; none is stored.
    """
    with database.reading() as session:
        task = session.get(Task, task_id)
        if task is None or task.user_id != user or task.match_id is None:
            raise Refused("task", "no rating task of yours has this number")
        match = session.get_one(Match, task.match_id)
        numbers = range(task.first, task.first + task.games)
    checked: dict[int, Played] = {}
    for found in games:
        number = found.get("number")
        if type(number) is not int or number not in numbers or number in checked:
            raise Refused("numbers", "numbers of games that its task does not have, or one twice")
        pairing = Pairing(number, opening_of(match.openings[number // 2]))
        checked[number] = check_game(found, pairing, match.max_ply)
    for _ in range(_TRIES):
        try:
            new = _store(database, user, task_id, match.id, checked)
        except IntegrityError:
            continue  # another task had them too, after its first one had been given up
        return Stored(new, len(checked) - new)
    raise Refused("busy", "the same games came several times at once; send them again")


def _store(
    database: Database, user: int, task_id: int, match: int, checked: dict[int, Played]
) -> int:
    """Store the games that are new; how many. With the last one the match is closed."""
    with database.session() as session:
        mine = RatedGame.match_id == match
        known = set(session.scalars(select(RatedGame.number).where(mine)))
        new = [number for number in checked if number not in known]
        for number in new:
            session.add(
                RatedGame(
                    match_id=match,
                    number=number,
                    user_id=user,
                    score=checked[number].score,
                    played=checked[number].to_json(),
                    created=time.time(),
                )
            )
        stored = Task.stored + len(new)
        session.execute(update(Task).where(Task.id == task_id).values(stored=stored))
        whole = (Match.id == match) & (Match.games <= len(known) + len(new))
        session.execute(update(Match).where(whole).values(closed=time.time()))
    return len(new)


def result_of(session: Session, match: Match) -> dict[str, Any]:
    """The result so far, as `ginkgo match --json` writes it, and `wanted`."""
    tally = Tally()
    rows = session.scalars(
        select(RatedGame.played).where(RatedGame.match_id == match.id).order_by(RatedGame.number)
    )
    for found in rows:
        tally.add(Played.from_json(found))
    names = [session.get_one(Model, number).name for number in (match.a_id, match.b_id)]
    return {"a": names[0], "b": names[1], "wanted": match.games, **tally.result()}


def ratings(session: Session) -> list[dict[str, Any]]:
    """All models that have played, the strongest first; the oldest has 0."""
    points: dict[tuple[str, str], float] = defaultdict(float)
    names = {number: name for number, name in session.execute(select(Model.id, Model.name))}
    seen: set[int] = set()
    sums = session.execute(
        select(Match.a_id, Match.b_id, func.sum(RatedGame.score), func.count())
        .join(RatedGame, RatedGame.match_id == Match.id)
        .where(Match.a_id != Match.b_id)
        .group_by(Match.a_id, Match.b_id)
    )
    for a, b, score, games in sums:
        points[names[a], names[b]] += score
        points[names[b], names[a]] += games - score
        seen |= {a, b}
    if not seen:
        return []
    try:
        found = rate(points, names[min(seen)])
    except GinkgoError:  # no chain of games leads to some of them yet
        return []
    return [vars(one) for one in found]
