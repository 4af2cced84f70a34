"""Frozen baselines: how shogi data is read when nobody thinks about speed.

What the pipeline is compared with. They use no code of ginkgo, so that they stay as slow as they
are when ginkgo gets faster. DO NOT OPTIMISE: the ratios in `docs/RESULTS.md` would lose their
meaning.

- `read_packed`: python-shogi, one position at a time, to the fields that ginkgo hands over.
- `read_planes148`: python-shogi, one position at a time, a Python loop over the 148 planes of
  `ginkgo148`. The first version of the project worked so.
- `from_generator`: cshogi, one position at a time, through `tf.data`'s `from_generator`,
  `shuffle` and `batch`, as many tutorials have it.

In: lines of SFEN records (`sfen,total,move,winner…`). Run as a script it prints the speed of each.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import common
import numpy as np
import shogi

if TYPE_CHECKING:
    import tensorflow as tf

# As in ginkgo's `POSITION`, spelled out a second time on purpose.
LOSS, WIN, DRAW, NO_RESULT = 0, 1, 2, 3

#: Piece code 1–14 by python-shogi's piece type (P L N S G B R K +P +L +N +S +B +R).
_CODES = [0, 1, 2, 3, 4, 7, 5, 6, 8, 9, 10, 11, 12, 13, 14]
#: python-shogi's piece types in the order of `hand` (P L N S B R G).
_HAND = [shogi.PAWN, shogi.LANCE, shogi.KNIGHT, shogi.SILVER, shogi.BISHOP, shogi.ROOK, shogi.GOLD]


def _square(square: int, turn: int) -> int:
    """python-shogi's square (9a 0, 8a 1, …) as 9·(file-1) + (rank-1) in the mover's view."""
    own = 9 * (8 - square % 9) + square // 9
    return 80 - own if turn == shogi.WHITE else own


def _square_back(own: int, turn: int) -> int:
    """The inverse of `_square`."""
    file, rank = divmod(80 - own if turn == shogi.WHITE else own, 9)
    return 9 * rank + 8 - file


def _result(winner: str, turn: int) -> int:
    if winner == "d":
        return DRAW
    if winner == "-":
        return NO_RESULT
    return WIN if winner == "bw"[turn] else LOSS


def _label(origin: int | None, to: int, promotion: bool, hand_index: int) -> int:
    """The label `dlshogi2187` of a move whose squares are in the mover's view."""
    if origin is None:
        return 81 * (20 + hand_index) + to
    files, ranks = to // 9 - origin // 9, to % 9 - origin % 9
    if ranks == -2 and files in (1, -1):
        direction = 8 if files == 1 else 9
    elif ranks < 0:
        direction = 0 if files == 0 else 1 if files > 0 else 2
    elif ranks == 0:
        direction = 3 if files > 0 else 4
    else:
        direction = 5 if files == 0 else 6 if files > 0 else 7
    return 81 * (direction + (10 if promotion else 0)) + to


def _move_label(move: shogi.Move, turn: int) -> int:
    to = _square(move.to_square, turn)
    if move.from_square is None:
        return _label(None, to, False, _HAND.index(move.drop_piece_type))
    return _label(_square(move.from_square, turn), to, move.promotion, 0)


# --- (a) python-shogi to packed positions -----------------------------------------------------


def read_packed(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One position a line, in the mover's view; lines with illegal moves are left out.

    Yields:
        `board` (81,) uint8, `hand` (2, 7) uint8, `color`, `move` (label), `result`, `ply`, `total`.
    """
    for line in lines:
        sfen, total, usi, winner = line.split(",")[:4]
        board = shogi.Board(sfen)
        move = shogi.Move.from_usi(usi)
        if not board.is_legal(move):
            continue
        turn = board.turn
        cells = np.zeros(81, np.uint8)
        for square in shogi.SQUARES:
            piece = board.piece_at(square)
            if piece is not None:
                code = _CODES[piece.piece_type] + (0 if piece.color == turn else 16)
                cells[_square(square, turn)] = code
        hand = np.zeros((2, 7), np.uint8)
        for side, color in enumerate((turn, 1 - turn)):
            for index, piece_type in enumerate(_HAND):
                hand[side, index] = board.pieces_in_hand[color][piece_type]
        yield {
            "board": cells,
            "hand": hand,
            "color": turn,
            "move": _move_label(move, turn),
            "result": _result(winner, turn),
            "ply": board.move_number,
            "total": int(total),
        }


# --- (b) python-shogi to the 148 planes -------------------------------------------------------

#: (plane of the first slot, plane of the first slot of the promoted pieces) by plain piece type.
_PLANES = {
    shogi.KING: (0, 0),
    shogi.ROOK: (4, 8),
    shogi.BISHOP: (12, 16),
    shogi.GOLD: (20, 20),
    shogi.SILVER: (28, 36),
    shogi.KNIGHT: (44, 52),
    shogi.LANCE: (60, 68),
    shogi.PAWN: (76, 112),
}
_PLAIN = {
    shogi.PROM_ROOK: shogi.ROOK,
    shogi.PROM_BISHOP: shogi.BISHOP,
    shogi.PROM_SILVER: shogi.SILVER,
    shogi.PROM_KNIGHT: shogi.KNIGHT,
    shogi.PROM_LANCE: shogi.LANCE,
    shogi.PROM_PAWN: shogi.PAWN,
}


def read_planes148(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One position a line as dense planes.

    Yields:
        `planes` (148, 9, 9) float32 of -1, 0 and 1, indexed [file, rank], mover's view; `move`
        (label), `result`.
    """
    for line in lines:
        sfen, _total, usi, winner = line.split(",")[:4]
        board = shogi.Board(sfen)
        move = shogi.Move.from_usi(usi)
        if move not in board.legal_moves:
            continue
        yield {
            "planes": _planes148(board),
            "move": _move_label(move, board.turn),
            "result": _result(winner, board.turn),
        }


def _planes148(board: shogi.Board) -> np.ndarray:
    planes = np.zeros((148, 81), np.float32)
    turn = board.turn
    used: dict[int, int] = {}
    pieces: list[tuple[int, int, int]] = []  # (python-shogi square, plain type, slot)
    held: list[tuple[int, int, int]] = []  # (colour, piece type, slot)
    for color in (turn, 1 - turn):
        sign = 1 if color == turn else -1
        for own_square in range(81):
            square = _square_back(own_square, turn)
            piece = board.piece_at(square)
            if piece is None or piece.color != color:
                continue
            plain = _PLAIN.get(piece.piece_type, piece.piece_type)
            slot = used[plain] = used.get(plain, -1) + 1
            first = _PLANES[plain][piece.piece_type in _PLAIN]
            planes[first + 2 * slot, own_square] = sign
            pieces.append((square, plain, slot))
        for piece_type, count in board.pieces_in_hand[color].items():
            for _ in range(count):
                slot = used[piece_type] = used.get(piece_type, -1) + 1
                held.append((color, piece_type, slot))
    for color in (turn, 1 - turn):
        sign = 1 if color == turn else -1
        for move in _legal_moves(board, color):
            to = _square(move.to_square, turn)
            if move.from_square is None:
                for holder, piece_type, slot in held:
                    if holder == color and piece_type == move.drop_piece_type:
                        planes[_PLANES[piece_type][0] + 2 * slot + 1, to] = sign
                continue
            promoted = move.promotion or board.piece_type_at(move.from_square) in _PLAIN
            for square, plain, slot in pieces:
                if square == move.from_square:
                    planes[_PLANES[plain][promoted] + 2 * slot + 1, to] = sign
    return planes.reshape(148, 9, 9)


def _legal_moves(board: shogi.Board, color: int) -> list[shogi.Move]:
    """Legal moves as if `color` were to move; never the capture of a king."""
    turn, king = board.turn, board.king_squares[1 - color]
    board.turn = color
    moves = [
        move
        for move in board.pseudo_legal_moves
        if move.to_square != king and not board.is_suicide_or_check_by_dropping_pawn(move)
    ]
    board.turn = turn
    return moves


# --- (c) tf.data, one position at a time ------------------------------------------------------


def from_generator(lines: Sequence[str], batch_size: int, shuffle: int) -> tf.data.Dataset:
    """Shuffled batches without end of the fields of `read_packed`, made with cshogi."""
    import tensorflow as tf

    def positions() -> Iterator[dict[str, Any]]:
        for line in itertools.cycle(lines):
            yield from _pack_with_cshogi(line)

    signature = {
        "board": tf.TensorSpec((81,), tf.uint8),
        "hand": tf.TensorSpec((2, 7), tf.uint8),
        "move": tf.TensorSpec((), tf.uint16),
        "result": tf.TensorSpec((), tf.uint8),
    }
    data = tf.data.Dataset.from_generator(positions, output_signature=signature)
    return data.shuffle(shuffle).batch(batch_size).prefetch(2)


_SWAPPED = np.array([0, *range(17, 31), 0, 0, *range(1, 15), 0], np.uint8)


def _pack_with_cshogi(line: str) -> Iterator[dict[str, Any]]:
    import cshogi

    sfen, _total, usi, winner = line.split(",")[:4]
    board = cshogi.Board(sfen)
    move = board.move_from_usi(usi)
    if not board.is_legal(move):
        return
    turn = board.turn
    cells = np.array(board.pieces, np.uint8)
    hand = np.array(board.pieces_in_hand, np.uint8)[:, [0, 1, 2, 3, 5, 6, 4]]
    if turn == cshogi.WHITE:
        cells, hand = _SWAPPED[cells[::-1]], hand[::-1]
    to, origin = cshogi.move_to(move), cshogi.move_from(move)
    drop = cshogi.move_is_drop(move)
    index = cshogi.move_drop_hand_piece(move) if drop else 0
    if turn == cshogi.WHITE:
        to, origin = 80 - to, 80 - origin
    label = _label(
        None if drop else origin,
        to,
        bool(cshogi.move_is_promotion(move)),
        [0, 1, 2, 3, 6, 4, 5][index],
    )
    yield {"board": cells, "hand": hand, "move": label, "result": _result(winner, turn)}


# --- how fast they are ------------------------------------------------------------------------


def read_lines(paths: Sequence[str], count: int) -> list[str]:
    """About `count` lines of SFEN records, evenly spaced over the files."""
    from ginkgo.records.files import open_binary

    lines: list[str] = []
    for path in paths:
        with open_binary(Path(path)) as stream:
            lines += stream.read().decode().splitlines()
    return lines[:: max(1, len(lines) // count)]


def measure(
    lines: Sequence[str], seconds: float, batch_size: int = 4096, shuffle: int = 16384
) -> dict[str, dict[str, float]]:
    """Runs each baseline for about so many seconds.

    Returns:
        by baseline `per_second` (wall time), `per_core_second` (CPU time of the process) and
        `positions`.
    """
    batches = iter(from_generator(lines, batch_size, shuffle))
    next(batches)  # fills the shuffle buffer
    return {
        "naive_packed": _rate(lambda: _counted(read_packed(lines)), seconds),
        "naive_148_planes": _rate(lambda: _counted(read_planes148(lines)), seconds),
        "from_generator": _rate(lambda: (len(batch["move"]) for batch in batches), seconds),
    }


def _counted(positions: Iterator[Any]) -> Iterator[int]:
    for _ in positions:
        yield 1


def _rate(run: Callable[[], Iterator[int]], seconds: float) -> dict[str, float]:
    """Runs what yields numbers of positions, again and again, until the time is up."""
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    wall = 0.0
    while wall < seconds:
        for number in run():
            count += number
            wall = time.perf_counter() - start
            if wall >= seconds:
                break
    used = time.process_time() - cpu
    return {"per_second": count / wall, "per_core_second": count / used, "positions": count}


def show(result: dict[str, dict[str, float]]) -> None:
    """The figures of `measure` as a table."""
    rows = [
        (name, row["per_second"], row["per_core_second"], row["positions"])
        for name, row in result.items()
    ]
    common.table(("baseline", "positions/s", "per core second", "positions"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    parser.add_argument("--lines", type=int, default=20000, help="lines that are read in turn")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each baseline")
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--shuffle", type=int, default=16384, help="tf.data's shuffle buffer")
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)
    with common.records(options.data, options.games) as paths:
        lines = read_lines(paths, options.lines)
    result = measure(lines, options.seconds, options.batch_size, options.shuffle)
    show(result)
    rates = {f"{name}_per_second": row["per_second"] for name, row in result.items()}
    common.finish({**rates, "baselines": result, "machine": machine})


if __name__ == "__main__":
    main()
