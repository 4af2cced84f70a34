"""Statistics of matches, against published figures, independent arithmetic, and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ginkgo.arena.statistics import (
    PAIR_SCORES,
    Sprt,
    elo_of,
    estimate,
    log_likelihood_ratio,
    normalized_elo,
    pentanomial,
    score_of,
)


def players(elo: float, draws: float, bias: float) -> np.ndarray:
    """(5,) probabilities of the outcomes of a pair between players of a known difference.

    Args:
        draws: share of drawn games. bias: what an opening adds to one colour's score, half of the
            openings for Black, so that the games of a pair are not independent.
    """
    score = score_of(elo)
    found = np.zeros(5)
    for favour in (bias, -bias):
        games = []
        for here in (score + favour, score - favour):
            games.append(np.array([1 - here - draws / 2, draws, here - draws / 2]))
        found += 0.5 * np.convolve(*games)
    assert found.min() >= 0
    assert found @ PAIR_SCORES == pytest.approx(score)
    return found


# Of reports that the test benches fastchess and OpenBench have printed: pairs by outcome, Elo and
# half its interval, normalized Elo, likelihood of superiority in %, ratio with its hypotheses.
@pytest.mark.parametrize(
    ("counts", "elo", "error", "normalized", "los", "ratio", "test"),
    [
        ([307, 619, 1202, 725, 353], 10.73, 6.70, 13.63, 99.92, 2.95, (0, 5)),
        ([84, 124, 343, 125, 164], 33.40, 14.24, 39.23, 100.00, 0.54, (0, 1)),
        ([12, 6, 25, 8, 9], -11.59, 56.66, -12.83, 34.29, None, None),
        ([11, 1, 32, 8, 48], 149.26, 55.24, 148.57, 100.00, None, None),
        ([0, 0, 2, 0, 37], 631.91, None, 1056.68, 100.00, 2.96, (0, 20)),
        ([19, 120, 346, 223, 28], 28.62, 10.58, None, None, 3.00, (-5, 0)),
    ],
)
def test_published_results(counts, elo, error, normalized, los, ratio, test):
    found = estimate(np.array(counts))
    assert found.elo == pytest.approx(elo, abs=0.006)
    if error is not None:
        # OpenBench takes the mean of both sides otherwise.
        assert (found.high - found.low) / 2 == pytest.approx(error, abs=0.06)
    if normalized is not None:
        assert normalized_elo(np.array(counts)) == pytest.approx(normalized, abs=0.006)
    if los is not None:
        assert 100 * found.los == pytest.approx(los, abs=0.006)
    if ratio is not None:
        sprt = Sprt(*test, model="normalized")
        assert sprt.ratio(np.array(counts)) == pytest.approx(ratio, abs=0.006)
        assert sprt.bounds == pytest.approx((-2.94, 2.94), abs=0.005)


@settings(deadline=None)
@given(st.floats(-900, 900))
def test_elo_and_score_are_inverse(elo):
    assert elo_of(score_of(elo)) == pytest.approx(elo, abs=1e-6)
    assert score_of(elo) + score_of(-elo) == pytest.approx(1)


COUNTS = st.lists(st.integers(0, 200), min_size=5, max_size=5).filter(lambda c: sum(c) > 0)
VARIED = COUNTS.filter(lambda c: np.count_nonzero(c) > 1)


@settings(max_examples=12, deadline=None)
@given(COUNTS, st.floats(-100, 100), st.floats(-100, 100))
def test_the_ratio_is_that_of_the_two_best_fits(counts, elo0, elo1):
    """Against a general optimiser, which knows nothing of the closed form."""
    from scipy.optimize import minimize

    counts = np.array(counts)
    seen = np.where(counts > 0, counts, 1e-3)
    seen = seen / seen.sum()

    def best(elo: float) -> float:
        fit = minimize(
            lambda p: -(seen * np.log(np.maximum(p, 1e-12))).sum(),
            np.full(5, 0.2),
            bounds=[(1e-9, 1)] * 5,
            constraints=[
                {"type": "eq", "fun": lambda p: p.sum() - 1},
                {"type": "eq", "fun": lambda p: p @ PAIR_SCORES - score_of(elo)},
            ],
            options={"maxiter": 500, "ftol": 1e-12},
        )
        return -fit.fun

    expected = counts.sum() * (best(elo1) - best(elo0))
    found = log_likelihood_ratio(counts, elo0, elo1)
    assert found == pytest.approx(expected, abs=1e-2 + 1e-3 * abs(expected))


@settings(max_examples=40, deadline=None)
@given(VARIED, st.floats(-60, 60), st.floats(-60, 60), st.sampled_from(["logistic", "normalized"]))
def test_the_ratio_changes_its_sign_with_sides_and_hypotheses(counts, elo0, elo1, model):
    counts = np.array(counts)
    found = log_likelihood_ratio(counts, elo0, elo1, model)
    close = {"rel": 1e-6, "abs": 1e-6}
    assert math.isfinite(found)
    assert log_likelihood_ratio(counts, elo1, elo0, model) == pytest.approx(-found, **close)
    assert log_likelihood_ratio(counts[::-1], -elo0, -elo1, model) == pytest.approx(found, **close)
    several = log_likelihood_ratio(np.stack([counts, counts[::-1]]), elo0, elo1, model)
    assert several[0] == pytest.approx(found, **close)


@settings(deadline=None)
@given(COUNTS)
def test_the_interval_holds_the_estimate_and_turns_with_the_sides(counts):
    found, turned = estimate(np.array(counts)), estimate(np.array(counts[::-1]))
    assert found.low <= found.elo <= found.high
    assert found.low < found.high
    assert 0 <= found.los <= 1
    wider = estimate(np.array(counts), 0.99)
    assert wider.low <= found.low
    assert wider.high >= found.high
    for one, other in ((found.elo, turned.elo), (found.low, turned.high)):
        assert one == pytest.approx(-other, abs=1e-6)
    assert found.los + turned.los == pytest.approx(1)


def test_pairs_are_counted():
    pairs = [(0, 0), (0.5, 0), (0, 1), (0.5, 0.5), (1, 0.5), (1, 1), (1, 1)]
    assert pentanomial(pairs).tolist() == [1, 1, 2, 1, 2]
    assert pentanomial([]).tolist() == [0] * 5


@pytest.mark.parametrize("counts", [[0] * 5, [0, 0, 50, 0, 0], [0, 0, 0, 0, 50]])
def test_results_without_variance_decide_nothing(counts):
    counts = np.array(counts)
    assert Sprt(0, 10).verdict(counts) == "undecided"
    assert Sprt(0, 10, model="normalized").verdict(counts) == "undecided"


def test_the_interval_without_variance():
    """Fifty pairs that ended alike have missed at most 7.1 % of other pairs (95 %)."""
    found = estimate(np.array([0, 0, 50, 0, 0]))
    assert found.elo == 0
    assert found.low == pytest.approx(-found.high)
    assert 1 - 2 * score_of(found.low) == pytest.approx(0.0711, abs=1e-4)
    found = estimate(np.array([0, 0, 0, 0, 50]))
    assert (found.elo, found.high, found.los) == (math.inf, math.inf, 1)
    assert score_of(found.low) == pytest.approx(1 - 0.0711, abs=1e-4)


@pytest.mark.parametrize("model", ["logistic", "normalized"])
@pytest.mark.parametrize("truth", [0.0, 60.0])
def test_a_sequential_test_errs_as_seldom_as_it_says(model, truth):
    """1,000 tests between players of known strength: errors within two standard errors."""
    rng = np.random.default_rng(int(truth))
    outcomes = players(truth, draws=0.1, bias=0.1)
    elo0, elo1 = 0.0, 60.0
    if model == "normalized":  # the same difference in the other unit
        shares = players(60.0, draws=0.1, bias=0.1)
        elo1 = normalized_elo(np.round(shares * 10**9).astype(np.int64))
    sprt = Sprt(elo0, elo1, model=model)
    lower, upper = sprt.bounds
    counts, ratio = np.zeros((1000, 5), np.int64), np.zeros(1000)
    while (going := (lower < ratio) & (ratio < upper)).any():
        counts[going] += rng.multinomial(10, outcomes, int(going.sum()))
        found = log_likelihood_ratio(counts[going], elo0, elo1, model)
        ratio[going] = np.where((counts[going] > 0).sum(axis=1) > 1, found, 0)
    assert [sprt.verdict(one) for one in counts[:20]] == [
        "accepted" if one >= upper else "rejected" for one in ratio[:20]
    ]
    wrong = (ratio >= upper) if truth == elo0 else (ratio <= lower)
    assert wrong.mean() <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize("truth", [0.0, 60.0, -200.0])
def test_the_interval_covers_the_truth(truth):
    rng = np.random.default_rng(5)
    outcomes = players(truth, draws=0.05, bias=0.1)
    runs = [estimate(counts) for counts in rng.multinomial(200, outcomes, 1000)]
    assert 930 <= sum(found.low <= truth <= found.high for found in runs) <= 970


def test_likelihood_of_superiority():
    assert estimate(np.array([10, 20, 30, 20, 10])).los == pytest.approx(0.5)
    assert estimate(np.array([5, 15, 30, 25, 15])).los > 0.97
