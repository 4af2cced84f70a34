"""Copies of one game in a conversion: which of them is written.

In: what the first pass found. Out: by chunk the pieces that are not to be written, and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ginkgo.records.convert.passes import WINNERS, Spooled

_SAID = {"b": "Black wins", "w": "White wins", "d": "a draw"}


def unwanted_copies(
    spooled: Sequence[Spooled], held: Mapping[str, Collection[int]]
) -> list[dict[int, str]]:
    """Of games that several pieces, of any source, hold, all but one.

    The first copy that has a result is written, else the first. Where two copies name different
    winners nobody knows which is right: none is written.

    Args:
        held: by source the games that are held out elsewhere, by hash. Their pieces do not count:
            the game is written there.

    Returns:
        by chunk the numbers of pieces, with the reason; empty: another copy is written.
    """
    sizes = [len(found.entries) for found in spooled]
    chunk = np.repeat(np.arange(len(spooled)), sizes)
    index = np.concatenate([np.zeros(0, np.int64), *map(np.arange, sizes)])
    hashes = _joined(spooled, "hash", np.uint64)
    winners = _joined(spooled, "winner", np.uint8)
    counts = np.concatenate([np.zeros(0, bool), *(_counts(one, held) for one in spooled)])

    places = np.flatnonzero(counts)
    # By game, those with a result first, in the order of the files.
    places = places[np.lexsort((places, winners[places] == 0, hashes[places]))]
    game = hashes[places]
    first = np.flatnonzero(np.r_[True, game[1:] != game[:-1]] if len(game) else [])
    group = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(game)]))
    keeper = winners[places][first][group] if len(game) else winners[:0]
    other = (winners[places] != keeper) & (winners[places] != 0)
    reasons: dict[int, str] = {}
    for row in np.flatnonzero(other).tolist():
        number = int(group[row])
        if number not in reasons:
            pair = (places[first[number]], places[row])
            told = (_told(spooled[chunk[place]], int(index[place])) for place in pair)
            reasons[number] = "copies of this game contradict each other: " + ", ".join(told)

    result: list[dict[int, str]] = [{} for _ in spooled]
    begins = set(first.tolist())
    for row in np.flatnonzero(np.isin(group, _repeated(group))).tolist():
        reason = reasons.get(int(group[row]), "")
        if reason or row not in begins:
            result[chunk[places[row]]][int(index[places[row]])] = reason
    return result


def _joined(spooled: Sequence[Spooled], field: str, kind: type) -> NDArray:
    return np.concatenate([np.zeros(0, kind), *(found.entries[field] for found in spooled)])


def _counts(found: Spooled, held: Mapping[str, Collection[int]]) -> NDArray[np.bool_]:
    games = held[found.source]
    away = np.fromiter(games, np.uint64, len(games))
    return ~np.isin(found.entries["home"], away)


def _repeated(group: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.flatnonzero(np.bincount(group) > 1)


def _told(found: Spooled, index: int) -> str:
    entry = found.entries[index]
    return f"{_SAID[WINNERS[entry['winner']]]} in {found.files[index]}:{entry['line']}"
