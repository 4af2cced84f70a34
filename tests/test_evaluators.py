"""Evaluators: labels of legal moves, ONNX files of others, pairs, the cache, clear errors."""

from __future__ import annotations

import itertools
import json

import numpy as np
import onnx
import pytest
from cshogi.dlshogi import make_move_label
from onnx import TensorProto, helper, numpy_helper

from ginkgo.errors import GinkgoError
from ginkgo.features import position_from_sfen
from ginkgo.features.ginkgo148 import pack_positions, planes_on_host
from ginkgo.models import find_model
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import (
    Batch,
    HashEvaluator,
    KerasEvaluator,
    OnnxEvaluator,
    PairEvaluator,
    labels_of,
    make_evaluator,
)
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.search import Search, run


@pytest.fixture(scope="module")
def lines(sample_lines) -> list[Line]:
    found = []
    for number, text in enumerate(itertools.islice(sample_lines, 8)):
        moves = text.split("\t")[0].split("moves ")[1].split()
        found.append(Line(moves=moves[: 11 * number + 1]))
    return found


def batch_of(lines: list[Line], evaluator=None) -> Batch:
    moves = [list(line.board.legal_moves) for line in lines]
    for place, line in enumerate(lines):
        if evaluator is not None and evaluator.note is not None:
            evaluator.note(place, line.board)
    return Batch(
        np.array([line.keys[-1] for line in lines], np.uint64),
        np.array([line.white for line in lines], np.uint8),
        np.array([len(some) for some in moves], np.int32),
        np.array([move for some in moves for move in some], np.int32),
    )


def test_labels_are_those_of_dlshogi(lines):
    batch = batch_of(lines)
    expected = [
        make_move_label(move, int(line.white)) for line in lines for move in line.board.legal_moves
    ]
    assert labels_of(batch).tolist() == expected


def test_bundled_net_by_keras_and_by_int8(lines):
    fast = make_evaluator("pretrained")
    assert isinstance(fast, OnnxEvaluator)
    slow = make_evaluator("pretrained", "keras")
    assert isinstance(slow, KerasEvaluator)
    one, other = (it.evaluate(batch_of(lines, it)) for it in (fast, slow))
    assert np.abs(one.values - other.values).max() < 0.12
    ends = np.cumsum(batch_of(lines).counts)
    best = [
        (a.argmax(), b.argmax())
        for a, b in zip(
            np.split(one.logits, ends[:-1]), np.split(other.logits, ends[:-1]), strict=True
        )
    ]
    assert sum(a == b for a, b in best) >= 6


# --- ONNX files as others write them ----------------------------------------------------------


def tiny_onnx(path, heads=("policy", "value"), half=False, swapped=False, planes=(62, 57)):
    """A net of one layer in dlshogi's format: logits and win rate from the sum of each plane."""
    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    number = np.float16 if half else np.float32
    rng = np.random.default_rng(1)
    inputs = [
        helper.make_tensor_value_info(f"in{index}", kind, ["n", count, 9, 9])
        for index, count in enumerate(planes)
    ]
    nodes = [
        helper.make_node("ReduceMean", [f"in{index}"], [f"mean{index}"], axes=[2, 3], keepdims=0)
        for index in range(len(planes))
    ]
    means = [f"mean{index}" for index in range(len(planes))]
    nodes.append(helper.make_node("Concat", means, ["means"], axis=1))
    outputs, weights = [], []
    for head, width in (("policy", 2187), ("value", 1)):
        if head not in heads:
            continue
        weight = rng.normal(size=(sum(planes), width)).astype(number)
        weights.append(numpy_helper.from_array(weight, f"w_{head}"))
        nodes.append(helper.make_node("MatMul", ["means", f"w_{head}"], [f"raw_{head}"]))
        last = "Sigmoid" if head == "value" else "Identity"
        nodes.append(helper.make_node(last, [f"raw_{head}"], [f"out_{head}"]))
        outputs.append(helper.make_tensor_value_info(f"out_{head}", kind, ["n", width]))
    graph = helper.make_graph(
        nodes, "tiny", inputs[::-1] if swapped else inputs, outputs[::-1], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def test_files_of_others_play_whatever_their_names_and_numbers(tmp_path, lines):
    plain = make_evaluator(str(tiny_onnx(tmp_path / "plain.onnx")))
    half = make_evaluator(str(tiny_onnx(tmp_path / "half.onnx", half=True)))
    swapped = make_evaluator(str(tiny_onnx(tmp_path / "swapped.onnx", swapped=True)))
    expected = plain.evaluate(batch_of(lines, plain))
    assert expected.values.min() >= 0
    assert len(set(expected.values.tolist())) > 4
    for other, tolerance in ((half, 0.05), (swapped, 1e-5)):
        found = other.evaluate(batch_of(lines, other))
        assert found.values == pytest.approx(expected.values, abs=tolerance)
        assert found.logits == pytest.approx(expected.logits, abs=tolerance)


@pytest.mark.parametrize("policy_first", [False, True])
def test_two_single_heads_act_as_one(tmp_path, lines, policy_first):
    both = make_evaluator(str(tiny_onnx(tmp_path / "both.onnx")))
    value = tiny_onnx(tmp_path / "value.onnx", heads=("value",))
    policy = tiny_onnx(tmp_path / "policy.onnx", heads=("policy",))
    first, second = (policy, value) if policy_first else (value, policy)
    pair = make_evaluator(f"{first}+{second}")
    assert isinstance(pair, PairEvaluator)
    found, expected = pair.evaluate(batch_of(lines, pair)), both.evaluate(batch_of(lines, both))
    assert found.logits == pytest.approx(expected.logits, abs=1e-5)
    alone = make_evaluator(str(value))
    assert found.values == pytest.approx(alone.evaluate(batch_of(lines, alone)).values)
    search = Search(SearchConfig(nodes=500), Line())
    search.begin()
    run([search], Queue(pair), 60)
    assert search.simulations == 60


def test_nets_of_the_other_planes_play(tmp_path, lines):
    net = make_evaluator(str(tiny_onnx(tmp_path / "g148.onnx", planes=(148,))))
    together = net.evaluate(batch_of(lines, net))
    positions = np.concatenate([position_from_sfen(line.board.sfen()) for line in lines])
    assert np.array_equal(
        net._planes.planes(len(lines))[0], planes_on_host(*pack_positions(positions))
    )
    single = [net.evaluate(batch_of([line], net)).values[0] for line in lines]
    assert together.values == pytest.approx(single, abs=1e-6)
    assert len(set(together.values.tolist())) > 4


def test_batches_may_grow(lines):
    net = make_evaluator("pretrained")
    many = (lines * 8)[:50]
    values = net.evaluate(batch_of(many, net)).values
    few = net.evaluate(batch_of(lines, net)).values
    assert values[:8] == pytest.approx(few, abs=1e-5)
    assert values[40:48] == pytest.approx(few, abs=1e-5)


# --- stand-ins and the cache ------------------------------------------------------------------


def test_hash_evaluator_is_fixed_and_sharp(lines):
    batch = batch_of(lines)
    first, again = HashEvaluator().evaluate(batch), HashEvaluator().evaluate(batch)
    assert np.array_equal(first.logits, again.logits)
    assert np.array_equal(first.values, again.values)
    assert ((first.values >= 0.4) & (first.values <= 0.6)).all()
    assert not np.array_equal(HashEvaluator(seed=1).evaluate(batch).logits, first.logits)
    # A position alone is answered as among others.
    alone = HashEvaluator().evaluate(batch_of(lines[:1]))
    assert np.array_equal(alone.logits, first.logits[: len(alone.logits)])
    best = []
    for logits in np.split(first.logits, np.cumsum(batch.counts)[:-1]):
        prior = np.exp(logits - logits.max())
        best.append(prior.max() / prior.sum())
    assert np.mean(best) > 0.5


def test_cache_answers_as_the_network_did(lines):
    net = make_evaluator("pretrained")
    fresh, cached = Queue(net, 0), Queue(net, 1000)
    searches = []
    for queue in (fresh, cached, cached):
        search = Search(SearchConfig(nodes=2000, batch=1), lines[3])
        search.begin()
        run([search], queue, 120)
        searches.append([(one.move, one.visits) for one in search.candidates()])
    assert searches[0] == searches[1] == searches[2]
    assert cached.evaluated + cached.hits >= 2 * 100
    assert cached.evaluated < fresh.evaluated + 5


def test_cache_forgets_the_oldest(lines):
    queue = Queue(make_evaluator("pretrained"), 10)
    search = Search(SearchConfig(nodes=2000), lines[0])
    search.begin()
    run([search], queue, 100)
    assert len(queue._cache) == 10


# --- mistakes ---------------------------------------------------------------------------------


def test_clear_errors(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    bad = {
        "no/such/model": "no model directory",
        str(tmp_path / "none.onnx"): "no such file",
        str(tmp_path / "text.onnx"): "no ONNX model",
        str(tiny_onnx(tmp_path / "other.onnx", planes=(46,))): "expected dlshogi's",
        f"{tmp_path / 'other.onnx'}+{tmp_path / 'other.onnx'}+x": "expected VALUE",
    }
    for model, message in bad.items():
        with pytest.raises(GinkgoError, match=message):
            make_evaluator(model)
    value = tiny_onnx(tmp_path / "value.onnx", heads=("value",))
    with pytest.raises(GinkgoError, match="a value and one with a policy"):
        make_evaluator(f"{value}+{value}")
    with pytest.raises(GinkgoError, match="expected one of auto"):
        make_evaluator("pretrained", "gpu")
    with pytest.raises(GinkgoError, match=r"ginkgo export pretrained`"):
        make_evaluator("pretrained", "onnx")


def test_models_of_the_position_after_a_move_are_refused(tmp_path):
    config = json.loads((find_model("pretrained") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "view": "after"}))
    with pytest.raises(GinkgoError, match="position after a move"):
        make_evaluator(str(tmp_path))


def test_numbers_that_are_none_are_noticed(tmp_path, lines):
    path = tiny_onnx(tmp_path / "nan.onnx")
    model = onnx.load(path)
    weight = model.graph.initializer[1]
    values = numpy_helper.to_array(weight).copy()
    values[:] = np.nan
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    onnx.save(model, path)
    net = make_evaluator(str(path))
    with pytest.raises(GinkgoError, match="not a finite number"):
        net.evaluate(batch_of(lines, net))
