"""`--merge-duplicates`: equal positions become one record, with all moves and the mean result.

In: the shards of `train`. Out: shards named `merged-NNNNN`, in place of them. A record then has

    policy=   how often each move was played there (or the visits, where records have them)
    value=    mean result of the mover over the games that have one, in [0, 1], a draw one half
    count=    how many records it stands for

beside the move played most and the winner that the mean leans to (`d`: to none). dlshogi's and
nshogi's trainers average equal positions so. Positions are laid into parts by a hash first, so that
memory holds one part at a time.

Validation and test stay as they were played: figures are over games. As the records no longer say
which games they are of, `games.npy` beside them lists the hashes, so that none of these games is
ever taken for an unseen one.
"""

from __future__ import annotations

import contextlib
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ginkgo.records.convert.passes import Shard
from ginkgo.records.files import atomic_write, open_binary
from ginkgo.records.sfenx import Record, format_record, parse_record

#: Bytes of records, before compression, that are merged at once.
PART_BYTES = 1 << 28


@dataclass
class _Merged:
    """Equal positions met so far."""

    first: Record
    moves: dict[str, int] = field(default_factory=dict)
    results: float = 0.0
    """Sum over the games with a result, mover's view."""
    decided: int = 0
    scores: list[int] = field(default_factory=list)
    count: int = 0

    def take(self, record: Record) -> None:
        self.count += 1
        for move, visits in (record.policy or {record.move: 1}).items():
            self.moves[move] = self.moves.get(move, 0) + visits
        if record.winner != "-":
            self.decided += 1
            mover = record.sfen.split(" ", 2)[1]
            self.results += 0.5 if record.winner == "d" else float(record.winner == mover)
        if record.score is not None:
            self.scores.append(record.score)

    def record(self) -> Record:
        mover = self.first.sfen.split(" ", 2)[1]
        other = {"count": str(self.count)}
        if "start" in self.first.other:
            other["start"] = self.first.other["start"]
        winner = "-"
        if self.decided:
            mean = self.results / self.decided
            other["value"] = f"{mean:.4g}"
            winner = "d" if mean == 0.5 else mover if mean > 0.5 else "b" if mover == "w" else "w"
        return Record(
            sfen=self.first.sfen,
            total=self.first.total,
            move=max(self.moves, key=lambda move: self.moves[move]),
            winner=winner,
            score=round(sum(self.scores) / len(self.scores)) if self.scores else None,
            policy=self.moves,
            other=other,
        )


def merge_split(folder: Path, compress: str, part_bytes: int = PART_BYTES) -> list[Shard]:
    """Merge the equal positions of all shards in a folder.

    Returns:
        the shards that stand there now.

    Raises:
        GinkgoError: a file cannot be written.
    """
    shards = sorted(folder.glob("*.sfenx*"))
    if not shards:
        return []
    suffix = ".sfenx" if compress == "none" else f".sfenx.{compress}"
    size = 0
    for shard in shards:
        with open_binary(shard) as stream:
            size += sum(len(line) for line in stream)
    parts = 1 + size // part_bytes
    written = []
    with tempfile.TemporaryDirectory(prefix=".merge-", dir=folder) as scratch:
        _lay_out(shards, Path(scratch), parts)
        for number in range(parts):
            name = f"merged-{number:05d}{suffix}"
            lines = [format_record(one.record()) + "\n" for one in _merged(_part(scratch, number))]
            with atomic_write(folder / name) as stream:
                stream.write("".join(lines).encode())
            written.append(Shard(name, len(lines), len(lines)))
    for shard in shards:
        shard.unlink(missing_ok=True)
    return written


def _part(scratch: str | Path, number: int) -> Path:
    return Path(scratch) / f"{number:05d}"


def _lay_out(shards: list[Path], scratch: Path, parts: int) -> None:
    """Each record into the part that its position belongs to."""
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(open(_part(scratch, n), "wb")) for n in range(parts)]
        for shard in shards:
            with open_binary(shard) as stream:
                for line in stream:
                    targets[zlib.crc32(_position(line)) % parts].write(line)


def _position(line: bytes) -> bytes:
    """Board, side to move and hands of a record."""
    return b" ".join(line.split(b" ", 3)[:3])


def _merged(path: Path) -> Iterator[_Merged]:
    found: dict[bytes, _Merged] = {}
    with open(path, "rb") as stream:
        for line in stream:
            record = parse_record(line.decode())
            key = _position(line)
            if key not in found:
                found[key] = _Merged(record)
            found[key].take(record)
    yield from found.values()
