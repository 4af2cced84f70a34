"""`ginkgo convert`: kifu and game lines to SFEN records, split into train, val and test.

In: files of games. Out: a folder

    train/<source>-NNNNN.sfenx  …  train/manifest.json
    val/…  test/…
    convert.json                what was asked for
    convert-report.json         what came of it

Two passes: the first reads every game for its hash, so that each source can be split by the rule
that direct training uses as well, and no game that one source holds out comes into another split
through another source; the second replays the games and writes the records. The parent reads lines
and hands them out in chunks of 512 games, so that input of any size streams through and one large
file keeps all processes busy; a chunk becomes one shard per split, which makes the output the same
whatever the number of processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import tyro

from ginkgo.errors import GinkgoError
from ginkgo.progress import Progress
from ginkgo.records.files import atomic_write, check_writable, plain_suffix, write_text
from ginkgo.records.game import BUCKETS, ENDINGS, MAX_PLIES, SPLITS, Game
from ginkgo.records.sfenx import Record, format_record
from ginkgo.records.sources import (
    GAME_SUFFIXES,
    KIFU_SUFFIXES,
    Refusal,
    Source,
    find_sources,
    game_from_line,
    read_games,
    read_lines,
)
from ginkgo.records.split import Split, choose_split

#: Games (of single-game kifu: files) that become one shard.
CHUNK_GAMES = 512

#: Kind of refusal of a game that another source holds out. Nothing is wrong with the game.
DUPLICATE = "duplicate"


@dataclass(frozen=True)
class ConvertConfig:
    """Turn kifu and game lines into SFEN records, split into train, val and test by game."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SRC […]")]
    """Games: files, directories or globs (.usi and .csa, also with .gz or .zst)."""

    out: Annotated[str, tyro.conf.arg(aliases=("-o",), metavar="DIR")]
    """Where the records go: DIR/train, DIR/val and DIR/test."""

    min_ply: int = 1
    """First ply that is written, counted from the start of the game."""
    side: Literal["", "b", "w"] = ""
    """Only positions where Black (b) or White (w) moves."""
    endings: tuple[str, ...] = ()
    """Only games that ended so (toryo, tsumi, …), separated by commas or blanks."""
    min_rating: float = 0.0
    """Only positions whose mover is rated at least this; games without ratings are refused."""
    val_fraction: float = 0.05
    """Share of the games of each source in val, and as much in test."""
    workers: int = 0
    """Processes; 0: one per core."""
    compress: Literal["none", "gz", "zst"] = "none"
    """Compression of the records."""
    report: str = ""
    """Write the report to this JSON file as well."""
    strict: bool = False
    """An unusable game ends the conversion instead of being counted."""
    overwrite: bool = False
    """Replace the records that DIR holds already."""


# --- what goes between the processes ----------------------------------------------------------


@dataclass
class Chunk:
    """A run of games of one source, not yet read."""

    source: str
    number: int
    items: list[tuple[str, int, bytes] | str | Refusal]
    """Lines (file, number, text), files to be read whole, or what was met on the way."""


@dataclass
class Shard:
    """A file of records that was written."""

    name: str
    games: int
    positions: int


@dataclass
class ChunkResult:
    """What became of a chunk."""

    source: str
    shards: dict[str, Shard] = field(default_factory=dict)
    """By split."""
    refused: list[Refusal] = field(default_factory=list)
    left_out: int = 0
    """Games of which the filters left nothing."""
    endings: Counter[str] = field(default_factory=Counter)
    """Of the games written."""

    @property
    def games(self) -> int:
        return sum(shard.games for shard in self.shards.values())


def cut_chunks(source: Source, size: int = CHUNK_GAMES) -> Iterator[Chunk]:
    """The games of a source in runs of `size` lines or kifu files."""
    items: list[tuple[str, int, bytes] | str | Refusal] = []
    number = 0
    for item in _items(source):
        items.append(item)
        if len(items) == size:
            yield Chunk(source.name, number, items)
            items, number = [], number + 1
    if items:
        yield Chunk(source.name, number, items)


def _items(source: Source) -> Iterator[tuple[str, int, bytes] | str | Refusal]:
    for file in source.files:
        if plain_suffix(file) in KIFU_SUFFIXES:
            yield str(file)
            continue
        for line, data in read_lines(file):
            yield data if isinstance(data, Refusal) else (str(file), line, data)


def read_chunk(chunk: Chunk) -> Iterator[tuple[str, int, Game | Refusal]]:
    """(file, line, game or refusal) of a chunk."""
    for item in chunk.items:
        if isinstance(item, Refusal):
            yield item.file, item.line, item
        elif isinstance(item, str):
            for line, game in read_games(item):
                yield item, line, game
        else:
            yield *item[:2], game_from_line(*item)


# --- the two passes over a chunk --------------------------------------------------------------


def chunk_hashes(chunk: Chunk) -> tuple[str, np.ndarray, list[Refusal]]:
    """First pass: source, hashes of the readable games, and what was unreadable."""
    hashes, refused = [], []
    for _file, _line, game in read_chunk(chunk):
        _check_stop()
        if isinstance(game, Refusal):
            refused.append(game)
        else:
            hashes.append(game.hash)
    return chunk.source, np.array(hashes, np.uint64), refused


def write_chunk(
    chunk: Chunk, split: Split, config: ConvertConfig, held: dict[int, str]
) -> ChunkResult:
    """Second pass: replay the games and write a shard per split.

    Args:
        held: games that belong to another source, by hash, and why: see `held_elsewhere`.

    Raises:
        GinkgoError: a file cannot be written.
    """
    result = ChunkResult(chunk.source)
    suffix = ".sfenx" if config.compress == "none" else f".sfenx.{config.compress}"
    name = f"{chunk.source}-{chunk.number:05d}{suffix}"
    texts: dict[str, list[str]] = {}
    for file, line, game in read_chunk(chunk):
        _check_stop()
        if isinstance(game, Refusal):
            result.refused.append(game)
            continue
        lines = game_records(game, config, file, line)
        if isinstance(lines, Refusal):
            result.refused.append(lines)
        elif not lines:
            result.left_out += 1
        elif held and (reason := held.get(game.hash)):
            result.refused.append(Refusal(file, line, reason, DUPLICATE))
        else:
            where = split.of(game.bucket)
            shard = result.shards.setdefault(where, Shard(name, 0, 0))
            shard.games += 1
            shard.positions += len(lines)
            result.endings[game.end] += 1
            texts.setdefault(where, []).extend(lines)
    for where, lines in texts.items():
        with atomic_write(Path(config.out) / where / name) as stream:
            stream.write("".join(lines).encode())
    return result


def game_records(
    game: Game, config: ConvertConfig, file: str = "", line: int = 0
) -> list[str] | Refusal:
    """The lines of a game, with line ends, as the filters leave them.

    A game whose SFENs do not begin at ply 1 (a diagram) gets the key `start`, the ply of its
    first position, so that plies can be counted from the start of the game.

    Args:
        file, line: for naming the game where it is refused.
    """
    # Imported here, so that `ginkgo convert --help` need not wait for it.
    from ginkgo.records.replay import IllegalMove, replay

    if not game.moves:
        return Refusal(file, line, "no moves", "no moves")
    if game.total > MAX_PLIES:
        reason = f"{game.total} plies, at most {MAX_PLIES} are kept"
        return Refusal(file, line, reason, "too long")
    try:
        sfens = replay(game)
    except IllegalMove as error:
        return Refusal(file, line, str(error), "illegal move")
    except GinkgoError as error:
        return Refusal(file, line, str(error), "bad start position")
    if config.min_rating and game.rate_b is None and game.rate_w is None:
        return Refusal(file, line, "no ratings, and a minimum is asked for", "no ratings")
    if config.endings and game.end not in config.endings:
        return []
    first_ply = sfens[0].rpartition(" ")[2]
    tails = {
        side: _tail(game, rate, first_ply)
        for side, rate in (("b", game.rate_b), ("w", game.rate_w))
    }
    if config.min_rating:
        for side, rate in (("b", game.rate_b), ("w", game.rate_w)):
            if rate is None or not rate >= config.min_rating:
                del tails[side]
    if config.side:
        tails = {side: tail for side, tail in tails.items() if side == config.side}
    lines, total = [], game.total
    for sfen, move in list(zip(sfens, game.moves, strict=True))[max(0, config.min_ply - 1) :]:
        tail = tails.get(sfen.split(" ", 2)[1])
        if tail is not None:
            lines.append(f"{sfen},{total},{move}{tail}")
    return lines


def _tail(game: Game, rate: float | None, first_ply: str) -> str:
    """What follows the move in all lines of one side, as `format_record` writes it."""
    other = {} if first_ply == "1" else {"start": first_ply}
    record = Record("", game.total, "", game.winner, game.game, game.end, rate, other=other)
    return format_record(record).removeprefix(f",{game.total},") + "\n"


# --- processes --------------------------------------------------------------------------------

_stop: Any = None


class _Stopped(Exception):
    """The conversion was broken off; raised in worker processes only."""


def _check_stop() -> None:
    if _stop is not None and _stop.is_set():
        raise _Stopped


def _start_worker(stop: Any) -> None:
    global _stop
    _stop = stop
    # Ctrl-C reaches every process of the terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


Item = TypeVar("Item")
Result = TypeVar("Result")


class _Pool:
    """Maps over chunks, in order, with few of them in flight. One worker: in this process."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Pool:
        if self._workers > 1:
            context = multiprocessing.get_context("spawn")
            self._event = context.Event()
            self._executor = ProcessPoolExecutor(
                self._workers, context, initializer=_start_worker, initargs=(self._event,)
            )
        return self

    def __exit__(self, kind: object, *_rest: object) -> None:
        if self._executor is not None:
            # A second Ctrl-C waits until the processes have gone; that takes a moment only.
            with _interrupts_held():
                if kind is not None:
                    self._event.set()
                self._executor.shutdown(wait=True, cancel_futures=True)

    def map(
        self, function: Callable[..., Result], calls: Iterable[tuple[Chunk, tuple]]
    ) -> Iterator[Result]:
        """Results of `function(chunk, *arguments)`, in the order of the calls.

        Raises:
            GinkgoError: as the function does, or because a process died.
        """
        if self._executor is None:
            for chunk, arguments in calls:
                yield function(chunk, *arguments)
            return
        pending: deque[tuple[Chunk, Future[Result]]] = deque()
        try:
            for chunk, arguments in calls:
                with _interrupts_held():
                    pending.append((chunk, self._executor.submit(function, chunk, *arguments)))
                if len(pending) > 2 * self._workers:
                    yield pending[0][1].result()
                    pending.popleft()
            while pending:
                yield pending[0][1].result()
                pending.popleft()
        except BrokenProcessPool:
            chunk = pending[0][0] if pending else Chunk("?", 0, [])
            raise GinkgoError(
                f"{chunk.source}: a process died at or soon after games "
                f"{chunk.number * CHUNK_GAMES}–{(chunk.number + 1) * CHUNK_GAMES - 1} "
                "(out of memory?)"
            ) from None


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started in here are deaf to Ctrl-C from their first moment on."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- the conversion ---------------------------------------------------------------------------


@dataclass
class _Tally:
    """Counts of one source."""

    split: Split = field(default_factory=Split)
    shards: dict[str, list[Shard]] = field(default_factory=lambda: {name: [] for name in SPLITS})
    refused: list[Refusal] = field(default_factory=list)
    left_out: int = 0
    endings: Counter[str] = field(default_factory=Counter)

    def count(self, split: str) -> dict[str, int]:
        shards = self.shards[split]
        return {
            "games": sum(shard.games for shard in shards),
            "positions": sum(shard.positions for shard in shards),
        }


def convert(config: ConvertConfig) -> dict[str, Any]:
    """Convert as configured.

    Returns:
        the report, as it is written to `convert-report.json`.

    Raises:
        GinkgoError: a path that does not exist, a folder that holds other records, a full disk,
            or with `strict` the first game that cannot be used. No records are left then. Or
            `config.report` could not be written at the end: the records are complete then.
    """
    config = _checked(config)
    sources = find_sources(config.sources, GAME_SUFFIXES)
    if config.report:
        check_writable(config.report)
    out = Path(config.out)
    unreported: GinkgoError | None = None
    _make_room(out, config.overwrite)
    tallies = {source.name: _Tally() for source in sources}
    try:
        with Progress("games") as progress, _Pool(config.workers) as pool:
            held = _choose_splits(config, sources, tallies, pool, progress)
            _write_records(config, sources, tallies, held, pool, progress)
        report = _report(tallies)
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        write_text(out / "convert-report.json", text)
        if config.report:
            try:
                write_text(config.report, text)
            except GinkgoError as error:
                unreported = error
        write_text(out / "convert.json", json.dumps(dataclasses.asdict(config), indent=1) + "\n")
        for split in SPLITS:
            write_text(out / split / "manifest.json", _manifest(tallies, split))
    except BaseException:
        # Half a conversion would look like a whole one.
        _remove_records(out)
        raise
    if unreported is not None:
        raise GinkgoError(f"{unreported} (the records in {out} are complete)") from unreported
    return report


def _checked(config: ConvertConfig) -> ConvertConfig:
    endings = tuple(word for item in config.endings for word in item.split(",") if word)
    for word in endings:
        if word not in ENDINGS:
            raise GinkgoError(f"--endings {word}: expected some of {' '.join(ENDINGS)}")
    if not 0 <= config.val_fraction <= 0.5:
        raise GinkgoError(f"--val-fraction {config.val_fraction}: expected 0 to 0.5")
    if config.workers < 0:
        raise GinkgoError(f"--workers {config.workers}: expected 0 or more")
    if not config.sources:
        raise GinkgoError("no games given: expected files, directories or globs")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return dataclasses.replace(config, endings=endings, workers=config.workers or cores or 1)


def _records_in(out: Path) -> list[Path]:
    """Shards and manifests of a conversion, manifests first."""
    names = ("manifest.json", "*.sfenx", "*.sfenx.gz", "*.sfenx.zst")
    return [file for name in names for split in SPLITS for file in (out / split).glob(name)]


def _make_room(out: Path, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise GinkgoError(f"{out}: not a directory")
    if _records_in(out):
        if not overwrite:
            raise GinkgoError(
                f"{out}: holds records of another conversion (--overwrite to replace)"
            )
        _remove_records(out)


def _remove_records(out: Path) -> None:
    for file in [*_records_in(out), out / "convert.json", out / "convert-report.json"]:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise GinkgoError(f"{file}: cannot be removed: {error.strerror}") from error
    for split in SPLITS:
        with contextlib.suppress(OSError):
            (out / split).rmdir()


def _choose_splits(
    config: ConvertConfig,
    sources: list[Source],
    tallies: dict[str, _Tally],
    pool: _Pool,
    progress: Progress,
) -> dict[tuple[str, int], dict[int, str]]:
    """First pass: sets the splits of the tallies.

    Returns:
        by source and number of a chunk the games in it that belong to another source.
    """
    progress.phase("reading games")
    chunks: dict[str, list[np.ndarray]] = {source.name: [] for source in sources}
    calls = ((chunk, ()) for source in sources for chunk in cut_chunks(source))
    for name, found, refused in pool.map(chunk_hashes, calls):
        chunks[name].append(found)
        progress.advance(len(found) + len(refused))
        if config.strict and refused:
            raise _strict(refused[0])
    hashes = {
        name: np.concatenate([np.zeros(0, np.uint64), *found]) for name, found in chunks.items()
    }
    for name, tally in tallies.items():
        tally.split = choose_split(hashes[name] % np.uint64(BUCKETS), config.val_fraction)
    held: dict[tuple[str, int], dict[int, str]] = {}
    elsewhere = held_elsewhere(hashes, {name: tally.split for name, tally in tallies.items()})
    for name, games in elsewhere.items():
        for number, found in enumerate(chunks[name] if games else ()):
            if here := {game: games[game] for game in found.tolist() if game in games}:
                held[name, number] = here
    return held


def held_elsewhere(
    hashes: dict[str, np.ndarray], splits: dict[str, Split]
) -> dict[str, dict[int, str]]:
    """Games that would be in one split through one source and in another through another.

    Such a game is kept where the strictest of its splits is (test before val before train).

    Args:
        hashes: of the games of each source.
        splits: the thresholds of each source.

    Returns:
        by source and hash the games to leave out there, and why.
    """
    names = list(hashes)
    distinct = [np.unique(hashes[name]) for name in names]
    found, counts = np.unique(np.concatenate(distinct), return_counts=True)
    shared = found[counts > 1]
    if not len(shared):
        return {}
    buckets = (shared % np.uint64(BUCKETS)).astype(np.int64)
    #: By source and game: number of the split; -1: not in that source.
    ranks = np.full((len(names), len(shared)), -1, np.int8)
    for row, name, own in zip(ranks, names, distinct, strict=True):
        here = np.isin(shared, own, assume_unique=True)
        split = splits[name]
        row[here] = (1 * (buckets < split.test) + (buckets < split.val))[here]
    strictest, keeper = ranks.max(0), ranks.argmax(0)
    reasons = [[f"held out as {split} in source {name}" for split in SPLITS] for name in names]
    return {
        name: {
            int(shared[game]): reasons[keeper[game]][strictest[game]]
            for game in np.flatnonzero((row >= 0) & (row < strictest))
        }
        for name, row in zip(names, ranks, strict=True)
    }


def _write_records(
    config: ConvertConfig,
    sources: list[Source],
    tallies: dict[str, _Tally],
    held: dict[tuple[str, int], dict[int, str]],
    pool: _Pool,
    progress: Progress,
) -> None:
    progress.phase("writing records", progress.done)
    calls = (
        (chunk, (tallies[source.name].split, config, held.get((source.name, chunk.number), {})))
        for source in sources
        for chunk in cut_chunks(source)
    )
    shown: set[str] = set()
    for result in pool.map(write_chunk, calls):
        tally = tallies[result.source]
        unusable = [refusal for refusal in result.refused if refusal.kind != DUPLICATE]
        if config.strict and unusable:
            raise _strict(unusable[0])
        for refusal in result.refused:
            if refusal.kind not in shown:
                shown.add(refusal.kind)
                progress.say(f"refused: {refusal.file}:{refusal.line}: {refusal.reason}")
        for split, shard in result.shards.items():
            tally.shards[split].append(shard)
        tally.refused += result.refused
        tally.left_out += result.left_out
        tally.endings += result.endings
        progress.advance(result.games + result.left_out + len(result.refused))


def _strict(refusal: Refusal) -> GinkgoError:
    return GinkgoError(f"{refusal.file}:{refusal.line}: {refusal.reason}")


# --- what is told of it -----------------------------------------------------------------------


def _manifest(tallies: dict[str, _Tally], split: str) -> str:
    shards = [shard for tally in tallies.values() for shard in tally.shards[split]]
    files = {shard.name: {"games": shard.games, "positions": shard.positions} for shard in shards}
    return json.dumps({"format": "sfenx", "files": files}, indent=1, ensure_ascii=False) + "\n"


def _report(tallies: dict[str, _Tally]) -> dict[str, Any]:
    def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
        counts = list(counts)
        return {key: sum(count[key] for count in counts) for key in ("games", "positions")}

    splits = {split: total(tally.count(split) for tally in tallies.values()) for split in SPLITS}
    endings: Counter[str] = Counter()
    for tally in tallies.values():
        endings += tally.endings
    return {
        **total(splits.values()),
        "refused": [
            {"file": refusal.file, "line": refusal.line, "reason": refusal.reason}
            for tally in tallies.values()
            for refusal in tally.refused
        ],
        "left_out": sum(tally.left_out for tally in tallies.values()),
        "endings": dict(sorted(endings.items())),
        "splits": splits,
        "sources": {
            name: {
                **total(tally.count(split) for split in SPLITS),
                "refused": len(tally.refused),
                "left_out": tally.left_out,
                "thresholds": {"test": tally.split.test, "val": tally.split.val},
                "splits": {split: tally.count(split) for split in SPLITS},
            }
            for name, tally in tallies.items()
        },
    }


def print_report(report: dict[str, Any]) -> None:
    """The report as a table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table("source")
    for title in ("games", "positions", *SPLITS, "left out", "refused"):
        table.add_column(title, justify="right")

    def add(name: str, row: dict[str, Any], refused: int) -> None:
        splits = [row["splits"][split]["games"] for split in SPLITS]
        numbers = [row["games"], row["positions"], *splits, row["left_out"], refused]
        table.add_row(name, *(f"{number:,}" for number in numbers))

    for name, row in report["sources"].items():
        add(name, row, row["refused"])
    if len(report["sources"]) > 1:
        table.add_section()
        add("all", report, len(report["refused"]))
    Console().print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, convert, print the report.

    Returns:
        the exit status: 0; 1 where no position came out; 130 after Ctrl-C.

    Raises:
        GinkgoError: a user's mistake, or a report that could not be written.
    """
    config = tyro.cli(
        ConvertConfig, prog="ginkgo convert", args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    begun = time.monotonic()
    try:
        report = convert(config)
    except KeyboardInterrupt:
        print(f"stopped: no records are left in {config.out}", file=sys.stderr)
        return 130
    print_report(report)
    seconds = time.monotonic() - begun
    rate = report["positions"] / max(seconds, 1e-9)
    print(f"{report['positions']:,} positions in {seconds:.1f} s ({rate:,.0f}/s) to {config.out}")
    if not report["positions"]:
        print("error: no game could be used, or the filters left none", file=sys.stderr)
        return 1
    return 0
