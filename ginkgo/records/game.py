"""A game: start position, moves, result. The common currency of all kifu formats."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

STARTPOS = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"

#: Black, White, draw, no result.
WINNERS = ("b", "w", "d", "-")

#: How a game can end: the CSA words in lower case and a few that CSA lacks.
ENDINGS = (
    *("toryo", "sennichite", "jishogi", "kachi", "tsumi", "time_up", "illegal_move"),
    *("illegal_action", "hikiwake", "max_moves", "chudan", "perpetual"),
    *("unknown", "matta", "fuzumi", "error"),
)

#: The longest game that is kept, in plies, wherever nothing else is given.
MAX_PLIES = 512

#: Into how many parts games are hashed for the split.
BUCKETS = 10_000

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Variation:
    """A branch off the main line, itself without a result."""

    ply: int
    """Of its first move, counted from the start of the game."""
    start: str
    """The position that it begins from, as SFEN."""
    moves: tuple[str, ...]


@dataclass
class Game:
    """One game as played, moves in USI, not yet replayed.

    >>> Game(moves=["7g7f", "3c3d"], winner="b", end="toryo").total
    2
    """

    start: str = STARTPOS
    """Start position as SFEN with ply."""
    moves: Sequence[str] = ()
    winner: str = "-"
    """`b`, `w`, `d` (draw) or `-` (no result)."""
    end: str = "unknown"
    """One of `ENDINGS`."""
    game: str = ""
    """Identifier within its source."""
    black: str = ""
    white: str = ""
    rate_b: float | None = None
    """Rating of Black, in the scale of the source."""
    rate_w: float | None = None
    other: dict[str, str] = field(default_factory=dict)
    """Keys that ginkgo does not know, kept as they are."""
    times: Sequence[float | None] = ()
    """Seconds spent on each move, as far as known; empty: on none."""
    scores: Sequence[int | None] = ()
    """Search score at each move in centipawns, mover's view; empty: none."""
    policies: Sequence[dict[str, int] | None] = ()
    """Visits by move at each move; empty: none."""
    root_values: Sequence[float | None] = ()
    """Win rate of the side to move that a search found at each move; empty: none."""
    full: Sequence[bool] = ()
    """By move whether its search was a full one; the others were only for playing on, and teach
    nothing. Empty: nothing of the kind is known."""
    comments: dict[int, str] | None = None
    """By ply, 0: before the first move. Line ends separate the lines of one ply."""
    variations: Sequence[Variation] = ()
    """Branches, where they were asked for."""
    notes: Sequence[str] = ()
    """What was odd about the file although it could be read."""
    home: int | None = None
    """Of a position whose game is not known: the hash that decides its split."""
    format: str = field(default="", compare=False)
    """What the game was read from: `csa`, `kif`, …"""
    encoding: str = field(default="", compare=False)
    """Of the text that it was read from."""
    played: Sequence[int] | None = field(default=None, compare=False)
    """The moves as cshogi packs them, where the game has been replayed: see `replay.played`. The
    start position is in canonical form then."""

    @property
    def total(self) -> int:
        """Plies played."""
        return len(self.moves)

    @property
    def hash(self) -> int:
        """What names the game whatever file, format or source it comes from: see `game_hash`."""
        return game_hash(self.start, self.moves)

    @property
    def bucket(self) -> int:
        """The number in [0, 10000) that decides the split."""
        return (self.hash if self.home is None else self.home) % BUCKETS


@dataclass(frozen=True)
class Refusal:
    """Something in a file that cannot be used, and why.

    >>> str(Refusal("games.usi", 3, "ply 7: 5e5d", "illegal move"))
    'games.usi:3: illegal move: ply 7: 5e5d'
    """

    file: str
    line: int
    """From 1; of a kifu file, where the fault is or else where the game begins."""
    reason: str
    kind: str = "unreadable game"
    """What kind of fault, in a few words: faults are counted by kind."""
    plies: int = 0
    """Moves before the fault, where they are known."""
    format: str = ""
    """What it was read as."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.reason}"


def game_hash(start: str, moves: Sequence[str]) -> int:
    """64 bits from a game's start position and moves alone; modulo `BUCKETS` it decides the split.

    The same game has the same hash whatever file, format or source it comes from: board, side
    to move and hands are hashed, ply number and names are not.

    >>> game_hash(STARTPOS, ["7g7f", "3c3d"]) % BUCKETS
    6925
    """
    text = " ".join(["ginkgo1", *start.split()[:3], *moves])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
