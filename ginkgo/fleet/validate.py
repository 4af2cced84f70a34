"""Are the games of an upload what they claim to be? Nothing in them is believed before it is.

In: the bytes of an upload and what its task says (`Expected`). Out: games, each with what the
server wants to know of it (`CheckedGame`); or `Refused`, with the first thing that is wrong. One
wrong game refuses the whole upload: who sends one is not to be trusted with the others.

It runs in a process of its own (`Validators`): whatever an upload does there, the server goes on.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.fleet.upload import Refused, read_upload
from ginkgo.records.game import ENDINGS
from ginkgo.records.kifu.selfplay import GUMBEL_VISITS, game_hashes, select_games

#: A game of so few plies is flagged.
SHORT = 10
#: Plies at the end whose root values are compared with the result, and from what on they are odd.
_LAST, _SURE = 4, 0.9
#: Seconds after which a check is given up.
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Expected:
    """What the task of an upload says of its games."""

    first: int
    """Number of its first game."""
    games: int
    model: str
    options: dict[str, Any]
    """`PlayOptions`."""
    resign_threshold: float
    starts: tuple[str, ...]
    """Positions that a game may start from."""


@dataclass(frozen=True)
class CheckedGame:
    """A game that is right by all that can be checked."""

    number: int
    digest: str
    """SHA-256 of all that was said of it."""
    hash: str
    """`game_hash`, hexadecimal."""
    plies: int
    recorded: int
    winner: str
    end: str
    first_move: str
    flags: tuple[str, ...]
    """What is odd about it, though it may be."""
    arrays: dict[str, NDArray]


def validate(data: bytes, expected: Expected) -> list[CheckedGame]:
    """Check an upload.

    Raises:
        Refused: it is not what it should be.
    """
    meta, arrays = read_upload(data, expected.games)
    if meta.get("model") != expected.model:
        raise Refused("model", f"games of another model than {expected.model}, its task's")
    numbers = arrays["number"]
    inside = (numbers >= expected.first) & (numbers < expected.first + expected.games)
    if not inside.all() or len(np.unique(numbers)) < len(numbers):
        raise Refused("numbers", "numbers of games that its task does not have, or one twice")
    _check_ranges(arrays, expected)
    for name in ("move", "policy_move"):
        _check_moves(name, arrays[name])
    try:
        hashes = game_hashes(arrays)
    except GinkgoError as error:
        raise Refused("illegal", str(error)) from None
    return [
        _check_game(select_games(arrays, index, index + 1), f"{int(hashes[index]):016x}", expected)
        for index in range(len(numbers))
    ]


def _check_ranges(arrays: dict[str, NDArray], expected: Expected) -> None:
    options = expected.options
    most = 2 * max(options["playouts"], options["cheap_playouts"]) + 2 * options["batch"] + 64
    value = arrays["root_value"].astype(np.float64)
    known = ~np.isnan(value)
    faults = {
        "winner": (arrays["winner"] > 2).any(),
        "end": (arrays["end"] >= len(ENDINGS)).any(),
        "random_plies": (
            (arrays["random_plies"] < 0) | (arrays["random_plies"] > options["random_plies"])
        ).any(),
        "playouts": ((arrays["playouts"] < 0) | (arrays["playouts"] > most)).any(),
        "policy_visits": (arrays["policy_visits"] < 1).any(),
        "plies": (arrays["plies"] > options["max_ply"]).any(),
        "start": not set(arrays["start"].tolist()) <= set(expected.starts),
    }
    for name, wrong in faults.items():
        if wrong:
            raise Refused("range", f"{name}: a value that its task does not allow")
    if np.isinf(value).any() or (value[known] < 0).any() or (value[known] > 1).any():
        raise Refused("range", "root_value: expected 0 to 1")
    if not known[arrays["full"]].all():
        raise Refused("nan", "root_value: a full search without a value")


def _check_moves(name: str, moves: NDArray[np.uint16]) -> None:
    """Refuse what no square or hand can be read of, for the library does not look."""
    to, origin = moves & 0x7F, moves >> 7 & 0x7F
    wrong = (to > 80) | (origin > 87) | (moves >> 15 > 0) | (origin == to)
    if wrong.any():
        raise Refused("illegal", f"{name}: {int(moves[wrong][0]):#06x} is no move")


def _check_game(game: dict[str, NDArray], name: str, expected: Expected) -> CheckedGame:
    from ginkgo.selfplay.audit import faults_of

    number = int(game["number"][0])
    end, winner = ENDINGS[int(game["end"][0])], "bwd"[int(game["winner"][0])]
    plies = int(game["plies"][0])
    faults = faults_of(game, end, expected.options["max_ply"], expected.resign_threshold)
    if faults:
        kind = "illegal" if "illegal" in faults[0] else "result"
        raise Refused(kind, f"game {number}: {faults[0]}")
    _check_policies(game, number, bool(expected.options["gumbel"]))
    return CheckedGame(
        number,
        _digest(game),
        name,
        plies,
        int(game["full"].sum()),
        winner,
        end,
        cshogi.move_to_usi(int(game["move"][0])) if plies else "",
        tuple(_flags(game, winner, plies)),
        game,
    )


def _check_policies(game: dict[str, NDArray], number: int, gumbel: bool) -> None:
    """Visits are of different moves, and as many as the search had."""
    counts = game["candidates"].astype(np.int64)
    ply = np.repeat(np.arange(len(counts)), counts)
    pairs = ply << 16 | game["policy_move"]
    if len(np.unique(pairs)) < len(pairs):
        raise Refused("policy", f"game {number}: visits of one move twice")
    total = np.bincount(ply, game["policy_visits"], len(counts))[counts > 0]
    wanted = GUMBEL_VISITS if gumbel else np.maximum(1, game["playouts"][counts > 0])
    if (total != wanted).any():
        raise Refused("policy", f"game {number}: visits do not sum to those of the search")


def _digest(game: dict[str, NDArray]) -> str:
    found = hashlib.sha256()
    for name in sorted(game):
        if name != "number":
            # The width of a string array is that of the longest in its file.
            array = game[name]
            found.update(str(array[0]).encode() if name == "start" else array.tobytes())
            found.update(b"\0")
    return found.hexdigest()


def _flags(game: dict[str, NDArray], winner: str, plies: int) -> list[str]:
    flags = []
    if plies <= SHORT:
        flags.append("short")
    values = game["root_value"].astype(np.float64)
    white = (np.arange(plies) % 2 == 1) ^ (str(game["start"][0]).split()[1] == "w")
    of_black = np.where(white, 1 - values, values)[-_LAST:]
    of_black = of_black[~np.isnan(of_black)]
    if len(of_black) == _LAST:
        mean = float(of_black.mean())
        if (winner == "w" and mean > _SURE) or (winner == "b" and mean < 1 - _SURE):
            flags.append("value")
    return flags


class Validators:
    """Processes that check uploads.

    Args:
        processes: how many.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._lock = threading.Lock()
        self._pool = self._make()

    def _make(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._processes, context, _begin)

    def check(self, data: bytes, expected: Expected) -> list[CheckedGame]:
        """`validate`, in one of the processes.

        Raises:
            Refused: the upload is not what it should be.
        """
        pool = self._pool
        try:
            return pool.submit(validate, data, expected).result(_PATIENCE_S)
        except TimeoutError:
            raise Refused("busy", "too much to check at the moment") from None
        except BrokenProcessPool:
            self._renew(pool)
            # Another upload may have ended the process that had ours: once more, alone.
            try:
                return self._pool.submit(validate, data, expected).result(_PATIENCE_S)
            except BrokenProcessPool:
                self._renew(self._pool)
                raise Refused("crash", "it ended the process that checked it") from None

    def _renew(self, broken: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is broken:
                self._pool = self._make()
        broken.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the processes, when they have done what they do."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Of a process: leave Ctrl-C to the server, end with it."""
    import signal

    from ginkgo.selfplay.worker import end_with_parent

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
