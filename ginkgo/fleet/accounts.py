"""Accounts: who may upload, who may publish.

In: names and tokens. Out: users, or a refusal. A token is 256 random bits and is kept only as its
SHA-256; a slow hash would add nothing to what cannot be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from ginkgo.errors import GinkgoError
from ginkgo.fleet.database import Upload, User

WORKER, TRAINER = "worker", "trainer"


def hash_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def add_user(session: Session, name: str, role: str) -> str:
    """Make an account, or give one a new token and role; the old token ends.

    Returns:
        the token, which nobody can read again.
    """
    token = secrets.token_urlsafe(32)
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        user = User(name=name, role=role, created=time.time())
        session.add(user)
    user.role, user.token_hash = role, hash_of(token)
    return token


def find_user(session: Session, name: str) -> User:
    """The account of this name.

    Raises:
        GinkgoError: there is none.
    """
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise GinkgoError(f"{name}: no such user")
    return user


def user_of(session: Session, token: str) -> User | None:
    """Whose token that is."""
    return session.scalar(select(User).where(User.token_hash == hash_of(token)))


def block(session: Session, name: str) -> None:
    """Take a user's token away.

    Raises:
        GinkgoError: there is none of this name.
    """
    find_user(session, name).token_hash = None


def revoke_games(session: Session, name: str) -> int:
    """Take a user's games out of the training data; how many.

    Raises:
        GinkgoError: there is none of this name.
    """
    user = find_user(session, name)
    mine = (Upload.user_id == user.id) & Upload.revoked.is_(None)
    games = sum(session.scalars(select(Upload.games).where(mine)))
    session.execute(update(Upload).where(mine).values(revoked=time.time()))
    return games


class Rates:
    """Requests of each user in the last minute, about: a bucket that refills steadily.

    Args:
        per_minute: requests that go in.
    """

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._left: dict[int, tuple[float, float]] = defaultdict(
            lambda: (self._most, time.monotonic())
        )

    def wait(self, user: int) -> float:
        """Count a request; seconds that it comes too early, 0: it may pass."""
        left, then = self._left[user]
        now = time.monotonic()
        left = min(self._most, left + (now - then) * self._most / 60)
        if left < 1:
            self._left[user] = left, now
            return (1 - left) * 60 / self._most
        self._left[user] = left - 1, now
        return 0.0
