"""The positions that games of a match begin from.

In: a file with an opening a line, or a seed. Out: openings, no two with the same last position.

A line is `startpos moves …`, `sfen … moves …` (with or without the word `position`), an SFEN, or a
game line, whose pairs behind the TAB are passed over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.records.files import DAMAGED, open_binary
from ginkgo.records.game import STARTPOS
from ginkgo.records.replay import set_up
from ginkgo.records.sfen import check_sfen
from ginkgo.search.rules import Line, split_position

#: Plies of an opening that is made.
PLIES = 8
#: Pawns that neither side may win by captures at the end of an opening that is made.
_BALANCE = 1
#: Random openings that are tried for one that is good.
_TRIES = 5000
#: Worth of pieces in pawns, by cshogi's piece type: none P L N S B R G K +P +L +N +S +B +R.
_WORTH = (0, 1, 3, 3, 5, 8, 9, 6, 0, 6, 6, 6, 6, 11, 13)
#: Captures in a row that are looked at.
_DEPTH = 4


@dataclass(frozen=True)
class Opening:
    """A start position and the moves that both games of a pair begin with."""

    start: str = STARTPOS
    moves: tuple[str, ...] = ()


# --- from a file ------------------------------------------------------------------------------


def read_openings(path: Path, plies: int, seed: int, max_ply: int = 0) -> list[Opening]:
    """The openings of a file, in an order that the seed decides.

    Args:
        plies: moves of each, at most; 0: all that the line has.
        seed: of the order; 0: as in the file.
        max_ply: at which a game is drawn; 0: never. What is over is passed over.

    Raises:
        GinkgoError: the file cannot be read, a line is no opening, or there is none.
    """
    found: dict[str, Opening] = {}
    over = 0
    try:
        with open_binary(path) as stream:
            for number, raw in enumerate(stream, 1):
                text = raw.decode("utf-8-sig", "replace").split("\t")[0].strip()
                if not text or text.startswith("#"):
                    continue
                try:
                    opening, key = _parse(text, plies, max_ply)
                except GinkgoError as error:
                    raise GinkgoError(f"{path}:{number}: {error}") from None
                over += not key
                if key:
                    found.setdefault(key, opening)
    except (*DAMAGED, OSError) as error:
        raise GinkgoError(f"{path}: {error}") from None
    if not found:
        why = f": games are over in all {over}" if over else ""
        raise GinkgoError(f"{path}: no opening in it{why}")
    openings = list(found.values())
    if seed:
        Random(seed).shuffle(openings)
    return openings


def _parse(text: str, plies: int, max_ply: int) -> tuple[Opening, str]:
    """An opening and what its last position is known by; empty where the game is over there."""
    text = text.removeprefix("position ").strip()
    if not text.startswith(("startpos", "sfen ")):
        text = f"sfen {text}"
    start, moves = split_position(text)
    if start != STARTPOS:
        start = check_sfen(start)
    line = Line(start, moves[: plies or None])
    key = "" if line.ending(max_ply) else " ".join(line.board.sfen().split()[:3])
    return Opening(start, tuple(line.usi)), key


# --- made -------------------------------------------------------------------------------------


def made_openings(plies: int, seed: int) -> Iterator[Opening]:
    """Openings without end: random legal moves, after which neither side wins material at once.

    The same seed gives the same openings in the same order.

    Raises:
        GinkgoError: so few plies that there are no more.
    """
    seen: set[int] = set()
    rng = Random(f"ginkgo opening {seed}")
    board = cshogi.Board()
    while True:
        for _ in range(_TRIES):
            moves = _random_moves(board, plies, rng)
            key = board.zobrist_hash()
            if moves is not None and key not in seen and _is_quiet(board):
                break
        else:
            raise GinkgoError(f"--opening-plies {plies}: no more than {len(seen)} openings")
        seen.add(key)
        yield Opening(moves=tuple(moves or ()))


def _random_moves(board: cshogi.Board, plies: int, rng: Random) -> list[str] | None:
    """Random moves on a board that is set up anew; None where there is no further one."""
    set_up(board, STARTPOS)
    moves = []
    for _ in range(plies):
        legal = list(board.legal_moves)
        if not legal:
            return None
        move = rng.choice(legal)
        moves.append(cshogi.move_to_usi(move))
        board.push(move)
    return moves


def _is_quiet(board: cshogi.Board) -> bool:
    """Whether material is even, nobody is in check, and no captures win more than a pawn."""
    if board.is_check() or not any(True for _ in board.legal_moves):
        return False
    even = _material(board)
    if abs(even) > _BALANCE or abs(_captures(board, even, -99, 99, _DEPTH)) > _BALANCE:
        return False
    pieces, turn, rest = board.sfen().split(" ", 2)
    other = cshogi.Board(f"{pieces} {'b' if turn == 'w' else 'w'} {rest}")
    return abs(_captures(other, -even, -99, 99, _DEPTH)) <= _BALANCE


def _material(board: cshogi.Board) -> int:
    """Pawns by which the side to move is ahead."""
    total = 0
    for piece in board.pieces:
        total += _WORTH[piece & 15] * (-1 if piece >= 16 else 1) if piece else 0
    for sign, hand in zip((1, -1), board.pieces_in_hand, strict=True):
        # P L N S G B R
        total += sign * sum(n * worth for n, worth in zip(hand, (1, 3, 3, 5, 6, 8, 9), strict=True))
    return -total if board.turn == cshogi.WHITE else total


def _captures(board: cshogi.Board, standing: int, low: int, high: int, depth: int) -> int:
    """What the side to move gets by captures, in pawns; it need not take any.

    Args:
        standing: material now. low, high: what is good enough for either side (alpha-beta).
    """
    best = standing
    if best >= high or not depth:
        return best
    found = []
    for move in board.legal_moves:
        if cshogi.move_is_drop(move):
            continue
        taken = cshogi.move_cap(move)
        piece = cshogi.move_from_piece_type(move)
        gain = _WORTH[taken] + _WORTH[taken & 7] if taken else 0
        if cshogi.move_is_promotion(move):
            gain += _WORTH[piece + 8] - _WORTH[piece]
        if taken:
            found.append((gain, -_WORTH[piece], move))
    for gain, _, move in sorted(found, reverse=True):
        board.push(move)
        value = -_captures(board, -(standing + gain), -high, -max(low, best), depth - 1)
        board.pop()
        best = max(best, value)
        if best >= high:
            break
    return best


# --- which of them ----------------------------------------------------------------------------


class Openings:
    """The opening of each pair."""

    def __init__(self, path: Path | None, plies: int, seed: int, max_ply: int = 0) -> None:
        """
        Args:
            path: of a file; None: they are made.
            max_ply: at which a game is drawn; 0: never.

        Raises:
            GinkgoError: the file cannot be used, or no game would have a move after its opening.
        """
        self.name = str(path) if path else f"random moves, {plies or PLIES} plies"
        self.count: int | None = None
        """How many there are; None: no end."""
        self._made: Iterator[Opening] | None = None
        self._known: list[Opening] = []
        if path is None:
            plies = plies or PLIES
            if 0 < max_ply <= plies:
                raise GinkgoError(f"--max-ply {max_ply}: expected more than the {plies} plies of "
                                  "openings")  # fmt: skip
            self._made = made_openings(plies, seed)
            self.mark = f"made {plies} {seed}"
            """What tells these openings from others."""
            return
        self._known = read_openings(path, plies, seed, max_ply)
        self.count = len(self._known)
        text = "\n".join(f"{one.start} {' '.join(one.moves)}" for one in self._known)
        self.mark = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def __getitem__(self, pair: int) -> Opening:
        """The opening of a pair, from 0; when a file has no more it begins again."""
        if self._made is None:
            return self._known[pair % len(self._known)]
        while len(self._known) <= pair:
            self._known.append(next(self._made))
        return self._known[pair]
