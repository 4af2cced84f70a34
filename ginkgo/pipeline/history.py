"""What a run knows of its sources, as a document that JSON can hold.

In: an index, and the states of the loaders that read it. Out: the document, which is kept in each
checkpoint and, for people and other programs, in `<run>.state.json`; and from a document what a
loader needs to go on with data that has changed since.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.pipeline import coverage
from ginkgo.pipeline.coverage import Progress
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.mixing import Bandit

FORMAT = "ginkgo-sources1"
#: What a bandit has once for all sources.
_SHARED = ("recent", "heard")
#: Moments that a document remembers; where there are more, every second old one is forgotten.
_MOMENTS = 256


@dataclass(frozen=True)
class Earlier:
    """What is known of the sources of an index from before its data changed."""

    seen: list[NDArray[np.bool_]]
    """By source (games,) which have been seen."""
    pulls: list[float]
    """By source the games drawn."""
    bandit: Bandit
    position: dict[str, int]
    """`feed_epoch` and `draws`: random numbers up to these have been used."""


def unpack_seen(bits: NDArray[np.uint8], index: Index) -> list[NDArray[np.bool_]]:
    """By source (games of the split,) which have been seen, of a loader's state."""
    lengths = [len(source.numbers) for source in index.sources]
    flags = np.unpackbits(np.asarray(bits, np.uint8))[: sum(lengths)].astype(bool)
    return np.split(flags, np.cumsum(lengths)[:-1])


def merged_progress(index: Index, found: Sequence[Progress]) -> Progress:
    """The progress of processes that share the data out among them.

    Args:
        index: of all the data. found: of each process.
    """
    return Progress(
        tuple(source.games for source in index.sources),
        tuple(map(sum, zip(*(one.seen for one in found), strict=True))),
        tuple(map(sum, zip(*(one.pulls for one in found), strict=True))),
    )


def figures(progress: Progress, bandit: Bandit | None, source: int) -> dict[str, Any]:
    """What there is to say of a source.

    Returns:
        `games`, `seen`, `coverage`, `pulls`, `epochs`, `bonus`, `penalty`; and where sources are
        chosen `chunks` drawn and, once it is known, the estimated `reward`.
    """
    found: dict[str, Any] = {
        "games": progress.games[source],
        "seen": progress.seen[source],
        "coverage": progress.coverage(source),
        "pulls": progress.pulls[source],
        "epochs": progress.epochs(source),
        "bonus": progress.bonus(source),
        "penalty": progress.penalty(source),
    }
    if bandit is not None:
        found["chunks"] = bandit.draws[source]
        if bandit.rewarded[source]:
            found["reward"] = bandit.mean(source)
    return found


def document(
    index: Index,
    states: Sequence[dict[str, Any]],
    step: int,
    losses: dict[str, float],
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What is known of the sources after a step.

    Args:
        index: of all the data.
        states: of the loaders of all processes (`Loader.state`).
        losses: by name of the source the mean loss of late.
        before: the document of an earlier step, whose history goes on.
    """
    seen = [
        np.logical_or.reduce(flags)
        for flags in zip(*(unpack_seen(state["seen"], index) for state in states), strict=True)
    ]
    pulls = np.sum([state["pulls"] for state in states], axis=0).tolist()
    progress = Progress(
        tuple(source.games for source in index.sources),
        tuple(int(flags.sum()) for flags in seen),
        tuple(pulls),
    )
    mix = states[0].get("mix")
    bandit = Bandit.from_dict(mix["bandit"]) if mix else None
    sources: dict[str, Any] = {}
    for number, source in enumerate(index.sources):
        entry = figures(progress, bandit, number)
        entry["positions"] = source.positions
        if source.name in losses:
            entry["loss"] = losses[source.name]
        if bandit is not None:
            one = bandit.of([number]).as_dict()
            entry["bandit"] = {name: one[name][0] for name in one if name not in _SHARED}
        sources[source.name] = {**entry, **coverage.pack(seen[number], source.hashes)}
    shown = ("coverage", "pulls", "epochs")
    moment = {name: [entry[key] for key in shown] for name, entry in sources.items()}
    positions = [position for state in states for position in state["streams"]]
    return {
        "format": FORMAT,
        "step": step,
        "mix": states[0]["order"]["mix"],
        "sources": sources,
        "bandit": {name: mix["bandit"][name] for name in _SHARED} if mix else {},
        "position": {
            name: max(position[name] for position in positions) for name in ("feed_epoch", "draws")
        },
        "history": _thinned([*(before or {}).get("history", []), [step, moment]]),
    }


def _thinned(history: list) -> list:
    """At most `_MOMENTS`, the last one always among them."""
    return history if len(history) <= _MOMENTS else history[-1::-2][::-1]


def earlier(saved: dict[str, Any], index: Index) -> tuple[Earlier, list[str]]:
    """What a document says of the sources of an index, and a line about each that has changed.

    Args:
        saved: a `document`.
    """
    old, said = saved["sources"], []
    names = list(old)
    seen, pulls = [], []
    for source in index.sources:
        if source.name not in old:
            said.append(f"source {source.name}: new, {source.games:,} games")
            seen.append(np.zeros(len(source.hashes), bool))
            pulls.append(0.0)
            continue
        entry = old[source.name]
        flags, lost = coverage.unpack(entry, source.hashes)
        seen.append(flags)
        pulls.append(entry["pulls"])
        kept = f"{flags.sum():,} of {entry['seen']:,} games seen are there"
        if source.games != entry["games"]:
            how = "grew" if source.games > entry["games"] else "shrank"
            change = f"{how} from {entry['games']:,} to {source.games:,} games"
            said.append(f"source {source.name}: {change}; {kept}")
        elif lost:
            said.append(f"source {source.name}: its games have changed; {kept}")
    gone = [name for name in names if name not in index.names]
    said += [f"source {name}: gone; {old[name]['seen']:,} games of it were seen" for name in gone]
    places = [names.index(name) if name in old else None for name in index.names]
    return Earlier(seen, pulls, _bandit(saved).of(places), saved["position"]), said


def _bandit(saved: dict[str, Any]) -> Bandit:
    entries = [entry.get("bandit") for entry in saved["sources"].values()]
    if not all(entries):
        return Bandit.new(len(entries))
    joined = {name: [entry[name] for entry in entries] for name in entries[0]}
    return Bandit.from_dict({**joined, **saved["bandit"]})


def read(path: Path) -> dict[str, Any]:
    """A document from its file.

    Raises:
        GinkgoError: there is none, or it is none.
    """
    try:
        saved = json.loads(path.read_text())
        if saved["format"] != FORMAT:
            raise GinkgoError(f"{path}: format {saved['format']!r}, expected {FORMAT}")
        if not math.isfinite(saved["step"]) or not saved["sources"]:
            raise ValueError
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise GinkgoError(f"{path}: not a state of sources") from error
    return saved
