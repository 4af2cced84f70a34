"""What data there is: all files are looked at once and cut into segments.

In: paths. Out: a `Scan` of everything there, and of it an `Index` for each split.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.pipeline.index import (
    GAMES,
    KIFU,
    RECORDS,
    STREAM,
    DataFile,
    Index,
    Segment,
    SourceIndex,
)
from ginkgo.pipeline.parse_records import FIELDS, GameCutter, records_hash, split_lines
from ginkgo.records import SPLITS, Refusal
from ginkgo.records.files import BOM, DAMAGED, STDIN, open_binary
from ginkgo.records.kifu.packed import RECORDS as PACKED
from ginkgo.records.kifu.packed import block_hash
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.kifu.stream import raw_games, read_raw
from ginkgo.records.sources import (
    GAME_SUFFIXES,
    RECORD_SUFFIXES,
    Source,
    files_at,
    find_sources,
    game_from_line,
    is_line_file,
    is_small_kifu,
    read_games,
    source_name,
    suffix_of,
)
from ginkgo.records.split import BUCKETS, Split, choose_split, merged_games

#: Positions per segment, about: what one worker reads between two hand-overs. A segment is at
#: most twice as long, even where one game never ends.
SEGMENT_POSITIONS = 8192


def build_index(
    paths: Sequence[str | Path],
    split: str = "train",
    *,
    fraction: float = 0.05,
    segment_positions: int = SEGMENT_POSITIONS,
) -> Index:
    """One split of the files at `paths`; see `Scan`.

    Args:
        split: `train`, `val`, `test`, or `all` for everything.
        fraction: share of the games in validation and in test, where files are not split yet.

    Raises:
        GinkgoError: nothing usable at a path.
    """
    if split not in (*SPLITS, "all"):
        raise GinkgoError(f"split {split!r}: expected one of {' '.join(SPLITS)} all")
    return Scan(paths, fraction=fraction, segment_positions=segment_positions).view(split)


class Scan:
    """A look at all files at `paths`.

    Files in a folder that `ginkgo convert` made (named after a split, with a manifest in it)
    belong to that split; where a `train` folder or part of one is given, the validation and test
    folders beside it are looked at too. The games of other files are split by hash: see
    `ginkgo.records.split`.

    Args:
        named: by name of a source its paths; those of `paths` are named after their files.
        splits: by name of a source its thresholds, where they are known already.

    Raises:
        GinkgoError: nothing usable at a path.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        fraction: float = 0.05,
        segment_positions: int = SEGMENT_POSITIONS,
        progress: Callable[[str], None] = lambda _text: None,
        named: Mapping[str, Sequence[str | Path]] = MappingProxyType({}),
        splits: Mapping[str, Split] = MappingProxyType({}),
    ) -> None:
        self.files: list[DataFile] = []
        self.bad: list[Refusal] = []
        self.policies = False
        self._sources: list[_SourceScan] = []
        for source in _with_held_out(find_sources(paths, named=named)):
            progress(source.name)
            scan = _SourceScan(source.name, self, segment_positions)
            kifu: list[Path] = []
            streams: list[Path] = []
            for file in source.files:
                if str(file) == STDIN:
                    raise GinkgoError("standard input cannot be read again: convert it first")
                if suffix_of(file) in RECORD_SUFFIXES:
                    scan.records(file)
                elif is_line_file(file):
                    scan.game_lines(file)
                else:
                    (kifu if is_small_kifu(file) else streams).append(file)
            scan.kifu(kifu)
            for file in streams:
                scan.stream(file)
            scan.finish(fraction, splits.get(source.name))
            self._sources.append(scan)

    def view(self, split: str, held_out: NDArray[np.uint64] | None = None) -> Index:
        """The index of one split.

        A game that is in several sources can fall into several splits, for their thresholds
        differ. It then counts only in the strictest one: test before validation before training.
        Merged records that a game to be left out has a part in are left out altogether.

        Args:
            split: `train`, `val`, `test` or `all`.
            held_out: hashes of further games to leave out.
        """
        stricter = {"train": ("val", "test"), "val": ("test",)}.get(split, ())
        held = [scan.hashes_of(other) for scan in self._sources for other in stricter]
        held.append(np.zeros(0, np.uint64) if held_out is None else held_out)
        held_hashes = np.unique(np.concatenate(held))
        index = Index(split, [], self.files, self.bad, policies=self.policies)
        left_out: set[int] = set()
        for scan in self._sources:
            entry = SourceIndex(scan.name, scan.split)
            entry.segments = [
                segment
                for segment in scan.segments
                if split == "all" or self.files[segment.file].origin in ("", split)
            ]
            inside = scan.in_split(split)
            leaves = inside & np.isin(scan.hashes, held_hashes)
            own = scan.merged_in(split)
            if np.isin(own, held_hashes).any():
                files = self.files
                entry.segments = [one for one in entry.segments if not files[one.file].merged]
                inside &= ~scan.from_merged
            else:
                entry.merged = own
            left_out |= set(scan.hashes[leaves].tolist())
            inside &= ~leaves
            entry.hashes, entry.numbers = scan.hashes[inside], np.flatnonzero(inside)
            entry.games, entry.positions = int(inside.sum()), int(scan.plies[inside].sum())
            index.sources.append(entry)
        index.left_out = frozenset(left_out)
        return index

    def given(self, split: str, held_out: NDArray[np.uint64] | None = None) -> Index:
        """What a user names as data for a split: files not split yet count whole."""
        for scan in self._sources:
            scan.claim(split)
        return self.view(split, held_out)

    def hashes(self, split: str) -> NDArray[np.uint64]:
        """Hashes of all games of a split."""
        found = [scan.hashes_of(split) for scan in self._sources]
        return np.concatenate([np.zeros(0, np.uint64), *found])


def _with_held_out(sources: Sequence[Source]) -> list[Source]:
    """The sources, with the files of the val and test folders beside the train folders in them.

    A held-out file belongs to the source that holds the training file of its name.
    """
    found = {source.name: list(source.files) for source in sources}
    there = {os.path.realpath(file) for source in sources for file in source.files}
    owners: dict[Path, dict[str, str]] = {}
    for source in sources:
        for file in source.files:
            owners.setdefault(file.parent, {})[source_name(file)] = source.name
    for folder, names in owners.items():
        if origin_of(folder) != "train":
            continue
        beside = [folder.parent / split for split in ("val", "test")]
        beside = [path for path in beside if origin_of(path) and any(path.glob("*.sfenx*"))]
        for file in files_at(beside, GAME_SUFFIXES + RECORD_SUFFIXES):
            if os.path.realpath(file) not in there:
                there.add(os.path.realpath(file))
                own = source_name(file)
                found.setdefault(names.get(own, own), []).append(file)
    return [Source(name, tuple(files)) for name, files in sorted(found.items())]


def origin_of(folder: Path) -> str:
    """The split that a folder holds if `ginkgo convert` made it, else an empty string."""
    name = os.path.basename(os.path.realpath(folder))
    if name not in SPLITS:
        return ""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return ""
    return name if isinstance(manifest, dict) and manifest.get("format") == "sfenx" else ""


class _SourceScan:
    """Cuts the files of one source into segments and counts its games."""

    def __init__(self, name: str, scan: Scan, target: int) -> None:
        self.name, self.scan, self.target = name, scan, target
        self.segments: list[Segment] = []
        #: (hash, plies, origin of its file) by game; no plies: not readable.
        self.games: list[tuple[int, int, str]] = []
        self._merged: dict[str, NDArray[np.uint64]] = {}  # hashes by origin
        self._merged_rows: list[tuple[int, int]] = []  # of `games`
        self.split = Split()

    def finish(self, fraction: float, split: Split | None) -> None:
        """Turn the games into arrays, and choose the split of those that are not split yet."""
        count = len(self.games)
        self.hashes = np.fromiter((name for name, _, _ in self.games), np.uint64, count)
        self.plies = np.fromiter((plies for _, plies, _ in self.games), np.int64, count)
        self._origins = np.array([origin for _, _, origin in self.games], "U5")
        #: (games,) whether a game is but a run of lines of merged records.
        self.from_merged = np.zeros(count, bool)
        for low, high in self._merged_rows:
            self.from_merged[low:high] = True
        self.games = []
        unsplit = (self._origins == "") & (self.plies > 0)
        if split is not None:
            self.split = split
        elif unsplit.any():
            self.split = choose_split(self.hashes[unsplit] % np.uint64(BUCKETS), fraction)

    def claim(self, split: str) -> None:
        """Give all games that are not split yet to one split."""
        self._origins[self._origins == ""] = split
        ranges = {"test": Split(BUCKETS, BUCKETS), "val": Split(0, BUCKETS)}
        self.split = ranges.get(split, Split())

    def in_split(self, split: str) -> NDArray[np.bool_]:
        """By game whether it is in a split."""
        if split == "all":
            return self.plies > 0
        low, high = self.split.range_of(split)
        bucket = self.hashes % np.uint64(BUCKETS)
        by_hash = (self._origins == "") & (bucket >= low) & (bucket < high)
        return (self.plies > 0) & (by_hash | (self._origins == split))

    def merged_in(self, split: str) -> NDArray[np.uint64]:
        """Hashes of the games that merged records of a split are of."""
        found = [names for origin, names in self._merged.items() if split in (origin, "all")]
        return np.concatenate([np.zeros(0, np.uint64), *found])

    def hashes_of(self, split: str) -> NDArray[np.uint64]:
        """Hashes of all games that have a part in a split."""
        return np.concatenate([self.hashes[self.in_split(split)], self.merged_in(split)])

    def records(self, path: Path) -> None:
        file = self._new_file(path, RECORDS)
        origin, before = self.scan.files[file].origin, len(self.games)
        names = merged_games(path.parent) if origin else None
        if names is not None:
            self.scan.files[file].merged = True
            self._merged[origin] = np.union1d(self.merged_in(origin), names)
        cutter, cut = GameCutter(), _Cut(self, file)
        game: list[list[bytes]] = []
        plies = 0
        for offset, number, lines in self._blocks(path):
            if number == 1:
                offset += len(lines[0]) - len(lines[0].removeprefix(BOM))
                lines = [lines[0].removeprefix(BOM), *lines[1:]]
            if not self.scan.policies:
                self.scan.policies = any(b",policy=" in line for line in lines)
            rows = split_lines(lines)
            starts = cutter.starts(rows)
            for index, (row, new) in enumerate(zip(rows, starts, strict=True)):
                # A game without end is cut, and goes on as another game.
                endless = cut.positions >= 2 * self.target - 1 and len(row) > FIELDS
                if (new or endless) and plies:
                    self._end_of_game(game, file)
                    game, plies = [], 0
                    if cut.positions >= self.target:
                        cut.close(offset, number + index)
                if not plies:
                    cut.games += 1
                game.append(row)
                plies += 1
                cut.positions += 1
                offset += len(lines[index]) + 1
            cut.end = offset
        if plies:
            self._end_of_game(game, file)
        cut.close(cut.end, 0)
        if names is not None:
            self._merged_rows.append((before, len(self.games)))

    def _end_of_game(self, rows: list[list[bytes]], file: int) -> None:
        self.games.append((records_hash(rows), len(rows), self.scan.files[file].origin))

    def game_lines(self, path: Path) -> None:
        file = self._new_file(path, GAMES)
        cut = _Cut(self, file)
        for offset, first, lines in self._blocks(path):
            for number, line in enumerate(lines, first):
                game = game_from_line(path, number, line)
                if isinstance(game, Refusal):
                    plies, name = 0, 0
                else:
                    plies, name = game.total, game.hash
                if cut.positions and cut.positions + plies > self.target:
                    cut.close(offset, number)
                cut.games += 1
                self.games.append((name, plies, self.scan.files[file].origin))
                cut.positions += plies
                offset += len(line) + 1
            cut.end = offset
        cut.close(cut.end, 0)

    def kifu(self, paths: list[Path]) -> None:
        """Single-game files: several to a segment."""
        first = len(self.scan.files)
        positions, start, start_game = 0, 0, len(self.games)
        for number, path in enumerate(paths):
            self._new_file(path, KIFU)
            for _line, game in read_games(path):
                plies, name = (0, 0) if isinstance(game, Refusal) else (game.total, game.hash)
                self.games.append((name, plies, ""))
                positions += plies
            if positions >= self.target or number == len(paths) - 1:
                file = self.scan.files[first + start]
                segment = Segment(first + start, number - start + 1, 0, 0, 1, start_game, positions)
                file.segments.append(segment)
                self.segments.append(segment)
                positions, start, start_game = 0, number + 1, len(self.games)

    def stream(self, path: Path) -> None:
        """A file of many games, or an archive. A segment holds games or packed positions only."""
        file = self._new_file(path, STREAM)
        options = ReadOptions(comments=False)
        first = pieces = positions = 0
        line = number = 1
        game, packed = len(self.games), False

        def close() -> None:
            nonlocal first, pieces, positions, line, game
            if pieces:
                segment = Segment(file, 1, first, pieces, line, game, positions)
                self.segments.append(segment)
                self.scan.files[file].segments.append(segment)
            first, pieces, positions = first + pieces, 0, 0
            line, game = number, len(self.games)

        for raw in raw_games(path):
            now_packed = not isinstance(raw, Refusal) and raw.format in PACKED
            if positions >= self.target or now_packed != packed:
                close()
            packed = now_packed
            pieces += 1
            if isinstance(raw, Refusal):
                self.games.append((0, 0, ""))
                number += 1
            elif packed:
                records = len(raw.data) // PACKED[raw.format].itemsize
                self.games.append((block_hash(raw.data), records, ""))
                positions += records
                number += records
            else:
                for _line, found in read_raw(raw, options):
                    plies, name = 0, 0
                    if not isinstance(found, Refusal):
                        plies, name = found.total, found.hash
                        self.scan.policies |= bool(found.policies)
                    self.games.append((name, plies, ""))
                    positions += plies
                    number += 1
        close()

    def _new_file(self, path: Path, kind: str) -> int:
        size = path.stat().st_size if path.exists() else 0
        self.scan.files.append(DataFile(str(path), kind, origin_of(path.parent), size))
        return len(self.scan.files) - 1

    def _blocks(self, path: Path) -> Iterator[tuple[int, int, list[bytes]]]:
        """(byte offset and number of the first line, lines without their ends) of a text file."""
        offset, number, rest = 0, 1, b""
        with open_binary(path) as stream:
            while True:
                try:
                    data = stream.read1(1 << 20)  # type: ignore[attr-defined]
                except DAMAGED as error:
                    bad = Refusal(str(path), number, str(error), "damaged file")
                    self.scan.bad.append(bad)
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
            self._scan.scan.files[self._file].segments.append(segment)
        self._offset, self._line = offset, next_line
        self._game += self.games
        self.positions = self.games = 0
