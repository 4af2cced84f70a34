"""What the server knows: accounts, models, runs, tasks, uploads, games. SQLAlchemy tables.

In: the URL of a database (SQLite or PostgreSQL). Out: a `Database` that is at the newest version
of the schema, and sessions.

Times are seconds since 1970. Games themselves lie in `storage`; a game counts only if its row is
here, and its row is written after its file, so a kill between the two leaves a file that nobody
reads, never a row without a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    UniqueConstraint,
    create_engine,
    event,
)
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ginkgo.errors import GinkgoError

MIGRATIONS = Path(__file__).with_name("migrations")

#: Of a row's number: SQLite counts up only what it knows as INTEGER.
_ID = BigInteger().with_variant(Integer, "sqlite")
#: Seconds that a writer of SQLite waits for another one.
_WAIT_S = 30.0
#: As many as threads that answer requests.
_CONNECTIONS = 40


class Base(DeclarativeBase):
    """Of all tables. Constraints have names of their own, by which migrations can find them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class User(Base):
    """An account."""

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    """`worker` or `trainer`."""
    token_hash: Mapped[str | None] = mapped_column(String(64), unique=True)
    """SHA-256 of the token, hexadecimal; none: the account is blocked."""
    created: Mapped[float]


class Client(Base):
    """A program of a user: a worker with its name, or the trainer, which has none."""

    __tablename__ = "clients"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    version: Mapped[str] = mapped_column(String(32))
    """Of ginkgo."""
    seen: Mapped[float] = mapped_column(index=True)
    """When a request came last."""


class Model(Base):
    """A network that workers play with."""

    __tablename__ = "models"
    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    sha256: Mapped[str] = mapped_column(String(64))
    size: Mapped[int] = mapped_column(BigInteger)
    file: Mapped[str] = mapped_column(String(255), default="")
    """Empty: it has been announced and has not come yet."""
    about: Mapped[dict[str, Any]] = mapped_column(JSON)
    """What the trainer says of it: `reference` (see that module), `samples`, …"""
    created: Mapped[float]


class Run(Base):
    """Games that are wanted: those of a generation."""

    __tablename__ = "runs"
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    games: Mapped[int]
    options: Mapped[dict[str, Any]] = mapped_column(JSON)
    """`PlayOptions`, numbers only."""
    openings: Mapped[list[str]] = mapped_column(JSON)
    """As a GUI would send them; none: the usual start."""
    resign_threshold: Mapped[float]
    seed: Mapped[int]
    opened: Mapped[float]
    closed: Mapped[float | None]


class Match(Base):
    """Rating games that are wanted between two models."""

    __tablename__ = "matches"
    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    a_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    b_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    games: Mapped[int]
    nodes: Mapped[int]
    max_ply: Mapped[int]
    openings: Mapped[list[str]] = mapped_column(JSON)
    """Of each pair of games, as a GUI would send them."""
    created: Mapped[float]
    closed: Mapped[float | None] = mapped_column(index=True)
    """Since when no more of its games are handed out: all are there, or enough to decide."""


class Task(Base):
    """Work that was handed to a worker."""

    __tablename__ = "tasks"
    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    run: Mapped[int | None] = mapped_column(ForeignKey("runs.number"))
    match_id: Mapped[int | None] = mapped_column(ForeignKey("matches.id"))
    """One of the two."""
    worker: Mapped[str] = mapped_column(String(32), default="")
    """Which of the user's workers has it (`Client.name`)."""
    first: Mapped[int] = mapped_column(BigInteger)
    """Number of its first game: of all games of self-play, or within the match."""
    games: Mapped[int]
    stored: Mapped[int] = mapped_column(default=0)
    created: Mapped[float]
    expires: Mapped[float] = mapped_column(index=True)
    """From then on its games are handed out again, or are no longer reckoned with."""


class Upload(Base):
    """Games of self-play that came together and are stored."""

    __tablename__ = "uploads"
    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id"))
    run: Mapped[int] = mapped_column(Integer, index=True)
    """Whose training data they are: the one that was open when they came."""
    sha256: Mapped[str] = mapped_column(String(64))
    """Of what was sent."""
    file: Mapped[str] = mapped_column(String(255), unique=True)
    file_sha256: Mapped[str] = mapped_column(String(64))
    """Of what is stored."""
    games: Mapped[int]
    positions: Mapped[int]
    recorded: Mapped[int]
    version: Mapped[str] = mapped_column(String(32))
    created: Mapped[float]
    revoked: Mapped[float | None]
    __table_args__ = (UniqueConstraint("task_id", "sha256"),)


class PlayedRow(Base):
    """A stored game of self-play."""

    __tablename__ = "games"
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    upload_id: Mapped[int] = mapped_column(ForeignKey("uploads.id"), index=True)
    digest: Mapped[str] = mapped_column(String(64))
    """Of all that was said of the game: the same number again must mean the same game."""
    hash: Mapped[str] = mapped_column(String(16), index=True)
    """`game_hash`, hexadecimal: of start and moves alone."""
    plies: Mapped[int]
    winner: Mapped[str] = mapped_column(String(1))
    end: Mapped[str] = mapped_column(String(16))
    first_move: Mapped[str] = mapped_column(String(5), index=True)
    flags: Mapped[str] = mapped_column(String(64), default="")
    """What is odd about it, words with spaces between."""


class RatedGame(Base):
    """A stored game of a match."""

    __tablename__ = "rated_games"
    match_id: Mapped[int] = mapped_column(ForeignKey("matches.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    score: Mapped[float]
    """Of A."""
    played: Mapped[dict[str, Any]] = mapped_column(JSON)
    created: Mapped[float]
    __table_args__ = (Index(None, "created"),)


class Quarantined(Base):
    """An upload that was refused."""

    __tablename__ = "quarantine"
    id: Mapped[int] = mapped_column(_ID, primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    task_id: Mapped[int | None] = mapped_column(ForeignKey("tasks.id"))
    kind: Mapped[str] = mapped_column(String(32), index=True)
    reason: Mapped[str] = mapped_column(String(500))
    sha256: Mapped[str] = mapped_column(String(64))
    file: Mapped[str] = mapped_column(String(255))
    """Empty: nothing was kept, for the user has enough in quarantine."""
    created: Mapped[float]


class Database:
    """A database at the newest version of the schema.

    Args:
        url: as SQLAlchemy takes it: `sqlite:///ginkgo.db`, `postgresql+psycopg://…`.

    Raises:
        GinkgoError: it cannot be opened.
    """

    def __init__(self, url: str) -> None:
        try:
            self.engine = _engine(url)
            _upgrade(self.engine)
        except (SQLAlchemyError, ArgumentError, ImportError, OSError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise GinkgoError(f"--database {_shown(url)}: {line}") from None

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A transaction: kept when the block ends, undone when it raises."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads: with SQLite it waits for no writer."""
        engine = self.engine.execution_options(reading=True)
        with Session(engine, expire_on_commit=False) as session, session.begin():
            yield session

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True, pool_size=_CONNECTIONS)
    if parsed.database and parsed.database != ":memory:":
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    wait = {"timeout": _WAIT_S}
    engine = create_engine(parsed, connect_args=wait, pool_size=_CONNECTIONS)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: Any) -> None:
        # The driver begins transactions by itself, and late; `_begin` does it.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # A transaction that reads first and writes later could not be repeated by SQLite.
        reading = connection.get_execution_options().get("reading")
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _upgrade(engine: Engine) -> None:
    """Bring the schema to its newest version."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
