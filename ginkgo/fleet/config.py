"""The options of the server and of the worker: one dataclass each.

In: the command line of `ginkgo serve`; a TOML file for `ginkgo contribute`. Out: checked options.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ginkgo.errors import GinkgoError

#: Games of a task at most: their numbers are the task's times this, and on.
TASK_GAMES = 1024


@dataclass(frozen=True)
class ServeConfig:
    """Collect games of many workers, and hand them the newest model.

    With one of the last options it changes accounts instead, and ends.
    """

    host: str = "127.0.0.1"
    """Address to listen on; other machines should come through a proxy that speaks TLS."""
    port: int = 8080
    """Port; 0: any that is free."""
    database: str = "sqlite:///server/ginkgo.db"
    """SQLite file or PostgreSQL (`postgresql+psycopg://user@host/name`)."""
    storage: str = "server/files"
    """Folder or fsspec URL (`s3://bucket/folder`) for games and models."""
    validators: int = 1
    """Processes that check uploads."""

    largest_upload: int = 8_000_000
    """Bytes of an upload of games at most."""
    largest_model: int = 256_000_000
    """Bytes of a model at most."""
    requests_per_minute: int = 600
    """Of one user; more are refused for a while."""
    open_tasks: int = 64
    """Tasks that one user may have open."""
    task_hours: float = 6.0
    """After which the games of a task are no longer expected."""
    models_accepted: int = 3
    """Games of so many newest models are taken, those of older ones refused."""
    ahead: float = 2.0
    """No more games are handed out when so many times those of a run are there or under way."""
    oldest_client: str = ""
    """Version of ginkgo; older workers are told to upgrade. Empty: any may come."""
    quarantined_files: int = 100
    """Refused uploads of one user that are kept to look at."""
    figures_seconds: float = 10.0
    """That public figures may be old: counting them anew for each who asks would cost too much."""
    proxied: bool = False
    """Believe what a proxy on this machine says of the address and scheme of a request."""

    add_user: str = ""
    """Make an account of this name (or give it a new token) and print its token, once."""
    role: Literal["worker", "trainer"] = "worker"
    """Of that account: workers play, a trainer publishes models and reads all games."""
    block: str = ""
    """Take the token of this user away."""
    revoke_games: str = ""
    """Take all games of this user out of the training data, from the next generation on."""


_NAME = "letters, digits, `-` and `_`, 1 to 64"


def check_name(name: str, what: str) -> None:
    """Refuse what cannot be the name of an account.

    Raises:
        GinkgoError: it cannot; `what` says where it was given.
    """
    if not 1 <= len(name) <= 64 or not name.replace("-", "").replace("_", "").isalnum():
        raise GinkgoError(f"{what} {name!r}: expected {_NAME}")
    if not name.isascii():
        raise GinkgoError(f"{what} {name!r}: expected {_NAME}")


def check_serve(config: ServeConfig) -> None:
    """Refuse values that cannot work.

    Raises:
        GinkgoError: the option as typed, and what was expected.
    """
    for name in ("validators", "largest_upload", "largest_model", "requests_per_minute"):
        if getattr(config, name) < 1:
            _refuse(config, name, "at least 1")
    for name in ("open_tasks", "models_accepted"):
        if getattr(config, name) < 1:
            _refuse(config, name, "at least 1")
    if config.quarantined_files < 0:
        _refuse(config, "quarantined_files", "at least 0")
    for name in ("task_hours", "ahead"):
        if not (math.isfinite(getattr(config, name)) and getattr(config, name) > 0):
            _refuse(config, name, "more than 0")
    if not (math.isfinite(config.figures_seconds) and config.figures_seconds >= 0):
        _refuse(config, "figures_seconds", "at least 0")
    if config.ahead < 1:
        _refuse(config, "ahead", "at least 1: else no run would be full")
    if not 0 <= config.port <= 65535:
        _refuse(config, "port", "0 to 65535")
    if config.oldest_client and version_of(config.oldest_client) is None:
        _refuse(config, "oldest_client", "a version such as 1.2.0")
    for name in ("add_user", "block", "revoke_games"):
        if getattr(config, name):
            check_name(getattr(config, name), f"--{name.replace('_', '-')}")


def _refuse(config: ServeConfig, name: str, expected: str) -> None:
    value = getattr(config, name)
    raise GinkgoError(f"--{name.replace('_', '-')} {value}: expected {expected}")


def version_of(text: str) -> tuple[int, ...] | None:
    """A version as numbers that can be compared; None: it is none.

    >>> version_of("1.10.2") > version_of("1.9")
    True
    """
    parts = text.split(".")
    if not 1 <= len(parts) <= 4:
        return None
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        return None
    return tuple(map(int, parts))


@dataclass(frozen=True)
class WorkerConfig:
    """What `contribute.toml` says."""

    server: str
    """URL of the server."""
    username: str
    token: str
    """As the server printed it; whoever has it can upload in that name."""
    games_per_batch: int = 32
    """Games of a task, and of an upload at most."""
    concurrent: int = 64
    """Games under way at once: the size of the evaluator's batches."""
    threads: int = 1
    """Of the evaluator."""
    folder: Path = Path("contribute")
    """Models, and games that are not uploaded yet. Each worker needs one of its own."""
    log: str = "contribute.log"
    """File in the folder to which a line for every event goes."""
    rating: bool = True
    """Play rating games as well, when they are wanted."""
    games: int = 0
    """End after so many games; 0: never."""
    cached: int = 65536
    """Evaluated positions that are remembered, about 0.6 kB each."""


def load_worker(path: Path) -> WorkerConfig:
    """The options of a worker.

    Raises:
        GinkgoError: the file cannot be read, or says something that cannot be.
    """
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GinkgoError(f"{path}: no TOML: {error}") from None
    known = {one.name: one for one in fields(WorkerConfig)}
    for name, value in found.items():
        if name not in known:
            raise GinkgoError(f"{path}: {name}: expected one of {', '.join(known)}")
        wanted = str(known[name].type)
        kind = {"int": int, "bool": bool}.get(wanted, str)
        if type(value) is not kind:
            raise GinkgoError(f"{path}: {name} = {value!r}: expected {kind.__name__}")
    for name in ("server", "username", "token"):
        if not found.get(name):
            raise GinkgoError(f"{path}: no {name} in it")
    if "folder" in found:
        found["folder"] = Path(found["folder"]).expanduser()
    config = WorkerConfig(**found)
    split = urlsplit(config.server)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise GinkgoError(f"{path}: server = {config.server!r}: expected https://HOST")
    check_name(config.username, f"{path}: username")
    limits = {"games_per_batch": (1, TASK_GAMES), "concurrent": (1, 4096), "threads": (1, 256)}
    for name, (least, most) in (limits | {"games": (0, 1 << 40), "cached": (0, 1 << 30)}).items():
        if not least <= getattr(config, name) <= most:
            raise GinkgoError(
                f"{path}: {name} = {getattr(config, name)}: expected {least} to {most}"
            )
    if Path(config.log).name != config.log:
        raise GinkgoError(f"{path}: log = {config.log!r}: expected a plain name")
    return config
