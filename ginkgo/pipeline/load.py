"""Positions of an index at once, in this process: for sets that fit in memory.

In: an index. Out: a `Block`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ginkgo.pipeline.index import Index
from ginkgo.pipeline.parse import Block, ParseOptions, empty_block, join_blocks
from ginkgo.pipeline.worker import Job, SegmentReader, run_job


def load_block(index: Index, options: ParseOptions, limit: int = 0, seed: int = 0) -> Block:
    """All positions of an index at once, in this process; for sets that fit in memory.

    Args:
        limit: at most about so many positions; where there are more, fewer of each game are
            taken (`keep`), so that as many games as possible are there. 0: all.
    """
    options = replace(options, left_out=index.left_out)
    if limit and index.positions > limit:
        keep = max(1, limit // max(1, index.games))
        options = replace(options, keep=keep, keep_from=(), seed=seed)
    reader = SegmentReader()
    blocks = [run_job(job, options, reader) for job in _jobs(index)]
    return join_blocks([empty_block(options), *blocks])


def _jobs(index: Index) -> list[Job]:
    """All segments of an index, in order."""
    jobs: list[Job] = []
    for source, entry in enumerate(index.sources):
        for segment in entry.segments:
            files = index.files[segment.file : segment.file + segment.files]
            paths = tuple(file.path for file in files)
            buckets = index.buckets(source, segment)
            jobs.append(Job(len(jobs), 0, files[0].kind, paths, segment, source, buckets))
    return jobs


def epoch_positions(index: Index, options: ParseOptions) -> list[float]:
    """By source about how many positions an epoch has, filters and `keep` applied.

    The share that passes the filters is measured on a few segments of each.
    """
    plain = ParseOptions(features="dlshogi119")
    filtered = replace(options, keep=0, keep_from=(), features="dlshogi119", policies=False)
    shares = [1.0] * len(index.sources)
    if replace(filtered, view="before", ply_weight=False, seed=0) != plain:
        jobs, reader = _jobs(index), SegmentReader()
        few = max(1, 16 // max(1, len(shares)))
        for source in range(len(shares)):
            own = [job for job in jobs if job.source == source]
            places = np.linspace(0, len(own) - 1, min(max(few, 2), len(own))).astype(int)
            there = sum(len(run_job(own[n], plain, reader).keys) for n in places)
            left = sum(len(run_job(own[n], filtered, reader).keys) for n in places)
            shares[source] = left / max(1, there)
    return [
        source.positions_kept(options.kept(number), shares[number])
        for number, source in enumerate(index.sources)
    ]


def load_sample(index: Index, options: ParseOptions, limit: int, seed: int = 0) -> Block:
    """About `limit` positions from segments spread over the whole index."""
    keep, jobs = 8, _jobs(index)
    wanted = max(1, round(limit / max(1, index.games * keep) * len(jobs)))
    some = sorted(np.random.default_rng(seed).permutation(len(jobs))[:wanted].tolist())
    sample = replace(options, keep=keep, keep_from=(), seed=seed, left_out=index.left_out)
    reader = SegmentReader()
    blocks = [run_job(jobs[number], sample, reader) for number in some]
    return join_blocks([empty_block(sample), *blocks])
