"""What data there is: files, cut into segments of a few thousand positions each.

In: paths. Out: an `Index`: per source its files, per file its segments (byte range, first line,
first game), the numbers of games and positions, and the split of the games.

The index is all that the parent keeps of a data set: a few dozen bytes per thousand positions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.parse import BadLine, GameCutter, records_bucket
from ginkgo.records import SPLITS, parse_game_line
from ginkgo.records.files import DAMAGED, open_binary, plain_stem, plain_suffix
from ginkgo.records.sources import Refusal, find_sources, read_games
from ginkgo.records.split import BUCKETS, Split, choose_split

#: Positions per segment, about: what one worker reads between two hand-overs.
SEGMENT_POSITIONS = 8192
#: No segment is longer, even where one game never ends.
SEGMENT_LIMIT = 2 * SEGMENT_POSITIONS

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
    bad: list[BadLine]
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
            thresholds = known or choose_split((b for b, _ in scan.games), fraction)
            buckets = thresholds.range_of(split)
        entry = SourceIndex(source.name, thresholds, buckets, scan.segments)
        entry.all_games = len(scan.games)
        chosen = [plies for bucket, plies in scan.games if buckets[0] <= bucket < buckets[1]]
        entry.games, entry.positions = len(chosen), sum(chosen)
        index.sources.append(entry)
    return index


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
        cutter, game_lines = GameCutter(), []
        cut = _Cut(self, file)
        for offset, number, line in self._lines(path):
            fields = line.rstrip(b"\r").split(b",")
            if cutter.starts(fields):
                self._end_of_game(game_lines, hashed)
                game_lines = []
                if cut.positions >= self.target:
                    cut.close(offset, number)
            elif cut.positions >= 2 * self.target - 1:
                # A game without end: cut it, as a new game.
                self._end_of_game(game_lines, hashed)
                game_lines, cutter = [], GameCutter()
                cutter.starts(fields)
                cut.close(offset, number)
            if not game_lines:
                cut.games += 1
            game_lines.append(fields if hashed else None)
            cut.positions += 1
            cut.end = offset + len(line) + 1
        self._end_of_game(game_lines, hashed)
        cut.close(cut.end, 0)

    def _end_of_game(self, lines: list, hashed: bool) -> None:
        if lines:
            self.games.append((records_bucket(lines) if hashed else 0, len(lines)))

    def game_lines(self, path: Path, hashed: bool) -> None:
        file = self._new_file(path, GAMES)
        cut = _Cut(self, file)
        for offset, number, line in self._lines(path):
            plies, bucket = line.count(b" "), 0
            if hashed:
                try:
                    game = parse_game_line(line.decode())
                    plies, bucket = game.total, game.bucket
                except (GinkgoError, UnicodeDecodeError):
                    plies = 0
            if cut.positions and cut.positions + plies > self.target:
                cut.close(offset, number)
            cut.games += 1
            self.games.append((bucket, plies))
            cut.positions += plies
            cut.end = offset + len(line) + 1
        cut.close(cut.end, 0)

    def kifu(self, paths: list[Path]) -> None:
        """Single-game files: several to a segment."""
        first = len(self.index.files)
        positions, start, start_game = 0, 0, len(self.games)
        for number, path in enumerate(paths):
            self._new_file(path, KIFU)
            for _line, game in read_games(path):
                plies, bucket = (
                    (0, 0) if isinstance(game, Refusal) else (game.total, game.bucket)
                )
                self.games.append((bucket, plies))
                positions += plies
            if positions >= self.target or number == len(paths) - 1:
                file = self.index.files[first + start]
                segment = Segment(
                    first + start, number - start + 1, 0, 0, 1, start_game, positions
                )
                file.segments.append(segment)
                self.segments.append(segment)
                positions, start, start_game = 0, number + 1, len(self.games)

    def _new_file(self, path: Path, kind: str) -> int:
        self.index.files.append(DataFile(str(path), kind))
        return len(self.index.files) - 1

    def _lines(self, path: Path):
        """(byte offset, line number, line without its end) of a text file."""
        offset, number, rest = 0, 0, b""
        with open_binary(path) as stream:
            while True:
                try:
                    data = stream.read1(1 << 20)  # type: ignore[attr-defined]
                except DAMAGED as error:
                    bad = BadLine("damaged file", str(path), number + 1, str(error))
                    self.index.bad.append(bad)
                    return  # The line that was cut is not whole: it goes too.
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    number += 1
                    yield offset, number, line
                    offset += len(line) + 1
        if rest:
            yield offset, number + 1, rest


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


def default_source_name(path: str | Path) -> str:
    """How a file's source is called where the user gives no name."""
    return plain_stem(path)
