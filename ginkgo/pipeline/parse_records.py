"""SFEN records to positions, a block of lines at a time.

In: lines. Out: a `Block`. `ginkgo.records.sfenx` is the definition that this is tested against.

Lines are cut into columns and the columns decoded by numpy and dictionaries; what does not fit is
looked at again, line by line, to say what is wrong with it. Every position is checked with cshogi
before it is believed: once a line for the legality of the move, and only where a line does not
continue the one before it is the board set up anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.features.labels import dead_end, rotate_moves
from ginkgo.features.position import (
    POSITION,
    decode_boards,
    decode_hand,
    decode_hands,
    impossible,
    orient,
    play,
)
from ginkgo.pipeline.parse import (
    WINNER_CODE,
    Block,
    ParseOptions,
    complete,
    empty_block,
    finish,
    game_rng,
    make_key,
)
from ginkgo.pipeline.parse_policies import MOVES_BY_USI, Policies
from ginkgo.records import Refusal, game_hash
from ginkgo.records.split import BUCKETS

#: How many fields a record has without its keys: board, side to move, hands, ply, total, move,
#: winner.
FIELDS = 7


def split_lines(lines: Sequence[bytes]) -> list[list[bytes]]:
    """The fields of records: board, side to move, hands, ply, total, move, winner, the keys as one.

    A malformed line has fewer than eight.
    """
    if b"\r" in b"".join(lines):
        lines = [line.rstrip(b"\r") for line in lines]
    rows = [line.replace(b" ", b",", 3).split(b",", FIELDS) for line in lines]
    for row in rows:
        if len(row) == FIELDS:
            row.append(b"")
    return rows


class _Lookup(dict):
    """A dictionary that computes what it lacks, and does not grow without end."""

    _LIMIT = 1 << 17

    def __init__(self, compute, known: dict | None = None) -> None:
        super().__init__(known or {})
        self._compute = compute

    def __missing__(self, key):
        value = self._compute(key)
        if len(self) < self._LIMIT:
            self[key] = value
        return value


class _Keys(NamedTuple):
    """What the keys of a record say."""

    start: int = 1
    rate: float = np.nan
    score: float = np.nan
    value: float = np.nan
    root: float = np.nan
    end: bytes = b""
    game: bytes = b""
    whole: bytes = b""
    policy: bytes = b""


def _read_keys(text: bytes) -> _Keys:
    found: dict[str, Any] = {}
    for item in text.split(b","):
        key, _, value = item.partition(b"=")
        match key:
            case b"start" | b"rate" | b"score" | b"value" | b"root":
                try:
                    found[key.decode()] = float(value)
                except ValueError:
                    continue
            case b"end" | b"game" | b"whole" | b"policy":
                found[key.decode()] = value
    if "start" in found:
        start = found["start"]
        found["start"] = int(start) if abs(start) < 65536 else 1
    return _Keys(**found)


def _number(text: bytes) -> int:
    """A number of at most five digits, -1 for anything else."""
    return int(text) if text.isdigit() and len(text) < 6 else -1


_NUMBERS = _Lookup(_number)
_COLORS = {b"b": 0, b"w": 1}
_WINNERS = {name.encode(): code for name, code in WINNER_CODE.items()}
_MOVES = _Lookup(lambda _text: -1, MOVES_BY_USI)


class GameCutter:
    """Tells where new games start in a run of records, block after block.

    A game goes on while its keys `game` and `whole`, total and result stay and its ply grows.
    Malformed lines belong to the game around them. The scan of the files and the workers use the
    same rule, so game numbers agree.
    """

    def __init__(self) -> None:
        self._last = (b"", b"", b"")
        self._ply = -1
        self._name = _Lookup(lambda text: (keys := _read_keys(text)).game + b"," + keys.whole)

    def starts(self, rows: Sequence[list[bytes]]) -> list[bool]:
        """By line, split by `split_lines`, whether it begins a new game."""
        found, numbers, names = [], _NUMBERS, self._name
        names.clear()
        last_ply = self._ply
        last_total, last_winner, last_keys = self._last
        for row in rows:
            if len(row) <= FIELDS:
                found.append(False)
                continue
            ply, total, winner, keys = numbers[row[3]], row[4], row[6], row[7]
            found.append(
                ply <= last_ply
                or total != last_total
                or winner != last_winner
                or (keys != last_keys and names[keys] != names[last_keys])
            )
            last_ply, last_total, last_winner, last_keys = ply, total, winner, keys
        self._last, self._ply = (last_total, last_winner, last_keys), last_ply
        return found


def records_hash(rows: Sequence[list[bytes]]) -> int:
    """The hash of a game that is only known by its records (split by `split_lines`).

    Equals `Game.hash` where all its plies are there, or their key `whole` states it.
    """
    whole = [row for row in rows if len(row) > FIELDS]
    if not whole:
        return 0
    if b"whole=" in whole[0][7]:
        try:
            return int(_read_keys(whole[0][7]).whole, 16) % (1 << 64)
        except ValueError:
            pass
    start = b" ".join(whole[0][:3]).decode("utf-8", "replace")
    return game_hash(start, [row[5].decode("utf-8", "replace") for row in whole])


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
    bad: list[Refusal] = []

    def refuse(index: int, kind: str, reason: str) -> None:
        bad.append(Refusal(path, first_line + index, reason, kind))

    rows = split_lines(lines)
    games = np.maximum(np.cumsum(GameCutter().starts(rows)) - 1, 0)
    used = np.ones(len(rows), bool)
    if buckets != (0, BUCKETS) or options.left_out:
        bounds = [0, *(np.flatnonzero(np.diff(games)) + 1).tolist(), len(rows)]
        for low, high in itertools.pairwise(bounds):
            name = records_hash(rows[low:high])
            used[low:high] = (
                buckets[0] <= name % BUCKETS < buckets[1] and name not in options.left_out
            )
    fits = np.array([len(row) > FIELDS for row in rows], bool)
    if not _is_utf8(b"\n".join(lines)):
        fits &= [_is_utf8(line) for line in lines]
    for index in np.flatnonzero(used & ~fits).tolist():
        if lines[index].strip():
            refuse(index, *_fault(lines[index]))
    places = np.flatnonzero(used & fits)
    read = rows if len(places) == len(rows) else [rows[place] for place in places]
    columns, hands, keys_read = _decode_columns(read, games[places])
    # A negative number stands for what could not be read.
    readable = (columns >= 0).all(axis=1)
    for index in places[~readable].tolist():
        refuse(index, *_fault(lines[index]))
    # From the ply that the SFEN states to the game's own, which begins with 1.
    columns[:, 1] = np.maximum(columns[:, 1] - (keys_read["start"] - 1), 1)
    chosen = readable & _passes(columns, keys_read, options)
    keys = (make_key(file, first_line) + (places << 10)).astype(np.uint64)
    if wanted is not None:
        chosen &= np.isin(keys, wanted)
    elif options.kept(source):
        _keep_some(chosen, columns[:, 5] + first_game, options, epoch, source)
    places, columns, hands, keys = places[chosen], columns[chosen], hands[chosen], keys[chosen]
    scores, outcomes, roots = (keys_read[name][chosen] for name in ("score", "value", "root"))
    if not len(places):
        return empty_block(options, bad)

    positions = np.zeros(len(places), POSITION)
    taken = rows if len(places) == len(rows) else [rows[place] for place in places]
    cells, good = decode_boards([row[0] for row in taken])
    positions["color"] = columns[:, 0]
    positions["board"], positions["hand"] = orient(cells, hands, positions["color"])
    turned = rotate_moves(columns[:, 4], positions["color"])
    follows = _follows(cells, hands, columns[:, 4], positions["color"])
    policies = None
    if options.policies:
        policies = Policies(keys_read["policy"][chosen].tolist(), positions)
    unusable = _check_legality(taken, columns[:, 4], positions, turned, good, follows, policies)
    for row, (kind, reason) in unusable.items():
        refuse(int(places[row]), kind, reason)
    bad.sort(key=lambda one: one.line)
    finish(positions, columns, turned, options)
    positions["game"] += first_game
    positions["source"] = source
    positions["score"] = np.clip(scores, -32000, 32000)
    positions["outcome"] = np.clip(outcomes, 0, 1)
    positions["root_value"] = np.clip(roots, 0, 1)
    block = Block(positions, keys, bad=bad)
    if policies is not None:
        block.ragged["policy"] = policies.targets()
    if unusable:
        usable = np.ones(len(positions), bool)
        usable[list(unusable)] = False
        block = block.take(np.flatnonzero(usable))
    return complete(block, options)


def _decode_columns(
    rows: list[list[bytes]], games: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8], dict[str, NDArray]]:
    """Columns of split lines as numbers; -1 where a field could not be read.

    Returns:
        (n, 6) colour, ply as stated, total, winner, move, game; (n, 2, 7) hands; and arrays by
        key (`start`, `rate`, `score`, `value`, `root`, `end`, `policy`).
    """
    count = len(rows)
    columns = np.zeros((count, 6), np.int64)
    _, turn, hand, ply, total, move, winner, tail = zip(*rows, strict=True) if rows else ([],) * 8
    for column, texts, lookup in ((1, ply, _NUMBERS), (2, total, _NUMBERS), (4, move, _MOVES)):
        columns[:, column] = np.fromiter(map(lookup.__getitem__, texts), np.int64, count)
    columns[:, 0] = _letters(turn, _COLORS)
    columns[:, 3] = _letters(winner, _WINNERS)
    columns[:, 5] = games
    hands, well = decode_hands(hand)
    columns[~well, 0] = -1
    # The plies of a game often share their keys: each text is read once.
    number = {text: index for index, text in enumerate(dict.fromkeys(tail))}
    read = [_read_keys(text) for text in number]
    place = np.fromiter(map(number.__getitem__, tail), np.int64, count)
    arrays = {
        "start": np.array([item.start for item in read], np.int64)[place],
        "rate": np.array([item.rate for item in read], np.float64)[place],
        "score": np.array([item.score for item in read], np.float64)[place],
        "value": np.array([item.value for item in read], np.float64)[place],
        "root": np.array([item.root for item in read], np.float64)[place],
        "end": np.array([item.end for item in read], object)[place],
        "policy": np.array([item.policy for item in read], object)[place],
    }
    return columns, hands, arrays


def _letters(texts: Sequence[bytes], numbers: dict[bytes, int]) -> NDArray[np.int64]:
    """(n,) numbers of one-letter fields, -1 where a field is none of them."""
    # A field holds no comma, so commas in every second place mean letters between them.
    joined = np.frombuffer(b",".join([*texts, b""]), np.uint8)
    if len(joined) != 2 * len(texts) or (joined[1::2] != ord(",")).any():
        return np.array([numbers.get(text, -1) for text in texts], np.int64)
    table = np.full(256, -1, np.int64)
    for text, number in numbers.items():
        table[text[0]] = number
    return table[joined[::2]]


def _passes(
    columns: NDArray[np.int64], keys: dict[str, NDArray], options: ParseOptions
) -> NDArray[np.bool_]:
    """Which rows the filters let through."""
    passes = columns[:, 1] >= options.min_ply
    if options.side:
        passes &= columns[:, 0] == (options.side == "w")
    if options.endings:
        wanted = {ending.encode() for ending in options.endings}
        passes &= np.fromiter((end in wanted for end in keys["end"]), bool, len(passes))
    if options.min_rating:
        passes &= keys["rate"] >= options.min_rating  # an unknown rating is NaN and does not
    return passes


def _keep_some(
    chosen: NDArray[np.bool_],
    games: NDArray[np.int64],
    options: ParseOptions,
    epoch: int,
    source: int,
) -> None:
    """Leave `keep` of the chosen rows of each game."""
    places, keep = np.flatnonzero(chosen), options.kept(source)
    bounds = [0, *(np.flatnonzero(np.diff(games[places])) + 1).tolist(), len(places)]
    for low, high in itertools.pairwise(bounds):
        if high - low > keep:
            rng = game_rng(options.seed, epoch, source, int(games[places[low]]))
            chosen[places[low:high]] = False
            chosen[places[low + rng.choice(high - low, keep, replace=False)]] = True


def _fault(line: bytes) -> tuple[str, str]:
    """What is wrong with a line that the columns could not take."""
    if not _is_utf8(line):
        return "not UTF-8", "bytes that are not UTF-8 text"
    fields = line.rstrip(b"\r").split(b",")
    if len(fields) < 4:
        return "missing field", "expected sfen,total,move,winner"
    sfen, total, move, winner = fields[:4]
    parts = sfen.split(b" ")
    if len(parts) != 4 or _number(parts[3]) < 0:
        return "bad SFEN", "expected board, side to move, hands and ply"
    if parts[1] not in _COLORS or decode_hand(parts[2]) is None:
        return "bad SFEN", "malformed side to move or hands"
    if _number(total) < 0:
        return "bad field", f"total {total.decode()!r} is no number of plies"
    if winner not in _WINNERS:
        return "bad field", f"winner {winner.decode()!r} is not b, w, d or -"
    return "illegal move", f"{move.decode()!r} is no USI move"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _follows(
    cells: NDArray[np.uint8],
    hands: NDArray[np.uint8],
    moves: NDArray[np.int64],
    color: NDArray[np.uint8],
) -> NDArray[np.bool_]:
    """(n,) which rows are just the next position of the row before them.

    Args:
        cells, hands, moves: (n, 81), (n, 2, 7), (n,) in Black's view. color: (n,) who moves.
    """
    next_cells, next_hands = cells[:-1].copy(), hands[:-1].copy()
    with np.errstate(over="ignore"):
        play(next_cells, next_hands, moves[:-1].astype(np.int32), color[:-1])
    follows = np.zeros(len(cells), bool)
    follows[1:] = (
        (next_cells == cells[1:]).all(axis=1)
        & (next_hands == hands[1:]).all(axis=(1, 2))
        & (color[:-1] != color[1:])
    )
    return follows


def _check_legality(
    rows: list[list[bytes]],
    moves: NDArray[np.int64],
    positions: NDArray,
    turned: NDArray[np.int32],
    good: NDArray[np.bool_],
    follows: NDArray[np.bool_],
    policies: Policies | None,
) -> dict[int, tuple[str, str]]:
    """Which rows cannot be used, by number, with kind and reason.

    Args:
        rows: n split lines. moves: (n,) cshogi moves. positions: (n,) oriented.
        turned: (n,) the moves in the mover's view. good: (n,) whether the text was well formed.
        follows: (n,) of `_follows`: the board need not be set up for them, and what comes of a
            legal move is a possible position.
        policies: their soft targets, if these are wanted.
    """
    stuck = dead_end(positions["board"], turned)
    first = np.flatnonzero(~follows)
    good[first] &= ~impossible(positions["board"][first], positions["hand"][first])
    board = cshogi.Board()
    bad: dict[int, tuple[str, str]] = {}
    at = -2  # the row whose move has just been played on the board
    from_move16, is_legal, push = board.move_from_move16, board.is_legal, board.push
    columns = (moves.tolist(), good.tolist(), stuck.tolist(), follows.tolist())
    for row, (move16, is_good, is_stuck, is_next) in enumerate(zip(*columns, strict=True)):
        if not is_good:
            bad[row] = ("bad SFEN", "no possible shogi position")
            continue
        if not (is_next and at == row - 1):
            one = slice(row, row + 1)
            if is_next and impossible(positions["board"][one], positions["hand"][one])[0]:
                bad[row] = ("bad SFEN", "no possible shogi position")
                continue
            board.set_sfen(_sfen(rows[row]))
            # `is_ok` prints a board when it fails: ask with the turn changed instead.
            board.turn ^= 1
            no_turn = board.is_check()
            board.turn ^= 1
            if no_turn:
                bad[row] = ("bad SFEN", "the side that just moved is in check")
                continue
        move = from_move16(move16)
        if is_stuck or not is_legal(move):
            bad[row] = ("illegal move", f"{cshogi.move_to_usi(move16)} in {_sfen(rows[row])}")
            continue
        if policies is not None and not (
            policies.good[row] and all(is_legal(from_move16(m)) for m in policies.moves[row])
        ):
            bad[row] = ("bad policy", f"expected legal moves and visits in {_sfen(rows[row])}")
        push(move)
        at = row
    return bad


def _sfen(row: list[bytes]) -> str:
    return b" ".join(row[:4]).decode()
