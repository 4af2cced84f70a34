"""Self-play games (`games_00000.npz`): whole games with the visits and the value of each search.

A file is a zip of numpy arrays, `meta` first:

- `meta`: bytes, a JSON object: `format`, `model`, `options`, `versions`;
- by game `number`, `start` (SFEN), `winner`, `end`, `plies`, `may_resign`, `random_plies`;
- by position, those of the first game first: `move` (16 bits as cshogi has them), `position` (32
  bytes, hcp), `full` (whether the search was a full one), `playouts`, `root_value` (win rate of the
  side to move, NaN: not searched), and how many moves have visits, `candidates`;
- by such a move `policy_move`, `policy_visits`.

In: bytes. Out: `Game`s, and back. Visits are what training takes as its target: less the forced
ones, or the improved policy of a Gumbel search times `GUMBEL_VISITS`.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.records.files import atomic_write, why_no_arrays
from ginkgo.records.game import ENDINGS, Game, Refusal, game_hash
from ginkgo.records.kifu.archive import Readable, read_all
from ginkgo.records.kifu.reading import Fault, Reading, ReadOptions, finish
from ginkgo.records.kifu.result import Statement
from ginkgo.records.replay import set_up

FORMAT = "ginkgo-selfplay-1"
#: Sum of the visits that stand for an improved policy.
GUMBEL_VISITS = 10_000
#: Games that go through the processes as one piece.
BLOCK_GAMES = 64
_LONGEST_FILE = 1 << 30
#: How a file of this kind begins: a zip whose first member is `meta`.
_ZIP, _FIRST = b"PK\x03\x04", b"meta.npy"

_BY_GAME = {
    "number": np.int64,
    "winner": np.uint8,
    "end": np.uint8,
    "plies": np.int32,
    "may_resign": np.bool_,
    "random_plies": np.int16,
}
_BY_POSITION = {
    "move": np.uint16,
    "full": np.bool_,
    "playouts": np.int32,
    "root_value": np.float16,
    "candidates": np.int16,
}
_BY_MOVE = {"policy_move": np.uint16, "policy_visits": np.uint16}
_WINNERS = "bwd"
#: What reading a damaged file raises.
BROKEN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass
class PlayedGame:
    """A finished game of self-play, in the terms of the file."""

    number: int
    """Of the game within its run; with the run's seed it decides all that is random in it."""
    start: str
    winner: str
    end: str
    may_resign: bool
    random_plies: int
    """Moves at the start that were drawn at random."""
    moves: list[int] = field(default_factory=list)
    """16 bits each."""
    full: list[bool] = field(default_factory=list)
    playouts: list[int] = field(default_factory=list)
    root_values: list[float] = field(default_factory=list)
    policies: list[tuple[NDArray[np.uint16], NDArray[np.uint16]]] = field(default_factory=list)
    """By move: the root's moves with visits, and these. Empty where the search was cheap."""

    @property
    def plies(self) -> int:
        """Moves of the game."""
        return len(self.moves)


def _positions(game: PlayedGame) -> NDArray[np.uint8]:
    """(plies, 32) the position before each move."""
    board, found = cshogi.Board(), np.zeros((game.plies, 32), np.uint8)
    set_up(board, game.start)
    for ply, move in enumerate(game.moves):
        board.to_hcp(found[ply : ply + 1])
        board.push(board.move_from_move16(move))
    return found


def as_arrays(games: Sequence[PlayedGame], meta: dict[str, Any]) -> dict[str, NDArray]:
    """The arrays of a file."""
    policies = [policy for game in games for policy in game.policies]
    no_move = np.zeros(0, np.uint16)
    columns: dict[str, Any] = {
        "number": [game.number for game in games],
        "winner": [_WINNERS.index(game.winner) for game in games],
        "end": [ENDINGS.index(game.end) for game in games],
        "plies": [game.plies for game in games],
        "may_resign": [game.may_resign for game in games],
        "random_plies": [game.random_plies for game in games],
        "move": [move for game in games for move in game.moves],
        "full": [full for game in games for full in game.full],
        "playouts": [playouts for game in games for playouts in game.playouts],
        "root_value": [value for game in games for value in game.root_values],
        "candidates": [len(moves) for moves, _ in policies],
        "policy_move": np.concatenate([no_move, *(moves for moves, _ in policies)]),
        "policy_visits": np.concatenate([no_move, *(visits for _, visits in policies)]),
    }
    text = json.dumps({"format": FORMAT, "endings": ENDINGS, **meta}).encode()
    arrays = {"meta": np.frombuffer(text, np.uint8)}
    for name, dtype in (_BY_GAME | _BY_POSITION | _BY_MOVE).items():
        arrays[name] = np.array(columns[name], dtype)
    arrays["start"] = np.array([game.start for game in games], np.str_)
    boards = [np.zeros((0, 32), np.uint8), *map(_positions, games)]
    arrays["position"] = np.concatenate(boards)
    return arrays


def write_arrays(path: Path, arrays: dict[str, NDArray]) -> None:
    """Write a file of games; it appears under its name when it is complete.

    Raises:
        GinkgoError: it cannot be written.
    """
    with atomic_write(path) as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def read_arrays(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """`meta` and the other arrays of a file, their sizes checked against each other.

    Raises:
        GinkgoError: it is damaged, or no such file.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as loaded:
            arrays = {name: loaded[name] for name in loaded.files}
        meta = json.loads(arrays.pop("meta").tobytes())
    except BROKEN as error:
        raise GinkgoError(f"damaged: {why_no_arrays(error)}") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise GinkgoError(f"expected self-play games of format {FORMAT}")
    known = _BY_GAME | _BY_POSITION | _BY_MOVE
    missing = [name for name in (*known, "start", "position") if name not in arrays]
    if missing:
        raise GinkgoError(f"damaged: no {' '.join(missing)} in it")
    games, plies = len(arrays["number"]), int(arrays["plies"].sum())
    moves = int(arrays["candidates"].sum())
    sizes = (
        *((name, games) for name in (*_BY_GAME, "start")),
        *((name, plies) for name in (*_BY_POSITION, "position")),
        *((name, moves) for name in _BY_MOVE),
    )
    for name, size in sizes:
        if len(arrays[name]) != size:
            raise GinkgoError(f"damaged: {len(arrays[name])} values of {name}, expected {size}")
    negative = (arrays["plies"] < 0).any() or (arrays["candidates"] < 0).any()
    if negative or (arrays["winner"] > 2).any() or (arrays["end"] >= len(meta["endings"])).any():
        raise GinkgoError("damaged: a result that there is not")
    return meta, arrays


def load_arrays(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """`read_arrays` of a file.

    Raises:
        GinkgoError: it cannot be read, or is damaged.
    """
    try:
        return read_arrays(Path(path).read_bytes())
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror}") from None
    except GinkgoError as error:
        raise GinkgoError(f"{path}: {error}") from None


def select_games(arrays: dict[str, NDArray], low: int, high: int) -> dict[str, NDArray]:
    """The arrays of games [low, high) of a file."""
    plies = np.concatenate([[0], np.cumsum(arrays["plies"])])
    first, last = int(plies[low]), int(plies[high])
    moves = np.concatenate([[0], np.cumsum(arrays["candidates"], dtype=np.int64)])
    found = {name: arrays[name][low:high] for name in (*_BY_GAME, "start")}
    found |= {name: arrays[name][first:last] for name in (*_BY_POSITION, "position")}
    return found | {name: arrays[name][moves[first] : moves[last]] for name in _BY_MOVE}


def game_hashes(arrays: dict[str, NDArray]) -> NDArray[np.uint64]:
    """(games,) what names each game (`Game.hash`); nothing is replayed.

    Raises:
        GinkgoError: something that is no move.
    """
    moves, found, ply = arrays["move"].tolist(), [], 0
    for start, plies in zip(arrays["start"].tolist(), arrays["plies"].tolist(), strict=True):
        found.append(game_hash(start, list(map(_usi, moves[ply : ply + plies]))))
        ply += plies
    return np.array(found, np.uint64)


# --- one more kifu format ---------------------------------------------------------------------


def is_selfplay(head: bytes) -> bool:
    """Whether a file that begins so holds self-play games."""
    return head.startswith(_ZIP) and head[30 : 30 + len(_FIRST)] == _FIRST


def selfplay_blocks(file: str, stream: Readable, stem: str) -> Iterator:
    """A file in pieces of some games each."""
    from ginkgo.records.kifu.stream import RawGame

    data = read_all(stream, _LONGEST_FILE)
    try:
        if data is None:
            raise GinkgoError(f"more than {_LONGEST_FILE} bytes")
        meta, arrays = read_arrays(data)
    except GinkgoError as error:
        yield Refusal(file, 1, str(error), "damaged file", format="selfplay")
        return
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    for low in range(0, len(arrays["number"]), BLOCK_GAMES):
        part = select_games(arrays, low, min(low + BLOCK_GAMES, len(arrays["number"])))
        packed = io.BytesIO()
        np.savez(packed, meta=text, **part)  # type: ignore[arg-type]
        yield RawGame(file, low + 1, "selfplay", packed.getvalue(), stem)


def read_selfplay_block(raw, options: ReadOptions) -> Iterator[tuple[int, Game | Refusal]]:
    """The games of a piece, replayed."""
    meta, arrays = read_arrays(raw.data)
    for index, game in enumerate(games_of_arrays(meta, arrays, options)):
        number = raw.line + index
        if isinstance(game, Fault):
            reason = str(game)
            yield number, Refusal(raw.file, number, reason, "unusable game", game.plies, "selfplay")
        else:
            game.game = f"{raw.name}-{game.game}"
            yield number, game


def games_of_arrays(
    meta: dict[str, Any], arrays: dict[str, NDArray], options: ReadOptions
) -> Iterator[Game | Fault]:
    """The games of a file, replayed; the fault of one that cannot be used."""
    columns = {name: arrays[name].tolist() for name in (*_BY_GAME, *_BY_POSITION)}
    ends = np.concatenate([[0], np.cumsum(arrays["candidates"], dtype=np.int64)])
    ply = 0
    name = str(meta.get("model", ""))
    for index, start in enumerate(arrays["start"].tolist()):
        last = ply + columns["plies"][index]
        reading = Reading("selfplay", start, black=name, white=name)
        policies = Visits(arrays["policy_move"], arrays["policy_visits"], ends[ply : last + 1])
        try:
            reading.moves = [_usi(packed) for packed in columns["move"][ply:last]]
            policies.check()
            winner, end = _WINNERS[columns["winner"][index]], meta["endings"][columns["end"][index]]
            reading.statements.append(Statement(f"result {winner} by {end}", end, winner))
            game = finish(reading, options)
            if game.total < len(reading.moves):
                raise Fault(0, f"ply {game.total + 1}: illegal move", game.total)
        except Fault as fault:
            ply = last
            yield fault
            continue
        game.game = f"{columns['number'][index]:06d}"
        game.policies = policies
        game.full = columns["full"][ply:last]
        game.root_values = [
            None if value != value else value for value in columns["root_value"][ply:last]
        ]
        ply = last
        yield game


class Visits(Sequence[dict[str, int] | None]):
    """Visits by move at each move of a game, made when they are looked at: not all readers do.

    Args:
        moves, visits: (k,) 16 bits each, of all games of the file.
        ends: (plies + 1,) where those of each move begin, and the last end.
    """

    def __init__(self, moves: NDArray, visits: NDArray, ends: NDArray[np.int64]) -> None:
        self._moves = moves[ends[0] : ends[-1]]
        self._visits = visits[ends[0] : ends[-1]]
        self._ends = ends - ends[0]

    def check(self) -> None:
        """Refuse numbers that are no moves.

        Raises:
            Fault: there is one.
        """
        moves = self._moves.astype(np.int64)
        to, origin = moves & 0x7F, moves >> 7 & 0x7F
        odd = (to > 80) | (origin > 87) | (moves >> 15 > 0) | (origin == to)
        if odd.any():
            raise Fault(0, f"{int(moves[odd.argmax()]):#06x} is no move")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index):  # type: ignore[override]
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        part = slice(int(self._ends[place]), int(self._ends[place + 1]))
        moves, visits = self._moves[part].tolist(), self._visits[part].tolist()
        return dict(zip(map(_usi, moves), visits, strict=True)) or None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


_NAMES: dict[int, str] = {}


def _usi(move16: int) -> str:
    found = _NAMES.get(move16)
    if found is None:
        to, origin = move16 & 0x7F, move16 >> 7 & 0x7F
        if to > 80 or origin > 87 or move16 >> 15 or origin == to:
            raise Fault(0, f"{move16:#06x} is no move")
        found = _NAMES[move16] = cshogi.move_to_usi(move16)
    return found
