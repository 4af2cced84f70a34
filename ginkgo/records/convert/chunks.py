"""The input of a conversion, cut into runs of games that one process reads.

In: sources. Out: `Chunk`s, and of each its games.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ginkgo.records.game import Game, Refusal
from ginkgo.records.kifu.detect import PACKED_FORMATS
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.kifu.stream import RawGame, raw_games, read_raw
from ginkgo.records.sources import Source, is_line_file, is_small_kifu, read_lines

#: Games (of single-game kifu: files) that become one shard.
CHUNK_GAMES = 512
#: A block of packed positions counts as so many games.
_PACKED_WEIGHT = 32


@dataclass
class Chunk:
    """A run of games of one source, not yet read."""

    source: str
    number: int
    items: list[RawGame | str | Refusal]
    """Games, files to be read whole, or what was met on the way."""


def cut_chunks(source: Source, size: int = CHUNK_GAMES) -> Iterator[Chunk]:
    """The games of a source in runs of `size` games or kifu files."""
    items: list[RawGame | str | Refusal] = []
    number = weight = 0
    for item in _items(source):
        items.append(item)
        packed = isinstance(item, RawGame) and item.format in PACKED_FORMATS
        weight += _PACKED_WEIGHT if packed else 1
        if weight >= size:
            yield Chunk(source.name, number, items)
            items, number, weight = [], number + 1, 0
    if items:
        yield Chunk(source.name, number, items)


def _items(source: Source) -> Iterator[RawGame | str | Refusal]:
    for file in source.files:
        if is_line_file(file):
            for line, data in read_lines(file):
                if isinstance(data, Refusal):
                    yield data
                else:
                    yield RawGame(str(file), line, "usi", data)
        elif is_small_kifu(file):
            yield str(file)
        else:
            yield from raw_games(file)


def read_chunk(chunk: Chunk, options: ReadOptions) -> Iterator[tuple[str, int, Game | Refusal]]:
    """(file, line, game or refusal) of a chunk."""
    for item in chunk.items:
        if isinstance(item, Refusal):
            yield item.file, item.line, item
            continue
        for raw in raw_games(item) if isinstance(item, str) else (item,):
            if isinstance(raw, Refusal):
                yield raw.file, raw.line, raw
                continue
            for line, game in read_raw(raw, options):
                yield raw.file, line, game
