"""What a search leaves for training: forced playouts taken back, shares as whole visits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ginkgo.search.forced import forced_moves, pruned_visits
from ginkgo.selfplay.game import apportioned


def test_forced_playouts_are_owed_to_visited_moves_only():
    visits, priors = np.array([20, 1, 0, 9]), np.array([0.4, 0.3, 0.2, 0.1])
    # sqrt(2 · .3 · 30) = 4.2, sqrt(2 · .1 · 30) = 2.4, sqrt(2 · .4 · 30) = 4.9.
    assert forced_moves(visits, priors, 2.0, 8).tolist() == [1]
    assert forced_moves(visits, priors, 2.0, 0).tolist() == []


def test_pruning_takes_forced_visits_back():
    visits = np.array([90.0, 3.0, 4.0, 0.0])
    values = np.array([0.6, 0.2, 0.6, np.nan])
    priors = np.array([0.7, 0.05, 0.1, 0.15])
    kept = pruned_visits(visits, values, priors, 1.44, 2.0)
    # The best keeps all; a bad move that force alone has brought loses all; a move as good as the
    # best keeps what PUCT would have given it.
    assert kept.tolist() == [90, 0, 4, 0]
    # With a larger prior PUCT itself would have looked at the bad move, if less often.
    priors = np.array([0.6, 0.15, 0.1, 0.15])
    kept = pruned_visits(np.array([90.0, 7.0, 4.0, 0.0]), values, priors, 1.44, 2.0)
    assert 0 < kept[1] < 7
    assert pruned_visits(np.zeros(3), np.full(3, np.nan), np.ones(3) / 3, 1.4, 2.0).sum() == 0


def test_pruning_never_adds_and_keeps_the_best():
    rng = np.random.default_rng(3)
    for _ in range(200):
        size = int(rng.integers(1, 40))
        visits = rng.integers(0, 30, size).astype(float)
        visits[rng.integers(size)] += 1
        values = np.where(visits > 0, rng.random(size), np.nan)
        priors = rng.dirichlet(np.full(size, 0.3))
        kept = pruned_visits(visits, values, priors, 1.5, 2.0)
        assert (kept <= visits).all()
        assert (kept >= 0).all()
        assert kept[visits.argmax()] == visits.max()
        assert (visits - kept <= np.sqrt(2 * priors * visits.sum()) + 1).all()


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=600).filter(any),
    st.integers(1, 65535),
)
def test_visits_sum_to_those_of_the_search(shares, total):
    """Also where each share is far below one visit; the server asks for it."""
    exact = np.array(shares) / np.sum(shares) * total
    visits = apportioned(np.array(shares), total)
    assert visits.sum() == total
    assert (visits >= 0).all()
    assert (abs(visits - exact) <= 1 + 1e-6).all()
