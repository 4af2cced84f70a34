"""The tree search: bookkeeping, determinism, reuse, bounds, proofs, Gumbel, shared batches."""

from __future__ import annotations

import itertools

import cshogi
import numpy as np
import pytest

from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import Batch, Evaluation, HashEvaluator, UniformEvaluator
from ginkgo.search.gumbel import SequentialHalving, improved_policy, scaled
from ginkgo.search.kernels import EXPANDED, PENDING
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line, line_of
from ginkgo.search.search import Search, mate_only, run
from ginkgo.search.tree import CACHE_LINE, Tree, nodes_in

MIDDLE = "sfen ln1gk2nl/1r1s1g3/p1pppp1pp/6p2/1p5P1/2P6/PP1PPPP1P/1S1GK1SR1/LN3G1NL w Bb 30"
#: 1. 5c3c 3a2a 2. G*2b.
MATE_IN_3 = "sfen 3p2k2/9/3S+R4/9/9/9/9/9/5K3 b GP 1"


def searched(line: Line, simulations: int, evaluator=None, **config) -> Search:
    search = Search(SearchConfig(**{"nodes": 20000, **config}), line)
    search.begin(simulations)
    run([search], Queue(evaluator or HashEvaluator()), simulations)
    return search


def summary(search: Search) -> list[tuple]:
    """All that is known of the root's moves, comparable (NaN is not)."""
    return [
        (one.move, one.usi_line, one.visits, one.prior, str(one.value), one.proof)
        for one in search.candidates()
    ]


def check_books(search: Search) -> None:
    """Every count and sum of the tree, from its parts."""
    nodes, edges = search.tree.nodes, search.tree.edges
    for node in range(search.tree.size):
        here = search.tree.edges_of(node)
        assert nodes.state[node] != PENDING
        children = edges.child[here]
        if nodes.state[node] == EXPANDED:
            visits = edges.visits[here]
            assert nodes.visits[node] == 1 + visits.sum()
            total = nodes.value[node] + edges.total[here].sum()
            assert nodes.total[node] == pytest.approx(total, rel=1e-4)
            assert edges.prior[here].sum() == pytest.approx(1, rel=1e-4)
            opened = int(nodes.opened[node])
            assert (visits[opened:] == 0).all()
            rest = edges.prior[here][opened:]
            assert not len(rest) or rest[0] == rest.max()
            assert nodes.mass[node] == pytest.approx(edges.prior[here][:opened].sum(), rel=1e-3)
        for edge, child in zip(range(here.start, here.stop), children.tolist(), strict=True):
            if child < 0:
                assert edges.visits[edge] == 0
                continue
            assert nodes.parent[child] == node
            assert nodes.edge[child] == edge
            assert nodes.visits[child] == edges.visits[edge]
            lost = nodes.visits[child] - nodes.total[child]
            assert edges.total[edge] == pytest.approx(lost, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_visits_and_values_add_up(batch):
    search = searched(line_of(MIDDLE), 1000, batch=batch)
    assert search.simulations == 1000
    assert search.tree.nodes.visits[0] == 1000
    check_books(search)
    assert 0 < search.value < 1
    assert search.deepest >= search.mean_depth > 2


def test_same_seed_same_search():
    options = {"noise": 0.25, "seed": 5}
    first, second = (searched(line_of(MIDDLE), 500, **options) for _ in range(2))
    assert summary(first) == summary(second)
    other = searched(line_of(MIDDLE), 500, **{**options, "seed": 6})
    assert summary(other) != summary(first)
    check_books(first)


def test_games_that_share_batches_are_searched_as_if_alone():
    texts = ["startpos", MIDDLE, "startpos moves 7g7f 3c3d", MATE_IN_3]
    alone = [searched(line_of(text), 300, batch=8) for text in texts]
    together = [Search(SearchConfig(nodes=20000, batch=8), line_of(text)) for text in texts]
    for search in together:
        search.begin()
    queue = Queue(HashEvaluator())
    run(together, queue, 300)
    for one, other in zip(alone, together, strict=True):
        assert summary(one) == summary(other)
    assert queue.evaluated == sum(search.evaluations for search in together)


def test_tree_is_kept_from_move_to_move():
    search = searched(line_of(MIDDLE), 1500)
    best = search.candidates()[0]
    node = search.tree.child_by_move(0, best.move)
    visits = int(search.tree.nodes.visits[node])
    edges = search.tree.edges
    here = search.tree.edges_of(node)
    before = sorted(zip(edges.move[here].tolist(), edges.visits[here].tolist(), strict=True))
    line = line_of(f"{MIDDLE} moves {cshogi.move_to_usi(best.move)}")
    assert search.set_line(line)
    assert search.tree.nodes.visits[0] == visits
    after = sorted(
        zip(*(array[search.tree.edges_of(0)].tolist() for array in (edges.move, edges.visits)),
            strict=True)
    )  # fmt: skip
    assert after == before
    check_books(search)
    search.begin()
    run([search], Queue(HashEvaluator()), 500)
    assert search.tree.nodes.visits[0] == visits + 500
    check_books(search)
    # Two moves at once, as between two moves of the engine; then another game.
    reply = search.candidates()[0]
    follow = reply.usi_line[1]
    search.play(reply.move)
    search.play(follow)
    check_books(search)
    assert search.line.usi[-1] == cshogi.move_to_usi(follow)
    assert not search.set_line(line_of("startpos moves 2g2f"))
    assert search.tree.size == 1


def test_reuse_changes_no_move_of_a_fresh_search_much():
    """The part that is kept plus new simulations make as large a tree as the count says."""
    search = searched(line_of(MIDDLE), 2000)
    move = search.candidates()[0].move
    search.play(move)
    kept = int(search.tree.nodes.visits[0])
    search.begin()
    run([search], Queue(HashEvaluator()), 2000 - kept)
    fresh = searched(line_of(f"{MIDDLE} moves {cshogi.move_to_usi(move)}"), 2000)
    assert search.value == pytest.approx(fresh.value, abs=0.02)


@pytest.mark.parametrize("capacity", [2, 50, 300])
def test_node_limit_is_kept(capacity):
    search = searched(line_of(MIDDLE), 5000, nodes=capacity, batch=16)
    assert search.tree.size <= capacity
    assert search.decided
    assert search.tree.full
    check_books(search)
    assert search.best_move()


def test_memory_of_a_tree():
    tree = Tree(nodes_in(64), 16)
    arrays = [array if array.base is None else array.base for array in (*tree.nodes, *tree.edges)]
    held = sum({id(array): array.nbytes for array in arrays}.values())
    assert 60 * 2**20 < held < 66 * 2**20


@pytest.mark.parametrize("capacity", [2, 1000, 100_000])
def test_a_node_lies_in_one_cache_line(capacity):
    tree = Tree(capacity, 16)
    for place in (0, 1, capacity - 1):
        for arrays in (tree.nodes, (tree.edges.visits, tree.edges.child, tree.edges.proof)):
            assert len({array[place:].ctypes.data // CACHE_LINE for array in arrays}) == 1


def test_leaves_can_be_taken_back():
    search = searched(line_of(MIDDLE), 300)
    before = [array.copy() for array in (*search.tree.nodes, *search.tree.edges)]
    size, visits = search.tree.size, search.tree.nodes.visits[0]
    queue = Queue(HashEvaluator())
    assert search.gather(queue, 16)
    search.drop()
    assert (search.tree.size, search.tree.nodes.visits[0]) == (size, visits)
    assert np.array_equal(before[9][:size], search.tree.nodes.visits[:size])
    run([search], queue, 600)
    check_books(search)


# --- proofs -----------------------------------------------------------------------------------


def test_mate_in_three_by_the_tree():
    search = searched(line_of(MATE_IN_3), 3000, UniformEvaluator())
    best = search.candidates()[0]
    assert mate_only(best.proof)
    assert best.proof == 3
    line = line_of(MATE_IN_3)
    for move in best.usi_line:
        line.push_usi(cshogi.move_to_usi(move))
    assert line.ending() == ("b", "tsumi")
    assert line.checks[-1]
    assert search.decided
    assert search.value == 1


def test_being_mated_resists_longest():
    # White stands before a mate in three and can only choose how.
    line = line_of(f"{MATE_IN_3}")
    search = searched(line, 3000, UniformEvaluator())
    search.play(search.best_move())
    search.begin()
    run([search], Queue(UniformEvaluator()), 3000)
    found = search.candidates()
    assert search.value == 0
    assert all(one.proof < 0 for one in found)
    assert [one.proof for one in found] == sorted(one.proof for one in found)


def test_mate_in_one_needs_no_evaluation():
    search = searched(line_of("sfen 4k4/9/4P4/9/9/9/9/9/4K4 b G 1"), 100)
    assert search.simulations == 1
    assert search.candidates()[0].proof == 1


# --- moves and targets ------------------------------------------------------------------------


def test_moves_drawn_by_visits():
    search = searched(line_of(MIDDLE), 400, seed=1)
    visited = {one.move for one in search.candidates() if one.visits}
    drawn = {search.best_move(temperature=2.0) for _ in range(60)}
    assert len(drawn) > 1
    assert drawn <= visited
    assert {search.best_move() for _ in range(5)} == {search.candidates()[0].move}


def test_policy_is_the_share_of_visits():
    search = searched(line_of(MIDDLE), 400)
    moves, policy = search.policy()
    assert policy.sum() == pytest.approx(1)
    best = search.candidates()[0]
    assert policy[moves.tolist().index(best.move)] == pytest.approx(best.visits / 399)
    moves, policy = searched(line_of(MATE_IN_3), 3000, UniformEvaluator()).policy()
    assert policy.max() == pytest.approx(1 / (policy > 0).sum())


@pytest.mark.parametrize("forced", [0.0, 2.0])
def test_policy_where_moves_are_lost(forced):
    """What is left over is shared by its visits; where nothing was visited, by priors."""
    search = searched(line_of(MIDDLE), 400, forced_playouts=forced)
    edges, here = search.tree.edges, search.tree.edges_of(0)
    visits, priors = edges.visits[here].astype(float), edges.prior[here].astype(float)
    best, second = np.argsort(-visits, kind="stable")[:2]
    edges.proof[here.start + best] = -3
    _, policy = search.policy()
    assert policy[best] == 0
    assert policy.argmax() == second
    assert not policy[visits == 0].any()
    if not forced:
        visits[best] = 0
        np.testing.assert_allclose(policy, visits / visits.sum())
    edges.proof[here][visits > 0] = -3
    _, policy = search.policy()
    assert not policy[edges.proof[here] < 0].any()
    open_priors = np.where(edges.proof[here] < 0, 0, priors)
    np.testing.assert_allclose(policy, open_priors / open_priors.sum(), rtol=1e-5)
    edges.proof[here] = -3
    _, policy = search.policy()
    assert policy.sum() == pytest.approx(1)
    assert policy.argmax() == best


def test_noise_reaches_moves_without_prior():
    plain = searched(line_of(MIDDLE), 1)
    noisy = searched(line_of(MIDDLE), 2, noise=0.25, seed=3)
    edges = noisy.tree.edges.prior[noisy.tree.edges_of(0)]
    assert edges.sum() == pytest.approx(1, rel=1e-4)
    assert sorted(edges) != sorted(plain.tree.edges.prior[plain.tree.edges_of(0)])


# --- Gumbel -----------------------------------------------------------------------------------


class Judge:
    """Likes one first move of the start position, by value alone; all priors are even."""

    name, note = "judge", None

    def __init__(self, liked: str) -> None:
        line = Line(moves=[liked])
        self._key = line.keys[-1]

    def evaluate(self, batch: Batch) -> Evaluation:
        values = np.where(batch.keys == np.uint64(self._key), 0.1, 0.5).astype(np.float32)
        return Evaluation(np.zeros(len(batch.moves), np.float32), values)


@pytest.mark.parametrize(("simulations", "batch"), [(32, 1), (32, 16)])
def test_gumbel_spends_its_budget_and_finds_value(simulations, batch):
    search = searched(Line(), simulations + 1, Judge("5g5f"), gumbel=30, batch=batch, seed=2)
    assert search.simulations == simulations + 1
    assert search.tree.edges.visits[search.tree.edges_of(0)].sum() == simulations
    assert cshogi.move_to_usi(search.best_move()) == "5g5f"
    moves, policy = search.policy()
    assert policy.sum() == pytest.approx(1)
    assert cshogi.move_to_usi(int(moves[policy.argmax()])) == "5g5f"


def test_sequential_halving_by_hand():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.05, 0.05]))
    halving = SequentialHalving(logits, 4, 16, np.random.default_rng(0))
    visits, values = np.zeros(5, int), np.full(5, np.nan)
    worth = np.array([0.1, 0.2, 0.9, 0.8, 0.3])
    for _ in range(16):
        (move,) = halving.request(visits, values, 1)
        visits[move] += 1
        values[move] = worth[move]
    considered = np.flatnonzero(visits)
    assert len(considered) == 4
    # Two rounds: two visits for each of four, then four for each of the better two.
    assert sorted(visits[considered].tolist()) == [2, 2, 6, 6]
    better = considered[np.argsort(-worth[considered])[:2]]
    assert set(np.flatnonzero(visits == 6)) == set(better)
    assert halving.best(visits, values) == better[0]


@pytest.mark.parametrize(
    ("considered", "simulations", "shape"),
    [
        (8, 32, [11, 11, 3, 3, 1, 1, 1, 1]),
        (4, 31, [13, 12, 3, 3, 0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("batch", [1, 3, 8, 16])
def test_gumbel_compares_moves_after_equally_many_visits(batch, considered, simulations, shape):
    """Also where leaves of one batch meet: what is lost so is made up for, in the same round."""
    for seed in range(4):
        line = Line(moves=["7g7f", "3c3d", "2g2f"][:seed])
        config = SearchConfig(nodes=1000, gumbel=considered, batch=batch, seed=seed)
        search = Search(config, line)
        search.begin(simulations)
        run([search], Queue(HashEvaluator()), simulations + 1)
        visits = np.sort(search._root_visits())[::-1]
        assert visits[:8].tolist() == shape
        last = np.flatnonzero(search._root_visits() >= shape[1])
        score = search._halving._score(search._root_visits(), search._root_values())
        best = search._halving.best(search._root_visits(), search._root_values())
        assert best == last[score[last].argmax()]


def test_improved_policy_by_hand():
    logits = np.log(np.array([0.5, 0.25, 0.25]))
    visits = np.array([2, 1, 0])
    values = np.array([0.5, 0.6, np.nan])
    mean = (0.5 * 0.5 + 0.25 * 0.6) / 0.75
    mixed = (0.4 + 3 * mean) / 4
    scores = logits + 52 * np.array([0.5, 0.6, mixed])
    expected = np.exp(scores) / np.exp(scores).sum()
    assert improved_policy(logits, visits, values, 0.4) == pytest.approx(expected)
    # Without visits it is the prior.
    none = improved_policy(logits, np.zeros(3), np.full(3, np.nan), 0.4)
    assert none == pytest.approx([0.5, 0.25, 0.25])


def test_chance_may_say_what_is_looked_at_and_not_what_is_played():
    logits = np.log(np.array([0.3, 0.25, 0.2, 0.15, 0.1]))
    known = np.array([0.50, 0.51, 0.52, 0.53, 0.51])
    looked_at = set()
    for seed in range(40):
        halving = SequentialHalving(logits, 2, 8, np.random.default_rng(seed), later=0.0)
        visits = np.zeros(5, int)
        while visits.sum() < 8:
            for move in halving.request(visits, np.where(visits > 0, known, np.nan), 8):
                visits[move] += 1
        seen = np.flatnonzero(visits)
        looked_at.add(tuple(seen.tolist()))
        score = logits + scaled(known, visits)
        best = halving.best(visits, np.where(visits > 0, known, np.nan))
        assert best == seen[score[seen].argmax()]
    assert len(looked_at) > 5


def test_first_gumbel_move_is_drawn_from_the_prior():
    """One simulation plays argmax(g + logits), which is a draw from the softmax."""
    logits = np.log(np.array([0.6, 0.3, 0.1]))
    counts = np.zeros(3)
    for seed in itertools.count():
        halving = SequentialHalving(logits, 1, 1, np.random.default_rng(seed))
        counts[halving.request(np.zeros(3, int), np.full(3, np.nan), 1)[0]] += 1
        if seed == 1500:
            break
    assert counts / counts.sum() == pytest.approx([0.6, 0.3, 0.1], abs=0.04)
