"""Evaluators and Monte Carlo tree search.

In: positions as start and moves, a model by name. Out: the best moves with their values, visits,
expected lines and proofs; policies for training. One search serves the engine, matches and
self-play.

A name is imported when it is asked for: compiled code takes half a second to load.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ginkgo.search.config import SearchConfig
    from ginkgo.search.evaluators import Batch, Evaluation, Evaluator, make_evaluator
    from ginkgo.search.many import Want, play_many
    from ginkgo.search.queue import Queue
    from ginkgo.search.rules import Line, line_of
    from ginkgo.search.search import Candidate, Search, run

__all__ = [
    "Batch",
    "Candidate",
    "Evaluation",
    "Evaluator",
    "Line",
    "Queue",
    "Search",
    "SearchConfig",
    "Want",
    "line_of",
    "make_evaluator",
    "play_many",
    "run",
]

_MODULES = {
    "config": ("SearchConfig",),
    "evaluators": ("Batch", "Evaluation", "Evaluator", "make_evaluator"),
    "many": ("Want", "play_many"),
    "queue": ("Queue",),
    "rules": ("Line", "line_of"),
    "search": ("Candidate", "Search", "run"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
