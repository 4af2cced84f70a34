"""SFEN text: is it a position that can be set up?

In: an SFEN from a file. Out: the same in canonical form, or a `GinkgoError`.

Boards of the rules library must be given nothing else: a malformed SFEN ends the process there.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from ginkgo.errors import GinkgoError

_RANK = re.compile(r"(?:[1-9]|\+?[PLNSBRplnsbr]|[GKgk])+")
_SQUARES = re.compile(r"[1-9]|\+?[A-Za-z]")
_HANDS = re.compile(r"(?:(?:[1-9][0-9]?)?[PLNSBRGplnsbrg])+")
_HELD = re.compile(r"([0-9]*)([A-Za-z])")
_EMPTY_RUN = re.compile(r"[1-9]{2,}")
_PLY = re.compile(r"[0-9]{1,5}")

#: How many of each there are, on board and in hand together, promoted or not.
LIMITS = {"P": 18, "L": 4, "N": 4, "S": 4, "G": 4, "B": 2, "R": 2}
_HAND_ORDER = "RBGSNLPrbgsnlp"
#: Plies are kept in sixteen bits.
_MAX_PLY = 65535


@lru_cache(maxsize=4096)
def check_sfen(sfen: str, kings: int = 2) -> str:
    """The SFEN in canonical form: empty squares counted, hands in order, a ply number.

    What is checked: the form, the number of pieces of each kind, one king a side, kings apart.
    Whether the side that has just moved stands in check needs a board: see `replay`.

    Args:
        kings: 1 lets a problem pass where one side has no king.

    Raises:
        GinkgoError: not an SFEN, or no possible position.

    >>> check_sfen("4k4/9/9/9/9/9/9/9/4K4 b bP2RP")
    '4k4/9/9/9/9/9/9/9/4K4 b 2R2Pb 1'
    """
    fields = sfen.split()
    if len(fields) not in (3, 4) or fields[1] not in ("b", "w"):
        raise GinkgoError(f"{sfen!r}: expected an SFEN of board, side to move, hands and ply")
    board, turn, hands = fields[:3]
    ply = fields[3] if len(fields) == 4 else "1"
    if not _PLY.fullmatch(ply) or int(ply) > _MAX_PLY:
        raise GinkgoError(f"{sfen!r}: malformed ply field")
    pieces, places = _board_pieces(sfen, board)
    held = _held_pieces(sfen, hands)
    if len(places) < kings or any(len(squares) > 1 for squares in places.values()):
        raise GinkgoError(f"{sfen!r}: expected one king a side")
    if len(places) == 2:
        (file, rank), (other_file, other_rank) = places["K"][0], places["k"][0]
        if max(abs(file - other_file), abs(rank - other_rank)) == 1:
            raise GinkgoError(f"{sfen!r}: the kings stand side by side")
    for letter, limit in LIMITS.items():
        count = pieces[letter] + held[letter] + held[letter.lower()]
        if count > limit:
            raise GinkgoError(f"{sfen!r}: {count} pieces {letter}, there are {limit}")
    counts = [(held[letter], letter) for letter in _HAND_ORDER if held[letter]]
    hands = "".join(f"{count if count > 1 else ''}{letter}" for count, letter in counts)
    board = _EMPTY_RUN.sub(lambda run: str(sum(map(int, run[0]))), board)
    return f"{board} {turn} {hands or '-'} {max(1, int(ply))}"


def _board_pieces(sfen: str, board: str) -> tuple[Counter[str], dict[str, list[tuple[int, int]]]]:
    """Pieces by upper-case letter, and the places of the kings."""
    ranks = board.split("/")
    pieces: Counter[str] = Counter()
    kings: dict[str, list[tuple[int, int]]] = {}
    if len(ranks) != 9:
        raise GinkgoError(f"{sfen!r}: {len(ranks)} ranks, expected 9")
    for number, rank in enumerate(ranks):
        width = 0
        if not _RANK.fullmatch(rank):
            raise GinkgoError(f"{sfen!r}: malformed rank {rank!r}")
        for square in _SQUARES.findall(rank):
            if square.isdigit():
                width += int(square)
                continue
            if square in "Kk":
                kings.setdefault(square, []).append((width, number))
            pieces[square[-1].upper()] += 1
            width += 1
        if width != 9:
            raise GinkgoError(f"{sfen!r}: rank {rank!r} has {width} squares, expected 9")
    return pieces, kings


def _held_pieces(sfen: str, hands: str) -> Counter[str]:
    """Pieces in hand by letter. Letters may repeat and come in any order."""
    held: Counter[str] = Counter()
    if hands == "-":
        return held
    if not _HANDS.fullmatch(hands):
        raise GinkgoError(f"{sfen!r}: malformed hands field")
    for count, letter in _HELD.findall(hands):
        held[letter] += int(count or 1)
    return held
