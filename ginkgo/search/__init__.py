"""Evaluators and Monte Carlo tree search.

In: positions as start and moves, a model by name. Out: the best moves with their values, visits,
expected lines and proofs; policies for training. One search serves the engine, matches and
self-play.
"""

from ginkgo.search.evaluators import Batch, Evaluation, Evaluator, make_evaluator
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line, line_of
from ginkgo.search.search import Candidate, Search, SearchConfig, run

__all__ = [
    "Batch",
    "Candidate",
    "Evaluation",
    "Evaluator",
    "Line",
    "Queue",
    "Search",
    "SearchConfig",
    "line_of",
    "make_evaluator",
    "run",
]
