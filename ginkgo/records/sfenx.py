"""SFEN records (`.sfenx`): one position a line.

    sfen,total,move,winner[,key=value]...

`sfen` is the position before `move`, with its ply; `total` the plies of the game; `winner` is
`b`, `w`, `d` or `-`. Known keys: `game end start rate score policy`. A reader that knows only the
first four fields still works.

In: a line. Out: a `Record`, and back. `ginkgo.pipeline.parse_records` reads whole blocks of these
lines at once and much faster; this module is the definition that it is tested against.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from ginkgo.errors import GinkgoError
from ginkgo.records.game import WINNERS


@dataclass
class Record:
    """One position with its move and the result of its game."""

    sfen: str
    total: int
    """Plies of the game."""
    move: str
    """USI."""
    winner: str
    """`b`, `w`, `d` or `-`."""
    game: str = ""
    end: str = ""
    rate: float | None = None
    """Rating of the mover."""
    score: int | None = None
    """Centipawns, mover's view."""
    policy: dict[str, int] = field(default_factory=dict)
    """Visits by move."""
    other: dict[str, str] = field(default_factory=dict)


def parse_record(line: str) -> Record:
    """Read one line.

    Raises:
        GinkgoError: a field is missing or malformed. SFEN and move are not replayed here.
    """
    fields = line.rstrip("\r\n").split(",")
    if len(fields) < 4:
        raise GinkgoError(f"{len(fields)} fields, expected sfen,total,move,winner")
    sfen, total, move, winner = fields[:4]
    if not total.isdecimal() or len(total) > 9:
        raise GinkgoError(f"total {total!r}: expected a number of plies")
    if winner not in WINNERS:
        raise GinkgoError(f"winner {winner!r}: expected one of {' '.join(WINNERS)}")
    record = Record(sfen=sfen, total=int(total), move=move, winner=winner)
    for item in fields[4:]:
        key, separator, value = item.partition("=")
        if not separator:
            raise GinkgoError(f"field {item!r}: expected key=value")
        value = unquote(value)
        try:
            match key:
                case "game" | "end":
                    setattr(record, key, value)
                case "rate":
                    record.rate = finite(f"field {item!r}", value)
                case "score":
                    record.score = int(value)
                case "policy":
                    pairs = (pair.split(":") for pair in value.split("|"))
                    for usi, visits in pairs:
                        if usi in record.policy or not visits.isdecimal():
                            raise ValueError
                        record.policy[usi] = int(visits)
                case _:
                    record.other[key] = value
        except ValueError:
            raise GinkgoError(f"field {item!r}: malformed value") from None
    return record


def finite(what: str, text: str) -> float:
    """A number from text.

    Raises:
        GinkgoError: it is none, or one that nothing can be reckoned with.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise GinkgoError(f"{what}: expected a number")
    return number


def format_record(record: Record) -> str:
    """The line for a record, without line end; the inverse of `parse_record`."""
    known = {
        "game": record.game,
        "end": record.end,
        "rate": "" if record.rate is None else f"{record.rate:g}",
        "score": "" if record.score is None else str(record.score),
        "policy": "|".join(f"{move}:{visits}" for move, visits in record.policy.items()),
        **record.other,
    }
    fields = [record.sfen, str(record.total), record.move, record.winner]
    fields += [f"{key}={_quoted(value)}" for key, value in known.items() if value]
    return ",".join(fields)


def _quoted(value: str) -> str:
    return value if value.isascii() and value.isalnum() else quote(value, safe=_PLAIN)


#: Characters that need no percent-encoding: everything but comma, `%` and line ends.
_PLAIN = " !\"#$&'()*+-./:;<=>?@[\\]^_`{|}~"
