"""What the processes of a conversion do with a chunk.

First pass: read and replay its games, and lay what is to be written of each into one temporary
file. Second pass: take those pieces to the shards of the splits that their games belong to.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.records.convert.chunks import Chunk, read_chunk
from ginkgo.records.convert.config import SINGLE_FORMATS, ConvertConfig
from ginkgo.records.convert.pool import check_stop
from ginkgo.records.convert.render import render
from ginkgo.records.files import atomic_write
from ginkgo.records.game import BUCKETS, Game, Refusal
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.split import Split

#: Kind of refusal of a game that another source holds out. Nothing is wrong with the game.
HELD_OUT = "held out"
#: Kind of refusal of a game of which two copies name different winners.
CONTRADICTED = "contradicting copies"
#: Folder for what the first pass leaves to the second, inside the folder of the conversion.
SPOOL = ".spool"
#: The only split of formats that are not split.
ALL = "all"

_ENTRY = np.dtype(
    [
        ("home", np.uint64),  # hash of the game that decides the split (of a branch: its main line)
        ("hash", np.uint64),  # hash of what is written
        ("size", np.uint64),  # bytes
        ("positions", np.uint32),
        ("line", np.uint32),
        ("winner", np.uint8),  # see `WINNERS`
    ]
)
#: No result, Black, White, draw.
WINNERS = "-bwd"


@dataclass
class Spooled:
    """What the first pass found in a chunk."""

    source: str
    number: int
    path: Path
    """The pieces, one after another."""
    hashes: NDArray[np.uint64]
    """Of all games that could be read, those too of which nothing is written."""
    entries: NDArray
    """By piece."""
    files: list[str]
    names: list[str]
    """Of the games."""
    endings: list[str]
    refused: list[Refusal]
    left_out: int
    """Games of which the filters left nothing."""


@dataclass
class Shard:
    """A file of records that was written."""

    name: str
    games: int
    positions: int


@dataclass
class ChunkResult:
    """What the second pass wrote of a chunk."""

    source: str
    shards: dict[str, Shard] = field(default_factory=dict)
    """By split."""
    refused: list[Refusal] = field(default_factory=list)
    duplicates: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    """Of the games written."""

    @property
    def games(self) -> int:
        return sum(shard.games for shard in self.shards.values())


@contextlib.contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Reading makes many small lists and no cycles; looking for cycles took up to a tenth."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_no_search_for_cycles()
def spool_chunk(chunk: Chunk, config: ConvertConfig) -> Spooled:
    """First pass.

    Raises:
        GinkgoError: the temporary file cannot be written.
    """
    options = ReadOptions(variations=config.variations, comments=config.to in SINGLE_FORMATS)
    path = Path(config.out) / SPOOL / f"{chunk.source}-{chunk.number:05d}"
    found = Spooled(chunk.source, chunk.number, path, *_nothing(), [], [], [], [], 0)
    hashes: list[int] = []
    entries: list[tuple[int, int, int, int, int, int]] = []
    pieces: list[bytes] = []
    for file, line, game in read_chunk(chunk, options):
        check_stop()
        if isinstance(game, Refusal):
            found.refused.append(game)
            continue
        home = game.hash if game.home is None else game.home
        if game.home is None or not hashes or hashes[-1] != home:
            hashes.append(home)
        for one in (game, *(_branches(game) if config.variations else ())):
            rendered = render(one, config, file, line)
            if isinstance(rendered, Refusal):
                found.refused.append(rendered)
            elif rendered is None:
                found.left_out += 1
            else:
                own = home if one is game else one.hash
                if game.home is not None:
                    # Positions of games that are not known: none stands for another.
                    own = (home + len(entries)) % (1 << 64)
                size, winner = len(rendered.data), WINNERS.index(one.winner)
                entries.append((home, own, size, rendered.positions, max(0, line), winner))
                found.files.append(file)
                found.names.append(one.game)
                found.endings.append(one.end)
                pieces.append(rendered.data)
    found.hashes = np.array(hashes, np.uint64)
    found.entries = np.array(entries, _ENTRY)
    with atomic_write(path) as stream:
        stream.writelines(pieces)
    return found


def _nothing() -> tuple[NDArray, NDArray]:
    return np.zeros(0, np.uint64), np.zeros(0, _ENTRY)


def _branches(game: Game) -> list[Game]:
    """The variations of a game as games without a result."""
    return [
        Game(
            start=variation.start,
            moves=variation.moves,
            game=f"{game.game}-v{number}",
            black=game.black,
            white=game.white,
            rate_b=game.rate_b,
            rate_w=game.rate_w,
        )
        for number, variation in enumerate(game.variations, 1)
    ]


def write_chunk(
    spooled: Spooled,
    split: Split,
    config: ConvertConfig,
    held: dict[int, str],
    copies: dict[int, str],
) -> ChunkResult:
    """Second pass: take the pieces of a chunk to where they belong.

    Args:
        held: games that belong to another source, by hash, and why: see `run.held_elsewhere`.
        copies: numbers of pieces that are not written, see `copies.unwanted_copies`.

    Raises:
        GinkgoError: a file cannot be written.
    """
    result = ChunkResult(spooled.source)
    texts: dict[str, list[memoryview]] = {}
    suffix = f".{config.to}" + ("" if config.compress == "none" else f".{config.compress}")
    name = f"{spooled.source}-{spooled.number:05d}{suffix}"
    data = memoryview(_read(spooled.path))
    place = 0
    for index, entry in enumerate(spooled.entries.tolist()):
        home, _own, size, positions, line, _winner = entry
        piece = data[place : place + size]
        place += size
        if held and (reason := held.get(home)):
            result.refused.append(Refusal(spooled.files[index], line, reason, HELD_OUT))
            continue
        if (reason := copies.get(index)) is not None:
            if reason:
                refusal = Refusal(spooled.files[index], line, reason, CONTRADICTED)
                result.refused.append(refusal)
            else:
                result.duplicates += 1
            continue
        where = split.of(home % BUCKETS) if config.to == "sfenx" else ALL
        shard = result.shards.setdefault(where, Shard(name, 0, 0))
        shard.games += 1
        shard.positions += positions
        result.endings[spooled.endings[index]] += 1
        if config.to in SINGLE_FORMATS:
            single = f"{spooled.number:05d}-{index:03d}-{_plain(spooled.names[index])}.{config.to}"
            with atomic_write(Path(config.out) / spooled.source / single) as stream:
                stream.write(piece)
        else:
            texts.setdefault(where, []).append(piece)
    for where, pieces in texts.items():
        folder = Path(config.out) / where if config.to == "sfenx" else Path(config.out)
        with atomic_write(folder / name) as stream:
            stream.write(b"".join(pieces))
    data.release()
    spooled.path.unlink(missing_ok=True)
    return result


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror}") from error


def _plain(name: str) -> str:
    """A name that can be that of a file anywhere."""
    return re.sub(r"[^\w.-]+", "_", name)[-80:] or "game"
