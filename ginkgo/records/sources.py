"""From the user's paths to named sources, and from files to games.

In: paths. Out: `Source`s (a name and its files), and file by file `Game`s, with a `Refusal` for
whatever cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ginkgo.errors import GinkgoError
from ginkgo.records.csa import read_csa
from ginkgo.records.files import DAMAGED, find_files, open_binary, plain_stem, plain_suffix
from ginkgo.records.game import Game, Refusal
from ginkgo.records.gameline import parse_game_line

#: A game a line.
LINE_SUFFIXES = (".usi",)
#: One game a file, or a few.
KIFU_SUFFIXES = (".csa",)
GAME_SUFFIXES = LINE_SUFFIXES + KIFU_SUFFIXES
RECORD_SUFFIXES = (".sfenx",)

_SHARD_NUMBER = re.compile(r"-[0-9]{5}$")
#: A longer line is no game line: the longest game kept takes a few thousand bytes.
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Source:
    """Games that belong together: they are split, counted and mixed as one."""

    name: str
    files: tuple[Path, ...]


def source_name(path: str | Path) -> str:
    """The source that a file belongs to.

    A file of many games or records names it itself, less a shard number; single-game files
    belong to the directory that holds them.

    >>> source_name("games/amateur.usi.gz"), source_name("train/amateur-00003.sfenx.zst")
    ('amateur', 'amateur')
    >>> source_name("2023/wdoor/0001.csa")
    'wdoor'
    """
    if plain_suffix(path) in KIFU_SUFFIXES:
        return Path(path).resolve().parent.name or "kifu"
    stem = plain_stem(path)
    return _SHARD_NUMBER.sub("", stem) or stem


def find_sources(
    paths: Sequence[str | Path], suffixes: Sequence[str] = GAME_SUFFIXES + RECORD_SUFFIXES
) -> list[Source]:
    """The sources at files, directories and globs, sorted by name.

    Raises:
        GinkgoError: a path does not exist, or holds no file of these kinds.
    """
    found: dict[str, list[Path]] = {}
    for file in find_files(paths, suffixes):
        if plain_suffix(file) not in suffixes:
            raise GinkgoError(f"{file}: expected a file of kind {' or '.join(suffixes)}")
        found.setdefault(source_name(file), []).append(file)
    return [Source(name, tuple(files)) for name, files in sorted(found.items())]


def read_games(path: str | Path) -> Iterator[tuple[int, Game | Refusal]]:
    """All games of a file, none replayed yet.

    Yields:
        The line where the game begins (from 1), and the game or why it cannot be read. A file
        that cannot be opened or is cut short gives what there is and one more refusal.
    """
    if plain_suffix(path) in KIFU_SUFFIXES:
        yield from _read_kifu(path)
        return
    for line, data in read_lines(path):
        yield line, data if isinstance(data, Refusal) else game_from_line(path, line, data)


def read_lines(path: str | Path) -> Iterator[tuple[int, bytes | Refusal]]:
    """The lines of a text file that are not blank, numbered from 1, without their ends.

    Never holds more than a line and a buffer. A file that is cut short ends with a refusal; the
    line that was cut is left out.
    """
    line = 0
    try:
        with open_binary(path) as stream:
            while data := stream.readline(_LONGEST_LINE):
                line += 1
                if len(data) == _LONGEST_LINE and not data.endswith(b"\n"):
                    yield line, Refusal(str(path), line, "line too long", "line too long")
                    while data and not data.endswith(b"\n"):
                        data = stream.readline(_LONGEST_LINE)
                elif not data.isspace():
                    yield line, data.rstrip(b"\r\n")
    except (*DAMAGED, OSError, GinkgoError) as error:
        yield line + 1, _broken(path, line + 1, error)


def game_from_line(path: str | Path, line: int, data: bytes) -> Game | Refusal:
    """One line of a file of game lines, read."""
    try:
        return parse_game_line(data.removeprefix(b"\xef\xbb\xbf").decode())
    except UnicodeDecodeError:
        return Refusal(str(path), line, "bytes that are not UTF-8 text", "not UTF-8")
    except GinkgoError as error:
        return Refusal(str(path), line, str(error), "malformed game line")


def _read_kifu(path: str | Path) -> Iterator[tuple[int, Game | Refusal]]:
    try:
        with open_binary(path) as stream:
            data = stream.read()
    except (*DAMAGED, OSError, GinkgoError) as error:
        yield 1, _broken(path, 1, error)
        return
    games = list(read_csa(data))
    for number, (line, game) in enumerate(games, 1):
        if isinstance(game, GinkgoError):
            yield line, Refusal(str(path), line, str(game))
        else:
            game.game = plain_stem(path) + (f"-{number}" if len(games) > 1 else "")
            yield line, game


def _broken(path: str | Path, line: int, error: Exception) -> Refusal:
    if isinstance(error, GinkgoError):
        reason = str(error).removeprefix(f"{path}: ")
        return Refusal(str(path), line, f"cannot be opened: {reason}", "unreadable file")
    return Refusal(str(path), line, f"damaged or cut short: {error}", "damaged file")
