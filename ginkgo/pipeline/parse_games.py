"""Games to positions: each game is replayed with cshogi, whose rules decide.

In: games. Out: a `Block`.
"""

from __future__ import annotations

from collections.abc import Iterable

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.labels import rotate_moves
from ginkgo.features.position import POSITION, decode_boards, decode_hand, orient
from ginkgo.pipeline.parse import (
    USI_MOVES,
    WINNER_CODE,
    Block,
    ParseOptions,
    complete,
    finish,
    game_rng,
    make_key,
)
from ginkgo.records import MAX_PLIES, STARTPOS, Game, Refusal
from ginkgo.records.replay import IllegalMove, set_up
from ginkgo.records.split import BUCKETS


def _dead_squares() -> bytes:
    """By 128·piece + to-square (both absolute) whether a piece may not come to rest there."""
    table = bytearray(32 * 128)
    for square in range(81):
        rank = square % 9
        for piece, ranks in ((1, (0,)), (2, (0,)), (3, (0, 1))):
            table[128 * piece + square] = rank in ranks
            table[128 * (piece + 16) + square] = 8 - rank in ranks
    return bytes(table)


_DEAD = _dead_squares()
_START_CELLS, _START_OK = decode_boards([STARTPOS.split()[0].encode()])


class _Replay:
    """Replays games with cshogi and gathers the positions met, as flat arrays."""

    def __init__(self, options: ParseOptions) -> None:
        self._options = options
        self._board = cshogi.Board()
        self._cells, self._hands = bytearray(), bytearray()
        self._table: list[tuple[int, int, int, int, int, int]] = []
        self._keys: list[int] = []

    def game(self, game: Game, number: int, key: int, plies: set[int]) -> None:
        """Replay one game; keep the positions before the given plies (from 1).

        Raises:
            GinkgoError: the start position is impossible or a move is illegal. Nothing of the
                game is kept then.
        """
        board = self._board
        cells, hands = self._start(game.start)
        color = board.turn
        winner = WINNER_CODE[game.winner]
        kept_cells, kept_hands = bytearray(), bytearray()
        table: list[tuple[int, int, int, int, int, int]] = []
        keys: list[int] = []
        from_move16, is_legal, push = board.move_from_move16, board.is_legal, board.push
        total = len(game.moves)
        for ply, usi in enumerate(game.moves, 1):
            move16 = USI_MOVES.get(usi, -1)
            to, origin = move16 & 0x7F, move16 >> 7 & 0x7F
            drop = origin >= 81
            promote = move16 & 0x4000
            if move16 < 0:
                raise IllegalMove(f"ply {ply}: {usi!r} is no USI move")
            piece = origin - 80 + 16 * color if drop else cells[origin]
            if promote:
                rank = min(to % 9, origin % 9) if color == 0 else 8 - max(to % 9, origin % 9)
                if rank > 2 or not 1 <= piece & 15 <= 6:
                    raise IllegalMove(f"ply {ply}: illegal move {usi}")
                piece += 8
            move = from_move16(move16)
            if _DEAD[128 * piece + to] or not is_legal(move):
                raise IllegalMove(f"ply {ply}: illegal move {usi}")
            if ply in plies:
                kept_cells += cells
                kept_hands += hands
                table.append((color, ply, total, winner, move16, number))
                keys.append(key | ply)
            push(move)
            taken = cells[to]
            if taken:
                base = taken & 15
                hands[7 * color + (base - 8 if base > 8 else base) - 1] += 1
            if drop:
                hands[7 * color + origin - 81] -= 1
            else:
                cells[origin] = 0
            cells[to] = piece
            color ^= 1
        self._cells += kept_cells
        self._hands += kept_hands
        self._table += table
        self._keys += keys

    def _start(self, sfen: str) -> tuple[bytearray, bytearray]:
        """Set the board up; its cells and hands from Black's view."""
        set_up(self._board, sfen)
        if sfen == STARTPOS:
            return bytearray(_START_CELLS[0].tobytes()), bytearray(14)
        fields = sfen.encode().split()
        cells, _ = decode_boards(fields[:1])
        return bytearray(cells[0].tobytes()), bytearray(decode_hand(fields[2]) or 14)

    def finish(self, source: int) -> Block:
        """All positions gathered."""
        positions = np.zeros(len(self._table), POSITION)
        block = Block(positions, np.array(self._keys, np.uint64))
        if not self._table:
            return complete(block, self._options)
        columns = np.array(self._table, np.int64)
        positions["color"] = columns[:, 0]
        cells = np.frombuffer(bytes(self._cells), np.uint8).reshape(-1, 81)
        hands = np.frombuffer(bytes(self._hands), np.uint8).reshape(-1, 2, 7)
        positions["board"], positions["hand"] = orient(cells, hands, positions["color"])
        turned = rotate_moves(columns[:, 4], positions["color"])
        finish(positions, columns, turned, self._options)
        positions["source"] = source
        return complete(block, self._options)


def parse_games(
    games: Iterable[tuple[int, int, Game | Refusal | None]],
    options: ParseOptions,
    *,
    path: str,
    first_game: int = 0,
    source: int = 0,
    buckets: tuple[int, int] = (0, BUCKETS),
    epoch: int = 0,
    wanted: NDArray[np.uint64] | None = None,
) -> Block:
    """Games to positions: as `parse_records`, for whole games.

    Args:
        games: (file number, line or number in the file, the game or why it cannot be read).
            Games are numbered from `first_game` on in this order, unreadable ones and None
            (a blank line) too.
    """
    replay, bad = _Replay(options), []
    wanted_set = None if wanted is None else set(wanted.tolist())
    for number, (file, line, game) in enumerate(games, first_game):
        if game is None:
            continue
        if isinstance(game, Refusal):
            bad.append(game)
            continue
        if buckets != (0, BUCKETS) or options.left_out:
            name = game.hash
            if not buckets[0] <= name % BUCKETS < buckets[1] or name in options.left_out:
                continue
        if options.endings and game.end not in options.endings:
            continue
        if len(game.moves) > MAX_PLIES:
            reason = f"{len(game.moves)} plies, at most {MAX_PLIES} are read"
            bad.append(Refusal(path, line, reason, "too long"))
            continue
        key = make_key(file, line)
        plies = _plies(game, options)
        if wanted_set is not None:
            plies = [ply for ply in plies if key | ply in wanted_set]
        elif 0 < options.kept(source) < len(plies):
            rng = game_rng(options.seed, epoch, source, number)
            plies = rng.choice(plies, options.kept(source), replace=False).tolist()
        if not plies:
            continue
        try:
            replay.game(game, number, key, set(plies))
        except GinkgoError as error:
            kind = "illegal move" if isinstance(error, IllegalMove) else "bad SFEN"
            bad.append(Refusal(path, line, str(error), kind))
    block = replay.finish(source)
    block.bad = bad
    return block


def _plies(game: Game, options: ParseOptions) -> list[int]:
    """The plies of a game that the filters let through."""
    first_color = 1 if game.start.split()[1] == "w" else 0
    plies = range(max(1, options.min_ply), game.total + 1)
    sides: tuple[int, ...] = {"b": (0,), "w": (1,)}.get(options.side, (0, 1))
    rates = (game.rate_b, game.rate_w)
    if options.min_rating:
        sides = tuple(side for side in sides if (rates[side] or 0) >= options.min_rating)
    full = game.full
    return [
        ply for ply in plies if (first_color + ply - 1) % 2 in sides and (not full or full[ply - 1])
    ]
