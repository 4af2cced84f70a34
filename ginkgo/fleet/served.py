"""The reinforcement loop with the workers of a server.

In: a `ServedConfig`. Out: the run folder of `ginkgo.selfplay.loop`. Models are published at the
server, the games and the matches are played by its workers and come back from its storage;
training stays here. All state is in the run folder and at the server.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ginkgo.arena.openings import PLIES, Opening, Openings
from ginkgo.arena.statistics import Sprt
from ginkgo.errors import GinkgoError
from ginkgo.fleet import reference
from ginkgo.fleet.client import ServerClient, Turned, patiently
from ginkgo.fleet.reinforce import ServedConfig
from ginkgo.records.files import atomic_write
from ginkgo.records.game import STARTPOS
from ginkgo.records.kifu.selfplay import load_arrays, write_arrays
from ginkgo.search.evaluators import make_evaluator
from ginkgo.selfplay.config import PlayOptions, SelfplayConfig
from ginkgo.selfplay.game import load_openings
from ginkgo.selfplay.learn import EXPORTED
from ginkgo.selfplay.loop import Loop
from ginkgo.selfplay.run import begin_run
from ginkgo.selfplay.store import RunFolder, run_folders

T = TypeVar("T")

#: Seconds between two looks at how far the workers are, and between two lines about it.
_LOOK_S, _LINE_S = 5.0, 60.0
#: Where the token is looked for.
TOKEN = "GINKGO_TOKEN"


def _token(config: ServedConfig) -> str:
    if config.token_file is None:
        token = os.environ.get(TOKEN, "").strip()
        if not token:
            raise GinkgoError(f"--server: expected the trainer's token in {TOKEN} or --token-file")
        return token
    try:
        return config.token_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise GinkgoError(f"--token-file {config.token_file}: cannot be read: {error}") from None


class ServedLoop(Loop):
    """The loop with the workers of a server.

    Raises:
        GinkgoError: there is no token, or an option that does not go with a server.
    """

    def __init__(self, config: ServedConfig) -> None:
        if not config.server.startswith(("http://", "https://")):
            raise GinkgoError(f"--server {config.server}: expected https://HOST")
        if config.evaluator == "keras":
            raise GinkgoError("--evaluator keras: workers take onnx or int8")
        if config.side_by_side:
            raise GinkgoError("--side-by-side: workers play on by themselves while this trains")
        super().__init__(config)
        self._client = ServerClient(config.server, _token(config))

    def _ask(self, call: Callable[[], T]) -> T:
        """What the server answers, however long it takes.

        Raises:
            GinkgoError: it says no.
        """

        def pause(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        try:
            found = patiently(call, pause, _say)
        except Turned as turned:
            raise GinkgoError(f"{self._client.url}: {turned}") from None
        assert found is not None
        return found

    def _json(self, method: str, path: str, **more: Any) -> Any:
        return self._ask(lambda: self._client.ask(method, path, **more).json())

    # --- games --------------------------------------------------------------------------------

    def _publish(self, directory: Path) -> str:
        """Give a model to the server; its name there."""
        file = directory / EXPORTED[self.config.evaluator]
        about = {"reference": reference.answers(make_evaluator(str(file)))}
        self._ask(lambda: self._client.publish(directory.name, file, about))
        return directory.name

    def _fill(self, config: SelfplayConfig, run: RunFolder, earlier: Sequence[RunFolder]) -> None:
        """Have the games of a run played by workers, and fetch them."""
        with run.alone():
            self._fill_alone(config, run, earlier)

    def _fill_alone(
        self, config: SelfplayConfig, run: RunFolder, earlier: Sequence[RunFolder]
    ) -> None:
        if not run.options:
            begin_run(config, run, earlier, self._trusted)
        begun = run.options
        options = {
            one.name: getattr(config, one.name)
            for one in fields(PlayOptions)
            if one.name != "openings"
        }
        wish = {
            "model": self._publish(Path(config.model)),
            "games": config.games,
            "options": options,
            "openings": _lines_of(config.openings),
            "resign_threshold": begun["resign_threshold"],
            "seed": config.seed,
        }
        path = f"runs/{run.number}"
        state = self._json("PUT", path, json=wish)
        said = 0.0
        while not state["closed"] and state["stored"] < config.games:
            if time.monotonic() - said > _LINE_S:
                said = time.monotonic()
                _say(
                    f"run {run.number}: {state['stored']:,} of {config.games:,} games, "
                    f"{state['under_way']:,} under way"
                )
            time.sleep(_LOOK_S)
            state = self._json("GET", path)
        self._json("POST", f"{path}/close")
        files = [one for one in self._json("GET", f"{path}/uploads") if not one["revoked"]]
        # The run is complete when all that came is here, be it more than was asked for.
        run.begin({**begun, "games": sum(one["games"] for one in files)})
        self._fetch(run, files)

    def _fetch(self, run: RunFolder, files: Sequence[dict[str, Any]]) -> None:
        """Download the files of a run that are not there yet."""
        for one in files:
            path = _file_of(run, one["upload"])
            if path.exists():
                continue
            url = f"uploads/{one['upload']}/file"
            data = self._ask(partial(self._client.ask, "GET", url)).content
            if hashlib.sha256(data).hexdigest() != one["sha256"]:
                raise GinkgoError(f"{self._client.url}: {url} came damaged: SHA-256 differs")
            with atomic_write(path) as stream:
                stream.write(data)
        run.look()

    def _plan(self, number: int, lines: list[dict[str, Any]], games: RunFolder) -> dict[str, Any]:
        """What the generation trains on; games that were revoked meanwhile are not among it."""
        if not (self.folder / "window" / f"{number:05d}.json").exists():
            for run in run_folders(self.folder):
                for one in self._json("GET", f"runs/{run.number}/uploads"):
                    if one["revoked"]:
                        blank(_file_of(run, one["upload"]))
        return super()._plan(number, lines, games)

    # --- matches ------------------------------------------------------------------------------

    def _match(
        self,
        new: Path,
        old: Path,
        play: PlayOptions,
        games: int,
        folder: Path,
        seed: int,
        sprt: tuple[float, float] | None = None,
    ) -> dict[str, Any]:
        """A match, played by workers; see `gate.play_match`."""
        openings = Openings(None, PLIES, seed)
        wish = {
            "a": self._publish(new),
            "b": self._publish(old),
            "games": games,
            "nodes": self.config.gate_playouts or play.playouts,
            "max_ply": play.max_ply,
            "openings": [_text_of(openings[pair]) for pair in range(games // 2)],
        }
        path = f"matches/{new.name}"
        test = Sprt(*sprt) if sprt else None
        result = self._json("PUT", path, json=wish)
        said = 0.0
        while True:
            if test is not None:
                result["verdict"] = test.verdict(np.array(result["pentanomial"], np.int64))
            if result["games"] >= games or result["verdict"] != "undecided":
                # What is still under way counts in the ratings, and not here.
                self._json("POST", f"{path}/close")
                return result
            if time.monotonic() - said > _LINE_S:
                said = time.monotonic()
                _say(f"match {new.name}: {result['games']:,} of {games:,} games")
            time.sleep(_LOOK_S)
            result = self._json("GET", path)


def blank(path: Path) -> None:
    """Take all that could be trained on out of a file of games, there or not.

    The games stay in their places, for the counts of how often positions were used go by them.
    """
    if not path.exists():
        return
    meta, arrays = load_arrays(path)
    if not arrays["full"].any():
        return
    for name in ("full", "candidates"):
        arrays[name] = np.zeros_like(arrays[name])
    for name in ("policy_move", "policy_visits"):
        arrays[name] = arrays[name][:0]
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    write_arrays(path, {"meta": text, **arrays})


def _file_of(run: RunFolder, upload: int) -> Path:
    """Where an upload lies in a run folder: under its number."""
    return run.path / f"games_{upload:05d}.npz"


def _text_of(opening: Opening) -> str:
    """An opening as a GUI would send it."""
    start = "startpos" if opening.start == STARTPOS else f"sfen {opening.start}"
    return f"{start} moves {' '.join(opening.moves)}" if opening.moves else start


def _lines_of(path: Path | None) -> list[str]:
    return [] if path is None else [_text_of(opening) for opening in load_openings(path)]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
