"""The conversion itself.

In: a `ConvertConfig`. Out: the files, and the report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.progress import Progress
from ginkgo.records.convert.chunks import cut_chunks
from ginkgo.records.convert.config import SINGLE_FORMATS, ConvertConfig, checked
from ginkgo.records.convert.copies import unwanted_copies
from ginkgo.records.convert.passes import CONTRADICTED, SPOOL, Spooled, spool_chunk, write_chunk
from ginkgo.records.convert.pool import Pool
from ginkgo.records.convert.report import Tally, manifest, report_of
from ginkgo.records.files import check_writable, write_text
from ginkgo.records.game import BUCKETS, SPLITS, Refusal
from ginkgo.records.sources import GAME_SUFFIXES, Source, find_sources
from ginkgo.records.split import MERGED_GAMES, Split, choose_split, write_merged_games


def convert(config: ConvertConfig) -> dict[str, Any]:
    """Convert as configured.

    Returns:
        the report, as it is written to `convert-report.json`.

    Raises:
        GinkgoError: a path that does not exist, a folder that holds other records, a full disk,
            or with `strict` the first game that cannot be used. No records are left then. Or
            `config.report` could not be written at the end: the records are complete then.
    """
    config = checked(config)
    passed: Counter[str] = Counter()
    sources = find_sources(config.sources, GAME_SUFFIXES, passed)
    if config.report:
        check_writable(config.report)
    out = Path(config.out)
    unreported: GinkgoError | None = None
    _make_room(out, config, sources)
    tallies = {source.name: Tally() for source in sources}
    try:
        with Progress("games") as progress, Pool(config.workers) as pool:
            spooled = _read_games(config, sources, tallies, pool, progress)
            _choose_splits(config, spooled, tallies)
            _write_records(config, spooled, tallies, pool, progress)
        _remove_spool(out)
        report = {**report_of(tallies, config), "passed_over": dict(passed.most_common())}
        written = {
            split: [shard for tally in tallies.values() for shard in tally.shards[split]]
            for split in SPLITS
        }
        if config.merge_duplicates:
            from ginkgo.records.convert.merge import merge_split

            written["train"] = merge_split(out / "train", config.compress)
            if written["train"]:
                write_merged_games(out / "train", _games_of("train", spooled, tallies))
            report["merged_positions"] = sum(shard.positions for shard in written["train"])
        text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
        write_text(out / "convert-report.json", text)
        if config.report:
            try:
                write_text(config.report, text)
            except GinkgoError as error:
                unreported = error
        write_text(out / "convert.json", json.dumps(dataclasses.asdict(config), indent=1) + "\n")
        if config.to == "sfenx":
            for split in SPLITS:
                write_text(out / split / "manifest.json", manifest(written[split]))
    except BaseException:
        # Half a conversion would look like a whole one.
        _remove_spool(out)
        _remove_records(out, config)
        raise
    if unreported is not None:
        raise GinkgoError(f"{unreported} (the records in {out} are complete)") from unreported
    return report


#: Names that a conversion gives to its files: a chunk's number, of single games a second one.
_OWN_SHARD = re.compile(r".*-[0-9]{5,}\.[a-z.]+", re.DOTALL)
_OWN_SINGLE = re.compile(r"[0-9]{5,}-[0-9]{3,}-.*", re.DOTALL)


def _records_in(out: Path, config: ConvertConfig) -> list[Path]:
    """Records of the format that is asked for, manifests first, whoever has written them."""
    if config.to in SINGLE_FORMATS:
        return sorted(out.glob(f"*/[0-9]*-*.{config.to}"))
    names = [f"*.{config.to}", f"*.{config.to}.gz", f"*.{config.to}.zst"]
    if config.to != "sfenx":
        return [file for name in names for file in sorted(out.glob(name))]
    names[:0] = ["manifest.json", MERGED_GAMES]
    return [file for name in names for split in SPLITS for file in (out / split).glob(name)]


def _is_own(file: Path, config: ConvertConfig) -> bool:
    """Whether a conversion gives such a name: no other file is ever removed."""
    if file.name in ("manifest.json", MERGED_GAMES):
        return True
    pattern = _OWN_SINGLE if config.to in SINGLE_FORMATS else _OWN_SHARD
    return pattern.fullmatch(file.name) is not None


def _make_room(out: Path, config: ConvertConfig, sources: list[Source]) -> None:
    """Remove the records of an earlier conversion, if that is asked for.

    Raises:
        GinkgoError: it is not; or a file there is no conversion's, or one that is to be read.
    """
    if out.exists() and not out.is_dir():
        raise GinkgoError(f"{out}: not a directory")
    if records := _records_in(out, config):
        inputs = {os.path.realpath(file) for source in sources for file in source.files}
        for file in records:
            if os.path.realpath(file) in inputs:
                raise GinkgoError(f"{file}: is to be read: choose another folder than {out}")
            if not _is_own(file, config):
                raise GinkgoError(
                    f"{file}: no conversion has written this file: choose another folder than {out}"
                )
        if not config.overwrite:
            raise GinkgoError(
                f"{out}: holds records of another conversion (--overwrite to replace)"
            )
        _remove_records(out, config)
    _remove_spool(out)


def _remove_spool(out: Path) -> None:
    shutil.rmtree(out / SPOOL, ignore_errors=True)


def _remove_records(out: Path, config: ConvertConfig) -> None:
    records = [file for file in _records_in(out, config) if _is_own(file, config)]
    folders = {file.parent for file in records} | {out / split for split in SPLITS}
    for file in [*records, out / "convert.json", out / "convert-report.json"]:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise GinkgoError(f"{file}: cannot be removed: {error.strerror}") from error
    for folder in folders - {out}:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _read_games(
    config: ConvertConfig,
    sources: list[Source],
    tallies: dict[str, Tally],
    pool: Pool,
    progress: Progress,
) -> list[Spooled]:
    """First pass."""
    progress.phase("reading games")
    calls = (
        (f"{chunk.source}: games from chunk {chunk.number} on", (chunk, config))
        for source in sources
        for chunk in cut_chunks(source)
    )
    spooled = []
    shown: set[str] = set()
    for found in pool.map(spool_chunk, calls):
        if config.strict and found.refused:
            raise _strict(found.refused[0])
        _show(found.refused, shown, progress)
        tally = tallies[found.source]
        tally.refused += found.refused
        tally.left_out += found.left_out
        found.refused = []
        progress.advance(len(found.hashes))
        spooled.append(found)
    return spooled


def _games_of(split: str, spooled: list[Spooled], tallies: dict[str, Tally]) -> NDArray[np.uint64]:
    """Hashes of the games that were written to a split."""
    found = [np.zeros(0, np.uint64)]
    for one in spooled:
        tally, homes = tallies[one.source], one.entries["home"]
        low, high = tally.split.range_of(split)
        buckets = homes % np.uint64(BUCKETS)
        held = np.fromiter(tally.held, np.uint64, len(tally.held))
        found.append(homes[(buckets >= low) & (buckets < high) & ~np.isin(homes, held)])
    return np.unique(np.concatenate(found))


def _show(refused: Iterable[Refusal], shown: set[str], progress: Progress) -> None:
    """The first refusal of each kind."""
    for refusal in refused:
        if refusal.kind not in shown:
            shown.add(refusal.kind)
            progress.say(f"refused: {refusal.file}:{refusal.line}: {refusal.reason}")


def _choose_splits(
    config: ConvertConfig, spooled: list[Spooled], tallies: dict[str, Tally]
) -> None:
    """Sets the splits of the tallies, and what belongs to other sources."""
    hashes: dict[str, NDArray[np.uint64]] = {}
    for name in tallies:
        parts = [found.hashes for found in spooled if found.source == name]
        hashes[name] = np.concatenate([np.zeros(0, np.uint64), *parts])
        tallies[name].split = choose_split(hashes[name] % np.uint64(BUCKETS), config.val_fraction)
    if config.to == "sfenx":
        splits = {name: tally.split for name, tally in tallies.items()}
        for name, games in held_elsewhere(hashes, splits).items():
            tallies[name].held = games


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
    spooled: list[Spooled],
    tallies: dict[str, Tally],
    pool: Pool,
    progress: Progress,
) -> None:
    """Second pass."""
    progress.phase("writing records", sum(len(found.entries) for found in spooled))
    copies = unwanted_copies(spooled, {name: tally.held for name, tally in tallies.items()})
    if config.strict:
        _check_copies(spooled, copies)

    def calls():
        for found, again in zip(spooled, copies, strict=True):
            tally = tallies[found.source]
            here = {}
            if tally.held:
                homes = found.entries["home"].tolist()
                here = {home: tally.held[home] for home in homes if home in tally.held}
            title = f"{found.source}: writing chunk {found.number}"
            yield title, (found, tally.split, config, here, again)

    shown: set[str] = set()
    for result in pool.map(write_chunk, calls()):
        tally = tallies[result.source]
        _show(result.refused, shown, progress)
        for split, shard in result.shards.items():
            tally.shards[split].append(shard)
        tally.refused += result.refused
        tally.duplicates += result.duplicates
        tally.endings += result.endings
        progress.advance(result.games + result.duplicates + len(result.refused))


def _check_copies(spooled: list[Spooled], copies: list[dict[int, str]]) -> None:
    for found, unwanted in zip(spooled, copies, strict=True):
        for index, reason in unwanted.items():
            if reason:
                line = int(found.entries[index]["line"])
                raise _strict(Refusal(found.files[index], line, reason, CONTRADICTED))


def _strict(refusal: Refusal) -> GinkgoError:
    return GinkgoError(f"{refusal.file}:{refusal.line}: {refusal.reason}")
