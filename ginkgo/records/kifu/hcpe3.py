"""hcpe3: whole games with the visits of each search, as dlshogi packs them.

    start position (hcp, 32 bytes), number of moves (2), result (1), opponent (1), then by move:
    the move (2), score (2), number of candidates (2), then by candidate: move (2), visits (2)

Result: 0 draw, 1 Black, 2 White; 4 repetition, 8 declaration, 16 maximum of moves. dlshogi itself
marks the maximum of moves as 0x16 (sixteen was meant), which gives a draw the bits of a win.

In: bytes. Out: `Game`s with scores and visits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import cshogi
import numpy as np

from ginkgo.records.files import DAMAGED
from ginkgo.records.game import Game, Refusal
from ginkgo.records.kifu.archive import Readable
from ginkgo.records.kifu.huffman import unpack
from ginkgo.records.kifu.pieces import move16, sfen_from_cells
from ginkgo.records.kifu.reading import Fault, Reading, ReadOptions, finish
from ginkgo.records.kifu.result import Statement

_HEAD = struct.Struct("<32sHBB")
_MOVE = struct.Struct("<HhH")
#: Games that go through the processes as one piece.
BLOCK_GAMES = 32
_MOST_MOVES = 4096
#: What dlshogi writes for a draw by the maximum of moves: no game has all three of these bits.
_DRAW_BY_LENGTH = 0x16
_MOST_CANDIDATES = 593
"""No position has more legal moves."""


def _end_of(data: bytes, place: int) -> int:
    """Where the game that begins at `place` ends; -1: beyond the data; -2: this is no game."""
    if place + _HEAD.size > len(data):
        return -1
    _, moves, result, _ = _HEAD.unpack_from(data, place)
    if moves > _MOST_MOVES or result & 3 == 3 or result > 31:
        return -2
    place += _HEAD.size
    for _ in range(moves):
        if place + _MOVE.size > len(data):
            return -1
        candidates = _MOVE.unpack_from(data, place)[2]
        if candidates > _MOST_CANDIDATES:
            return -2
        place += _MOVE.size + 4 * candidates
    return place if place <= len(data) else -1


def guess_hcpe3(head: bytes, whole: bool) -> float:
    """The share of sound games among the first ones, 0 where the bytes are none."""
    place = 0
    starts: list[bytes] = []
    while len(starts) < 64:
        end = _end_of(head, place)
        if end < 0:
            if end == -2 or (whole and place < len(head) and not starts):
                return 0.0
            break
        starts.append(head[place : place + 32])
        place = end
    if not starts:
        return 0.0
    rows = np.frombuffer(b"".join(starts), np.uint8).reshape(-1, 32)
    return float(unpack(rows, "hcp")[3].mean())


def hcpe3_blocks(file: str, stream: Readable, stem: str) -> Iterator:
    """A file in pieces of a few games each."""
    from ginkgo.records.kifu.stream import RawGame, broken

    number, buffer, more = 1, b"", True
    first = True
    while True:
        place = games = 0
        while games < BLOCK_GAMES:
            end = _end_of(buffer, place)
            if end < 0:
                break
            place, games = end, games + 1
        if games == BLOCK_GAMES or (games and not more) or (games and end == -2):
            block = RawGame(file, number, "hcpe3", buffer[:place], stem)
            if first and (reason := _other_moves(block)):
                yield Refusal(file, 1, reason, "moves of another kind")
                return
            first = False
            yield block
            number, buffer = number + games, buffer[place:]
            continue
        if end == -2:
            yield Refusal(file, number, "this is no game: the rest is left out", "damaged file")
            return
        if not more:
            break
        try:
            data = stream.read(1 << 20)
        except DAMAGED as error:
            yield broken(file, number, error)
            return
        buffer, more = buffer + data, bool(data)
    if buffer:
        yield Refusal(file, number, f"cut short: {len(buffer)} bytes of a game", "damaged file")


def _other_moves(block) -> str:
    """Why the moves of a file cannot be hcpe3's; nothing: they can."""
    found = [game for _, game in read_hcpe3_block(block, ReadOptions())]
    refused = sum(isinstance(game, Refusal) and game.kind == "unusable game" for game in found)
    if refused > 0.1 * len(found):
        return (
            f"only {len(found) - refused} of the first {len(found)} games are legal: "
            "their moves are not packed as hcpe3 packs them"
        )
    return ""


def read_hcpe3_block(raw, options: ReadOptions) -> Iterator[tuple[int, Game | Refusal]]:
    """The games of a piece, replayed."""
    data, place, starts = raw.data, 0, []
    while (end := _end_of(data, place)) > 0 and place < len(data):
        starts.append((place, end))
        place = end
    rows = np.frombuffer(b"".join(data[begin : begin + 32] for begin, _ in starts), np.uint8)
    boards, hands, color, good = unpack(rows.reshape(-1, 32), "hcp")
    for index, (begin, _end) in enumerate(starts):
        number = raw.line + index
        if not good[index]:
            yield number, Refusal(raw.file, number, "impossible position", "bad start position")
            continue
        try:
            start = _sfen(boards[index], hands[index], bool(color[index]))
            game = _read_game(data, begin, start, options)
        except Fault as error:
            yield number, Refusal(raw.file, number, str(error), "unusable game", error.plies)
            continue
        game.game = f"{raw.name}-{number}"
        yield number, game


def _sfen(board: np.ndarray, hands: np.ndarray, white: bool) -> str:
    cells = [0] * 100
    for square, piece in enumerate(board.tolist()):
        cells[10 * (square // 9 + 1) + square % 9 + 1] = piece
    counts = [{kind + 1: count for kind, count in enumerate(hand)} for hand in hands.tolist()]
    return sfen_from_cells(cells, white, (counts[0], counts[1]))


def _read_game(data: bytes, place: int, start: str, options: ReadOptions) -> Game:
    _, count, result, _ = _HEAD.unpack_from(data, place)
    place += _HEAD.size
    reading = Reading("hcpe3", start)
    policies: list[dict[str, int] | None] = []
    for ply in range(1, count + 1):
        move, score, candidates = _MOVE.unpack_from(data, place)
        place += _MOVE.size
        reading.moves.append(_usi(move, ply))
        reading.scores.append(score)
        pairs = struct.unpack_from(f"<{2 * candidates}H", data, place)
        place += 4 * candidates
        visits = {_usi(pairs[i], ply): pairs[i + 1] for i in range(0, len(pairs), 2)}
        policies.append({usi: n for usi, n in visits.items() if n} or None)
    winner = {0: "d", 1: "b", 2: "w"}[result & 3]
    end = "unknown"
    if result == _DRAW_BY_LENGTH:
        winner, end = "d", "max_moves"
    elif result & 4:
        end = "sennichite" if winner == "d" else "perpetual"
    elif result & 8:
        end = "kachi" if winner != "d" else "jishogi"
    elif result & 16:
        end = "max_moves"
    reading.statements.append(Statement(f"result {result}", end, winner))
    game = finish(reading, options)
    if game.total < count:
        raise Fault(
            0, f"ply {game.total + 1}: illegal move {reading.moves[game.total]}", game.total
        )
    if any(policies):
        _check_candidates(start, game.played or (), policies)
        game.policies = policies
    return game


def _check_candidates(
    start: str, played: Sequence[int], policies: Sequence[dict[str, int] | None]
) -> None:
    """They become targets of training: all must be legal.

    Raises:
        Fault: one is not.
    """
    from ginkgo.records.kifu.packed import is_legal16

    board = cshogi.Board(start)
    for ply, (move, policy) in enumerate(zip(played, policies, strict=True), 1):
        legal = {one & 0xFFFF for one in board.legal_moves}
        for usi in policy or ():
            # The library leaves out moves that no player would make.
            bits = move16(usi)
            if bits not in legal and not is_legal16(board, bits):
                raise Fault(0, f"ply {ply}: visits of an illegal move {usi}", ply - 1)
        board.push(move)


def _usi(move16: int, ply: int) -> str:
    to, origin = move16 & 0x7F, move16 >> 7 & 0x7F
    if to > 80 or origin > 87 or move16 >> 15 or origin == to:
        raise Fault(0, f"ply {ply}: {move16:#06x} is no move", ply - 1)
    return cshogi.move_to_usi(move16)
