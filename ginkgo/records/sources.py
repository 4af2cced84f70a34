"""From the user's paths to named sources, and from files to games.

In: paths. Out: `Source`s (a name and its files), and file by file `Game`s, with a `Refusal` for
whatever cannot be read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from ginkgo.errors import GinkgoError
from ginkgo.records.files import (
    DAMAGED,
    STDIN,
    find_files,
    open_binary,
    plain_stem,
    plain_suffix,
    shown,
)
from ginkgo.records.game import Game, Refusal
from ginkgo.records.kifu.archive import ARCHIVES, archive_stem, is_archive
from ginkgo.records.kifu.detect import BY_SUFFIX, HEAD, TEXT_FORMATS, detect
from ginkgo.records.kifu.encoding import UTF16_MARKS
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.kifu.stream import broken, is_comment, lines_of, raw_games, read_line, read_raw

#: A game a line.
LINE_SUFFIXES = (".usi", ".sfen")
#: One game a file, or a few.
KIFU_SUFFIXES = tuple(
    suffix for suffix, name in BY_SUFFIX.items() if name in TEXT_FORMATS and name != "usi"
)
#: Positions or games as bytes.
PACKED_SUFFIXES = (".hcpe", ".hcpe3", ".psv", ".bin")
#: Games of self-play; other files of numpy arrays have the suffix too, but not the name.
SELFPLAY_SUFFIX = ".npz"
_SELFPLAY_NAME = re.compile(r"games_[0-9]+\.npz")
GAME_SUFFIXES = (
    *LINE_SUFFIXES, *KIFU_SUFFIXES, *PACKED_SUFFIXES, SELFPLAY_SUFFIX, *ARCHIVES
)  # fmt: skip
RECORD_SUFFIXES = (".sfenx",)

#: A larger kifu may hold any number of games: it is cut into them before they are read.
_SMALL_FILE = 1 << 18

_SHARD_NUMBER = re.compile(r"-[0-9]{5}$")


@dataclass(frozen=True)
class Source:
    """Games that belong together: they are split, counted and mixed as one."""

    name: str
    files: tuple[Path, ...]


def suffix_of(path: str | Path) -> str:
    """The suffix that tells what a file is.

    `.zip` and `.tar.gz` of archives, else the one before the compression.
    """
    if is_archive(path):
        name = str(path).lower()
        return max((suffix for suffix in ARCHIVES if name.endswith(suffix)), key=len)
    if plain_suffix(path) == SELFPLAY_SUFFIX and not is_selfplay_file(path):
        return ""
    return plain_suffix(path)


def is_selfplay_file(path: str | Path) -> bool:
    """Whether a file's name says that it holds games of self-play."""
    return bool(_SELFPLAY_NAME.fullmatch(Path(path).name))


def source_name(path: str | Path) -> str:
    """The source that a file belongs to.

    A file of many games or records names it itself, less a shard number; single-game files
    and files of self-play belong to the directory that holds them.

    >>> source_name("games/amateur.usi.gz"), source_name("train/amateur-00003.sfenx.zst")
    ('amateur', 'amateur')
    >>> source_name("2023/wdoor/0001.csa"), source_name("wdoor2023.tar.gz")
    ('wdoor', 'wdoor2023')
    >>> source_name("training_data/run_001/games_00007.npz")
    'run_001'
    """
    if str(path) == STDIN:
        return "stdin"
    if plain_suffix(path) in KIFU_SUFFIXES or is_selfplay_file(path):
        real = os.path.realpath(path) if os.path.islink(path) else os.path.abspath(path)
        return _folder_name(os.path.dirname(real)) or "kifu"
    stem = shown(archive_stem(path) if is_archive(path) else plain_stem(path))
    return _SHARD_NUMBER.sub("", stem) or stem


@lru_cache(1024)
def _folder_name(folder: str) -> str:
    return shown(os.path.basename(os.path.realpath(folder)))


def find_sources(
    paths: Sequence[str | Path],
    suffixes: Sequence[str] = GAME_SUFFIXES + RECORD_SUFFIXES,
    passed: Counter[str] | None = None,
    named: Mapping[str, Sequence[str | Path]] = MappingProxyType({}),
) -> list[Source]:
    """The sources at files, directories and globs, sorted by name.

    A file that is named itself may have any suffix, as long as its content is that of a game.

    Args:
        passed: counts the files that were passed over for their suffix, see `find_files`.
        named: by name of a source the paths of its files. A file that is among `paths` too
            belongs to the name.

    Raises:
        GinkgoError: a path does not exist, or holds no file of these kinds; a file has two names.
    """
    found: dict[str, list[Path]] = {}
    owners: dict[str, str] = {}
    for name, places in named.items():
        for file in _usable(files_at(places, suffixes, passed), suffixes):
            owner = owners.setdefault(os.path.realpath(file), name)
            if owner != name:
                raise GinkgoError(f"{file}: in two sources, {owner} and {name}")
            found.setdefault(name, []).append(file)
    for file in _usable(files_at(paths, suffixes, passed), suffixes):
        if os.path.realpath(file) not in owners:
            found.setdefault(source_name(file), []).append(file)
    return [Source(name, tuple(files)) for name, files in sorted(found.items())]


def _usable(files: Sequence[Path], suffixes: Sequence[str]) -> Iterator[Path]:
    """The files. Raises GinkgoError at one that is of none of these kinds."""
    for file in files:
        if suffix_of(file) not in suffixes and not (
            set(suffixes) & set(GAME_SUFFIXES) and _is_game_file(file)
        ):
            kinds = " or ".join(suffixes)
            raise GinkgoError(f"{file}: expected a file of kind {kinds}")
        yield file


def files_at(
    paths: Sequence[str | Path],
    suffixes: Sequence[str] = GAME_SUFFIXES,
    passed: Counter[str] | None = None,
) -> list[Path]:
    """The files at paths; `-` stands for standard input.

    Raises:
        GinkgoError: a path does not exist, or is a directory without such a file.
    """
    named = [path for path in paths if str(path) != STDIN]
    found = find_files(named, suffixes, suffix_of, passed) if named else []
    return [Path(STDIN), *found] if len(named) < len(paths) else found


def _is_game_file(path: Path) -> bool:
    if suffix_of(path) in RECORD_SUFFIXES:
        return False
    if not os.path.isfile(path):
        return True  # Standard input, or a pipe: what is read of it now would be lost.
    try:
        head = _head(path)
    except (*DAMAGED, OSError):
        return False
    return bool(detect(head, str(path), len(head) < HEAD))


def _head(path: str | Path) -> bytes:
    with open_binary(path) as stream:
        return stream.read(HEAD)


def is_line_file(path: str | Path) -> bool:
    """Whether a file has a game a line, and any of its lines can be read alone."""
    if plain_suffix(path) not in LINE_SUFFIXES or is_archive(path) or not os.path.isfile(path):
        return False
    try:
        head = _head(path)
    except (*DAMAGED, OSError, GinkgoError):
        return True  # Whoever reads it says what is wrong.
    if head.startswith(UTF16_MARKS) or (b"\r" in head and b"\n" not in head):
        return False
    return detect(head, str(path), len(head) < HEAD) in ("usi", "")


def is_small_kifu(path: str | Path) -> bool:
    """Whether a file is taken whole: a kifu of one game, or a few."""
    if str(path) == STDIN or is_archive(path) or plain_suffix(path) not in KIFU_SUFFIXES:
        return False
    try:
        return os.path.getsize(path) <= _SMALL_FILE
    except OSError:
        return True  # Whoever reads it says what is wrong.


def read_games(path: str | Path) -> Iterator[tuple[int, Game | Refusal]]:
    """All games of a file. Those of game lines are not replayed yet.

    Yields:
        The line where the game begins (from 1), and the game or why it cannot be read. A file
        that cannot be opened or is cut short gives what there is and one more refusal.
    """
    if is_line_file(path):
        for line, data in read_lines(path):
            yield line, data if isinstance(data, Refusal) else read_line(path, line, data)
        return
    options = ReadOptions(comments=False)
    for raw in raw_games(path):
        if isinstance(raw, Refusal):
            yield raw.line, raw
        else:
            yield from read_raw(raw, options)


def read_lines(path: str | Path) -> Iterator[tuple[int, bytes | Refusal]]:
    """The lines of a text file that are neither blank nor comments: see `lines_of`."""
    try:
        with open_binary(path) as stream:
            for line, data in lines_of(str(path), stream):
                if isinstance(data, Refusal) or not is_comment(data):
                    yield line, data
    except (OSError, GinkgoError) as error:
        yield 1, broken(path, 1, error)


game_from_line = read_line
