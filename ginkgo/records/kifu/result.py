"""Who won: decided by rule from what a file says and from its moves, never guessed.

In: the statements of a file (an end word, a line of the server, まで…) with the side to move.
Out: ending and winner of the game, and why it has none where statements contradict each other.

The rules are those of the CSA format 2.2 and 3.0 (who loses by which word), of the shogi server
(its `'summary` line), and of the Shogi Federation (repetition, declaration by 27 points).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import cshogi

from ginkgo.records.game import ENDINGS, Game

#: By end word: the ending, and who has won by it: the side to move (`win`), the other (`lose`),
#: a side (`b`, `w`), nobody (`d`), or not known (`-`).
END_WORDS = {
    "TORYO": ("toryo", "lose"),
    "RESIGN": ("toryo", "lose"),
    "KACHI": ("kachi", "win"),
    "ILLEGAL_KACHI": ("illegal_action", "lose"),  # a declaration that the server refused
    "TSUMI": ("tsumi", "lose"),
    "TIME_UP": ("time_up", "lose"),
    "ILLEGAL_MOVE": ("illegal_move", "lose"),
    "+ILLEGAL_ACTION": ("illegal_action", "w"),
    "-ILLEGAL_ACTION": ("illegal_action", "b"),
    "SENNICHITE": ("sennichite", "d"),
    "OUTE_SENNICHITE": ("perpetual", "-"),  # the moves tell who gave the checks
    "JISHOGI": ("jishogi", "d"),
    "HIKIWAKE": ("hikiwake", "d"),
    "MAX_MOVES": ("max_moves", "d"),
    "CHUDAN": ("chudan", "-"),
    "ABNORMAL": ("chudan", "-"),
    "MATTA": ("matta", "-"),
    "FUZUMI": ("fuzumi", "-"),
    "ERROR": ("error", "-"),
}

_HINT = re.compile(r"#ginkgo end=([a-z_]+) winner=([bwd-])\s*$")
_FOULS = ("illegal_move", "illegal_action")
_REPETITIONS = ("sennichite", "perpetual")


@dataclass(frozen=True)
class Statement:
    """One thing that a file says about the end."""

    text: str
    """As it stands in the file: it is quoted where statements contradict each other."""
    end: str
    """One of `ENDINGS`; `unknown`: it names only the winner."""
    rule: str
    """`win`, `lose` (seen from the side to move), `b`, `w`, `d` or `-`."""
    server: bool = False
    """Said by a referee: it overrules what a player said."""


def settle(
    game: Game, statements: Sequence[Statement], board: cshogi.Board | None, foul: str = ""
) -> None:
    """Set ending, winner and notes of a game.

    Args:
        game: its legal moves; changed.
        board: after them; None: a problem with one king.
        foul: what was wrong with one more listed move; empty: all were legal.
    """
    mover = side_to_move(game)
    other = "w" if mover == "b" else "b"
    notes = list(game.notes)
    heard: list[tuple[str, str, str]] = []
    for statement in _overruled(statements):
        # After a foul that is in the move list its player is not to move any more, whatever the
        # file calls it; any other word is seen from the side that would have moved then.
        swapped = bool(foul) and statement.end not in _FOULS
        mine, theirs = (other, mover) if swapped else (mover, other)
        winner = {"win": mine, "lose": theirs}.get(statement.rule, statement.rule)
        if foul and statement.end in _FOULS and statement.rule in ("win", "lose"):
            winner = other
        heard.append((statement.text, statement.end, winner))
    if foul:
        heard.append((foul, "illegal_move", other))
    if board is not None and any(end in _REPETITIONS for _, end, _ in heard):
        heard = _judge_repetition(game, heard, mover, other, notes)
    if heard:
        named = next((end for _, end, _ in heard if end != "unknown"), "unknown")
        decided = [
            (text, winner) for text, end, winner in heard if end != "unknown" or winner != "-"
        ]
        game.end = named
        winners = {winner for _, winner in decided if winner != "-" or named != "perpetual"}
        if len(winners) == 1:
            game.winner = winners.pop()
            if named == "unknown" and game.winner == other and decided[0][0].startswith("まで"):
                # まで…の勝ち is how KIF and KI2 write a resignation; other ends are named.
                game.end = "toryo"
        elif len(winners) > 1:
            first = decided[0]
            second = next(item for item in decided if item[1] != first[1])
            notes.append(
                f"contradictory: {first[0]!r} ({_said(first[1])}) and "
                f"{second[0]!r} ({_said(second[1])}): no result taken"
            )
    if game.end == "kachi" and board is not None:
        _check_declaration(statements, board, notes)
    if board is None:
        notes.append("a problem with one king: not for training")
    game.notes = notes


def _said(winner: str) -> str:
    return {"b": "black wins", "w": "white wins", "d": "draw"}.get(winner, "no result")


def _overruled(statements: Sequence[Statement]) -> list[Statement]:
    """The statements without those that a referee set right."""
    refused = any(one.server and one.end == "illegal_action" for one in statements)
    if refused:
        return [one for one in statements if one.end != "kachi"]
    if any(one.end == "kachi" for one in statements):
        # So the server's protocol tells both players that a declaration has ended the game.
        return [one for one in statements if one.text != "#JISHOGI"]
    return list(statements)


def _judge_repetition(
    game: Game, heard: list[tuple[str, str, str]], mover: str, other: str, notes: list[str]
) -> list[tuple[str, str, str]]:
    """A repetition where one side checks all the time is no draw: the checker loses."""
    winner = repetition_winner(game)
    if winner in (mover, other):
        return [
            (text, "perpetual", winner) if end in _REPETITIONS else (text, end, result)
            for text, end, result in heard
        ]
    if not winner:
        notes.append("a repetition is stated, the moves show none")
    elif any(end == "perpetual" and result != "-" for _, end, result in heard):
        # The moves speak against a perpetual check that somebody is said to have won by.
        heard = [*heard, ("a repetition without checks all the time", "sennichite", winner)]
    return heard


def repetition_winner(game: Game) -> str:
    """Who has won by the repetition that a game ends with: `b`, `w` (the other side gave check all
    the time), `d`; empty: it ends with none."""
    from rsshogi.core import Board
    from rsshogi.types import RepetitionState

    board = Board()
    board.set_sfen(game.start)
    for usi in game.moves:
        board.apply_usi(usi)
    state = board.repetition_state()
    if state == RepetitionState.NONE:
        return ""
    mover = side_to_move(game)
    other = "w" if mover == "b" else "b"
    return {RepetitionState.WIN: mover, RepetitionState.LOSE: other}.get(state, "d")


def side_to_move(game: Game) -> str:
    """Who would move after the last move."""
    return "w" if (game.start.split()[1] == "w") != bool(game.total % 2) else "b"


def _check_declaration(
    statements: Sequence[Statement], board: cshogi.Board, notes: list[str]
) -> None:
    """A declared win is kept as stated; it is flagged where the 27-point rule does not give it."""
    if any(one.server and one.end == "kachi" for one in statements):
        return
    if not board.is_nyugyoku():
        notes.append("the declared win does not satisfy the 27-point rule")


def read_hint(line: str) -> Statement | None:
    """What ginkgo's own writer adds where a format has no word for an ending."""
    match = _HINT.match(line)
    if not match or match[1] not in ENDINGS:
        return None
    return Statement(line, match[1], match[2])


def hinted(statements: list[Statement], hint: Statement) -> list[Statement]:
    """The statements, told more exactly."""
    return [Statement(one.text, hint.end, hint.rule) for one in statements] or [hint]
