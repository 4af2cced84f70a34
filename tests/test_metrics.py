"""Metrics, baselines and plots of an evaluation: by hand, by property, against brute force."""

import io
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from ginkgo.features.labels import moved_pieces
from ginkgo.features.position import DRAW, LOSS, NO_RESULT, POSITION, WIN, position_from_sfen
from ginkgo.training import baselines, boards, metrics, plots

START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"
MATED = "4k4/4G4/4P4/9/9/9/9/9/4K4 w - 2"
LN2 = math.log(2)


def positions(results, *, ply=1, source=0, game=None) -> np.ndarray:
    made = np.zeros(len(results), POSITION)
    made["result"], made["ply"], made["source"] = results, ply, source
    made["game"] = np.arange(len(results)) if game is None else game
    return made


def random_games(games: int, plies: int, seed: int = 0) -> np.ndarray:
    """Positions of games won at random, the mover alternating."""
    rng = np.random.default_rng(seed)
    winner = np.repeat(rng.integers(0, 2, games), plies)
    color = np.tile(np.arange(plies) % 2, games)
    made = positions(np.where(winner == color, WIN, LOSS), game=np.repeat(np.arange(games), plies))
    made["color"], made["ply"] = color, np.tile(np.arange(1, plies + 1), games)
    return made


@st.composite
def judged(draw, results=(LOSS, WIN, DRAW, NO_RESULT)):
    """Positions with some results and a prediction for each."""
    drawn = draw(st.lists(st.sampled_from(results), min_size=1, max_size=40))
    win = draw(
        st.lists(st.floats(0, 1, width=32), min_size=len(drawn), max_size=len(drawn)).map(np.array)
    )
    ply = draw(st.lists(st.integers(0, 300), min_size=len(drawn), max_size=len(drawn)))
    return positions(drawn, ply=ply), win


# --- value ------------------------------------------------------------------------------------


def test_value_metrics_by_hand():
    some = positions([WIN, LOSS, DRAW, WIN, NO_RESULT])
    figures = metrics.value_metrics(some, [0.8, 0.4, 0.6, 0.3, 0.9])
    assert figures["positions"] == figures["games"] == 4
    assert figures["accuracy"] == pytest.approx(2 / 3)
    draw = -0.5 * (math.log(0.6) + math.log(0.4))
    losses = [-math.log(0.8), -math.log(0.6), draw, -math.log(0.3)]
    assert figures["log_loss"] == pytest.approx(sum(losses) / 4)
    assert figures["brier"] == pytest.approx((0.04 + 0.16 + 0.01 + 0.49) / 4)
    # Each prediction has a bin of its own.
    assert figures["calibration_error"] == pytest.approx((0.2 + 0.4 + 0.1 + 0.7) / 4)


def test_weights_count_like_repeats():
    some, win = positions([WIN, LOSS, DRAW]), np.array([0.7, 0.9, 0.4])
    weighted = metrics.value_metrics(some, win, weights=[3, 1, 2])
    repeated = metrics.value_metrics(np.repeat(some, [3, 1, 2]), np.repeat(win, [3, 1, 2]))
    for name in ("accuracy", "log_loss", "brier", "calibration_error"):
        assert weighted[name] == pytest.approx(repeated[name])


@settings(deadline=None, max_examples=40)
@given(judged())
def test_a_coin_scores_what_a_coin_scores(case):
    some, _ = case
    figures = metrics.value_metrics(some, np.full(len(some), 0.5))
    if figures["positions"]:
        assert figures["log_loss"] == pytest.approx(LN2)
        draws = (some["result"] == DRAW).sum()
        assert figures["brier"] == pytest.approx(0.25 * (1 - draws / figures["positions"]))
    if np.isin(some["result"], (WIN, LOSS)).any():
        assert figures["accuracy"] == 0.5


@settings(deadline=None, max_examples=40)
@given(judged())
def test_a_prophet_is_perfect(case):
    some, _ = case
    figures = metrics.value_metrics(some, np.nan_to_num(metrics.targets(some)))
    if np.isin(some["result"], (WIN, LOSS)).any():
        assert figures["accuracy"] == 1
        assert figures["brier"] == figures["calibration_error"] == 0
    # A draw said to be one costs ln 2, all else nothing.
    draws = (some["result"] == DRAW).sum()
    if figures["positions"]:
        assert figures["log_loss"] == pytest.approx(LN2 * draws / figures["positions"], abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(judged(results=(DRAW, NO_RESULT)))
def test_draws_alone_have_no_accuracy_and_cost_at_least_ln_2(case):
    some, win = case
    figures = metrics.value_metrics(some, win)
    assert math.isnan(figures["accuracy"])
    if figures["positions"]:
        assert figures["log_loss"] >= LN2 - 1e-12
    else:
        assert math.isnan(figures["log_loss"])
        assert math.isnan(figures["brier"])


@settings(deadline=None, max_examples=40)
@given(judged())
def test_the_other_sides_view_scores_the_same(case):
    some, win = case
    turned = some.copy()
    turned["result"] = np.array([WIN, LOSS, DRAW, NO_RESULT])[some["result"]]
    here, there = metrics.value_metrics(some, win), metrics.value_metrics(turned, 1 - win)
    for name in ("accuracy", "log_loss", "brier"):
        assert here[name] == pytest.approx(there[name], nan_ok=True)


@settings(deadline=None, max_examples=40)
@given(judged())
def test_buckets_and_sources_add_up(case):
    some, win = case
    some["source"] = some["ply"] % 3
    total = metrics.value_metrics(some, win)
    for parts in (metrics.by_ply(some, win), metrics.by_source(some, win)):
        counts = [part["positions"] for part in parts.values()]
        assert sum(counts) == total["positions"]
        filled = [part for part in parts.values() if part["positions"]]
        summed = sum(part["log_loss"] * part["positions"] for part in filled)
        if total["positions"]:
            assert summed / total["positions"] == pytest.approx(total["log_loss"])


def test_ply_buckets_begin_where_they_say():
    some = positions([WIN] * 7, ply=[0, 29, 30, 89, 90, 120, 400])
    counts = {name: part["positions"] for name, part in metrics.by_ply(some, [0.5] * 7).items()}
    assert counts == {"0-29": 2, "30-59": 1, "60-89": 1, "90-119": 1, "120+": 2}
    assert list(metrics.by_ply(some[:2], [0.5] * 2)) == ["0-29"]


def test_sources_by_name():
    some = positions([WIN, LOSS], source=[4, 7])
    win = [0.9, 0.9]
    figures = metrics.by_source(some, win, {4: "pro", 7: "amateur"})
    assert {name: part["accuracy"] for name, part in figures.items()} == {"pro": 1, "amateur": 0}
    assert list(metrics.by_source(some, win)) == ["4", "7"]


def test_nan_and_wrong_shapes_do_not_pass_for_results():
    some = positions([WIN, LOSS])
    figures = metrics.value_metrics(some, [0.9, np.nan])
    for name in ("accuracy", "log_loss", "brier", "calibration_error"):
        assert math.isnan(figures[name])
    with pytest.raises(ValueError, match=r"expected \(2,\)"):
        metrics.value_metrics(some, np.full((2, 1), 0.5))


def test_calibration_by_hand():
    some = positions([WIN, LOSS, DRAW, WIN, NO_RESULT])
    bins = metrics.calibration(some, [0.1, 0.2, 0.95, 1.0, 0.6], bins=4)
    assert bins.counts.tolist() == [2, 0, 0, 2]
    np.testing.assert_allclose(bins.predicted, [0.15, np.nan, np.nan, 0.975])
    np.testing.assert_allclose(bins.won, [0.5, np.nan, np.nan, 0.75])
    assert bins.error == pytest.approx((0.35 + 0.225) / 2)


# --- bootstrap --------------------------------------------------------------------------------


def test_identical_predictors_differ_by_nothing():
    some = random_games(50, 20)
    win = np.random.default_rng(1).random(len(some))
    for interval in metrics.paired_bootstrap(some, win, win).values():
        assert interval == (0, 0, 0)


def test_interval_covers_a_known_difference():
    # Right with chances .7 and .6 for a game as a whole: in truth the accuracies differ by .1,
    # the log losses by what the same chances make of them.
    truth = 0.1
    log_truth = 0.1 * (math.log(0.2) - math.log(0.8))
    covered = np.zeros(2)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        some = random_games(400, 10, seed)
        won = some["result"] == WIN
        wins = []
        for chance in (0.7, 0.6):
            right = np.repeat(rng.random(400) < chance, 10)
            wins.append(np.where(right == won, 0.8, 0.2))
        found = metrics.paired_bootstrap(some, *wins, seed=seed, resamples=500)
        covered += [
            found["accuracy"].low <= truth <= found["accuracy"].high,
            found["log_loss"].low <= log_truth <= found["log_loss"].high,
        ]
        for interval in found.values():
            assert interval.low < interval.difference < interval.high
    assert (covered >= 16).all()  # 19 of 20 expected


def test_interval_depends_on_games_not_positions():
    # Two hundred plies that stand and fall together tell no more than one ply.
    one, many = random_games(300, 1), random_games(300, 1)
    many = np.repeat(many, 200)
    rng = np.random.default_rng(0)
    win_a, win_b = rng.random(300), rng.random(300)
    short = metrics.paired_bootstrap(one, win_a, win_b)
    long = metrics.paired_bootstrap(many, np.repeat(win_a, 200), np.repeat(win_b, 200))
    for name in short:
        np.testing.assert_allclose(short[name], long[name])
    # The binomial formula for a single predictor against a coin: ±1.96·sqrt(p·q/n).
    found = metrics.paired_bootstrap(one, win_a, np.full(300, 0.5))["accuracy"]
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * 0.5 / math.sqrt(300), rel=0.1)


def test_one_game_has_no_interval():
    some = positions([WIN, LOSS], game=[3, 3])
    interval = metrics.paired_bootstrap(some, [0.9, 0.1], [0.1, 0.9])["accuracy"]
    assert interval.difference == 1
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    empty = metrics.paired_bootstrap(some[:0], [], [])["log_loss"]
    assert math.isnan(empty.difference)


# --- policy -----------------------------------------------------------------------------------


def judge_moves(logits, labels, weights=None):
    return metrics.policy_metrics(*metrics.move_scores(logits, labels), weights)


def test_policy_metrics_by_hand():
    logits = np.log([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
    assert metrics.move_scores(logits, [0, 2])[0].tolist() == [0, 1]
    figures = judge_moves(logits, [0, 2])
    assert figures["top1"] == 0.5
    assert figures["top5"] == 1
    assert figures["cross_entropy"] == pytest.approx(-(math.log(0.5) + math.log(0.3)) / 2)


def test_policy_metrics_agree_with_sorting():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(300, 2187)) * 3, rng.integers(0, 2187, 300)
    labels[:150] = logits[:150].argmax(axis=1)
    weights = rng.random(300)
    whole = judge_moves(logits, labels, weights)
    order = np.argsort(-logits, axis=1, kind="stable")
    top5 = (order[:, :5] == labels[:, None]).any(axis=1)
    assert whole["top5"] == pytest.approx((weights @ top5) / weights.sum())
    assert whole["top1"] == pytest.approx(weights @ (order[:, 0] == labels) / weights.sum())


def test_policy_metrics_do_not_flatter():
    flat = judge_moves(np.zeros((2187, 2187)), np.arange(2187))
    assert flat["top1"] == pytest.approx(1 / 2187)
    assert flat["top5"] == pytest.approx(5 / 2187)
    assert flat["cross_entropy"] == pytest.approx(math.log(2187))
    broken = judge_moves(np.full((3, 10), np.nan), [0, 1, 2])
    assert broken["top1"] == broken["top5"] == 0
    assert math.isnan(broken["cross_entropy"])
    ruled_out = judge_moves([[0.0, -np.inf, 0.0]], [0])
    assert ruled_out["cross_entropy"] == pytest.approx(LN2)
    assert math.isnan(judge_moves(np.zeros((0, 10)), [])["top1"])
    with pytest.raises(ValueError, match="do not fit"):
        judge_moves(np.zeros((3, 10)), [0, 1])
    with pytest.raises(ValueError, match="differ"):
        judge_moves(np.zeros((3, 10)), [0, 1, 2], [1.0])


# --- baselines --------------------------------------------------------------------------------


def test_material_of_known_positions():
    # Black has a rook and a gold more on the board, White two pawns and a bishop in hand.
    sfens = [START, "4k4/9/9/9/9/9/9/9/3GK2+R1 b 2pb 1", "4k4/9/9/9/9/9/9/9/3GK2+R1 w 2pb 1"]
    some = np.concatenate([position_from_sfen(sfen) for sfen in sfens])
    assert baselines.material(some).tolist() == [0, 6 + 12 - 2 - 8, -8]
    some["result"] = [WIN, WIN, WIN]
    assert baselines.sign_accuracy(some) == 0.5  # level: a half; ahead: right; behind: wrong


def test_majority():
    some = positions([WIN, WIN, LOSS, DRAW, NO_RESULT])
    fitted = baselines.Majority().fit(some)
    assert fitted.win == 2.5 / 4
    assert fitted.predict(some).tolist() == [0.625] * 5
    assert baselines.Majority().fit(some[:0]).win == 0.5
    assert baselines.Majority().fit(some, [1, 1, 0, 0, 9]).win == 1


def test_frequent_moves():
    some = positions([WIN] * 6)
    some["move"] = [7, 7, 7, 1200, 1200, 3]
    fitted = baselines.FrequentMoves().fit(some)
    assert np.exp(fitted.logits).sum() == pytest.approx(1)
    figures = judge_moves(fitted.predict(some), some["move"])
    rank, loss = (scores[some["move"]] for scores in fitted.scores())
    assert metrics.policy_metrics(rank, loss) == pytest.approx(figures)
    assert figures["top1"] == 0.5
    assert figures["top5"] == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_irls_agrees_with_brute_force_descent(weighted):
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones((400, 1)), rng.normal(size=(400, 3))], axis=1)
    target = rng.choice([0, 0.5, 1], 400)
    weights = rng.random(400) * 2 if weighted else np.ones(400)
    penalty = np.array([0.5, 1, 2, 3])
    coefficients = np.zeros(4)
    for _ in range(3000):
        slope = x.T @ (weights * (1 / (1 + np.exp(-x @ coefficients)) - target))
        coefficients -= 0.004 * (slope + penalty * coefficients)
    got = baselines.logistic_fit(x, target, penalty, weights if weighted else None)
    np.testing.assert_allclose(got, coefficients, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e4), st.integers(0, 60))
def test_irls_stands_separable_data(seed, scale, n):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * scale
    target = (x[:, :1].sum(axis=1) > 0).astype(float)
    coefficients = baselines.logistic_fit(x, target, penalty=1e-2)
    assert np.isfinite(coefficients).all()
    # The gradient of the penalised loss vanishes there.
    slope = x.T @ (0.5 * (1 + np.tanh(x @ coefficients / 2)) - target) + 1e-2 * coefficients
    assert np.abs(slope).max() <= 1e-4 * (1 + np.abs(x).sum())


def test_material_learns_that_pieces_win():
    rng = np.random.default_rng(0)
    some = np.repeat(position_from_sfen(START), 4000)
    some["hand"][:, 0, 6] = rng.integers(0, 5, 4000)  # golds in hand
    some["hand"][:, 1, 6] = 4 - some["hand"][:, 0, 6]
    ahead = baselines.material(some)
    some["result"] = np.where(rng.random(4000) < 1 / (1 + np.exp(-ahead / 10)), WIN, LOSS)
    some["ply"], some["game"] = rng.integers(1, 120, 4000), np.arange(4000)
    fitted = baselines.Material().fit(some)
    win = fitted.predict(some)
    assert np.corrcoef(win, ahead)[0, 1] > 0.95
    coin = baselines.Majority().fit(some).predict(some)
    assert metrics.paired_bootstrap(some, win, coin)["log_loss"].high < 0
    np.testing.assert_array_equal(baselines.Material().fit(some).coefficients, fitted.coefficients)
    assert (baselines.Material().fit(some[:0]).predict(some[:5]) == 0.5).all()


def test_score_scale_is_found_again():
    rng = np.random.default_rng(0)
    some = positions([WIN] * 20_000)
    score = rng.normal(size=len(some)) * 500
    some["score"] = score
    some["result"] = np.where(rng.random(len(some)) < 1 / (1 + np.exp(-score / 350)), WIN, LOSS)
    assert baselines.score_scale(some) == pytest.approx(350, rel=0.05)
    some["score"] = np.nan
    assert math.isnan(baselines.score_scale(some))


def test_piece_moves():
    some = random_games(20, 60)
    fitted = baselines.PieceMoves().fit(some)
    told = fitted.predict(some)
    pieces = moved_pieces(some["board"], some["move"])
    for piece in range(1, 15):
        here = pieces == piece
        if here.any():
            assert len(set(told[here])) == 1
            most = np.bincount(some["move"][here]).max()
            assert (told[here] == some["move"][here]).sum() == most


def test_baselines_survive_json():
    some = random_games(30, 4)
    fitted = baselines.Baselines.fitted(some)
    back = baselines.Baselines.from_dict(json.loads(json.dumps(fitted.to_dict())))
    for name, baseline in vars(fitted).items():
        other = getattr(back, name)
        assert type(other) is type(baseline)
        np.testing.assert_array_equal(other.predict(some), baseline.predict(some))
    with pytest.raises(ValueError, match="46 coefficients"):
        baselines.Material([1.0])


# --- plots ------------------------------------------------------------------------------------


def assert_a_picture(image: np.ndarray) -> None:
    assert image.shape == (plots.HEIGHT, plots.WIDTH, 3)
    assert image.dtype == np.uint8
    assert (image[0] == 255).all()
    assert (image[:, -1] == 255).all()
    assert 0.01 < (image.min(axis=2) < 200).mean() < 0.5


def test_plots_are_pictures():
    some = random_games(60, 130)
    rng = np.random.default_rng(0)
    model = np.clip(0.5 + (metrics.targets(some) - 0.5) * rng.random(len(some)), 0, 1)
    coin = np.full(len(some), 0.5)
    curves = {"model": model, "coin": coin}
    calibrations = {name: metrics.calibration(some, win) for name, win in curves.items()}
    plies = {name: metrics.by_ply(some, win) for name, win in curves.items()}
    images = [plots.calibration_plot(calibrations), plots.by_ply_plot(plies, title="by ply")]
    for image in images:
        assert_a_picture(image)
    back = imread(io.BytesIO(plots.png(images[0])), format="png")
    np.testing.assert_array_equal(np.round(back[:, :, :3] * 255).astype(np.uint8), images[0])


def test_plots_of_next_to_nothing():
    some = positions([DRAW, NO_RESULT])
    assert_a_picture(plots.calibration_plot({"model": metrics.calibration(some[1:], [0.5])}))
    assert_a_picture(plots.by_ply_plot({"model": metrics.by_ply(some, [0.5, 0.5])}))
    assert_a_picture(plots.by_ply_plot({}))


# --- boards -----------------------------------------------------------------------------------


def test_opinions_are_legal_moves_with_probabilities():
    position = position_from_sfen(START)[0]
    logits = np.zeros(2187, np.float32)
    # 7g7f, 2g2f and, far more wanted but impossible, a drop.
    up = {usi: 81 * 0 + to for usi, to in (("7g7f", 9 * 6 + 5), ("2g2f", 9 * 1 + 5))}
    logits[up["7g7f"]], logits[up["2g2f"]], logits[81 * 20 + 40] = 3, 2, 99
    said = boards.opinion(position, 0.6, logits)
    assert [label for label, _ in said.moves[:2]] == list(up.values())
    total = np.exp(3) + np.exp(2) + 28  # thirty legal moves
    assert said.moves[0][1] == pytest.approx(np.exp(3) / total)
    assert boards.opinion(position, 0.6, None).moves is None


def test_boards_are_pictures():
    some = np.concatenate([position_from_sfen(START), position_from_sfen(MATED)])
    some["move"] = 5
    rng = np.random.default_rng(0)
    said = [boards.opinion(one, 0.25, rng.normal(size=2187)) for one in some]
    assert said[1].moves == []  # no legal move is left
    image = boards.boards_image(some, said, "two boards")
    assert image.dtype == np.uint8
    assert image.shape == (450, 1350, 3)
    other = boards.boards_image(some, [boards.Opinion(None, None)] * 2, "two boards")
    assert (image != other).any()


def test_best_scale_undoes_what_made_predictions_too_sure():
    rng = np.random.default_rng(2)
    margin = rng.normal(0, 1, 20_000)
    target = (rng.random(20_000) < 1 / (1 + np.exp(-margin))).astype(np.float64)
    target[::7] = np.nan
    ones = np.ones(20_000)
    assert metrics.best_scale(target, 2.5 * margin, ones) == pytest.approx(0.4, rel=0.05)
    halves = np.where(rng.random(20_000) < 0.5, 0.5, 2.0)
    only = metrics.best_scale(target, halves * margin, (halves == 0.5).astype(float))
    assert only == pytest.approx(2, rel=0.07)
    assert metrics.best_scale(np.full(5, np.nan), np.ones(5), np.ones(5)) == 1
