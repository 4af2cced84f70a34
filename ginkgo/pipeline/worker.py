"""The worker process: reads segments of files, parses them, hands over whole arrays.

In: jobs over a pipe. Out: blocks of `POSITION` in shared memory, and a short message about each.
A worker is started by spawn and never imports TensorFlow. It ends when its pipe closes.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.position import POSITION
from ginkgo.pipeline.index import GAMES, KIFU, STREAM, Segment
from ginkgo.pipeline.parse import Block, ParseOptions, empty_block
from ginkgo.pipeline.parse_games import parse_games
from ginkgo.pipeline.parse_kifu import (
    Streams,
    games_of,
    games_of_files,
    is_packed,
    parse_kifu,
    parse_packed,
)
from ginkgo.pipeline.parse_records import parse_records
from ginkgo.pipeline.ragged import Ragged
from ginkgo.records import Game, Refusal
from ginkgo.records.files import BOM, DAMAGED, is_compressed, open_binary
from ginkgo.records.kifu.stream import is_comment
from ginkgo.records.sources import game_from_line

#: Bytes that a position of a game hardly ever exceeds: 220 plane codes of two bytes are usual, and
#: 60 moves of a soft policy of four. A block that needs more goes through the pipe.
USUAL_BYTES = {"codes": 2560, "policy": 1024}

#: A worker's first message.
READY = "ready"


@dataclass(frozen=True)
class Job:
    """Read one segment."""

    number: int
    epoch: int
    kind: str
    paths: tuple[str, ...]
    segment: Segment
    source: int
    buckets: tuple[int, int]
    wanted: NDArray[np.uint64] | None = None
    """Only these keys (a resumed run refills its pool)."""


@dataclass(frozen=True)
class Done:
    """What a worker says of a job: how many rows lie in which slot."""

    number: int
    slot: int
    rows: int
    values: dict[str, int]
    """How many values there are of what is ragged, by name."""
    bad: list[Refusal]
    block: Block | None = None
    """The block itself, in the rare case that it does not fit into its slot."""


def slot_bytes(positions: int, ragged: Mapping[str, np.dtype]) -> int:
    """Shared memory that a block of so many positions needs."""
    row = POSITION.itemsize + 8 + sum(8 + USUAL_BYTES[name] for name in ragged)
    return (positions + 1) * row + 64


def block_bytes(block: Block) -> int:
    """Shared memory that a block needs."""
    ragged = sum(rows.nbytes for rows in block.ragged.values())
    return block.positions.nbytes + block.keys.nbytes + ragged


def write_block(memory: memoryview, block: Block) -> tuple[int, dict[str, int]]:
    """Lay a block into shared memory; what it returns tells `read_block` where things are.

    Returns:
        number of positions, and number of values by name of what is ragged.
    """
    parts = [block.positions, block.keys]
    for rows in block.ragged.values():
        parts += [rows.offsets, rows.values]
    place = 0
    for part in parts:
        memory[place : place + part.nbytes] = part.tobytes()
        place += part.nbytes
    return len(block.positions), {name: len(rows.values) for name, rows in block.ragged.items()}


def read_block(
    memory: memoryview, rows: int, values: dict[str, int], ragged: Mapping[str, np.dtype]
) -> Block:
    """A copy of a block that `write_block` laid down.

    Args:
        rows, values: what `write_block` returned. ragged: `ParseOptions.ragged`.
    """
    place = 0

    def take(dtype: np.dtype, count: int) -> NDArray:
        nonlocal place
        size = dtype.itemsize * count
        array = np.frombuffer(memory[place : place + size], dtype).copy()
        place += size
        return array

    block = Block(take(POSITION, rows), take(np.dtype(np.uint64), rows))
    for name, count in values.items():
        offsets = take(np.dtype(np.int64), rows + 1)
        block.ragged[name] = Ragged(take(ragged[name], count), offsets)
    return block


class SegmentReader:
    """Reads the text of segments, keeping compressed files open to go on from where it was."""

    _KEEP_OPEN = 8

    def __init__(self) -> None:
        self._open: dict[str, tuple[IO[bytes], int]] = {}
        self.streams = Streams()
        """Files that are cut into games, not into lines."""

    def read(self, path: str, segment: Segment) -> bytes:
        """The bytes of a segment.

        Raises:
            GinkgoError: the file is gone or shorter than when it was scanned.
        """
        if not is_compressed(path):
            with open_binary(path) as stream:
                stream.seek(segment.offset)
                data = stream.read(segment.size)
        else:
            if path not in self._open:
                self._open[path] = (open_binary(path), 0)
            stream, place = self._open.pop(path)
            if place > segment.offset:
                stream.close()
                stream, place = open_binary(path), 0
            try:
                while place < segment.offset:
                    skipped = stream.read1(min(1 << 20, segment.offset - place))  # type: ignore
                    if not skipped:
                        break
                    place += len(skipped)
                data = _read_exactly(stream, segment.size)
            except DAMAGED as error:
                stream.close()
                raise GinkgoError(f"{path}: damaged since it was scanned: {error}") from error
            self._open[path] = (stream, place + len(data))
            while len(self._open) > self._KEEP_OPEN:
                self._open.pop(next(iter(self._open)))[0].close()
        if len(data) < segment.size - 1:  # the last line may lack its line end
            raise GinkgoError(f"{path}: shorter than when it was scanned")
        return data


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    pieces, left = [], size
    while left:
        piece = stream.read1(left)  # type: ignore[attr-defined]
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def run_job(job: Job, options: ParseOptions, reader: SegmentReader) -> Block:
    """Read and parse one segment, in whatever process."""
    segment, path = job.segment, job.paths[0]
    common = {
        "path": path,
        "first_game": segment.game,
        "source": job.source,
        "buckets": job.buckets,
        "epoch": job.epoch,
        "wanted": job.wanted,
    }
    if job.kind == KIFU:
        return parse_kifu(games_of_files(job.paths, segment.file), options, **common)
    if job.kind == STREAM:
        pieces = reader.streams.take(path, segment.offset, segment.size)
        place = {"file": segment.file, "number": segment.line}
        if any(map(is_packed, pieces)):
            return parse_packed(pieces, options, **place, **common)  # type: ignore[arg-type]
        return parse_kifu(games_of(pieces, **place), options, **common)
    text = reader.read(path, segment)
    if segment.line == 1:
        text = text.removeprefix(BOM)
    lines = text.removesuffix(b"\n").split(b"\n")
    if job.kind == GAMES:
        games = _line_games(lines, path, segment)
        return parse_games(games, options, **common)  # type: ignore[arg-type]
    return parse_records(
        lines,
        options,
        file=segment.file,
        first_line=segment.line,
        **common,  # type: ignore
    )


def _line_games(
    lines: list[bytes], path: str, segment: Segment
) -> Iterator[tuple[int, int, Game | Refusal | None]]:
    for number, line in enumerate(lines, segment.line):
        holds_game = line.strip() and not is_comment(line)
        game = game_from_line(path, number, line) if holds_game else None
        yield segment.file, number, game


def worker_main(
    pipe: Connection, memory_name: str, slot_size: int, slots: int, options: ParseOptions
) -> None:
    """Serve jobs until the pipe closes. Runs in a process of its own."""
    # Ctrl-C reaches every process of the terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "nice"):
        # Readers work ahead; where cores are few, whoever trains must not queue behind them.
        os.nice(10)
    # Parsing makes many small lists and no cycles; looking for cycles took a tenth of its time.
    gc.disable()
    memory = shared_memory.SharedMemory(memory_name)
    reader, slot = SegmentReader(), 0
    try:
        pipe.send(READY)
        while True:
            job: Job = pipe.recv()
            try:
                block = run_job(job, options, reader)
            except GinkgoError as error:
                bad = Refusal(job.paths[0], job.segment.line, str(error), "unreadable file")
                block = empty_block(options, [bad])
            assert memory.buf is not None
            if block_bytes(block) > slot_size:
                pipe.send(Done(job.number, slot, 0, {}, block.bad, block))
                continue
            view = memory.buf[slot * slot_size : (slot + 1) * slot_size]
            rows, values = write_block(view, block)
            view.release()
            pipe.send(Done(job.number, slot, rows, values, block.bad))
            slot = (slot + 1) % slots
    except (EOFError, OSError):
        pass  # The parent has gone or has closed the pipe: nothing is left to do.
    finally:
        memory.close()
