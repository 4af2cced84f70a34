"""The replay window: what of the stored games is trained on next, and how often it has been.

In: run folders, and how often each of their positions was used. Out: games whose flags `full` are
set at the positions to use, each of them once, for the ordinary pipeline; and the new counts.

Three rules, all kept on disk:

- the window is the newest part of the data; it grows more slowly than they do (Wu, "Accelerating
  self-play learning in Go", 2019, appendix C, with the exponent that KataGo has taken since);
- each new position brings `reuse` tokens, each sample takes one (a token bucket), so that training
  does not run ahead of self-play;
- no position is used more than `reuse` times in all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.records.files import atomic_write
from ginkgo.records.game import BUCKETS
from ginkgo.records.kifu.selfplay import BROKEN, FORMAT, game_hashes, select_games, write_arrays
from ginkgo.selfplay.store import RunFolder

EXPONENT, GROWTH = 0.65, 0.4
#: Games of which one in so many is held out.
HELD_OUT = 20


def window_size(total: float, smallest: float, exponent: float = EXPONENT) -> float:
    """Positions in the window when there are `total` in all.

    c · (1 + β ((N/c)^α − 1) / α): all of them up to c, then sub-linear, rising at first by β for
    each new position.

    >>> round(window_size(20_000, 20_000)), round(window_size(40_000, 20_000))
    (20000, 27006)
    """
    if total <= smallest:
        return total
    return smallest * (1 + GROWTH * ((total / smallest) ** exponent - 1) / exponent)


@dataclass
class Uses:
    """How often each position has been used, and the tokens that are left."""

    counts: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    """By run, (positions,) in the order of its files."""
    tokens: float = 0.0
    samples: int = 0
    """Positions trained on so far, each use counted."""
    recorded: int = 0
    """Positions that have brought tokens."""

    @property
    def most(self) -> int:
        """Of the position that was used most."""
        return max((int(counts.max(initial=0)) for counts in self.counts.values()), default=0)

    def save(self, path: Path) -> None:
        """Write them, atomically."""
        meta = {"tokens": self.tokens, "samples": self.samples, "recorded": self.recorded}
        arrays = {f"run_{run}": counts for run, counts in self.counts.items()}
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with atomic_write(path) as stream:
            np.savez_compressed(stream, meta=text, **arrays)  # type: ignore[arg-type]

    @staticmethod
    def load(path: Path) -> Uses:
        """Those of a file.

        Raises:
            GinkgoError: it is damaged.
        """
        try:
            with np.load(path) as arrays:
                meta = json.loads(arrays["meta"].tobytes())
                counts = {
                    int(name.removeprefix("run_")): arrays[name]
                    for name in arrays.files
                    if name != "meta"
                }
        except BROKEN as error:
            raise GinkgoError(f"{path}: cannot be read: {error}") from None
        return Uses(counts, **meta)


@dataclass(frozen=True)
class WindowOptions:
    """How the data of a generation are chosen."""

    smallest: int
    """Positions of the window at least."""
    reuse: int
    """Uses of a position at most, and on average."""
    batch_size: int
    steps: int
    """Training steps at most; 0: as many as there are tokens for."""
    exponent: float = EXPONENT


@dataclass
class Plan:
    """What a generation trains on."""

    uses: Uses
    """After it."""
    samples: int
    """Positions to train on, a multiple of the batch size."""
    window: int
    """Positions in the window."""
    held_out: int
    """Games that are not trained on."""
    runs: list[int]
    """Whose games are in the window."""


class _Part:
    """A file of games with what may be used of it."""

    def __init__(self, run: int, meta: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.run, self.meta, self.arrays = run, meta, arrays
        self.hold_out(np.zeros(len(arrays["number"]), bool))

    def hold_out(self, held: NDArray[np.bool_]) -> None:
        """Leave (games,) games out of training."""
        self.held = held
        self.usable = self.arrays["full"] & ~np.repeat(held, self.arrays["plies"])


def _parts_of(run: RunFolder) -> list[_Part]:
    """The files of a run, with its held-out games chosen.

    By the hash of the game, as everywhere; where that leaves none, the game with the lowest bucket.
    """
    parts = [_Part(run.number, meta, arrays) for _, meta, arrays in run.arrays()]
    buckets = [game_hashes(part.arrays) % np.uint64(BUCKETS) for part in parts]
    lowest = min(
        (
            int(found[_teaches(part.arrays)].min(initial=BUCKETS))
            for part, found in zip(parts, buckets, strict=True)
        ),
        default=0,
    )
    border = max(BUCKETS // HELD_OUT, lowest + 1)
    for part, found in zip(parts, buckets, strict=True):
        part.hold_out(found < border)
    return parts


def _teaches(arrays: dict[str, NDArray]) -> NDArray[np.bool_]:
    """(games,) which games have a position to train on."""
    ends = np.cumsum(arrays["plies"])
    full = np.concatenate([[0], np.cumsum(arrays["full"])])
    return full[ends] > full[ends - arrays["plies"]]


def make_plan(
    runs: Sequence[RunFolder], uses: Uses, options: WindowOptions, folder: Path, seed: tuple
) -> Plan:
    """Choose what to train on next and write it down for the pipeline.

    Args:
        runs: complete and looked at, in order.
        uses: before. folder: gets `train/run_001/games_00000.npz` and `val/…`; made anew, and
            there under its name only when it is whole.
        seed: of the choice.

    Raises:
        GinkgoError: there are too few positions for a batch.
    """
    known = {run: counts.copy() for run, counts in uses.counts.items()}
    for run in runs:
        known.setdefault(run.number, np.zeros(run.positions, np.uint8))
    files: list[_Part] = []
    new = sum(run.recorded for run in runs if run.number not in uses.counts)
    size = window_size(uses.recorded + new, options.smallest, options.exponent)
    inside = 0
    for run in reversed(runs):
        if inside >= size:
            break
        parts = _parts_of(run)
        inside += int(sum(part.usable.sum() for part in parts))
        files = [*parts, *files]
    tokens = min(uses.tokens + options.reuse * new, options.reuse * inside)
    open_places = _open_places(files, known, options.reuse)
    wanted = min(int(tokens), len(open_places))
    if options.steps:
        wanted = min(wanted, options.steps * options.batch_size)
    wanted -= wanted % options.batch_size
    if not wanted:
        raise GinkgoError(
            f"{len(open_places):,} positions and {tokens:,.0f} tokens: too few for a batch of "
            f"{options.batch_size}; play more games a generation"
        )
    rng = np.random.default_rng(seed)
    chosen = np.zeros(sum(len(part.usable) for part in files), bool)
    chosen[open_places[np.sort(rng.permutation(len(open_places))[:wanted])]] = True
    held = _write(files, chosen, folder)
    place = 0
    offsets: dict[int, int] = {}
    for part in files:
        count, first = len(part.usable), offsets.get(part.run, 0)
        known[part.run][first : first + count] += chosen[place : place + count]
        place, offsets[part.run] = place + count, first + count
    numbers = {run.number for run in runs}
    after = Uses(
        {run: counts for run, counts in known.items() if run in numbers},
        tokens - wanted,
        uses.samples + wanted,
        uses.recorded + new,
    )
    return Plan(after, wanted, inside, held, sorted(offsets))


def _open_places(
    files: list[_Part], known: dict[int, NDArray[np.uint8]], cap: int
) -> NDArray[np.int64]:
    """Places, over all files in order, of the positions that may be used once more."""
    offsets: dict[int, int] = {}
    found = [np.zeros(0, bool)]
    for part in files:
        first = offsets.get(part.run, 0)
        last = offsets[part.run] = first + len(part.usable)
        found.append(part.usable & (known[part.run][first:last] < cap))
    return np.flatnonzero(np.concatenate(found))


def _write(files: list[_Part], chosen: NDArray[np.bool_], folder: Path) -> int:
    """Lay the games down; how many are held out."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    place = held = 0
    for number, part in enumerate(files):
        count = len(part.usable)
        arrays = {**part.arrays, "full": chosen[place : place + count]}
        place += count
        text = json.dumps({**part.meta, "format": FORMAT}).encode()
        meta = np.frombuffer(text, np.uint8)
        where = f"run_{part.run:03d}/games_{number:05d}.npz"
        kept = _without(arrays, part.held)
        if kept is not None:
            write_arrays(temporary / "train" / where, {"meta": meta, **kept})
        kept = _without(part.arrays, ~part.held)
        if kept is not None:
            held += len(kept["number"])
            write_arrays(temporary / "val" / where, {"meta": meta, **kept})
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    return held


def _without(arrays: dict[str, NDArray], left_out: NDArray[np.bool_]) -> dict[str, NDArray] | None:
    """The games of a file without some of them, and without those that teach nothing."""
    games = np.flatnonzero(~left_out & _teaches(arrays)).tolist()
    if not games:
        return None
    parts = [select_games(arrays, game, game + 1) for game in games]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
