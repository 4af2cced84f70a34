"""Mate problems in which the attacker has no king, as they are printed.

In: positions as SFEN. Out: the mating line, or that there is none.

The rules library needs both kings. So the attacker's is put into a corner far from the other one,
behind golds of its own, where no piece can reach it: the defender, always in check, has no time to
go there. What it may disturb is a piece dropped onto just those squares; hence a mate is replayed
on the board as it was given, and `no mate` needs two corners to agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ginkgo.errors import GinkgoError

if TYPE_CHECKING:
    from ginkgo.usi.mate import MateResult

#: Corners that are tried.
_TRIED = 2


def one_king(board: str) -> bool:
    """Whether one of the kings is missing in an SFEN's first field."""
    return ("K" in board) != ("k" in board)


def problem_of(position: str) -> str:
    """The SFEN that a USI `position` command ends at, if its board has one king.

    Returns:
        empty where both kings are there, or the command is none.

    Raises:
        GinkgoError: the position is malformed, or a move is illegal.
    """
    words = position.split()
    if words[:1] != ["sfen"] or len(words) < 2 or not one_king(words[1]):
        return ""
    import shogi

    from ginkgo.records.sfen import check_sfen
    from ginkgo.search.rules import split_position

    start, moves = split_position(position)
    # Not cshogi: it reads beyond its tables where a king is missing.
    board = shogi.Board(check_sfen(start, kings=1))
    for ply, usi in enumerate(moves, 1):
        if not _push(board, usi):
            raise GinkgoError(f"ply {ply}: illegal move {usi}")
    return str(board.sfen())


def _push(board, usi: str) -> bool:  # type: ignore[no-untyped-def]
    """Play a move on a python-shogi board, if it is legal."""
    import shogi

    try:
        move = shogi.Move.from_usi(usi)
    except ValueError:
        return False
    if not board.is_legal(move):
        return False
    board.push(move)
    return True


def search_problem(sfen: str, nodes: int, max_ply: int = 0) -> MateResult:
    """`ginkgo.usi.mate.search_mate` for a board without the attacker's king."""
    from ginkgo.usi.mate import MateResult, run_dfpn

    boards = walled(sfen)
    refuted = bool(boards)
    for board in boards:
        found = run_dfpn(board, max(1, nodes // len(boards)), max_ply)
        if found.moves and is_problem_line(sfen, found.moves):
            return found
        refuted = refuted and found.refuted
    return MateResult(refuted=refuted, unable=not boards)


def walled(sfen: str) -> list[str]:
    """The position with the king of the side to move in a corner, the farthest corner first.

    Empty where that king is there, the other is not, or no corner has room.
    """
    board, turn, *rest = sfen.split()
    own, other, gold = ("K", "k", "G") if turn == "b" else ("k", "K", "g")
    if own in board or other not in board:
        return []
    rows = _rows(board)
    place = next((row.index(other), rank) for rank, row in enumerate(rows) if other in row)
    found = []
    for file, rank in ((0, 8), (8, 8), (0, 0), (8, 0)):
        inward, up = (1 if file == 0 else -1), (1 if rank == 0 else -1)
        wall = [(file + inward, rank), (file, rank + up), (file + inward, rank + up)]
        knight = rank - 2 if turn == "b" else rank + 2
        if 0 <= knight <= 8:  # from there a knight would give check
            wall.append((file + inward, knight))
        distance = max(abs(file - place[0]), abs(rank - place[1]))
        if distance < 4 or any(rows[y][x] for x, y in [(file, rank), *wall]):
            continue
        filled = [list(row) for row in rows]
        filled[rank][file] = own
        for x, y in wall:
            filled[y][x] = gold
        found.append((-distance, " ".join([_board(filled), turn, *rest])))
    return [text for _, text in sorted(found, key=lambda one: one[0])[:_TRIED]]


def _rows(board: str) -> list[list[str]]:
    """Nine rows of nine pieces, empty strings for empty squares."""
    rows = []
    for text in board.split("/"):
        row: list[str] = []
        promoted = ""
        for sign in text:
            if sign.isdigit():
                row += [""] * int(sign)
            elif sign == "+":
                promoted = "+"
            else:
                row.append(promoted + sign)
                promoted = ""
        rows.append(row)
    return rows


def _board(rows: list[list[str]]) -> str:
    """The inverse of `_rows`."""
    texts = []
    for row in rows:
        text, empty = "", 0
        for piece in [*row, "end"]:
            if piece and empty:
                text += str(empty)
                empty = 0
            if piece == "end":
                break
            if piece:
                text += piece
            else:
                empty += 1
        texts.append(text)
    return "/".join(texts)


def is_problem_line(sfen: str, line: tuple[str, ...] | list[str]) -> bool:
    """`ginkgo.usi.mate.is_mating_line` for a board without the attacker's king."""
    import shogi

    board = shogi.Board(sfen)
    for place, usi in enumerate(line):
        if not _push(board, usi) or (place % 2 == 0 and not board.is_check()):
            return False
    return len(line) % 2 == 1 and not any(True for _ in board.legal_moves)
