"""A game in progress: the board, and what the rules say of where it stands.

In: a start position and moves in USI. Out: the board after them, the keys and checks of all
positions before, and how the game has ended, if it has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.records.game import STARTPOS
from ginkgo.records.replay import IllegalMove, breaks_promotion, set_up

_USI = re.compile(r"[1-9][a-i][1-9][a-i]\+?|[PLNSGBR]\*[1-9][a-i]")
#: Occurrences of a position that end the game.
OCCURRENCES = 4


class Line:
    """A start position and the moves made from it.

    >>> line = Line()
    >>> line.push_usi("7g7f")
    >>> line.ply, line.white
    (1, True)
    """

    def __init__(self, start: str = STARTPOS, moves: Sequence[str] = ()) -> None:
        """Set up the start position and make the moves.

        Raises:
            GinkgoError: the start position is malformed or impossible, or a move is illegal.
        """
        self.start = start
        self.board = cshogi.Board()
        set_up(self.board, start)
        self.first_ply = self.board.move_number - 1
        self.moves: list[int] = []
        self.usi: list[str] = []
        self.keys: list[int] = [self.board.zobrist_hash()]
        """Of all positions, that on the board last."""
        self.checks: list[bool] = [self.board.is_check()]
        """Whether the side to move was in check there."""
        for move in moves:
            self.push_usi(move)

    @property
    def ply(self) -> int:
        """Moves made since the start of the game, those before the start position included."""
        return self.first_ply + len(self.moves)

    @property
    def white(self) -> bool:
        """Whether White is to move."""
        return self.board.turn == cshogi.WHITE

    def move_of(self, usi: str) -> int:
        """A legal move from its USI text.

        Raises:
            IllegalMove: it is no move, or against the rules.
        """
        if not _USI.fullmatch(usi):
            raise IllegalMove(f"ply {self.ply + 1}: {usi!r} is no USI move")
        move = self.board.move_from_usi(usi)
        if not move or breaks_promotion(move, self.white) or not self.board.is_legal(move):
            raise IllegalMove(f"ply {self.ply + 1}: illegal move {usi}")
        return move

    def push_usi(self, usi: str) -> None:
        """Play a move.

        Raises:
            IllegalMove: it is no move, or against the rules.
        """
        self.push(self.move_of(usi))

    def push(self, move: int) -> None:
        """Play a move that is known to be legal."""
        self.board.push(move)
        self.moves.append(move)
        self.usi.append(cshogi.move_to_usi(move))
        self.keys.append(self.board.zobrist_hash())
        self.checks.append(self.board.is_check())

    def repetition(self) -> str | None:
        """What the fourth occurrence of the position on the board means.

        Returns:
            None where it is not the fourth; `draw`; `win` for the side to move, where the other
            side has given check with every move since the first occurrence; `loss` where the
            side to move has done so.
        """
        key, last = self.keys[-1], len(self.keys) - 1
        same = [index for index in range(last, -1, -2) if self.keys[index] == key]
        if len(same) < OCCURRENCES:
            return None
        first = same[OCCURRENCES - 1]
        if all(self.checks[first + 2 : last + 1 : 2]):
            return "win"
        if all(self.checks[first + 1 : last + 1 : 2]):
            return "loss"
        return "draw"

    def can_declare(self) -> bool:
        """Whether the side to move may declare a win by the 27-point rule.

        King and ten more pieces in the farthest three ranks, not in check, and 28 points for
        Black or 27 for White, counting those pieces and the hand (rook and bishop 5, others 1).
        """
        return bool(self.board.is_nyugyoku())

    def ending(self, max_ply: int = 0) -> tuple[str, str] | None:
        """How the game has ended, if it has.

        Args:
            max_ply: moves after which it is drawn; 0: never.

        Returns:
            None, or the winner (`b`, `w`, `d`) and the ending in the words of the records:
            `tsumi` (no legal move), `sennichite`, `perpetual` or `max_moves`.
        """
        mover, other = ("w", "b") if self.white else ("b", "w")
        if not any(True for _ in self.board.legal_moves):
            return other, "tsumi"
        found = self.repetition()
        if found == "draw":
            return "d", "sennichite"
        if found:
            return (mover if found == "win" else other), "perpetual"
        if max_ply and self.ply >= max_ply:
            return "d", "max_moves"
        return None


def line_of(position: str) -> Line:
    """A `Line` from the rest of a USI `position` command.

    Raises:
        GinkgoError: malformed, impossible, or an illegal move.

    >>> line_of("startpos moves 7g7f 3c3d").usi
    ['7g7f', '3c3d']
    """
    start, moves = split_position(position)
    return Line(start, moves)


def split_position(position: str) -> tuple[str, list[str]]:
    """Start position and moves of a USI `position` command without its first word.

    Raises:
        GinkgoError: it is malformed.
    """
    words = position.split()
    if not words or words[0] not in ("startpos", "sfen"):
        raise GinkgoError(f"position {position!r}: expected startpos or sfen")
    end = words.index("moves") if "moves" in words else len(words)
    moves = words[end + 1 :]
    if words[0] == "startpos":
        if end != 1:
            raise GinkgoError(f"position {position!r}: expected moves after startpos")
        return STARTPOS, moves
    return " ".join(words[1:end]), moves
