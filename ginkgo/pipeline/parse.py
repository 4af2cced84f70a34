"""What parsing of records (`parse_records`) and of games (`parse_games`) have in common.

In: options. Out: the `Block` that both make: positions that are ready to train on, each with a key
that names its place in the data, and the lines that could not be used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.labels import labels_from_moves, usi_square
from ginkgo.features.position import DRAW, LOSS, NO_RESULT, WIN, play
from ginkgo.records import Refusal


@dataclass(frozen=True)
class ParseOptions:
    """What of the data becomes a training position, and how. Travels to the workers once."""

    min_ply: int = 1
    """First ply that is used; the first move of a game is ply 1."""
    side: str = ""
    """`b` or `w`: only positions where this side moves."""
    endings: tuple[str, ...] = ()
    """Only games that ended so; empty means all."""
    min_rating: float = 0.0
    """Only positions whose mover is rated at least this (0: all)."""
    view: str = "before"
    """`before`: the position before the move. `after`: after it, still in the mover's view."""
    ply_weight: bool = False
    """Weight sqrt(ply / total) on the value target."""
    keep: int = 0
    """Positions kept per game, drawn anew each epoch; 0 keeps all."""
    keep_from: tuple[int | None, ...] = ()
    """The same for single sources, by number; None: `keep`."""
    seed: int = 0
    left_out: frozenset[int] = frozenset()
    """Hashes of games that are not used: they are held out in another source."""
    features: str = "dlshogi119"
    """`ginkgo148` has its plane indices filled in here; `dlshogi119` needs nothing."""

    def kept(self, source: int) -> int:
        """Positions kept per game of a source, 0 for all."""
        own = self.keep_from[source] if source < len(self.keep_from) else None
        return self.keep if own is None else own


@dataclass
class Block:
    """Positions that came out of a segment."""

    positions: NDArray
    """(n,) `POSITION`."""
    keys: NDArray[np.uint64]
    """(n,) place in the data: file << 44 | line << 10 | ply, see `make_key`."""
    codes: NDArray[np.uint16] | None = None
    """Sparse plane codes of all positions, one after another (`ginkgo148`)."""
    offsets: NDArray[np.int64] | None = None
    """(n + 1,) where the codes of each position begin."""
    bad: list[Refusal] = field(default_factory=list)


def make_key(file: int, line: int, ply: int = 0) -> int:
    """A position's place in the data as one number: file, line (from 1), ply within a game."""
    return file << 44 | line << 10 | ply


#: Numbers for winners while parsing.
WINNER_CODE = {"b": 0, "w": 1, "d": 2, "-": 3}
# Result of the mover by [winner code, mover's colour].
_RESULT = np.array([[WIN, LOSS], [LOSS, WIN], [DRAW, DRAW], [NO_RESULT, NO_RESULT]], np.uint8)


def _usi_moves() -> dict[str, int]:
    """cshogi's 16-bit move by USI text, for all moves and drops that can be written."""
    squares = [usi_square(square) for square in range(81)]
    moves = {
        squares[origin] + squares[to] + ("+" if promote else ""): to | origin << 7 | promote << 14
        for origin in range(81)
        for to in range(81)
        for promote in (0, 1)
    }
    for index, letter in enumerate("PLNSBRG"):
        for to in range(81):
            moves[f"{letter}*{squares[to]}"] = to | (81 + index) << 7
    return moves


#: cshogi's 16-bit move by USI text.
USI_MOVES = _usi_moves()


def finish(
    positions: NDArray, columns: NDArray[np.int64], turned: NDArray[np.int32], options: ParseOptions
) -> None:
    """Fill in all but board, hands and colour.

    Args:
        positions: (n,) with board, hands and colour in place; changed.
        columns: (n, 6) colour, ply since the game's start, total, winner, move, game.
        turned: (n,) moves in the mover's view.
    """
    color, ply, total, winner, _, game = columns.T
    positions["result"] = _RESULT[winner, color]
    positions["move"] = labels_from_moves(turned)
    positions["ply"] = np.clip(ply, 0, 65535)
    positions["total"] = np.clip(total, 0, 65535)
    positions["game"] = game
    weight = np.sqrt(np.clip(ply, 1, None) / np.maximum(total, np.clip(ply, 1, None)))
    has_result = winner != WINNER_CODE["-"]
    positions["weight"] = np.where(has_result, weight if options.ply_weight else 1.0, 0.0)
    positions["score"] = positions["root_value"] = np.nan
    if options.view == "after":
        play(positions["board"], positions["hand"], turned)


def with_codes(block: Block, options: ParseOptions) -> Block:
    """The block with the sparse plane codes that its features need."""
    if options.features == "ginkgo148":
        from ginkgo.features.ginkgo148 import pack_positions

        block.codes, block.offsets = pack_positions(block.positions)
    return block


def game_rng(seed: int, epoch: int, source: int, game: int) -> np.random.Generator:
    """What decides which positions of a game are kept in an epoch."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch << 40 | source << 32 | game]))
