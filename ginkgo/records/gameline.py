"""Game lines (`.usi`): a game as a GUI would send it, then a TAB and `key=value` pairs.

    startpos moves 7g7f 3c3d …<TAB>winner=b<TAB>end=toryo<TAB>game=engine-00000
    position sfen lnsg… b - 1 moves …<TAB>winner=d

In: a line. Out: a `Game`, and back.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from ginkgo.errors import GinkgoError
from ginkgo.records.game import ENDINGS, STARTPOS, WINNERS, Game
from ginkgo.records.sfen import check_sfen
from ginkgo.records.sfenx import finite


def parse_game_line(line: str) -> Game:
    """Read one game line. The moves are not replayed here.

    Raises:
        GinkgoError: the line is not a game line; the text says what was expected.
    """
    position, *pairs = line.rstrip("\r\n").split("\t")
    head, _, tail = position.strip().partition(" moves")
    head = head.removeprefix("position").strip()
    if head == "startpos":
        start = STARTPOS
    elif head.startswith("sfen ") or _SFEN.match(head):
        start = head.removeprefix("sfen ").strip()
        if start != STARTPOS:
            start = check_sfen(start.replace("_", " "))
    else:
        raise GinkgoError("not a game line: expected 'startpos' or 'sfen …', then 'moves …'")
    game = Game(start=start, moves=tail.split(), format="usi")
    word = game.moves[-1] if game.moves else ""
    if word in _END_WORDS:
        game.moves = game.moves[:-1]
        _end(game, word)
    by_word = game.winner
    for pair in pairs:
        for item in pair.split(" ") if pair.count("=") > 1 else [pair]:
            key, separator, value = item.partition("=")
            if not separator:
                continue
            _set(game, key.strip(), unquote(value.strip()))
    if game.winner != by_word != "-":
        said = f"{word!r} after {game.total} plies and 'winner={game.winner}'"
        game.winner = "-"
        game.notes = [f"contradictory: {said}: no result taken"]
    return game


#: Words that engines' records have in place of a last move: ending, and whether the side to move
#: has won (`win`), lost (`lose`), or nobody has.
_END_WORDS = {
    "resign": ("toryo", "lose"),
    "win": ("kachi", "win"),
    "timeout": ("time_up", "lose"),
    "rep_draw": ("sennichite", "d"),
    "rep_inf": ("sennichite", "d"),
    "rep_win": ("perpetual", "win"),
    "rep_lose": ("perpetual", "lose"),
    "draw": ("hikiwake", "d"),
    "max_moves": ("max_moves", "d"),
    "break": ("chudan", "-"),
    "none": ("unknown", "-"),
}
_SFEN = re.compile(r"(?:[1-9+PLNSGBRKplnsgbrk]+/){8}[1-9+PLNSGBRKplnsgbrk]+[ _][bw]\b")


def _end(game: Game, word: str) -> None:
    """Set ending and winner from an end word."""
    white = (game.start.split()[1] == "w") != bool(len(game.moves) % 2)
    mover, other = ("w", "b") if white else ("b", "w")
    game.end, rule = _END_WORDS[word]
    game.winner = {"win": mover, "lose": other}.get(rule, rule)


def _set(game: Game, key: str, value: str) -> None:
    match key:
        case "winner":
            if value not in WINNERS:
                raise GinkgoError(f"winner={value}: expected one of {' '.join(WINNERS)}")
            game.winner = value
        case "end":
            if value not in ENDINGS:
                raise GinkgoError(f"end={value}: expected one of {' '.join(ENDINGS)}")
            game.end = value
        case "rate_b" | "rate_w":
            setattr(game, key, finite(f"{key}={value}", value))
        case "game" | "black" | "white":
            setattr(game, key, value)
        case _:
            game.other[key] = value


def format_game_line(game: Game) -> str:
    """The line for a game, without line end. `parse_game_line` is its inverse.

    >>> format_game_line(Game(moves=["7g7f"], winner="b", end="toryo", game="x"))
    'startpos moves 7g7f\\twinner=b\\tend=toryo\\tgame=x'
    """
    start = "startpos" if game.start == STARTPOS else f"sfen {game.start}"
    fields = [" ".join([start, "moves", *game.moves])]
    known = {
        "winner": game.winner,
        "end": game.end,
        "black": game.black,
        "white": game.white,
        "rate_b": "" if game.rate_b is None else f"{game.rate_b:g}",
        "rate_w": "" if game.rate_w is None else f"{game.rate_w:g}",
        "game": game.game,
        **game.other,
    }
    fields += [f"{key}={quote(value, safe=_PLAIN)}" for key, value in known.items() if value]
    return "\t".join(fields)


#: Characters that need no percent-encoding: everything but tab, line ends, blank, `=` and `%`.
_PLAIN = "!\"#$&'()*+,-./:;<>?@[\\]^_`{|}~"
