"""From the text of a segment to an array of `POSITION`: the work of one worker process.

In: lines of SFEN records, or games. Out: a `Block` of positions that are ready to train on, each
with a key that names its place in the data, and the lines that could not be used.

Every position is checked with cshogi before it is believed. Whole blocks are decoded by numpy;
cshogi is asked once a line for the legality of the move, and only where a line does not continue
the one before it has to set up its board anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.labels import dead_end, labels_from_moves, rotate_moves, usi_square
from ginkgo.features.position import (
    DRAW,
    LOSS,
    NO_RESULT,
    POSITION,
    WIN,
    decode_boards,
    decode_hand,
    impossible,
    orient,
    play,
)
from ginkgo.records import MAX_PLIES, STARTPOS, Game, split_bucket
from ginkgo.records.split import BUCKETS


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
    seed: int = 0
    features: str = "dlshogi119"
    """`ginkgo148` has its plane indices filled in here; `dlshogi119` needs nothing."""


@dataclass(frozen=True)
class BadLine:
    """A line that could not be used."""

    kind: str
    """One of a few words, for counting: `bad SFEN`, `illegal move`, …"""
    path: str
    line: int
    """Counted from 1."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.reason}"


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
    bad: list[BadLine] = field(default_factory=list)


def make_key(file: int, line: int, ply: int = 0) -> int:
    """A position's place in the data as one number: file, line (from 1), ply within a game."""
    return file << 44 | line << 10 | ply


_WINNER = {b"b": 0, b"w": 1, b"d": 2, b"-": 3}
_WINNER_TEXT = {key.decode(): value for key, value in _WINNER.items()}
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


_USI = _usi_moves()
_USI_BYTES = {usi.encode(): move for usi, move in _USI.items()}


# --- SFEN records -----------------------------------------------------------------------------


class GameCutter:
    """Tells where a new game starts in a run of SFEN records.

    A game goes on while its `game=` key, total and result stay and its ply grows. The scan of
    the files and the workers use the same rule, so game numbers agree.
    """

    def __init__(self) -> None:
        self._last: tuple = ()
        self._ply = -1

    def starts(self, fields: list[bytes]) -> bool:
        """Whether this line, split at its commas, begins a new game."""
        if len(fields) < 4:
            return not self._last
        name = next((item for item in fields[4:] if item.startswith(b"game=")), b"")
        tail = fields[0].rpartition(b" ")[2]
        ply = int(tail) if tail.isdigit() and len(tail) < 6 else 0
        this = (fields[1], fields[3], name)
        new = this != self._last or ply <= self._ply
        self._last, self._ply = this, ply
        return new


def parse_records(
    lines: Sequence[bytes],
    options: ParseOptions,
    *,
    path: str,
    file: int = 0,
    first_line: int = 1,
    first_game: int = 0,
    source: int = 0,
    buckets: tuple[int, int] = (0, BUCKETS),
    epoch: int = 0,
    wanted: NDArray[np.uint64] | None = None,
) -> Block:
    """SFEN records to positions.

    Args:
        lines: without line ends; must begin at the start of a game.
        path: for naming bad lines. file, first_line: for the keys.
        first_game, source: numbers that positions carry.
        buckets: [low, high) of the games that are used (`Split.range_of`).
        epoch: decides with the seed which positions `keep` takes.
        wanted: if given, only positions with these keys (sorted) come out.
    """
    bad: list[BadLine] = []
    rows: list[int] = []
    boards: list[bytes] = []
    hands: list[list[int]] = []
    # Per row: color, sfen ply, plies since the start, total, winner, move, game, score.
    table: list[tuple[int, int, int, int, int, int]] = []
    scores: list[tuple[int, float]] = []
    sfens: list[bytes] = []
    hand_cache: dict[bytes, list[int] | None] = {}
    cutter, game = GameCutter(), -1

    def refuse(index: int, kind: str, reason: str) -> None:
        bad.append(BadLine(kind, path, first_line + index, reason))

    split_lines = [line.rstrip(b"\r").split(b",") for line in lines]
    game_of: list[int] = []
    for fields in split_lines:
        game += cutter.starts(fields)
        game_of.append(game)
    game_array = np.array(game_of, np.int64)
    used = _games_in_split(split_lines, game_array, buckets)
    endings = {b"end=" + ending.encode() for ending in options.endings}
    for index, fields in enumerate(split_lines):
        if used is not None and not used[game_of[index]]:
            continue
        if len(fields) < 4:
            line = lines[index]
            if line.strip():
                if not _is_utf8(line):
                    refuse(index, "not UTF-8", "bytes that are not UTF-8 text")
                else:
                    refuse(index, "missing field", "expected sfen,total,move,winner")
            continue
        sfen, total, move, winner = fields[:4]
        parts = sfen.split(b" ")
        winner_code = _WINNER.get(winner)
        if len(parts) != 4 or not (parts[3].isdigit() and len(parts[3]) < 6):
            kind = "bad SFEN" if _is_utf8(lines[index]) else "not UTF-8"
            refuse(index, kind, "expected board, side to move, hands and ply")
            continue
        if winner_code is None or not (total.isdigit() and len(total) < 6):
            kind = "bad field" if _is_utf8(lines[index]) else "not UTF-8"
            wrong = "winner" if winner_code is None else "total"
            refuse(index, kind, f"{wrong} is not one that the format knows")
            continue
        color = 0 if parts[1] == b"b" else 1 if parts[1] == b"w" else -1
        hand = hand_cache.get(parts[2], 0)
        if hand == 0:
            hand = hand_cache[parts[2]] = decode_hand(parts[2])
        if color < 0 or hand is None:
            kind = "bad SFEN" if _is_utf8(lines[index]) else "not UTF-8"
            refuse(index, kind, "malformed side to move or hands")
            continue
        ply = int(parts[3])
        since_start, rate, score = ply, None, None
        ended_so = not endings
        for item in fields[4:]:
            if item.startswith(b"start="):
                since_start = ply - _number(item[6:], 1) + 1
            elif item.startswith(b"rate="):
                rate = _number(item[5:], None)
            elif item.startswith(b"score="):
                score = _number(item[6:], None)
            elif item in endings:
                ended_so = True
        if since_start < options.min_ply or not ended_so:
            continue
        if options.side and (options.side == "w") != bool(color):
            continue
        if options.min_rating and (rate is None or rate < options.min_rating):
            continue
        usi = _USI_BYTES.get(move)
        if usi is None:
            kind = "illegal move" if _is_utf8(lines[index]) else "not UTF-8"
            refuse(index, kind, f"{move.decode('utf-8', 'replace')!r} is no USI move")
            continue
        if score is not None:
            scores.append((len(rows), score))
        rows.append(index)
        boards.append(parts[0])
        hands.append(hand)  # type: ignore[arg-type]
        sfens.append(sfen)
        table.append((color, since_start, int(total), winner_code, usi, game_of[index]))
    if not rows:
        return _with_codes(_no_positions(bad), options)

    row_lines = np.array(rows, np.int64)
    keys = (np.uint64(make_key(file, first_line)) + (row_lines << 10).astype(np.uint64)).astype(
        np.uint64
    )
    columns = np.array(table, np.int64)
    chosen = _choose(columns[:, 5] + first_game, keys, options, epoch, wanted)
    score_of = dict(scores)
    if not chosen.all():
        picks = np.flatnonzero(chosen)
        score_of = {new: score_of[old] for new, old in enumerate(picks) if old in score_of}
        boards, hands, sfens = (
            [items[pick] for pick in picks] for items in (boards, hands, sfens)
        )  # type: ignore[assignment]
        columns, keys, row_lines = columns[chosen], keys[chosen], row_lines[chosen]
        if not len(picks):
            return _with_codes(_no_positions(bad), options)

    positions = np.zeros(len(columns), POSITION)
    cells, good = decode_boards(boards)
    held = np.array(hands, np.uint8).reshape(-1, 2, 7)
    positions["color"] = columns[:, 0]
    positions["board"], positions["hand"] = orient(cells, held, positions["color"])
    turned = rotate_moves(columns[:, 4], positions["color"])
    good_counts = ~impossible(positions["board"], positions["hand"])
    stuck = dead_end(positions["board"], turned)
    unusable = _check_legality(
        sfens, columns[:, 4], positions, turned, good & good_counts, stuck
    )
    for row, (kind, reason) in unusable.items():
        line = lines[row_lines[row]]
        if kind == "bad SFEN" and not _is_utf8(line):
            kind, reason = "not UTF-8", "bytes that are not UTF-8 text"
        refuse(int(row_lines[row]), kind, reason)
    bad.sort(key=lambda one: one.line)
    _finish(positions, columns, turned, options)
    positions["game"] += first_game
    positions["source"] = source
    for row, score in score_of.items():
        positions["score"][row] = score
    if unusable:
        usable = np.ones(len(positions), bool)
        usable[list(unusable)] = False
        positions, keys = positions[usable], keys[usable]
    return _with_codes(Block(positions, keys, bad=bad), options)


def _no_positions(bad: list[BadLine]) -> Block:
    return Block(np.zeros(0, POSITION), np.zeros(0, np.uint64), bad=bad)


def _number(text: bytes, default: int | None) -> int | None:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return default


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _games_in_split(
    split_lines: list[list[bytes]], games: NDArray[np.int64], buckets: tuple[int, int]
) -> list[bool] | None:
    """By game of the block whether it belongs to the split; None: all do."""
    if buckets == (0, BUCKETS):
        return None
    used = []
    bounds = [*np.flatnonzero(np.diff(games, prepend=-1)), len(games)]
    for low, high in itertools.pairwise(bounds):
        bucket = records_bucket(split_lines[low:high])
        used.append(buckets[0] <= bucket < buckets[1])
    return used


def records_bucket(game: list[list[bytes]]) -> int:
    """The split bucket of a game that is only known by its records.

    Equals `Game.bucket` where all its plies are there.
    """
    start = game[0][0].decode("ascii", "replace")
    moves = [fields[2].decode("ascii", "replace") for fields in game if len(fields) > 3]
    return split_bucket(start, moves)


def _check_legality(
    sfens: list[bytes],
    moves: NDArray[np.int64],
    positions: NDArray,
    turned: NDArray[np.int32],
    good: NDArray[np.bool_],
    stuck: NDArray[np.bool_],
) -> dict[int, tuple[str, str]]:
    """Which rows cannot be used, by number, with kind and reason."""
    # Where a row is just the next position of the row before it, the board need not be set up.
    next_board, next_hand = positions["board"].copy(), positions["hand"].copy()
    with np.errstate(over="ignore"):
        play(next_board, next_hand, turned)
    ones = np.ones(len(next_board), np.uint8)
    next_board, next_hand = orient(next_board, next_hand, ones)
    follows = np.zeros(len(sfens), bool)
    follows[1:] = (
        (next_board[:-1] == positions["board"][1:]).all(axis=1)
        & (next_hand[:-1] == positions["hand"][1:]).all(axis=(1, 2))
        & (positions["color"][:-1] != positions["color"][1:])
    )
    board = cshogi.Board()
    bad: dict[int, tuple[str, str]] = {}
    at = -2  # the row whose move has just been played on the board
    set_sfen, from_move16 = board.set_sfen, board.move_from_move16
    is_legal, push = board.is_legal, board.push
    rows = zip(sfens, moves.tolist(), good.tolist(), stuck.tolist(), follows.tolist(), strict=True)
    for row, (sfen, move16, is_good, is_stuck, is_next) in enumerate(rows):
        if not is_good:
            bad[row] = ("bad SFEN", "no possible shogi position")
            continue
        if not (is_next and at == row - 1):
            set_sfen(sfen.decode())
            if not board.is_ok():
                bad[row] = ("bad SFEN", "the side that just moved is in check")
                continue
        move = from_move16(move16)
        if is_stuck or not is_legal(move):
            bad[row] = ("illegal move", f"{cshogi.move_to_usi(move16)} in {sfen.decode()}")
            continue
        push(move)
        at = row
    return bad


# --- games ------------------------------------------------------------------------------------


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
        winner = _WINNER_TEXT[game.winner]
        kept_cells, kept_hands = bytearray(), bytearray()
        table: list[tuple[int, int, int, int, int, int]] = []
        keys: list[int] = []
        from_move16, is_legal, push = board.move_from_move16, board.is_legal, board.push
        total = len(game.moves)
        for ply, usi in enumerate(game.moves, 1):
            move16 = _USI.get(usi, -1)
            to, origin = move16 & 0x7F, move16 >> 7 & 0x7F
            drop = origin >= 81
            promote = move16 & 0x4000
            if move16 < 0:
                raise GinkgoError(f"ply {ply}: {usi!r} is no USI move")
            piece = origin - 80 + 16 * color if drop else cells[origin]
            if promote:
                rank = min(to % 9, origin % 9) if color == 0 else 8 - max(to % 9, origin % 9)
                if rank > 2 or not 1 <= piece & 15 <= 6:
                    raise GinkgoError(f"ply {ply}: illegal move {usi}")
                piece += 8
            move = from_move16(move16)
            if _DEAD[128 * piece + to] or not is_legal(move):
                raise GinkgoError(f"ply {ply}: illegal move {usi}")
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
        if sfen == STARTPOS:
            self._board.reset()
            return bytearray(_START_CELLS[0].tobytes()), bytearray(14)
        fields = sfen.encode("ascii", "replace").split()
        hand = decode_hand(fields[2]) if len(fields) == 4 else None
        if hand is None or fields[1] not in (b"b", b"w") or not fields[3].isdigit():
            raise GinkgoError("start position: expected an SFEN")
        cells, good = decode_boards(fields[:1])
        hands = np.array(hand, np.uint8)
        if not good[0] or impossible(cells, hands.reshape(1, 2, 7))[0]:
            raise GinkgoError("start position: no possible shogi position")
        self._board.set_sfen(sfen)
        if not self._board.is_ok():
            raise GinkgoError("start position: the side that just moved is in check")
        return bytearray(cells[0].tobytes()), bytearray(hand)

    def finish(self, source: int) -> Block:
        """All positions gathered."""
        positions = np.zeros(len(self._table), POSITION)
        block = Block(positions, np.array(self._keys, np.uint64))
        if not self._table:
            return _with_codes(block, self._options)
        columns = np.array(self._table, np.int64)
        positions["color"] = columns[:, 0]
        cells = np.frombuffer(bytes(self._cells), np.uint8).reshape(-1, 81)
        hands = np.frombuffer(bytes(self._hands), np.uint8).reshape(-1, 2, 7)
        positions["board"], positions["hand"] = orient(cells, hands, positions["color"])
        turned = rotate_moves(columns[:, 4], positions["color"])
        _finish(positions, columns, turned, self._options)
        positions["source"] = source
        return _with_codes(block, self._options)


def parse_games(
    games: Iterable[tuple[int, int, Game | BadLine]],
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
            Games are numbered from `first_game` on in this order, the unreadable ones too.
    """
    replay, bad = _Replay(options), []
    wanted_set = None if wanted is None else set(wanted.tolist())
    for number, (file, line, game) in enumerate(games, first_game):
        if isinstance(game, BadLine):
            bad.append(game)
            continue
        if not buckets[0] <= 0 < BUCKETS <= buckets[1] and not (
            buckets[0] <= game.bucket < buckets[1]
        ):
            continue
        if options.endings and game.end not in options.endings:
            continue
        if len(game.moves) > MAX_PLIES:
            reason = f"{len(game.moves)} plies, at most {MAX_PLIES} are read"
            bad.append(BadLine("too long", path, line, reason))
            continue
        key = make_key(file, line)
        plies = _plies(game, options)
        if wanted_set is not None:
            plies = [ply for ply in plies if key | ply in wanted_set]
        elif options.keep and len(plies) > options.keep:
            rng = _game_rng(options.seed, epoch, source, number)
            plies = rng.choice(plies, options.keep, replace=False).tolist()
        if not plies:
            continue
        try:
            replay.game(game, number, key, set(plies))
        except GinkgoError as error:
            kind = "illegal move" if "move" in str(error) else "bad SFEN"
            bad.append(BadLine(kind, path, line, str(error)))
    block = replay.finish(source)
    block.bad = bad
    return block


def _plies(game: Game, options: ParseOptions) -> list[int]:
    """The plies of a game that the filters let through."""
    first_color = 1 if game.start.split()[1] == "w" else 0
    plies = range(max(1, options.min_ply), game.total + 1)
    sides = {"b": (0,), "w": (1,)}.get(options.side, (0, 1))
    rates = (game.rate_b, game.rate_w)
    if options.min_rating:
        sides = tuple(side for side in sides if (rates[side] or 0) >= options.min_rating)
    return [ply for ply in plies if (first_color + ply - 1) % 2 in sides]


# --- shared -----------------------------------------------------------------------------------


def _finish(
    positions: NDArray, columns: NDArray[np.int64], turned: NDArray[np.int32], options: ParseOptions
) -> None:
    """Fill in what is the same for records and games."""
    color, ply, total, winner, _, game = columns.T
    positions["result"] = _RESULT[winner, color]
    positions["move"] = labels_from_moves(turned)
    positions["ply"] = np.clip(ply, 0, 65535)
    positions["total"] = np.clip(total, 0, 65535)
    positions["game"] = game
    weight = np.sqrt(np.clip(ply, 1, None) / np.maximum(total, np.clip(ply, 1, None)))
    has_result = winner != _WINNER[b"-"]
    positions["weight"] = np.where(has_result, weight if options.ply_weight else 1.0, 0.0)
    positions["score"] = positions["root_value"] = np.nan
    if options.view == "after":
        play(positions["board"], positions["hand"], turned)


def _with_codes(block: Block, options: ParseOptions) -> Block:
    """The block with the sparse plane codes that its features need."""
    if options.features == "ginkgo148":
        from ginkgo.features.ginkgo148 import pack_positions

        block.codes, block.offsets = pack_positions(block.positions)
    return block


def _game_rng(seed: int, epoch: int, source: int, game: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, epoch << 40 | source << 32 | game]))


def _choose(
    games: NDArray[np.int64],
    keys: NDArray[np.uint64],
    options: ParseOptions,
    epoch: int,
    wanted: NDArray[np.uint64] | None,
) -> NDArray[np.bool_]:
    """Which rows come out: the wanted ones, or `keep` of each game."""
    if wanted is not None:
        return np.isin(keys, wanted)
    chosen = np.ones(len(keys), bool)
    if options.keep:
        bounds = [*np.flatnonzero(np.diff(games, prepend=-1)), len(games)]
        for low, high in itertools.pairwise(bounds):
            if high - low > options.keep:
                rng = _game_rng(options.seed, epoch, 0, int(games[low]))
                chosen[low:high] = False
                chosen[low + rng.choice(high - low, options.keep, replace=False)] = True
    return chosen
