"""What all readers of kifu share: a game as it was read, and the same game believed.

In: a `Reading` that a reader has filled. Out: a `Game` whose moves were all replayed by the rules,
or a `Fault`. No move that a file lists is ever skipped: where one cannot be played the game ends
there if it was the last and a foul, and is refused otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import cshogi

from ginkgo.errors import GinkgoError
from ginkgo.records.game import STARTPOS, Game, Variation
from ginkgo.records.kifu.pieces import Misfit, Move, cells_from_sfen, position_after, usi_moves
from ginkgo.records.kifu.result import Statement, settle
from ginkgo.records.replay import set_up, walk, walk_named
from ginkgo.records.sfen import check_sfen

#: More lines that were not understood are only counted.
_MOST_NOTES = 20
#: Each variation is played from the start of the game: more plies than these are not.
MOST_BRANCH_PLIES = 2_000_000


class Fault(GinkgoError):
    """Why a game cannot be used, and in which line of its text (from 0) that shows."""

    def __init__(self, line: int, reason: str, plies: int = 0) -> None:
        super().__init__(reason)
        self.line = line
        self.plies = plies
        """How many moves before the fault could be played."""


@dataclass(frozen=True)
class ReadOptions:
    """What readers are asked for beside the main line and its result."""

    variations: bool = False
    """Branches too."""
    comments: bool = True
    """Comments too."""


@dataclass
class Branch:
    """A variation as listed."""

    line: int
    ply: int
    """Of its first move, as stated."""
    path: list[str]
    """USI of all moves from the start of the game to its end."""


@dataclass
class Reading:
    """A game as a file lists it."""

    format: str
    start: str = STARTPOS
    moves: list[str] = field(default_factory=list)
    """USI."""
    named: list[Move] = field(default_factory=list)
    """In place of `moves`, where the format names the piece after each move."""
    lines: Sequence[int] = ()
    """By move the line of the text that it stands in, from 0."""
    statements: list[Statement] = field(default_factory=list)
    black: str = ""
    white: str = ""
    rate_b: float | None = None
    rate_w: float | None = None
    times: list[float | None] = field(default_factory=list)
    scores: list[int | None] = field(default_factory=list)
    comments: dict[int, list[str]] = field(default_factory=dict)
    branches: list[Branch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def line_of(self, ply: int) -> int:
        """The line of a ply (from 1), or that of the last one known."""
        return self.lines[min(ply, len(self.lines)) - 1] if self.lines else 0


def finish(reading: Reading, options: ReadOptions) -> Game:
    """The game, replayed.

    Raises:
        Fault: its start position is impossible, or a move is against the rules.
    """
    problem = False
    try:
        start = reading.start if reading.start == STARTPOS else check_sfen(reading.start, kings=1)
        pieces = start.split()[0]
        problem = "k" not in pieces or "K" not in pieces
    except GinkgoError as error:
        raise Fault(0, f"start position: {error}") from None
    game = Game(
        start=start,
        black=reading.black,
        white=reading.white,
        rate_b=reading.rate_b,
        rate_w=reading.rate_w,
        notes=reading.notes,
        format=reading.format,
    )
    board = None if problem else cshogi.Board()
    forbidden = _play(reading, game, board)
    foul = _foul(reading, game.total, forbidden, board) if forbidden else ""
    if not game.moves and not foul:
        reading.notes.append("no moves: not a game")
    if len(reading.notes) > _MOST_NOTES:
        more = len(reading.notes) - _MOST_NOTES
        reading.notes[_MOST_NOTES:] = [f"{more} more notes of this kind"]
    settle(game, reading.statements, board, foul)
    if any(time is not None for time in reading.times):
        game.times = _padded(reading.times, game.total)
    if any(score is not None for score in reading.scores):
        game.scores = _padded(reading.scores, game.total)
    if reading.comments and options.comments:
        game.comments = {ply: "\n".join(text) for ply, text in reading.comments.items()}
    if reading.branches:
        game.variations = _branches(reading, game, problem)
    return game


def _play(reading: Reading, game: Game, board: cshogi.Board | None) -> str:
    """Set the moves of a game as far as the rules allow.

    Args:
        board: None: a problem with one king.

    Returns:
        the first move that they forbid, in USI; empty: there is none.

    Raises:
        Fault: the start position is impossible, or a piece is not where a move takes it from.
    """
    try:
        if board is None:
            moves = reading.moves
            if reading.named:
                moves = usi_moves(*cells_from_sfen(game.start), reading.named)
            legal = _walk_problem(game.start, moves)
            game.moves = moves[:legal]
            return moves[legal] if legal < len(moves) else ""
        try:
            set_up(board, game.start)
        except GinkgoError as error:
            raise Fault(0, f"start position: {error}") from None
        packed: list[int] = []
        game.played = packed
        if reading.named:
            usi: list[str] = []
            game.moves = usi
            return walk_named(board, reading.named, usi, packed)
        legal = walk(board, reading.moves, packed)
        game.moves = reading.moves[:legal]
        return reading.moves[legal] if legal < len(reading.moves) else ""
    except Misfit as error:
        raise Fault(reading.line_of(error.ply), str(error), error.ply - 1) from None


def _padded(values: Sequence, length: int) -> list:
    """Exactly `length` of the values."""
    return [*values[:length], *[None] * (length - len(values))]


def _foul(reading: Reading, played: int, usi: str, board: cshogi.Board | None) -> str:
    """What to say of a move that cannot be played, if the game may end with it.

    Raises:
        Fault: it is not the last, or nobody could have made it with the pieces that are there.
    """
    ply = played + 1
    line = reading.line_of(ply)
    if ply < len(reading.moves) + len(reading.named):
        raise Fault(line, f"ply {ply}: illegal move {usi}", played)
    if board is None or not _possible_by_hand(board, usi):
        raise Fault(line, f"ply {ply}: move {usi} that nobody can make", played)
    reading.notes.append(f"line {line + 1}: ply {ply}: {usi} is a foul: the game ends before it")
    return f"move {ply}, {usi}, is illegal"


def _possible_by_hand(board: cshogi.Board, usi: str) -> bool:
    """Whether a player could put the piece there, against the rules or not."""
    own = range(1, 15) if board.turn == cshogi.BLACK else range(17, 31)

    def square(name: str) -> int:
        return 9 * (int(name[0]) - 1) + "abcdefghi".index(name[1])

    if board.piece(square(usi[2:4])) in own:
        return False
    if usi[1] == "*":
        return board.pieces_in_hand[board.turn]["PLNSGBR".index(usi[0])] > 0
    return board.piece(square(usi[:2])) in own


def _walk_problem(start: str, moves: Sequence[str]) -> int:
    """How many moves of a problem with one king are legal.

    cshogi reads beyond its tables where a king is missing: python-shogi, slow and safe, plays it.
    """
    import shogi

    board = shogi.Board(start)
    for played, usi in enumerate(moves):
        try:
            move = shogi.Move.from_usi(usi)
        except ValueError:
            return played
        if not board.is_legal(move):
            return played
        board.push(move)
    return len(moves)


def _branches(reading: Reading, game: Game, problem: bool) -> list[Variation]:
    found = []
    for branch in reading.branches:
        base, moves = branch.path[: branch.ply - 1], branch.path[branch.ply - 1 :]
        try:
            if problem:
                played = _walk_problem(game.start, branch.path)
                if played < len(branch.path):
                    raise GinkgoError(f"ply {played + 1}: illegal move {branch.path[played]}")
                start = position_after(Game(start=game.start, moves=base))
                found.append(Variation(branch.ply, start, tuple(moves)))
                continue
            board = cshogi.Board()
            set_up(board, game.start)
            if walk(board, base) < len(base):
                raise GinkgoError("it begins after an illegal move")
            start = board.sfen()
            if (played := walk(board, moves)) < len(moves):
                raise GinkgoError(f"ply {branch.ply + played}: illegal move {moves[played]}")
        except GinkgoError as error:
            game.notes = [*game.notes, f"line {branch.line + 1}: variation left out: {error}"]
            continue
        if moves:
            found.append(Variation(branch.ply, start, tuple(moves)))
    return found


def sides_of(sfen: str) -> tuple[list[int], bool]:
    """Cells and whether White is to move: `cells_from_sfen` of a checked SFEN.

    Raises:
        Fault: the SFEN is malformed.
    """
    try:
        return cells_from_sfen(check_sfen(sfen, kings=0))
    except GinkgoError as error:
        raise Fault(0, f"start position: {error}") from None
