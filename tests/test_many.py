"""Many games at once play what single games play."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ginkgo.errors import GinkgoError
from ginkgo.search import Queue, Search, SearchConfig, Want, make_evaluator, play_many, run
from ginkgo.search.evaluators import HashEvaluator

CONFIG = SearchConfig(batch=4, nodes=400, max_ply=14)


def play_alone(seed: int) -> list[str]:
    search = Search(replace(CONFIG, seed=seed, noise=0.25))
    queue = Queue(HashEvaluator())
    while search.line.ending(CONFIG.max_ply) is None:
        search.begin()
        run([search], queue, 20 + seed)
        search.play(search.best_move(1.0))
    return search.line.usi


def game(seed: int, network: int = 0):
    search = Search(replace(CONFIG, seed=seed, noise=0.25))
    while search.line.ending(CONFIG.max_ply) is None:
        search.begin()
        yield Want(search, 20 + seed, network)
        search.play(search.best_move(1.0))
    return seed, search.line.usi


@pytest.mark.parametrize(("groups", "together"), [(1, 1), (1, 3), (2, 4), (2, 64)])
def test_games_do_not_touch_one_another(groups, together):
    queues = [[Queue(HashEvaluator())] for _ in range(groups)]
    found = dict(play_many((game(seed) for seed in range(7)), queues, together))
    assert found == {seed: play_alone(seed) for seed in range(7)}
    assert len({tuple(moves) for moves in found.values()}) == 7


def test_batches_hold_leaves_of_all_games():
    sizes = []

    class Counting(HashEvaluator):
        def evaluate(self, batch):
            sizes.append(len(batch.counts))
            return super().evaluate(batch)

    list(play_many((game(seed) for seed in range(8)), [[Queue(Counting())]], 8))
    assert np.mean(sizes) > 12
    assert max(sizes) <= 8 * CONFIG.batch


def test_each_network_gets_its_own_leaves():
    queues = [Queue(HashEvaluator(seed=0)), Queue(make_evaluator("uniform"))]
    found = list(play_many((game(seed, seed % 2) for seed in range(4)), [queues], 4))
    assert {seed for seed, _ in found} == set(range(4))
    assert all(queue.evaluated for queue in queues)
    assert dict(found)[2] == play_alone(2)


def test_games_begin_when_there_is_room():
    begun = []

    def games():
        for seed in range(6):
            begun.append(seed)
            yield game(seed)

    results = play_many(games(), [[Queue(HashEvaluator())]], 2)
    next(results)
    assert len(begun) <= 3
    results.close()
    assert len(begun) <= 3


def test_an_evaluator_that_fails_ends_everything():
    class Failing(HashEvaluator):
        def note(self, place, board):
            pass

        def evaluate(self, batch):
            raise GinkgoError("no answer")

    with pytest.raises(GinkgoError, match="no answer"):
        list(play_many([game(0), game(1)], [[Queue(Failing())], [Queue(Failing())]], 2))
