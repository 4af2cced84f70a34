"""Held-out positions: which there are, and how to load them.

In: a run's configuration. Out: the index of the training data, and blocks of validation and test
positions that share no game with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ginkgo.errors import GinkgoError
from ginkgo.features.position import POSITION
from ginkgo.pipeline.index import Index, build_index, is_split_folder, split_folder
from ginkgo.pipeline.parse import Block, ParseOptions
from ginkgo.pipeline.worker import Job, SegmentReader, run_job


def find_data(
    data: Sequence[Path],
    val: Sequence[Path],
    test: Sequence[Path],
    fraction: float,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, Index]:
    """The indices of `train`, `val` and `test`.

    Folders that were split by `ginkgo convert` bring their neighbours; other files are split by
    game here; `val` and `test` replace the split's own.

    Raises:
        GinkgoError: there is no data, or no held-out data.
    """
    indices = {"train": build_index(data, "train", fraction=fraction, progress=progress)}
    folders = [split_folder(Path(path), "train") for path in data]
    whole = all(is_split_folder(folder) for folder in folders)
    for split, given in (("val", val), ("test", test)):
        if given:
            indices[split] = build_index(given, "all", progress=progress)
        elif whole:
            beside = [folder.parent / split for folder in folders]
            beside = [folder for folder in beside if folder.exists()]
            if not beside:
                raise GinkgoError(f"{folders[0].parent}: no folder {split!r} beside {folders[0]}")
            indices[split] = build_index(beside, "all", progress=progress)
        else:
            known = {source.name: source.split for source in indices["train"].sources}
            indices[split] = build_index(
                data, split, fraction=fraction, splits=known, progress=progress
            )
    return indices


def load_block(index: Index, options: ParseOptions, limit: int = 0, seed: int = 0) -> Block:
    """All positions of an index at once, in this process; for sets that fit in memory.

    Args:
        limit: at most about so many positions; where there are more, fewer of each game are
            taken (`keep`), so that as many games as possible are there. 0: all.
    """
    if limit and index.positions > limit:
        keep = max(1, limit // max(1, index.games))
        options = replace(options, keep=keep, seed=seed)
    reader, blocks = SegmentReader(), []
    count = 0
    for source, entry in enumerate(index.sources):
        for segment in entry.segments:
            files = index.files[segment.file : segment.file + segment.files]
            paths = tuple(file.path for file in files)
            job = Job(count, 0, files[0].kind, paths, segment, source, entry.buckets)
            blocks.append(run_job(job, options, reader))
            count += 1
    return join_blocks(blocks, options)


def load_sample(index: Index, options: ParseOptions, limit: int, seed: int = 0) -> Block:
    """About `limit` positions from segments spread over the whole index."""
    total = sum(len(source.segments) for source in index.sources)
    keep = 8
    wanted = max(1, round(limit / max(1, index.games * keep) * total))
    rng = np.random.default_rng(seed)
    sample = replace(options, keep=keep, seed=seed)
    reader, blocks = SegmentReader(), []
    jobs = []
    for source, entry in enumerate(index.sources):
        for segment in entry.segments:
            files = index.files[segment.file : segment.file + segment.files]
            paths = tuple(file.path for file in files)
            jobs.append(Job(0, 0, files[0].kind, paths, segment, source, entry.buckets))
    for number in sorted(rng.permutation(len(jobs))[:wanted]):
        blocks.append(run_job(jobs[number], sample, reader))
    return join_blocks(blocks, options)


def join_blocks(blocks: list[Block], options: ParseOptions) -> Block:
    """Blocks one after another."""
    joined = Block(
        np.concatenate([np.zeros(0, POSITION), *(block.positions for block in blocks)]),
        np.concatenate([np.zeros(0, np.uint64), *(block.keys for block in blocks)]),
        bad=[bad for block in blocks for bad in block.bad],
    )
    if options.features == "ginkgo148":
        codes = [block.codes for block in blocks if block.codes is not None]
        sizes = [np.diff(block.offsets) for block in blocks if block.offsets is not None]
        joined.codes = np.concatenate([np.zeros(0, np.uint16), *codes])
        joined.offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
    return joined
