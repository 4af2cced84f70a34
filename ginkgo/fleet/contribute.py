"""`ginkgo contribute`: a worker. It fetches the newest model, plays, and uploads.

In: a TOML file. Out: games, at a server; a log.

One thread plays, another one uploads what the first has put into the spool. Whatever happens to
either, or to the server, what is in the spool is sent some time.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.fleet.config import TASK_GAMES, WorkerConfig, load_worker
from ginkgo.records.lock import lock

#: Seconds between two progress lines, two signs of life, two looks into the spool.
_LINE_S, _SIGN_S, _LOOK_S = 30.0, 60.0, 2.0


@dataclass(frozen=True)
class ContributeConfig:
    """Play for a server and upload the games.

    Ctrl-C lets the games under way end, a second one ends at once; what is finished is kept and
    uploaded now or next time.
    """

    config: Path = Path("contribute.toml")
    """File with `server`, `username`, `token`; docs/SERVER.md lists the rest."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, play until stopped.

    Raises:
        GinkgoError: a user's mistake, or the server does not want this worker.
    """
    config = load_worker(tyro.cli(ContributeConfig, prog="ginkgo contribute", args=argv).config)
    try:
        (config.folder / "games").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GinkgoError(f"{config.folder}: cannot be made: {error.strerror}") from None
    with open(config.folder / "lock", "w") as place:
        if not lock(place.fileno()):
            raise GinkgoError(
                f"{config.folder}: another worker uses it; each needs a folder of its own"
            )
        return Contributor(config).run()


class Contributor:
    """A worker with its folder."""

    def __init__(self, config: WorkerConfig) -> None:
        from ginkgo.fleet.client import ServerClient
        from ginkgo.fleet.spool import Spool

        self._config = config
        self._client = ServerClient(config.server, config.token, _name_of(config.folder))
        self._spool = Spool(config.folder / "games")
        self._log = open(config.folder / config.log, "a", encoding="utf-8")
        self._stop, self._end = threading.Event(), threading.Event()
        self._failed: Exception | None = None
        self._coming: dict[str, Any] | None = None
        self._playing: dict[int, int] = {}
        """Games of each task that are begun or to begin."""
        self._begun = self._games = self._positions = self._sent = 0
        self._verified: set[str] = set()

    def run(self) -> int:
        """Play until stopped; the exit status.

        Raises:
            GinkgoError: the server does not want this worker, or a model cannot be played.
        """
        self._started = time.monotonic()
        uploader = threading.Thread(target=self._upload, name="ginkgo-uploader", daemon=True)
        with self._signals():
            try:
                if self._welcome():
                    uploader.start()
                    self._play()
            finally:
                self._end.set()
                if uploader.is_alive():
                    uploader.join()  # it gives up when the server does not answer
                self._say_progress()
                self._client.close()
                self._log.close()
        if self._failed is not None:
            raise self._failed
        return 0

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C, and what systemd sends, stop the worker; the second one at once."""

        def note(_number: int, _frame: object) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()
            # Not through `_say`: the signal may have come in the middle of its line.
            os.write(2, b"the games under way go on to their end; once more ends at once\n")

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _say(self, text: str, aloud: bool = True) -> None:
        """A line to the log, and to the terminal where it is not one of many."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
        if aloud:
            print(line, file=sys.stderr, flush=True)
        with contextlib.suppress(ValueError):  # closed: the last words of the uploader
            print(line, file=self._log, flush=True)

    def _say_progress(self) -> None:
        seconds = time.monotonic() - self._started
        self._said = time.monotonic()
        self._say(
            f"{self._games:,} games, {self._positions / seconds:,.1f} positions/s, "
            f"{self._sent:,} uploaded, {len(self._spool):,} waiting"
        )

    # --- talking to the server ----------------------------------------------------------------

    def _patiently(self, call: Any) -> Any:
        from ginkgo.fleet.client import Turned, patiently

        try:
            return patiently(call, self._stop.wait, self._say)
        except Turned as turned:
            raise GinkgoError(f"{self._config.server}: {turned}") from None

    def _welcome(self) -> bool:
        """Whether the server knows us; False: stopped before it answered."""
        account = self._patiently(self._client.account)
        if account is None:
            return False
        if account["name"] != self._config.username:
            raise GinkgoError(
                f"the token is that of {account['name']}, not of {self._config.username}"
            )
        self._say(f"{self._config.server}: welcome, {account['name']}")
        return True

    def _ask(self) -> tuple[dict[str, Any] | None, float]:
        holding = sorted(self._spool.tasks() | self._playing.keys())
        wanted = self._config.games_per_batch
        if self._config.games:
            wanted = max(1, min(wanted, self._config.games - self._begun))
        task, wait = self._client.task(wanted, self._config.rating, holding)
        if task is not None:
            self._playing[task["task"]] = task["games"]
        return task, wait

    @property
    def _enough(self) -> bool:
        limit = self._config.games
        return self._stop.is_set() or bool(limit and self._begun >= limit)

    # --- playing ------------------------------------------------------------------------------

    def _play(self) -> None:
        self._said = time.monotonic()
        while not self._enough:
            task, self._coming = self._coming, None
            if task is None:
                answer = self._patiently(self._ask)
                if answer is None:
                    return
                task, wait = answer
                if task is None:
                    self._stop.wait(wait)
                    continue
            if task["kind"] == "rating":
                self._play_rating(task)
            else:
                self._play_selfplay(task)

    def _fetch(self, model: dict[str, Any]) -> Path | None:
        """A model that this machine computes rightly; None: stopped before it had come."""
        from ginkgo.fleet import reference
        from ginkgo.search.evaluators import make_evaluator

        def load() -> Path:
            return self._client.download(model, self._config.folder / "models")

        path = self._patiently(load)
        if path is not None and model["sha256"] not in self._verified:
            wanted = model["about"].get("reference")
            if wanted:
                evaluator = make_evaluator(str(path), threads=self._config.threads)
                reference.compare(reference.answers(evaluator), wanted)
            self._verified.add(model["sha256"])
            self._say(f"model {model['name']}")
        return path

    def _play_selfplay(self, task: dict[str, Any]) -> None:
        """Games of this task and those after it, as long as the model stays."""
        from ginkgo.search.evaluators import make_evaluator
        from ginkgo.search.many import play_many
        from ginkgo.search.queue import Queue

        path = self._fetch(task["model"])
        if path is None:
            return
        queue = Queue(make_evaluator(str(path), threads=self._config.threads), self._config.cached)
        for game in play_many(self._coming_games(task), [[queue]], self._config.concurrent):
            self._spool.keep(game, task["model"]["name"])
            self._ended(game.number // TASK_GAMES, game.plies)

    def _ended(self, task: int, plies: int) -> None:
        self._games += 1
        self._positions += plies
        self._fewer(task, 1)
        if time.monotonic() - self._said > _LINE_S:
            self._say_progress()
        if self._failed is not None:
            raise self._failed

    def _fewer(self, task: int, games: int) -> None:
        """So many games of a task will no longer come."""
        left = self._playing.pop(task) - games
        if left:
            self._playing[task] = left

    def _coming_games(self, first: dict[str, Any]) -> Iterator[Any]:
        """The games of a task, and of the next ones with the same model."""
        from ginkgo.fleet.client import Away, Turned
        from ginkgo.selfplay.game import play_game

        task: dict[str, Any] | None = first
        model = first["model"]["name"]
        while task is not None:
            options, openings = _options_of(task), _openings_of(task, self._config.folder)
            seed, threshold = (int(task["seed"]),), float(task["resign_threshold"])
            for number in range(task["first"], task["first"] + task["games"]):
                if self._enough:
                    self._fewer(task["task"], task["first"] + task["games"] - number)
                    return
                self._begun += 1
                yield play_game(number, options, openings, threshold, seed)
            if self._enough:
                return
            try:
                task, _ = self._ask()
            except (Away, Turned):
                return  # `_play` asks again, and waits
            if task is not None and (task["kind"] == "rating" or task["model"]["name"] != model):
                self._coming = task
                return

    def _play_rating(self, task: dict[str, Any]) -> None:
        from ginkgo.arena.batched import play_models
        from ginkgo.arena.players import Limits, Player
        from ginkgo.arena.referee import Pairing, Rules
        from ginkgo.fleet.matches import opening_of

        players = {}
        for side, model in zip("ab", task["models"], strict=True):
            path = self._fetch(model)
            if path is None:
                return
            limits = Limits(nodes=int(task["nodes"]))
            players[side] = Player(
                model["name"], str(path), (), limits, threads=self._config.threads
            )
        first, last = task["first"], task["first"] + task["games"]

        def pairings() -> Iterator[Pairing]:
            for number in range(first, last):
                if self._stop.is_set():
                    return
                opening = opening_of(task["openings"][(number - first) // 2])
                self._begun += 1
                yield Pairing(number, opening)

        rules = Rules(max_ply=int(task["max_ply"]))
        for game in play_models(pairings(), players, rules, self._config.concurrent):
            self._spool.keep_rated(task["task"], game)
            self._ended(task["task"], game.plies)

    # --- uploading ----------------------------------------------------------------------------

    def _upload(self) -> None:
        """The thread that sends what is in the spool."""
        from ginkgo.fleet.client import Away, Turned, patiently

        def pause(seconds: float) -> bool:
            return self._end.wait(seconds)

        sign = time.monotonic()
        try:
            while True:
                last = self._end.is_set()
                for waiting in self._spool.uploads(self._config.games_per_batch):
                    if self._ready(waiting, last):
                        sign = time.monotonic()
                        patiently(partial(self._send, waiting), pause, self._say)
                if last:
                    return
                if time.monotonic() - sign > _SIGN_S:
                    sign = time.monotonic()
                    with contextlib.suppress(Away):
                        self._client.account()
                self._end.wait(_LOOK_S)
        except Turned as turned:
            self._failed = GinkgoError(f"{self._config.server}: {turned}")
        except Exception as error:  # it must not play on without an uploader
            self._failed = error
        self._stop.set()

    def _ready(self, waiting: Any, last: bool) -> bool:
        """Whether an upload is to be sent: it is full, or no more games of its task will come."""
        full = len(waiting.files) >= self._config.games_per_batch
        return last or full or waiting.task not in self._playing

    def _send(self, waiting: Any) -> None:
        from ginkgo.fleet.client import Turned

        try:
            if waiting.rating:
                self._client.rated(waiting.task, self._spool.rated(waiting))
            else:
                self._client.upload(waiting.task, self._spool.packed(waiting))
        except Turned as turned:
            if turned.status in (401, 403, 426):
                raise
            self._say(f"{len(waiting.files)} games are refused: {turned}")
            self._spool.set_aside(waiting)
        except GinkgoError as error:
            self._say(f"{len(waiting.files)} games are lost: {error}")
            self._spool.set_aside(waiting)
        else:
            self._sent += len(waiting.files)
            names = " ".join(path.stem for path in waiting.files)
            self._say(f"{len(waiting.files)} games are stored: {names}", aloud=False)
            self._spool.drop(waiting)


def _name_of(folder: Path) -> str:
    """The name of the worker of a folder, made at the first time."""
    path = folder / "name"
    if not path.exists():
        path.write_text(secrets.token_hex(8))
    return path.read_text().strip()


def _options_of(task: dict[str, Any]) -> Any:
    """How to play, as the server says.

    Raises:
        GinkgoError: it says what cannot be.
    """
    from dataclasses import fields

    from ginkgo.selfplay.config import PlayOptions, check

    known = {one.name: str(one.type) for one in fields(PlayOptions) if one.name != "openings"}
    values: dict[str, Any] = {}
    for name, value in task["options"].items():
        if name not in known or isinstance(value, bool) or not isinstance(value, int | float):
            raise GinkgoError(f"the server wants {name} = {value!r}; is this ginkgo too old?")
        values[name] = int(value) if known[name] == "int" else float(value)
    options = PlayOptions(**values)
    check(options)
    return options


def _openings_of(task: dict[str, Any], folder: Path) -> Any:
    """The openings of a task, through a file, as `ginkgo selfplay --openings` reads them."""
    from ginkgo.records.files import write_text
    from ginkgo.selfplay.game import load_openings

    if not task["openings"]:
        return load_openings(None)
    path = folder / f"openings-{int(task['run'])}.txt"
    write_text(path, "\n".join(map(str, task["openings"])) + "\n")
    return load_openings(path)
