"""Held-out games: which there are.

In: a run's data. Out: the indices of training, validation and test, which share no game.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.models import NONE_SEEN, SeenGames
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.scan import Scan
from ginkgo.records import SPLITS
from ginkgo.records.split import Split


def find_data(
    data: Sequence[Path],
    val: Sequence[Path],
    test: Sequence[Path],
    fraction: float,
    progress: Callable[[str], None] = lambda _text: None,
    seen: SeenGames = NONE_SEEN,
    named: Mapping[str, Sequence[Path]] = MappingProxyType({}),
    splits: Mapping[str, Split] = MappingProxyType({}),
) -> dict[str, Index]:
    """The indices of `train`, `val` and `test`; no game is in two of them.

    Folders that were split by `ginkgo convert` bring their neighbours; other files are split by
    game here; `val` and `test` replace the split's own.

    Args:
        seen: games that the weights at the start have seen: what they were trained on can be no
            held-out game any more, what they were chosen by no test game.
        named: further data, by name of the source.
        splits: by name of the source the thresholds that a run began with.

    Raises:
        GinkgoError: there is no data to train on, or none that is held out.
    """
    scan = Scan(data, fraction=fraction, progress=progress, named=named, splits=splits)
    names = ", ".join(map(str, (*data, *(path for paths in named.values() for path in paths))))
    given = {
        split: Scan(paths, progress=progress)
        for split, paths in (("val", val), ("test", test))
        if paths
    }
    indices: dict[str, Index] = {}
    held_out = np.zeros(0, np.uint64)

    def left_out(split: str) -> NDArray[np.uint64]:
        return np.concatenate([held_out, seen.all if split == "test" else seen.train])

    for split in ("test", "val", "train"):
        if split in given:
            indices[split] = given[split].given(split, left_out(split))
        elif split == "train":
            indices[split] = scan.view(split, held_out)
            merged = [source.merged for source in scan.view("all").sources]
            if np.isin(np.concatenate(merged), held_out).any():
                raise GinkgoError(
                    f"{names}: held-out games have a part in these merged "
                    "records and cannot be left out; convert without --merge-duplicates"
                )
        else:
            indices[split] = scan.view(split, left_out(split))
        if split != "train":
            held_out = np.concatenate([held_out, given.get(split, scan).hashes(split)])
    if not indices["train"].games:
        raise GinkgoError(f"{names}: no games to train on{why_none(scan)}")
    if not indices["val"].games:
        raise GinkgoError(f"{names}: too few games to hold some out: give more, or --val")
    return {split: indices[split] for split in SPLITS}


def why_none(scan: Scan) -> str:
    """What to add where no games are left: what is wrong with the first that cannot be used."""
    if scan.bad:
        first = scan.bad[0]
        return f"; {first.file}:{first.line}: {first.reason}"
    if scan.view("all").games:
        return " (are these held-out games?)"
    return "; ginkgo inspect says what is in these files"
