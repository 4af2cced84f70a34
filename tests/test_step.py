"""One step of training: planes, targets, losses, and the recipe of the optimiser."""

import itertools
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from ginkgo.features import dlshogi119, position
from ginkgo.models import build_network, parse_network
from ginkgo.pipeline import ParseOptions, build_index
from ginkgo.pipeline.load import load_block
from ginkgo.training.recipe import WeightAverage, is_kernel, learning_rate, make_optimizer
from ginkgo.training.step import TrainStep, mirror_half, planes_of, value_targets


@pytest.fixture(scope="module")
def positions(games_dir):
    return load_block(build_index([games_dir], "all"), ParseOptions()).positions[:200]


def batch_of(positions) -> dict:
    return {
        name: tf.constant(np.ascontiguousarray(positions[name])) for name in positions.dtype.names
    }


# --- the step ---------------------------------------------------------------------------------


def test_mirror_half_is_the_mirror_of_every_second_position(positions):
    mirrored = mirror_half(batch_of(positions))
    expected = positions.copy()
    expected[1::2] = position.mirror(positions[1::2])
    np.testing.assert_array_equal(mirrored["board"], expected["board"])
    np.testing.assert_array_equal(mirrored["move"], expected["move"])


def test_planes_reach_the_network_with_files_first(positions):
    planes = planes_of(batch_of(positions), "dlshogi119").numpy()
    expected = dlshogi119.planes_on_host(positions["board"], positions["hand"])
    np.testing.assert_array_equal(planes.transpose(0, 3, 1, 2), expected)


def test_value_targets():
    result = tf.constant([position.LOSS, position.WIN, position.DRAW, position.NO_RESULT], tf.uint8)
    expected = [[0, 1], [1, 0], [0.5, 0.5], [0.5, 0.5]]
    np.testing.assert_array_equal(value_targets(result), expected)


def test_value_targets_with_scores():
    result = np.array([position.WIN, position.LOSS, position.WIN, position.DRAW])
    score = np.array([600, 600, np.nan, -1200], np.float16)
    targets = value_targets(result, tf.constant(score), share=0.25, scale=600.0).numpy()
    rate = 1 / (1 + np.exp(-1))
    wanted = [0.75 + 0.25 * rate, 0.25 * rate, 1, 0.375 + 0.25 / (1 + np.exp(2))]
    np.testing.assert_allclose(targets[:, 0], wanted, rtol=1e-5)
    np.testing.assert_allclose(targets.sum(axis=1), 1)
    assert value_targets(result, tf.constant(score)).numpy()[:, 0].tolist() == [1, 0, 1, 0.5]


def test_value_targets_of_merged_positions():
    result = np.array([position.WIN, position.LOSS, position.WIN])
    outcome = tf.constant(np.array([0.75, np.nan, np.nan], np.float16))
    assert value_targets(result, outcome=outcome).numpy()[:, 0].tolist() == [0.75, 0, 1]
    score = tf.constant(np.array([0, 0, np.nan], np.float16))
    targets = value_targets(result, score, 0.5, 600.0, outcome).numpy()
    np.testing.assert_allclose(targets[:, 0], [0.625, 0.25, 1])


def test_root_values_mix_into_the_value_target():
    names = [position.WIN, position.LOSS, position.DRAW, position.NO_RESULT]
    result = tf.constant(names, tf.uint8)
    root = tf.constant([0.5, 0.5, 1.0, np.nan], tf.float16)
    targets = value_targets(result, root_value=root, root_share=0.25).numpy()
    np.testing.assert_allclose(targets[:, 0], [0.875, 0.125, 0.625, 0.5], atol=1e-3)
    np.testing.assert_allclose(targets.sum(axis=1), 1)
    assert value_targets(result, root_value=root).numpy()[:, 0].tolist() == [1, 0, 0.5, 0.5]


def test_positions_without_result_move_no_value_weight(config, positions):
    """Weight 0 means weight 0: the gradient of the value head vanishes, not only its report."""
    nothing = positions.copy()
    nothing["weight"], nothing["result"] = 0, position.NO_RESULT
    model = build_network(parse_network("b1c8"), 119, ("value",))
    settings = replace(config, weight_decay=0.0)
    step = TrainStep(model, make_optimizer(settings, model), None, settings)
    metrics = step(batch_of(nothing), 1e-2, 0)
    assert float(metrics["loss"]) == 0
    assert float(metrics["gradient_norm"]) == 0


def test_label_smoothing_is_a_share_of_all_classes(config, positions):
    """A net that says the same of everything loses as much with smoothing as without; one that
    is sure and right loses the smoothed share of its certainty."""
    batch = batch_of(positions[:32])
    for sure in (0.0, 20.0):
        model = build_network(parse_network("b1c8"), 119, ("value",))
        out = model.get_layer("value")
        out.kernel.assign(tf.zeros_like(out.kernel))
        out.bias.assign([sure, 0.0])
        won = {**batch, "result": tf.fill([32], np.uint8(position.WIN)), "weight": tf.ones(32)}
        settings = replace(config, label_smoothing=0.1, mirror=False)
        step = TrainStep(model, make_optimizer(settings, model), None, settings)
        loss = float(step(won, 0.0, 0)["value_loss"])
        assert loss == pytest.approx(0.05 * sure if sure else np.log(2), rel=1e-3)


@pytest.mark.parametrize("heads", [("value",), ("policy",), ("policy", "value")])
def test_a_net_learns_a_batch_by_heart(config, positions, heads):
    keras.utils.set_random_seed(1)
    settings = replace(config, heads=heads, mirror=False)
    model = build_network(parse_network("b1c16"), 119, heads)
    step = TrainStep(model, make_optimizer(settings, model), None, settings)
    batch = batch_of(positions[:64])
    losses = [float(step(batch, 1e-2, number)["loss"]) for number in range(40)]
    assert losses[-1] < 0.5 * losses[0]


def test_xla_learns_the_same(config, positions):
    found = []
    for xla in (False, True):
        keras.utils.set_random_seed(1)
        settings = replace(config, heads=("policy", "value"), xla=xla, optimizer="sgd")
        model = build_network(parse_network("b1c8"), 119, settings.heads)
        average = WeightAverage(model, 0.9)
        step = TrainStep(model, make_optimizer(settings, model), average, settings)
        for number in range(3):
            metrics = step(batch_of(positions[64 * number : 64 * number + 64]), 1e-2, number)
        found.append([*average.values, *metrics.values()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


# --- the recipe -------------------------------------------------------------------------------


def test_schedules(config):
    rates = [learning_rate(replace(config, warmup=0.1), step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(config.learning_rate / 100)
    assert max(rates) == pytest.approx(config.learning_rate)
    assert rates[-1] == pytest.approx(0.01 * config.learning_rate, rel=0.01)
    assert all(a >= b for a, b in itertools.pairwise(rates[100:]))
    stepped = replace(config, schedule="step", warmup=0.0)
    assert learning_rate(stepped, 600, 1000) == pytest.approx(0.1 * config.learning_rate)
    level = replace(config, schedule="constant")
    assert learning_rate(level, 999, 1000) == config.learning_rate


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_only_kernels_decay(config, name):
    """With zero gradients a step changes kernels by the decay alone and nothing else at all."""
    model = build_network(parse_network("b1c8"), 119, ("policy",))
    settings = replace(config, heads=("policy",), weight_decay=0.5, optimizer=name)
    optimizer = make_optimizer(settings, model)
    before = [variable.numpy() for variable in model.trainable_variables]
    optimizer.learning_rate.assign(0.1)
    optimizer.apply([tf.zeros_like(v.value) for v in model.trainable_variables])
    kernels = 0
    for old, variable in zip(before, model.trainable_variables, strict=True):
        factor = 0.95 if is_kernel(variable) else 1.0
        kernels += is_kernel(variable)
        np.testing.assert_allclose(variable.numpy(), factor * old, rtol=1e-5, atol=1e-7)
    assert 0 < kernels < len(before)


def test_weight_average_has_the_statistics_of_batchnorm(config, positions):
    model = build_network(parse_network("b1c8"), 119, ("value",))
    average = WeightAverage(model, 0.9)
    expected = [np.asarray(weight) for weight in model.weights]
    settings = replace(config, ema=0.9)
    step = TrainStep(model, make_optimizer(settings, model), average, settings)
    for number in range(5):
        step(batch_of(positions[:64]), 1e-2, number)
        decay = min(0.9, (1 + number) / (10 + number))
        expected = [
            decay * old + (1 - decay) * np.asarray(new)
            for old, new in zip(expected, model.weights, strict=True)
        ]
    moved = [weight.path for weight in model.weights if "moving" in weight.path]
    assert moved
    for want, got in zip(expected, average.values, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-6)
