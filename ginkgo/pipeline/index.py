"""What is known of a data set: files, cut into segments of a few thousand positions each.

In: what a scan (`ginkgo.pipeline.scan`) found. Out: an `Index` for each split: per source its
segments (byte range, first line, first game) and the numbers of games and positions.

The index is all that the parent keeps of a data set: a few dozen bytes per thousand positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.records import Refusal
from ginkgo.records.split import BUCKETS, Split

WHOLE = (0, BUCKETS)

RECORDS, GAMES, KIFU, STREAM = "records", "games", "kifu", "stream"


@dataclass(frozen=True)
class Segment:
    """A run of lines of one file, or of whole single-game files."""

    file: int
    """Number of the (first) file."""
    files: int
    """How many files: 1 but for kifu."""
    offset: int
    """Byte where it begins, in the decompressed text; of a stream: number of its first piece."""
    size: int
    """Bytes; of a stream: pieces."""
    line: int
    """Number of its first line, from 1; of a stream: of its first game or packed position."""
    game: int
    """Number of its first game within the source."""
    positions: int
    """At most so many positions come out of it."""


@dataclass
class DataFile:
    """A file, and how it is read."""

    path: str
    kind: str
    """`records`, `games` (a game a line), `kifu` (a few games a file), or `stream` (a file or
    archive that is cut into games as it is read)."""
    origin: str = ""
    """The split whose folder, made by `ginkgo convert`, holds the file; empty: not split yet."""
    size: int = 0
    """Bytes on disk."""
    merged: bool = False
    """Whether equal positions of several games are one record: see `records.convert.merge`."""
    segments: list[Segment] = field(default_factory=list)


@dataclass
class SourceIndex:
    """What there is of a source in one split."""

    name: str
    split: Split
    """Thresholds for those of its files that are not split yet."""
    segments: list[Segment] = field(default_factory=list)
    games: int = 0
    """Games of the split asked for, before filters."""
    positions: int = 0
    """Positions of those games, before filters."""
    merged: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Hashes of the games that its merged records are of."""
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    """By game of the split its hash. Of merged records, that of each run of lines."""
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """By game of the split its number (`POSITION["game"]`), ascending; others are not in it."""

    def positions_kept(self, keep: int, share: float = 1.0) -> float:
        """About how many positions an epoch has.

        Args:
            keep: positions per game, 0 for all. share: of the positions that pass the filters.
        """
        positions = self.positions * share
        return min(positions, float(self.games * keep)) if keep else positions


@dataclass
class Index:
    """One split of a data set."""

    split: str
    sources: list[SourceIndex]
    files: list[DataFile]
    bad: list[Refusal]
    """Damage that the scan met (a compressed file cut short)."""
    left_out: frozenset[int] = frozenset()
    """Hashes of games that a stricter split holds through another source."""
    policies: bool = False
    """Some records carry soft policy targets."""
    shard: tuple[int, int] = (0, 1)
    """Which of how many parts of the data this is."""

    @property
    def games(self) -> int:
        """Games of all sources."""
        return sum(source.games for source in self.sources)

    @property
    def positions(self) -> int:
        """Positions of all sources."""
        return sum(source.positions for source in self.sources)

    @property
    def positions_per_game(self) -> float:
        """The mean over all games."""
        return self.positions / max(1, self.games)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """By game of the split its hash. Of merged records, that of each run of lines."""
        return np.concatenate([np.zeros(0, np.uint64), *(source.hashes for source in self.sources)])

    @property
    def known(self) -> NDArray[np.uint64]:
        """Hashes of all games that have a part in the split."""
        return np.concatenate([self.hashes, *(source.merged for source in self.sources)])

    @property
    def names(self) -> list[str]:
        """Names of the sources by number."""
        return [source.name for source in self.sources]

    def buckets(self, source: int, segment: Segment) -> tuple[int, int]:
        """[low, high): games of the segment with these buckets are in the split."""
        if self.split == "all" or self.files[segment.file].origin:
            return WHOLE
        return self.sources[source].split.range_of(self.split)

    def part(self, number: int, count: int) -> Index:
        """One of `count` parts of the data, for processes that train together.

        Every segment, and so every game, is in one of them; of each source they hold about as many
        positions, to within a segment. Numbers of games and positions are estimates.

        Raises:
            GinkgoError: there are fewer segments than parts.
        """
        if count == 1:
            return self
        sources = []
        everywhere = [0] * count
        for source in self.sources:
            held = [0] * count
            mine: list[Segment] = []
            for segment in source.segments:
                place = min(range(count), key=lambda part: (held[part], everywhere[part]))
                held[place] += segment.positions
                everywhere[place] += segment.positions
                if place == number:
                    mine.append(segment)
            share = held[number] / max(1, sum(held))
            games, positions = round(source.games * share), round(source.positions * share)
            sources.append(replace(source, segments=mine, games=games, positions=positions))
        if not all(everywhere):
            there = sum(len(source.segments) for source in self.sources)
            raise GinkgoError(f"{count} processes share {there} segments of data: give more data")
        return replace(self, sources=sources, shard=(number, count))

    def fingerprint(self) -> list:
        """Changes when files come, go, grow or shrink: a resumed run compares it."""
        return [
            [self.split, sorted(self.left_out), list(self.shard)],
            *([Path(file.path).name, file.size, len(file.segments)] for file in self.files),
        ]
