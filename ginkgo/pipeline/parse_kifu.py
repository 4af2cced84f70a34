"""Kifu of every format to positions, without text between: the jobs of kinds `kifu` and `stream`.

In: a job. Out: a `Block`. Games go through `parse_games`; packed positions (hcpe, PSV) are decoded
many at once, and only the legality of each move is asked of cshogi.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.features.labels import labels_from_moves, rotate_moves
from ginkgo.features.position import POSITION, orient
from ginkgo.pipeline.parse import (
    USI_MOVES,
    WINNER_CODE,
    Block,
    ParseOptions,
    complete,
    finish,
    game_rng,
    make_key,
    policy_targets,
)
from ginkgo.pipeline.parse_games import parse_games
from ginkgo.records import Game, Refusal
from ginkgo.records.kifu.packed import RECORDS, block_hash, legal_records, moves_of, winners_of
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.kifu.stream import RawGame, raw_games, read_raw
from ginkgo.records.sources import read_games
from ginkgo.records.split import BUCKETS

_OPTIONS = ReadOptions(comments=False)
#: Scores are kept in sixteen bits; mates are written as more than that.
_MOST = 65504


class Streams:
    """Keeps files that hold many games open, to go on from where the last job was."""

    _KEEP_OPEN = 4

    def __init__(self) -> None:
        self._open: dict[str, tuple[Iterator[RawGame | Refusal], int]] = {}

    def take(self, path: str, first: int, count: int) -> list[RawGame | Refusal]:
        """The pieces [first, first + count) of a file."""
        pieces, place = self._open.pop(path, (iter(()), -1))
        if not 0 <= place <= first:
            pieces, place = raw_games(path), 0
        found = list(itertools.islice(pieces, first - place, first - place + count))
        self._open[path] = (pieces, first + count)
        while len(self._open) > self._KEEP_OPEN:
            self._open.pop(next(iter(self._open)))
        return found


def is_packed(raw: RawGame | Refusal) -> bool:
    """Whether a piece holds positions that belong to no known game."""
    return isinstance(raw, RawGame) and raw.format in RECORDS


def games_of(
    pieces: Sequence[RawGame | Refusal], file: int, number: int
) -> Iterator[tuple[int, int, Game | Refusal | None]]:
    """(file number, number of the game in its file, game or refusal) of pieces of a file."""
    for raw in pieces:
        if isinstance(raw, Refusal):
            yield file, number, raw
            number += 1
            continue
        for _line, game in read_raw(raw, _OPTIONS):
            yield file, number, game
            number += 1


def games_of_files(
    paths: Sequence[str], first_file: int
) -> Iterator[tuple[int, int, Game | Refusal | None]]:
    """The same of small files that are read whole."""
    for file, path in enumerate(paths, first_file):
        for number, (_line, game) in enumerate(read_games(path), 1):
            yield file, number, game


def parse_kifu(
    games: Iterator[tuple[int, int, Game | Refusal | None]], options: ParseOptions, **common: Any
) -> Block:
    """Games to positions with what searches said of them, by `parse_games`."""
    searched: dict[int, Game] = {}

    def noted() -> Iterator[tuple[int, int, Game | Refusal | None]]:
        for file, number, game in games:
            if isinstance(game, Game) and (game.scores or game.root_values or game.policies):
                searched[make_key(file, number)] = game
            yield file, number, game

    block = parse_games(noted(), options, **common)
    if not searched:
        return block
    moves: list[int] = []
    visits: list[int] = []
    lengths = np.zeros(len(block.keys), np.int64)
    for row, key in enumerate(block.keys.tolist()):
        game, index = searched.get(key >> 10 << 10), (key & 1023) - 1
        if game is None:
            continue
        if game.scores and (score := game.scores[index]) is not None:
            block.positions["score"][row] = max(-_MOST, min(_MOST, score))
        if game.root_values and (value := game.root_values[index]) is not None:
            block.positions["root_value"][row] = value
        if options.policies and game.policies:
            policy = game.policies[index] or {}
            moves += map(USI_MOVES.__getitem__, policy)
            visits += policy.values()
            lengths[row] = len(policy)
    if options.policies:
        color = np.repeat(block.positions["color"], lengths)
        labels = labels_from_moves(rotate_moves(np.array(moves, np.int64), color))
        block.ragged["policy"] = policy_targets(labels, np.array(visits, np.int64), lengths)
    return block


def parse_packed(
    pieces: Sequence[RawGame | Refusal],
    options: ParseOptions,
    *,
    path: str,
    file: int,
    number: int,
    first_game: int = 0,
    source: int = 0,
    buckets: tuple[int, int] = (0, BUCKETS),
    epoch: int = 0,
    wanted: NDArray[np.uint64] | None = None,
) -> Block:
    """Packed positions to positions: as `parse_records`, a piece counting as one game.

    Args:
        pieces: blocks of records. number: of their first record in the file, from 1.
    """
    parts: list[NDArray] = []
    keys: list[NDArray[np.uint64]] = []
    bad: list[Refusal] = []
    for game, raw in enumerate(pieces, first_game):
        if isinstance(raw, Refusal):
            bad.append(raw)
            continue
        records = np.frombuffer(raw.data, RECORDS[raw.format])
        first, number = number, number + len(records)
        name = block_hash(raw.data)
        if not buckets[0] <= name % BUCKETS < buckets[1] or name in options.left_out:
            continue
        if (options.endings and "unknown" not in options.endings) or options.min_rating:
            continue
        found, chosen = _positions(records, raw, game, options, bad)
        found["source"] = source
        places = (make_key(file, first) + (chosen << 10) | 1).astype(np.uint64)
        if wanted is not None:
            keep = np.isin(places, wanted)
            found, places = found[keep], places[keep]
        elif 0 < options.kept(source) < len(found):
            rng = game_rng(options.seed, epoch, source, game)
            keep = np.sort(rng.choice(len(found), options.kept(source), replace=False))
            found, places = found[keep], places[keep]
        parts.append(found)
        keys.append(places)
    block = Block(
        np.concatenate([np.zeros(0, POSITION), *parts]),
        np.concatenate([np.zeros(0, np.uint64), *keys]),
        bad=bad,
    )
    return complete(block, options)


def _positions(
    records: NDArray, raw: RawGame, game: int, options: ParseOptions, bad: list[Refusal]
) -> tuple[NDArray, NDArray[np.int64]]:
    """What can be used of a block, and the numbers of the records within it."""
    legal, sound, (board, hands, color, _good) = legal_records(records, raw.format)
    for index in np.flatnonzero(~legal).tolist():
        kind = "illegal move" if sound[index] else "bad start position"
        bad.append(Refusal(raw.file, raw.line + index, kind, kind))
    if raw.format == "psv":
        ply = np.maximum(records["ply"].astype(np.int64), 1)
        legal = legal & (ply >= options.min_ply)
    else:
        ply = np.ones(len(records), np.int64)  # not known: nothing is filtered by it
    if options.side:
        legal = legal & (color == (options.side == "w"))
    chosen = np.flatnonzero(legal)
    columns = np.zeros((len(chosen), 6), np.int64)
    winners = winners_of(records, raw.format, color)
    columns[:, 0] = color[chosen]
    columns[:, 1] = columns[:, 2] = ply[chosen]
    columns[:, 3] = [WINNER_CODE[winners[index]] for index in chosen.tolist()]
    columns[:, 4] = moves_of(records, raw.format)[chosen]
    columns[:, 5] = game
    positions = np.zeros(len(chosen), POSITION)
    positions["color"] = color[chosen]
    positions["board"], positions["hand"] = orient(board[chosen], hands[chosen], positions["color"])
    finish(positions, columns, rotate_moves(columns[:, 4], positions["color"]), options)
    positions["score"] = records["score"][chosen]
    return positions, chosen
