"""How a run reads its data.

In: a `TrainConfig`. Out: the options of parsing and loading, and a few lines for people about what
there is to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ginkgo.pipeline import history
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.loader import DataChanged, Loader
from ginkgo.pipeline.parse import ParseOptions
from ginkgo.pipeline.stream import LoaderConfig
from ginkgo.training.config import TrainConfig, sources_by_name
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


def loader_config(
    config: TrainConfig, parse: ParseOptions, batch_size: int, index: Index, epoch: Sequence[float]
) -> LoaderConfig:
    """How the training data is read.

    Args:
        batch_size: what this process takes of each batch.
        index: of all training data. epoch: by source the positions of an epoch.
    """
    named = sources_by_name(config)
    weights = [named[name].weight if name in named else None for name in index.names]
    return LoaderConfig(
        batch_size=batch_size,
        pool=max(config.pool, batch_size),
        min_fill=config.min_fill,
        workers=config.workers or default_workers(),
        seed=config.seed,
        strict=config.strict,
        parse=parse,
        mix=config.mix,
        weights=tuple(1.0 if weight is None else weight for weight in weights),
        chunk=config.mix_chunk,
        exploration=config.exploration,
        coverage=config.coverage,
        per_game=tuple(
            positions / max(1, source.games)
            for positions, source in zip(epoch, index.sources, strict=True)
        ),
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


def open_loader(
    reading: LoaderConfig,
    part: Index,
    index: Index,
    state: dict[str, Any] | None,
    known: dict[str, Any] | None,
    say: Callable[[str], None],
) -> Loader:
    """The loader of this process; one that goes on where `state` was taken.

    Where the data has changed since, sources that are mixed begin anew, with what is known of them.

    Args:
        part: of the data, what this process reads. index: all of it.
        known: `pipeline.history.document` of the checkpoint.

    Raises:
        GinkgoError: see `Loader`; and where several processes train on data that has changed.
    """
    try:
        return Loader(part, reading, state, say=say, ahead=True)
    except DataChanged:
        if reading.mix == "proportional" or known is None or part is not index:
            raise
        earlier, changes = history.earlier(known, index)
        for line in changes:
            say(line)
        say("the data has changed: each source begins anew, with games not yet seen")
        return Loader(part, reading, say=say, ahead=True, earlier=earlier)


def describe_mix(
    reading: LoaderConfig, index: Index, loader: Loader, say: Callable = plain
) -> None:
    """Print how the sources are mixed and how well their pools shuffle."""
    shares = loader.share_without_mate
    expected = "{:.1%} of positions to meet no other of their game in a batch"
    if reading.mix == "proportional":
        text = expected.format(shares["all"])
        say(f"shuffle: pool {reading.pool:,}, batch {reading.batch_size:,}; expect {text}")
        return
    say(f"mix: {reading.mix}, {reading.chunk:,} batches at a time from one source's own pool")
    for number, source in enumerate(index.sources):
        if source.name in shares:
            weight = f", weight {reading.weights[number]:g}" if reading.mix == "weights" else ""
            held = f"{source.games:,} games, {source.positions:,} positions{weight}"
            text = expected.format(shares[source.name])
            say(f"  {source.name}: {held}, pool {loader.pools[source.name]:,}; expect {text}")
