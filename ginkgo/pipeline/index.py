"""What data there is: files, cut into segments of a few thousand positions each.

In: paths. Out: an `Index`: per source its files, per file its segments (byte range, first line,
first game), the numbers of games and positions, and the split of the games.

The index is all that the parent keeps of a data set: a few dozen bytes per thousand positions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.parse_records import FIELDS, GameCutter, records_bucket, split_line
from ginkgo.records import SPLITS, Refusal
from ginkgo.records.files import DAMAGED, open_binary, plain_suffix
from ginkgo.records.sources import find_sources, game_from_line, read_games
from ginkgo.records.split import BUCKETS, Split, choose_split

#: Positions per segment, about: what one worker reads between two hand-overs.
SEGMENT_POSITIONS = 8192
#: No segment is longer, even where one game never ends.
SEGMENT_LIMIT = 2 * SEGMENT_POSITIONS

#: Bucket of what is no game: it has a number, but is in no split.
UNREADABLE = -1

RECORDS, GAMES, KIFU = "records", "games", "kifu"


@dataclass(frozen=True)
class Segment:
    """A run of lines of one file, or of whole single-game files."""

    file: int
    """Number of the (first) file."""
    files: int
    """How many files: 1 but for kifu."""
    offset: int
    """Byte where it begins, in the decompressed text."""
    size: int
    """Bytes."""
    line: int
    """Number of its first line, from 1."""
    game: int
    """Number of its first game within the source."""
    positions: int
    """At most so many positions come out of it."""


@dataclass
class DataFile:
    path: str
    kind: str
    """`records`, `games` (a game a line) or `kifu` (a few games a file)."""
    segments: list[Segment] = field(default_factory=list)


@dataclass
class SourceIndex:
    name: str
    split: Split
    buckets: tuple[int, int]
    """[low, high): games with these buckets are in the split asked for."""
    segments: list[Segment] = field(default_factory=list)
    games: int = 0
    """Games in the split asked for, before filters."""
    positions: int = 0
    """Positions of those games, before filters."""
    all_games: int = 0
    """Games of all splits."""


@dataclass
class Index:
    sources: list[SourceIndex]
    files: list[DataFile]
    bad: list[Refusal]
    """Damage that the scan met (a compressed file cut short)."""

    @property
    def games(self) -> int:
        return sum(source.games for source in self.sources)

    @property
    def positions(self) -> int:
        return sum(source.positions for source in self.sources)

    @property
    def positions_per_game(self) -> float:
        return self.positions / max(1, self.games)

    @property
    def names(self) -> list[str]:
        return [source.name for source in self.sources]

    def fingerprint(self) -> list:
        """Changes when files come, go, grow or shrink: a resumed run compares it."""
        return [
            [Path(file.path).name, len(file.segments), sum(part.size for part in file.segments)]
            for file in self.files
        ]


def build_index(
    paths: Sequence[str | Path],
    split: str = "train",
    *,
    fraction: float = 0.05,
    splits: dict[str, Split] | None = None,
    segment_positions: int = SEGMENT_POSITIONS,
    progress: Callable[[str], None] = lambda _text: None,
) -> Index:
    """Scan the files at `paths`.

    A folder that `ginkgo convert` made (its name is that of a split, with a manifest inside) is
    used whole. Other files are split by game: see `ginkgo.records.split`.

    Args:
        split: `train`, `val`, `test`, or `all`.
        fraction: share of the games in validation and in test.
        splits: thresholds by source, where they are known already (a resumed run).

    Raises:
        GinkgoError: nothing usable at a path.
    """
    if split not in (*SPLITS, "all"):
        raise GinkgoError(f"split {split!r}: expected one of {' '.join(SPLITS)} all")
    index = Index([], [], [])
    paths = [split_folder(Path(path), split) for path in paths]
    for number, source in enumerate(find_sources(paths)):
        progress(source.name)
        scan = _SourceScan(source.name, number, index, segment_positions)
        kifu: list[Path] = []
        whole = all(is_split_folder(Path(file).parent) for file in source.files)
        for file in source.files:
            if plain_suffix(file) == ".sfenx":
                scan.records(file, hashed=not whole)
            elif plain_suffix(file) == ".usi":
                scan.game_lines(file, hashed=not whole)
            else:
                kifu.append(file)
        scan.kifu(kifu)
        if whole or split == "all":
            thresholds, buckets = Split(), (0, BUCKETS)
        else:
            known = (splits or {}).get(source.name)
            readable = (bucket for bucket, _ in scan.games if bucket != UNREADABLE)
            thresholds = known or choose_split(readable, fraction)
            buckets = thresholds.range_of(split)
        entry = SourceIndex(source.name, thresholds, buckets, scan.segments)
        entry.all_games = sum(bucket != UNREADABLE for bucket, _ in scan.games)
        chosen = [plies for bucket, plies in scan.games if buckets[0] <= bucket < buckets[1]]
        entry.games, entry.positions = len(chosen), sum(chosen)
        index.sources.append(entry)
    return index


def split_folder(path: Path, split: str) -> Path:
    """The folder of a split where `path` is the whole output of `ginkgo convert`."""
    return path / split if split != "all" and is_split_folder(path / split) else path


def is_split_folder(folder: Path) -> bool:
    """Whether `ginkgo convert` wrote this folder as one split of its output."""
    if folder.name not in SPLITS:
        return False
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == "sfenx"


class _SourceScan:
    """Cuts the files of one source into segments and counts its games."""

    def __init__(self, name: str, number: int, index: Index, target: int) -> None:
        self.name, self.number, self.index, self.target = name, number, index, target
        self.segments: list[Segment] = []
        #: (bucket, plies) by game.
        self.games: list[tuple[int, int]] = []

    def records(self, path: Path, hashed: bool) -> None:
        file = self._new_file(path, RECORDS)
        cutter, cut = GameCutter(), _Cut(self, file)
        game: list[list[bytes]] = []
        plies = 0
        for offset, number, lines in self._blocks(path):
            rows = [split_line(line) for line in lines]
            starts = cutter.starts(rows)
            for index, (row, new) in enumerate(zip(rows, starts, strict=True)):
                # A game without end is cut, and goes on as another game.
                endless = cut.positions >= 2 * self.target - 1 and len(row) > FIELDS
                if (new or endless) and plies:
                    self._end_of_game(game, plies, hashed)
                    game, plies = [], 0
                    if cut.positions >= self.target:
                        cut.close(offset, number + index)
                if not plies:
                    cut.games += 1
                if hashed:
                    game.append(row)
                plies += 1
                cut.positions += 1
                offset += len(lines[index]) + 1
            cut.end = offset
        if plies:
            self._end_of_game(game, plies, hashed)
        cut.close(cut.end, 0)

    def _end_of_game(self, rows: list[list[bytes]], plies: int, hashed: bool) -> None:
        self.games.append((records_bucket(rows) if hashed else 0, plies))

    def game_lines(self, path: Path, hashed: bool) -> None:
        file = self._new_file(path, GAMES)
        cut = _Cut(self, file)
        for offset, first, lines in self._blocks(path):
            for number, line in enumerate(lines, first):
                game = game_from_line(path, number, line)
                if isinstance(game, Refusal):
                    plies, bucket = 0, UNREADABLE
                else:
                    plies, bucket = game.total, game.bucket if hashed else 0
                if cut.positions and cut.positions + plies > self.target:
                    cut.close(offset, number)
                cut.games += 1
                self.games.append((bucket, plies))
                cut.positions += plies
                offset += len(line) + 1
            cut.end = offset
        cut.close(cut.end, 0)

    def kifu(self, paths: list[Path]) -> None:
        """Single-game files: several to a segment."""
        first = len(self.index.files)
        positions, start, start_game = 0, 0, len(self.games)
        for number, path in enumerate(paths):
            self._new_file(path, KIFU)
            for _line, game in read_games(path):
                plies, bucket = (
                    (0, UNREADABLE) if isinstance(game, Refusal) else (game.total, game.bucket)
                )
                self.games.append((bucket, plies))
                positions += plies
            if positions >= self.target or number == len(paths) - 1:
                file = self.index.files[first + start]
                segment = Segment(first + start, number - start + 1, 0, 0, 1, start_game, positions)
                file.segments.append(segment)
                self.segments.append(segment)
                positions, start, start_game = 0, number + 1, len(self.games)

    def _new_file(self, path: Path, kind: str) -> int:
        self.index.files.append(DataFile(str(path), kind))
        return len(self.index.files) - 1

    def _blocks(self, path: Path) -> Iterator[tuple[int, int, list[bytes]]]:
        """(byte offset and number of the first line, lines without their ends) of a text file."""
        offset, number, rest = 0, 1, b""
        with open_binary(path) as stream:
            while True:
                try:
                    data = stream.read1(1 << 20)  # type: ignore[attr-defined]
                except DAMAGED as error:
                    bad = Refusal(str(path), number, str(error), "damaged file")
                    self.index.bad.append(bad)
                    return  # The line that was cut is not whole: it goes too.
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                if lines:
                    yield offset, number, lines
                    number += len(lines)
                    offset += sum(map(len, lines)) + len(lines)
        if rest:
            yield offset, number, [rest]


class _Cut:
    """The segment that is being cut off a file."""

    def __init__(self, scan: _SourceScan, file: int) -> None:
        self._scan, self._file = scan, file
        self._offset, self._line, self._game = 0, 1, len(scan.games)
        self.positions = self.end = self.games = 0

    def close(self, offset: int, next_line: int) -> None:
        """End the segment before byte `offset`, which begins line `next_line`."""
        if offset > self._offset:
            size = offset - self._offset
            segment = Segment(
                self._file, 1, self._offset, size, self._line, self._game, self.positions
            )
            self._scan.segments.append(segment)
            self._scan.index.files[self._file].segments.append(segment)
        self._offset, self._line = offset, next_line
        self._game += self.games
        self.positions = self.games = 0
