"""Run folders: `training_data/run_001/games_00000.npz` and on.

In: finished games. Out: files that are whole or not there; which games are stored already.
A run folder belongs to one set of options (`run.json`), which with the number of a game decides
the game: what was in progress when the process was killed is played again, the same.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.records.files import read_object, unwritable, write_text
from ginkgo.records.kifu.selfplay import PlayedGame, as_arrays, load_arrays, write_arrays
from ginkgo.records.lock import lock
from ginkgo.selfplay.resign import PlayedOn, tally

TRAINING_DATA = "training_data"
_RUN = re.compile(r"run_([0-9]{3,})")
_FILE = re.compile(r"games_([0-9]{5,})\.npz")
OPTIONS = "run.json"


class RunFolder:
    """One run of self-play on disk.

    Raises:
        GinkgoError: it holds a file that cannot be read, or is no folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = 0
        self.stored: set[int] = set()
        """Numbers of the games that are there."""
        self.positions = self.recorded = 0
        """Of the games that are there, all and those of full searches."""

    @property
    def number(self) -> int:
        """That in its name."""
        match = _RUN.fullmatch(self.path.name)
        return int(match[1]) if match else 0

    @property
    def options(self) -> dict[str, Any]:
        """What it was started with; empty: not begun.

        Raises:
            GinkgoError: the file is damaged.
        """
        path = self.path / OPTIONS
        try:
            return read_object(path, "games", "resign_threshold", "options")
        except FileNotFoundError:
            return {}

    def begin(self, options: dict[str, Any]) -> None:
        """Note what it is started with."""
        write_text(self.path / OPTIONS, json.dumps(options, indent=1) + "\n")

    @property
    def complete(self) -> bool:
        """Whether all its games are there; looks at what `look` found."""
        return len(self.stored) >= int(self.options.get("games", 1 << 62))

    def files(self) -> list[Path]:
        """Its files of games, in order."""
        found = {path: _FILE.fullmatch(path.name) for path in self.path.glob("games_*.npz")}
        return sorted((path for path, match in found.items() if match), key=_number)

    def look(self) -> RunFolder:
        """Find out what is there."""
        self.stored, self._next, self.positions, self.recorded = set(), 0, 0, 0
        for path, _, arrays in self.arrays():
            self._count(arrays, self._new(arrays, path))
            self._next = _number(path) + 1
        return self

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else stores games here: two would overwrite each other's files.

        What a killed process left half done is removed.

        Raises:
            GinkgoError: another process works on this run.
        """
        with alone(self.path):
            for left in self.path.glob(".*.tmp"):
                left.unlink(missing_ok=True)
            self.look()
            yield

    def arrays(self) -> Iterator[tuple[Path, dict[str, Any], dict[str, NDArray]]]:
        """Each file's path, `meta` and arrays."""
        for path in self.files():
            yield path, *load_arrays(path)

    def store(self, games: Sequence[PlayedGame], meta: dict[str, Any]) -> Path:
        """Write games as the next file; when this returns they are on disk.

        Raises:
            GinkgoError: the file cannot be written.
        """
        path = self.path / f"games_{self._next:05d}.npz"
        arrays = as_arrays(games, meta)
        numbers = self._new(arrays, path)
        write_arrays(path, arrays)
        self._count(arrays, numbers)
        self._next += 1
        return path

    def _new(self, arrays: dict[str, NDArray], path: Path) -> set[int]:
        numbers = set(arrays["number"].tolist())
        if self.stored & numbers or len(numbers) < len(arrays["number"]):
            raise GinkgoError(f"{path}: holds a game that is stored already")
        return numbers

    def _count(self, arrays: dict[str, NDArray], numbers: set[int]) -> None:
        self.stored |= numbers
        self.positions += int(arrays["plies"].sum())
        self.recorded += int(arrays["full"].sum())


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else works in a folder. The lock goes with the process, however it ends.

    Raises:
        GinkgoError: another process does, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "w")
    except OSError as error:
        raise unwritable(folder / "lock", error) from None
    with file:
        if not lock(file.fileno()):
            raise GinkgoError(f"{folder}: another process works on this run")
        yield


def _number(path: Path) -> int:
    """That in the name of a file of games; names do not sort by it beyond 99999."""
    return int(path.stem.removeprefix("games_"))


def run_folders(out: Path) -> list[RunFolder]:
    """The runs at OUT/training_data, in order."""
    found = [
        RunFolder(path)
        for path in (out / TRAINING_DATA).glob("run_*")
        if _RUN.fullmatch(path.name) and path.is_dir()
    ]
    return sorted(found, key=lambda run: run.number)


def run_folder(out: Path, number: int) -> RunFolder:
    """The folder of a run, there or not."""
    return RunFolder(out / TRAINING_DATA / f"run_{number:03d}")


def played_on(run: RunFolder) -> list[PlayedOn]:
    """The games of a run in which nobody was allowed to resign."""
    found = []
    for _, _, arrays in run.arrays():
        ends = np.cumsum(arrays["plies"])
        values = arrays["root_value"].astype(np.float64)
        for index in np.flatnonzero(~arrays["may_resign"]).tolist():
            last = int(ends[index])
            white = str(arrays["start"][index]).split()[1] == "w"
            found.append(
                PlayedOn(
                    values[last - int(arrays["plies"][index]) : last],
                    white,
                    "bwd"[int(arrays["winner"][index])],
                )
            )
    return found


def figures_of(run: RunFolder, threshold: float) -> dict[str, Any]:
    """What the games of a run are like.

    Args:
        threshold: of resignation that they were played with.

    Returns:
        `games`, `positions` (moves), `recorded` (of full searches), `mean_plies`, `draws` and
        `first_move` (shares; wins of Black, draws as half), `endings` (counts), `resigned`
        (share), and `resign_false_rate` (of the `resign_judged` games that would have been
        resigned, had they not been played on; None: there is none).
    """
    plies, winners, ends = np.zeros(0, np.int64), np.zeros(0, np.int64), []
    for _, meta, arrays in run.arrays():
        plies = np.concatenate([plies, arrays["plies"]])
        winners = np.concatenate([winners, arrays["winner"]])
        ends += [meta["endings"][end] for end in arrays["end"].tolist()]
    games = len(plies)
    shares = np.bincount(winners, minlength=3) / max(1, games)
    found = tally(played_on(run), threshold)
    return {
        "games": games,
        "positions": run.positions,
        "recorded": run.recorded,
        "mean_plies": float(plies.mean()) if games else 0.0,
        "draws": float(shares[2]),
        "first_move": float(shares[0] + shares[2] / 2),
        "endings": dict(Counter(ends).most_common()),
        "resigned": ends.count("toryo") / max(1, games),
        "resign_false_rate": None if not found.resigned else found.rate,
        "resign_judged": found.resigned,
    }
