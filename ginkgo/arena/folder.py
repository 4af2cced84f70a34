"""The folder of a match: its settings, its games, their kifu.

In: games as they end. Out: `config.json`, `games.jsonl` (a game a line), `kifu/*.csa` and `.kif`;
and all of it read back, so that a match that was broken off goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ginkgo.arena.referee import Played
from ginkgo.errors import GinkgoError
from ginkgo.records.files import atomic_write, read_object, unwritable, write_text
from ginkgo.records.kifu.write import kif_file, write_csa
from ginkgo.records.lock import lock

CONFIG, GAMES, RESULT = "config.json", "games.jsonl", "result.json"
#: Settings that may change when a match goes on: they leave its games as they are.
_FREE = ("games", "concurrency")
#: Without it Windows writes other ends of lines than are given.
_BINARY = getattr(os, "O_BINARY", 0)


class MatchFolder:
    """A folder that this process writes to."""

    def __init__(self, path: Path, settings: dict[str, Any], kifu: bool) -> None:
        """Open a folder, new or with a match that was broken off.

        Args:
            settings: JSON-able; those of a match that is there must be the same.
            kifu: write each game as CSA and KIF.

        Raises:
            GinkgoError: it holds a match with other settings, another process writes to it, or it
                cannot be written.
        """
        self.path, self._kifu = path, kifu
        self.names: tuple[str, str] = tuple(one["name"] for one in settings["players"])  # type: ignore[assignment]
        self._file = _open_alone(path / GAMES)
        try:
            if (path / CONFIG).exists():
                _compare(path, read_settings(path), settings)
            elif (path / GAMES).stat().st_size:
                raise GinkgoError(
                    f"{path}: holds games but no {CONFIG}; give another folder by --out"
                )
            write_text(path / CONFIG, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")
            _drop_torn_line(path / GAMES)
            self.games = read_games(path)
            """Games that have been played."""
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> MatchFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def add(self, played: Played) -> None:
        """Keep a game: first its kifu, then its line.

        Raises:
            GinkgoError: it cannot be written.
        """
        if self._kifu:
            name = f"{played.number + 1:05d}"
            plain = played.game(self.names, comments=False)
            write_text(self.path / "kifu" / f"{name}.csa", write_csa(plain))
            with atomic_write(self.path / "kifu" / f"{name}.kif") as stream:
                stream.write(kif_file(played.game(self.names)))
        line = json.dumps(played.to_json(), ensure_ascii=False, separators=(",", ":")) + "\n"
        rest = line.encode()
        try:
            while rest:  # a disk that is nearly full takes a part
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            raise GinkgoError(f"{self.path / GAMES}: cannot write: {error.strerror}") from None
        self.games.append(played)


def _open_alone(path: Path) -> int:
    """A file to append to, locked for as long as it is open.

    Raises:
        GinkgoError: it cannot be written, or another process has it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, 0o644)
    except OSError as error:
        raise unwritable(path, error) from None
    if not lock(file):
        os.close(file)
        raise GinkgoError(
            f"{path.parent}: another match is under way there; wait, or give another folder "
            "by --out"
        )
    return file


def _compare(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    now = json.loads(json.dumps(now))
    for name in dict.fromkeys([*before, *now]):
        if name not in _FREE and before.get(name) != now.get(name):
            was, wanted = before.get(name), now.get(name)
            if name == "players":
                was, wanted = _difference(was, now["players"])
            raise GinkgoError(
                f"{path}: a match with {name} {was}, not {wanted}; give another folder by --out"
            )


def _difference(before: Any, now: list[dict[str, Any]]) -> tuple[Any, Any]:
    """What differs of the players, in a few words."""
    with contextlib.suppress(KeyError, TypeError):
        for was, wanted in zip(before, now, strict=True):
            for name in wanted:
                if was[name] != wanted[name]:
                    return f"{was['name']} ({name} {was[name]})", wanted[name]
    return before, now


def _drop_torn_line(path: Path) -> None:
    """Cut off a last line that was not written to its end."""
    if not path.exists():
        return
    with open(path, "rb+") as stream:
        text = stream.read()
        stream.truncate(text.rfind(b"\n") + 1)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a match.

    Raises:
        GinkgoError: there are none, or they are damaged.
    """
    try:
        found = read_object(path / CONFIG, "players")
    except FileNotFoundError:
        raise GinkgoError(f"{path}: no {CONFIG} in it; expected the folder of a match") from None
    players = found["players"]
    if not isinstance(players, list) or len(players) != 2 or not all(map(_is_player, players)):
        raise GinkgoError(f"{path / CONFIG}: no settings of a match: expected two players")
    return found


def _is_player(found: Any) -> bool:
    return isinstance(found, dict) and {"name", "engine"} <= found.keys()


def read_games(path: Path) -> list[Played]:
    """The games of a match, in the order in which they ended; a torn last line is left out.

    Raises:
        GinkgoError: a line is no game.
    """
    file = path / GAMES
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")
    games: dict[int, Played] = {}
    for number, line in enumerate(lines[:-1], 1):
        try:
            played = Played.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GinkgoError(f"{file}:{number}: no game of a match: {error}") from None
        games.setdefault(played.number, played)
    return list(games.values())
