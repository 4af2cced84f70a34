"""How a run reads its data.

In: a `TrainConfig`. Out: the options of parsing and loading, and a few lines for people about what
there is to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ginkgo.pipeline.index import Index
from ginkgo.pipeline.parse import ParseOptions
from ginkgo.pipeline.stream import LoaderConfig
from ginkgo.training.config import TrainConfig
from ginkgo.training.monitor import plain


def parse_options(config: TrainConfig) -> ParseOptions:
    """What of the data becomes a training position."""
    weighted = config.features == "ginkgo148" if config.ply_weight is None else config.ply_weight
    return ParseOptions(
        min_ply=config.min_ply,
        side=config.side,
        endings=tuple(config.endings),
        min_rating=config.min_rating,
        view=config.view,
        ply_weight=weighted,
        keep=config.keep,
        seed=config.seed,
        features=config.features,
    )


def loader_config(config: TrainConfig, parse: ParseOptions, batch_size: int) -> LoaderConfig:
    """How the training data is read.

    Args:
        batch_size: what this process takes of each batch.
    """
    return LoaderConfig(
        batch_size=batch_size,
        pool=max(config.pool, batch_size),
        min_fill=config.min_fill,
        workers=config.workers or default_workers(),
        seed=config.seed,
        strict=config.strict,
        parse=parse,
    )


def default_workers() -> int:
    """One reader process per core but one, at most 8."""
    return max(1, min(8, (os.cpu_count() or 2) - 1))


def describe(indices: dict[str, Index], parse: ParseOptions, say: Callable = plain) -> None:
    """Print what data there is."""
    for split, index in indices.items():
        parts = ", ".join(f"{source.name} {source.games:,}" for source in index.sources[:8])
        more = "" if len(index.sources) <= 8 else f" and {len(index.sources) - 8} more"
        say(f"{split}: {index.games:,} games, {index.positions:,} positions ({parts}{more})")
    if parse.keep or any(parse.keep_from):
        kept = [
            f"{parse.kept(number) or 'all'} of {source.name}"
            for number, source in enumerate(indices["train"].sources)
        ]
        shown = ", ".join(kept) if any(parse.keep_from) else f"{parse.keep}"
        say(f"positions kept per game and epoch: {shown}")
