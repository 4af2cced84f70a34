"""How long to think.

In: a `go` command with its times. Out: `Budget`: when to be satisfied, when to stop at the latest.

All times are in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from ginkgo.errors import GinkgoError

#: Words of `go` that a number follows.
_NUMBERS = ("btime", "wtime", "byoyomi", "binc", "winc", "movetime", "nodes", "depth")
#: A clock without any limit, as `go infinite` means it.
FOREVER = float("inf")


@dataclass(frozen=True)
class Go:
    """A `go` command."""

    btime: int = 0
    wtime: int = 0
    byoyomi: int = 0
    binc: int = 0
    winc: int = 0
    movetime: int = 0
    nodes: int = 0
    depth: int = 0
    infinite: bool = False
    ponder: bool = False
    mate: bool = False
    mate_time: float = 0.0
    """Of `go mate`; infinite where the GUI says so."""
    timed: bool = False
    """Whether a clock runs: btime, wtime, byoyomi or an increment was given."""


def parse_go(words: list[str]) -> Go:
    """A `go` command without its first word; unknown words are passed over.

    Raises:
        GinkgoError: a number is missing.

    >>> parse_go("btime 60000 wtime 50000 byoyomi 3000".split()).byoyomi
    3000
    """
    found: dict = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word in ("infinite", "ponder"):
            found[word] = True
        elif word == "mate":
            found["mate"] = True
            given = words[place] if place < len(words) else "infinite"
            place += 1
            found["mate_time"] = FOREVER if given == "infinite" else _number(word, given)
        elif word in _NUMBERS:
            if place == len(words):
                raise GinkgoError(f"go {word}: expected a number after it")
            found[word] = max(0, _number(word, words[place]))
            place += 1
            if word not in ("movetime", "nodes", "depth"):
                found["timed"] = True
    if not found:  # no limit at all means none
        found["infinite"] = True
    return Go(**found)


def _number(word: str, text: str) -> int:
    try:
        return int(float(text))  # some clients divide
    except (ValueError, OverflowError):
        raise GinkgoError(f"go {word} {text!r}: expected a number") from None


@dataclass(frozen=True)
class Budget:
    """Times since the clock began to run."""

    minimum: float
    """Before this only a decided position is played."""
    optimum: float
    """After this the move is played unless the search is torn between two."""
    maximum: float
    """After this the move is played."""
    flexible: bool
    """Whether time that is not used is worth something later."""


def budget(go: Go, white: bool, ply: int, delay: int, margin: int) -> Budget:
    """How long to think about a move.

    A sudden-death clock is spread over the moves that a game may still take: few seconds in the
    opening, most from ply 20 to 80, and never more than a sixth of what is left on one move.
    Byoyomi and increment are used up in full.

    Args:
        go: the command. white: whether White is to move. ply: moves made so far.
        delay, margin: of the options NetworkDelay and TimeMargin.
    """
    if go.infinite:
        return Budget(FOREVER, FOREVER, FOREVER, False)
    if go.movetime:
        most = _less(go.movetime, delay + margin)
        return Budget(most, most, most, False)
    if not go.timed:
        return Budget(FOREVER, FOREVER, FOREVER, False)
    left = go.wtime if white else go.btime
    increment = go.winc if white else go.binc
    # Depending on the server the increment is on the clock when the move begins, or comes after
    # it: only what is certain is used. An empty clock must have got it before.
    certain = _less((left or increment) + go.byoyomi, delay + margin)
    if go.byoyomi and left <= go.byoyomi / 2:
        return Budget(certain, certain, certain, False)
    moves_left = max(20.0, 52.0 - 0.4 * min(ply, 80))
    opening = 0.5 + 0.5 * min(1.0, ply / 20)
    # A sudden-death clock must still pay for the delays of sixty moves, one with increments for
    # some that come together.
    reserve = 0.0 if go.byoyomi else (20.0 if increment else 60.0) * (delay + margin)
    spare = max(0.0, left - reserve)
    share = max(spare / moves_left * opening, left / 200)
    gained = max(0.0, 0.9 * min(increment, left or increment) - delay - margin)
    optimum = min(max(1.0, share + 0.9 * go.byoyomi + gained), certain)
    maximum = min(certain, max(optimum, spare / 6 + go.byoyomi + gained), 4 * optimum)
    if go.byoyomi and not increment:
        # What byoyomi gives is lost if it is not used.
        optimum = max(optimum, min(certain, float(_less(go.byoyomi, delay + margin))))
        maximum = max(maximum, optimum)
    return Budget(0.3 * optimum, optimum, maximum, True)


def _less(time: float, kept: float) -> float:
    """A time less what is kept back, which is never more than three tenths of it."""
    return max(1.0, time - min(kept, 0.3 * time))
