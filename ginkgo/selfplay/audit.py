"""Are the results of stored games right? Every game is replayed, move by move.

In: run folders. Out: what was wrong, game by game; nothing where all is well.

The rules are asked of rsshogi, another implementation than the one that plays: legality, mate, the
fourth occurrence of a position, perpetual check. The declaration's points are counted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.records.kifu.selfplay import select_games
from ginkgo.selfplay.store import RunFolder

#: Points of pieces in a declaration, by cshogi's piece type: rook and bishop 5, others 1, king 0.
_POINTS = [0, 1, 1, 1, 1, 5, 5, 1, 0, 1, 1, 1, 1, 5, 5]
_KING = 8


class Audit(NamedTuple):
    """What was found."""

    games: int
    endings: dict[str, int]
    faults: list[str]
    """Run, number of the game and what is wrong, one a fault."""


def audit(runs: Iterable[RunFolder]) -> Audit:
    """Replay all games of some runs.

    Raises:
        GinkgoError: a file cannot be read.
    """
    games = 0
    endings: dict[str, int] = {}
    faults: list[str] = []
    for run in runs:
        seen: set[int] = set()
        for path, meta, arrays in run.arrays():
            for index, number in enumerate(arrays["number"].tolist()):
                one = select_games(arrays, index, index + 1)
                end = meta["endings"][int(one["end"][0])]
                games += 1
                endings[end] = endings.get(end, 0) + 1
                name = f"{path}: game {number}"
                if number in seen:
                    faults.append(f"{name}: stored twice")
                seen.add(number)
                max_ply = int(meta["options"]["max_ply"])
                threshold = float(meta["resign_threshold"])
                faults += [f"{name}: {fault}" for fault in faults_of(one, end, max_ply, threshold)]
    return Audit(games, endings, faults)


def faults_of(
    game: dict[str, NDArray], end: str, max_ply: int, threshold: float = 1.0
) -> list[str]:
    """What is wrong with a game.

    Args:
        game: arrays of one game (`select_games`). end: its ending.
        max_ply: moves after which it was to be drawn.
        threshold: win rate below which a side was to resign.
    """
    from rsshogi.core import Board
    from rsshogi.types import RepetitionState

    over = (RepetitionState.DRAW, RepetitionState.WIN, RepetitionState.LOSE)
    judge, board = Board(), cshogi.Board()
    start = str(game["start"][0])
    judge.set_sfen(start)
    board.set_sfen(start)
    winner = "bwd"[int(game["winner"][0])]
    policy = 0
    faults: list[str] = []
    hcp = np.zeros((1, 32), np.uint8)
    moves = game["move"].tolist()
    for ply, packed in enumerate(moves, 1):
        move = board.move_from_move16(packed)
        legal = set(board.legal_moves)
        board.to_hcp(hcp)
        if (hcp[0] != game["position"][ply - 1]).any():
            faults.append(f"ply {ply}: another position is stored")
        count = int(game["candidates"][ply - 1])
        visited = game["policy_move"][policy : policy + count].tolist()
        policy += count
        if not {board.move_from_move16(one) for one in visited} <= legal:
            faults.append(f"ply {ply}: visits of an illegal move")
        if bool(game["full"][ply - 1]) != bool(count):
            faults.append(f"ply {ply}: visits {count}, full search {game['full'][ply - 1]}")
        if move not in legal:
            return [*faults, f"ply {ply}: illegal move"]
        if judge.repetition_state() in over:
            faults.append(f"ply {ply}: the game had ended by repetition")
        judge.apply_usi(cshogi.move_to_usi(move))
        board.push(move)
    mover = "w" if board.turn == cshogi.WHITE else "b"
    other = "b" if mover == "w" else "w"
    state = judge.repetition_state()
    mated = not any(True for _ in board.legal_moves)
    expected: tuple[str, str] | None = None
    if mated:
        expected = other, "tsumi"
    elif state == RepetitionState.DRAW:
        expected = "d", "sennichite"
    elif state in over:
        expected = (mover if state == RepetitionState.WIN else other), "perpetual"
    elif len(moves) >= max_ply:
        expected = "d", "max_moves"
    elif may_declare(board):
        expected = mover, "kachi"
    elif end == "toryo":
        expected = other, "toryo"
        if not game["may_resign"][0] or threshold <= 0:
            faults.append("resigned, and was not allowed to")
    if expected != (winner, end):
        what = "goes on" if expected is None else f"{expected[1]}, {expected[0]}"
        faults.append(f"stored as {end}, {winner}; the last position says {what}")
    return faults


def may_declare(board: cshogi.Board) -> bool:
    """Whether the side to move may declare a win by the 27-point rule.

    The king and ten other pieces stand in the three farthest ranks, it is not in check, and those
    pieces and the hand count 28 points for Black, 27 for White (rook and bishop five, others one).
    """
    if board.is_check():
        return False
    white = board.turn == cshogi.WHITE
    ranks = (6, 7, 8) if white else (0, 1, 2)
    pieces = points = 0
    king = False
    for square, piece in enumerate(board.pieces):
        if square % 9 not in ranks or not piece or (piece > 16) != white:
            continue
        kind = piece & 15
        if kind == _KING:
            king = True
            continue
        pieces += 1
        points += _POINTS[kind]
    held = board.pieces_in_hand[1 if white else 0]  # P L N S G B R
    points += sum(held[:5]) + 5 * sum(held[5:])
    return king and pieces >= 10 and points >= (27 if white else 28)
