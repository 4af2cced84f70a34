"""What parsing of records (`parse_records`) and of games (`parse_games`) have in common.

In: options. Out: the `Block` that both make: positions that are ready to train on, each with a key
that names its place in the data, and the lines that could not be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.encoding import encoding
from ginkgo.features.labels import labels_from_moves, usi_square
from ginkgo.features.position import DRAW, LOSS, NO_RESULT, POSITION, WIN, play
from ginkgo.pipeline.ragged import Ragged
from ginkgo.records import Refusal

#: A move of a soft policy target: its label, and its share of the visits.
POLICY = np.dtype([("label", np.uint16), ("probability", np.float16)])


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
    """Planes whose `Encoding.pack` is filled in here, where they have one."""
    policies: bool = False
    """Positions bring the visits by move that records carry."""

    @property
    def ragged(self) -> dict[str, np.dtype]:
        """What each position brings that has no fixed size, by name, and the type of a value."""
        found: dict[str, np.dtype] = {}
        if encoding(self.features).pack is not None:
            found["codes"] = np.dtype(np.uint16)
        if self.policies:
            found["policy"] = POLICY
        return found

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
    ragged: dict[str, Ragged] = field(default_factory=dict)
    """What `ParseOptions.ragged` names, a row for each position: `codes`, what
    `Encoding.pack` makes, and `policy`, soft targets of type `POLICY` (an empty row: none)."""
    bad: list[Refusal] = field(default_factory=list)

    def take(self, rows: NDArray[np.int64]) -> Block:
        """Some of its positions, in this order, and all of `bad`."""
        ragged = {name: values.take(rows) for name, values in self.ragged.items()}
        return Block(self.positions.take(rows), self.keys[rows], ragged, self.bad)


def empty_block(options: ParseOptions, bad: Sequence[Refusal] = ()) -> Block:
    """A block without positions."""
    ragged = {name: Ragged.empty(dtype) for name, dtype in options.ragged.items()}
    return Block(np.zeros(0, POSITION), np.zeros(0, np.uint64), ragged, list(bad))


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Blocks of the same options one after another; at least one."""
    if len(blocks) == 1:
        return blocks[0]
    names = blocks[0].ragged
    return Block(
        np.concatenate([block.positions for block in blocks]),
        np.concatenate([block.keys for block in blocks]),
        {name: Ragged.joined([block.ragged[name] for block in blocks]) for name in names},
        [bad for block in blocks for bad in block.bad],
    )


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
    for name in ("score", "root_value", "outcome"):
        positions[name] = np.nan
    if options.view == "after":
        play(positions["board"], positions["hand"], turned)


def policy_targets(
    labels: NDArray[np.integer], visits: NDArray[np.integer], lengths: NDArray[np.int64]
) -> Ragged:
    """Soft policy targets, `POLICY`.

    Args:
        labels, visits: (k,) of the moves of all rows. lengths: (n,) how many each row has.
    """
    rows = np.repeat(np.arange(len(lengths)), lengths)
    total = np.bincount(rows, visits, len(lengths))
    target = np.zeros(len(rows), POLICY)
    target["label"] = labels
    target["probability"] = visits / np.maximum(total, 1)[rows]
    return Ragged.of_lengths(target, lengths)


def complete(block: Block, options: ParseOptions) -> Block:
    """The block with all that its options ask for: plane codes, and room for soft policies."""
    pack = encoding(options.features).pack
    if pack is not None and "codes" not in block.ragged:
        block.ragged["codes"] = Ragged(*pack(block.positions))
    if options.policies and "policy" not in block.ragged:
        block.ragged["policy"] = Ragged.empty(POLICY, len(block.positions))
    return block


def game_rng(seed: int, epoch: int, source: int, game: int) -> np.random.Generator:
    """What decides which positions of a game are kept in an epoch."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch << 40 | source << 32 | game]))
