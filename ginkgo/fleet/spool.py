"""Games that a worker has played and the server has not acknowledged.

In: finished games. Out: uploads, until they are dropped. Each game is a file of its own, there
under its name when it is whole; so a kill loses only games under way.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ginkgo.arena.referee import Played
from ginkgo.errors import GinkgoError
from ginkgo.fleet.config import TASK_GAMES
from ginkgo.records.files import write_text
from ginkgo.records.game import ENDINGS
from ginkgo.records.kifu.selfplay import FORMAT, PlayedGame, as_arrays, load_arrays, write_arrays

#: Names of whole files; those that are being written, beside them, are no concern of the uploader.
_GAME = re.compile(r"game-([0-9]+)\.npz")
_RATED = re.compile(r"rated-([0-9]+)-([0-9]+)\.json")


class Waiting(NamedTuple):
    """An upload that is to be sent."""

    task: int
    rating: bool
    files: tuple[Path, ...]


class Spool:
    """The folder of such games.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "refused").mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".*.tmp"):
            left.unlink(missing_ok=True)

    def keep(self, game: PlayedGame, model: str) -> None:
        """Keep a game of self-play."""
        path = self.folder / f"game-{game.number}.npz"
        write_arrays(path, as_arrays([game], {"model": model}))

    def keep_rated(self, task: int, game: Played) -> None:
        """Keep a game of a match."""
        path = self.folder / f"rated-{task}-{game.number}.json"
        write_text(path, json.dumps(game.to_json()) + "\n")

    def __len__(self) -> int:
        return sum(len(one.files) for one in self.uploads(TASK_GAMES))

    def tasks(self) -> set[int]:
        """Of which tasks there are games."""
        return {one.task for one in self.uploads(TASK_GAMES)}

    def uploads(self, games: int) -> list[Waiting]:
        """What is to be sent, in uploads of so many games at most, the oldest tasks first."""
        found: dict[tuple[int, bool], list[tuple[int, Path]]] = defaultdict(list)
        for path in self.folder.iterdir():
            if match := _GAME.fullmatch(path.name):
                found[int(match[1]) // TASK_GAMES, False].append((int(match[1]), path))
            elif match := _RATED.fullmatch(path.name):
                found[int(match[1]), True].append((int(match[2]), path))
        return [
            Waiting(task, rating, tuple(path for _, path in sorted(paths)[low : low + games]))
            for (task, rating), paths in sorted(found.items())
            for low in range(0, len(paths), games)
        ]

    def packed(self, waiting: Waiting) -> bytes:
        """The games of an upload of self-play as one file.

        Raises:
            GinkgoError: one cannot be read.
        """
        parts = [load_arrays(path) for path in waiting.files]
        arrays = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
        meta = {"format": FORMAT, "endings": ENDINGS, "model": parts[0][0].get("model")}
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        stream = io.BytesIO()
        np.savez_compressed(stream, meta=text, **arrays)  # type: ignore[arg-type]
        return stream.getvalue()

    def rated(self, waiting: Waiting) -> list[dict[str, Any]]:
        """The games of an upload of a match.

        Raises:
            GinkgoError: one cannot be read.
        """
        try:
            return [json.loads(path.read_text()) for path in waiting.files]
        except (OSError, ValueError) as error:
            raise GinkgoError(f"{waiting.files[0]}: cannot be read: {error}") from None

    def drop(self, waiting: Waiting) -> None:
        """They are with the server."""
        for path in waiting.files:
            path.unlink(missing_ok=True)

    def set_aside(self, waiting: Waiting) -> None:
        """They are refused, or damaged: keep them for people to look at."""
        for path in waiting.files:
            path.replace(self.folder / "refused" / path.name)
