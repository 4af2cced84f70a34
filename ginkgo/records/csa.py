"""CSA game records (`.csa`, versions 1 to 3), one or several games a file.

In: the bytes of a file. Out: `Game`s, and for what cannot be read an error with its reason.

Moves are read by rsshogi. Ending, winner and ratings are taken from the text here: servers and
clients write them in more ways than the format knows (`'summary` lines, `#TIME_UP`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ginkgo.errors import GinkgoError
from ginkgo.records.game import Game
from ginkgo.records.sfen import check_sfen

#: Who wins by an end word: the side to move (`win`), the other (`lose`), nobody (`draw`, `-`).
_END_WORDS = {
    "TORYO": ("toryo", "lose"),
    "RESIGN": ("toryo", "lose"),
    "KACHI": ("kachi", "win"),
    "ILLEGAL_KACHI": ("illegal_action", "lose"),  # a declaration that the server refused
    "TSUMI": ("tsumi", "lose"),
    "TIME_UP": ("time_up", "lose"),
    "ILLEGAL_MOVE": ("illegal_move", "lose"),
    "+ILLEGAL_ACTION": ("illegal_action", "w"),
    "-ILLEGAL_ACTION": ("illegal_action", "b"),
    "SENNICHITE": ("sennichite", "draw"),
    "OUTE_SENNICHITE": ("perpetual", "-"),  # the moves tell who gave the checks
    "JISHOGI": ("jishogi", "draw"),
    "HIKIWAKE": ("hikiwake", "draw"),
    "MAX_MOVES": ("max_moves", "draw"),
    "CHUDAN": ("chudan", "-"),
    "ABNORMAL": ("chudan", "-"),
    "MATTA": ("matta", "-"),
    "FUZUMI": ("fuzumi", "-"),
    "ERROR": ("error", "-"),
}
#: What the shogi server gives as reason in its `'summary` line, as end words. The names and
#: results that follow it come in an order that changed over the years: they are not used.
_SUMMARY_WORDS = {
    "toryo": "TORYO",
    "kachi": "KACHI",
    "illegal kachi": "ILLEGAL_KACHI",
    "time up": "TIME_UP",
    "illegal move": "ILLEGAL_MOVE",
    "uchifuzume": "ILLEGAL_MOVE",
    "sennichite": "SENNICHITE",
    "oute_sennichite": "OUTE_SENNICHITE",
    "jishogi": "JISHOGI",
    "max_moves": "MAX_MOVES",
    "abnormal": "ABNORMAL",
}
_SUMMARY = re.compile(r"'summary:([^:]+):")
_RATE = re.compile(r"'(black|white)_rate:.*:(-?[0-9]+(?:\.[0-9]*)?)\s*")
_MOVE = re.compile(r"[+-][0-9]")
_ILLEGAL_AT = re.compile(r"illegal move at index ([0-9]+)")
_LINE_END = re.compile(r"\r\n|\n|\r")
_HALF_WIDTH_KANA = re.compile("[\uff61-\uff9f]")


def read_csa(data: bytes) -> Iterator[tuple[int, Game | GinkgoError]]:
    """All games of a CSA file.

    Args:
        data: the file, in UTF-8 (with or without BOM), CP932 or EUC-JP; any line ends.

    Yields:
        The line where the game begins (from 1), and the game, or why it cannot be read.
    """
    try:
        lines = _LINE_END.split(decode_japanese(data))
    except GinkgoError as error:
        yield 1, error
        return
    begin, last = 0, len(lines)
    for end in [*(number for number, line in enumerate(lines) if line.strip() == "/"), last]:
        section = lines[begin:end]
        if any(line.strip() and not line.startswith("'") for line in section) or not begin:
            try:
                yield begin + 1, _read_game(section)
            except GinkgoError as error:
                yield begin + 1, error
        begin = end + 1


def decode_japanese(data: bytes) -> str:
    """Text in UTF-8 (with or without BOM), CP932 or EUC-JP.

    Raises:
        GinkgoError: in none of them.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    texts = []
    for encoding in ("utf-8", "cp932", "euc_jp"):
        try:
            texts.append(data.decode(encoding))
        except UnicodeDecodeError:
            continue
        if encoding == "utf-8":
            return texts[0]
    if not texts:
        raise GinkgoError("text is neither UTF-8 nor CP932 nor EUC-JP")
    # EUC-JP mostly is good CP932 too, but reads as half-width kana then.
    return min(texts, key=lambda text: len(_HALF_WIDTH_KANA.findall(text)))


@dataclass
class _Notes:
    """What the lines of a game say beside its moves."""

    text: list[str] = field(default_factory=list)
    """The lines for the reader of moves."""
    moves: list[int] = field(default_factory=list)
    """Places of move lines in `text`."""
    end: str = ""
    """The end word without its mark."""
    summary: str = ""
    """The end word that the server's summary stands for."""
    rates: dict[str, float] = field(default_factory=dict)


def _take_notes(lines: list[str]) -> _Notes:
    notes = _Notes()
    for line in lines:
        if line.startswith("#"):
            # A client's log of what the server said.
            word = line[1:].strip()
            if word in _END_WORDS and not notes.end:
                notes.end = word
            continue
        if line.startswith("'"):
            if match := _SUMMARY.match(line):
                notes.summary = _SUMMARY_WORDS.get(match[1], "")
            elif match := _RATE.fullmatch(line):
                notes.rates[match[1]] = float(match[2])
            continue
        for statement in line.split(","):
            if statement.startswith("%") and not notes.end:
                notes.end = statement[1:].strip()
            elif _MOVE.match(statement):
                notes.moves.append(len(notes.text))
            elif statement.startswith("'"):
                break
            notes.text.append(statement)
    return notes


def _read_game(lines: list[str]) -> Game:
    notes = _take_notes(lines)
    foul = notes.end == "ILLEGAL_MOVE" or notes.end.endswith("ILLEGAL_ACTION")
    record = _parse_moves(notes, foul)
    game = Game(
        start=check_sfen(record.init_position_sfen),
        moves=[entry.move.to_usi() for entry in record.moves],
        black=record.metadata.black_player or "",
        white=record.metadata.white_player or "",
        rate_b=notes.rates.get("black"),
        rate_w=notes.rates.get("white"),
    )
    _set_result(game, notes)
    return game


def _parse_moves(notes: _Notes, foul: bool):
    """The record as rsshogi reads it, without a foul move at its end.

    Raises:
        GinkgoError: some line cannot be read. No move is ever skipped.
    """
    import rsshogi.record

    try:
        record = rsshogi.record.Record.from_csa_str("\n".join(notes.text) + "\n")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a fault within rsshogi is not an Exception
        match = _ILLEGAL_AT.search(str(error))
        if foul and match and int(match[1]) == len(notes.moves) - 1:
            # Some programs record the foul itself; its player is on the move again without it.
            del notes.text[notes.moves.pop()]
            return _parse_moves(notes, foul=False)
        reason = f"ply {int(match[1]) + 1}: illegal move" if match else str(error).split("\n")[0]
        raise GinkgoError(f"not readable as CSA: {reason[:200]}") from None
    if record.move_count != len(notes.moves):
        raise GinkgoError(
            f"not readable as CSA: {len(notes.moves)} lines look like moves, "
            f"{record.move_count} were read"
        )
    return record


def _set_result(game: Game, notes: _Notes) -> None:
    """Ending and winner from the end word, or else from the server's summary."""
    white_to_move = (game.start.split()[1] == "w") != bool(game.total % 2)
    mover, other = ("w", "b") if white_to_move else ("b", "w")
    refused = notes.end == "KACHI" and notes.summary == "ILLEGAL_KACHI"
    word = notes.summary if refused or not notes.end else notes.end
    game.end, result = _END_WORDS.get(word, ("unknown", "-"))
    game.winner = {"win": mover, "lose": other, "draw": "d"}.get(result, result)
    if game.end in ("sennichite", "perpetual"):
        _judge_repetition(game, mover, other)


def _judge_repetition(game: Game, mover: str, other: str) -> None:
    """A repetition where one side checks all the time is no draw: the checker loses."""
    from rsshogi.core import Board
    from rsshogi.types import RepetitionState

    board = Board()
    board.set_sfen(game.start)
    for usi in game.moves:
        board.apply_usi(usi)
    state = board.repetition_state()
    if state in (RepetitionState.WIN, RepetitionState.LOSE):
        game.end = "perpetual"
        game.winner = mover if state == RepetitionState.WIN else other
