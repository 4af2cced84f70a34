"""The options of `ginkgo convert`."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.records.game import ENDINGS

#: Formats of whole games; the others hold positions, to which all filters apply.
GAME_FORMATS = ("usi", "csa", "kif", "ki2")
#: Formats that programs read one game a file.
SINGLE_FORMATS = ("csa", "kif", "ki2")


@dataclass(frozen=True)
class ConvertConfig:
    """Turn kifu of any format into SFEN records, split into train, val and test by game."""

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SRC […]")]
    """Games: files, archives, directories or globs, of any format; - is standard input."""

    out: Annotated[str, tyro.conf.arg(aliases=("-o",), metavar="DIR")]
    """Where the records go: DIR/train, DIR/val and DIR/test."""

    to: Literal["sfenx", "usi", "csa", "kif", "ki2", "hcpe", "psv"] = "sfenx"
    """Format to write. All but sfenx go to DIR itself, without a split."""
    min_ply: int = 1
    """First ply that is written, counted from the start of the game."""
    side: Literal["", "b", "w"] = ""
    """Only positions where Black (b) or White (w) moves."""
    endings: tuple[str, ...] = ()
    """Only games that ended so (toryo, tsumi, …), separated by commas or blanks."""
    min_rating: float = 0.0
    """Only positions whose mover is rated at least this; games without ratings are refused."""
    variations: bool = False
    """Take branches too, as games of their own without a result."""
    merge_duplicates: bool = False
    """Write each position of train once, with the moves played there and the mean result."""
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
    """Replace the records that an earlier conversion left in DIR."""


def checked(config: ConvertConfig) -> ConvertConfig:
    """The configuration with its lists cut and its number of workers settled.

    Raises:
        GinkgoError: a value that means nothing, or options that do not go together.
    """
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
    if config.to in GAME_FORMATS and (config.min_ply > 1 or config.side):
        raise GinkgoError(f"--min-ply and --side choose positions: --to {config.to} writes games")
    if config.to in SINGLE_FORMATS and config.compress != "none":
        raise GinkgoError(f"--compress {config.compress} does not go with --to {config.to}")
    if config.merge_duplicates and config.to != "sfenx":
        raise GinkgoError("--merge-duplicates goes with --to sfenx")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return dataclasses.replace(config, endings=endings, workers=config.workers or cores or 1)
