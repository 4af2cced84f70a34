"""Exported models answer as the Keras model does, under the names that engines expect."""

import json

import cshogi
import keras
import numpy as np
import onnxruntime
import pytest
from cshogi.dlshogi import FEATURES1_NUM, FEATURES2_NUM, make_input_features

from ginkgo.cli import run
from ginkgo.errors import GinkgoError
from ginkgo.features import dlshogi119
from ginkgo.features.position import position_from_sfen
from ginkgo.models import NONE_SEEN, build_network, parse_network, save_model
from ginkgo.models.export import compare, export, head_nodes, real_planes, runner_of


def save(directory, features="dlshogi119", heads=("policy", "value"), channels=119):
    keras.utils.set_random_seed(3)
    model = build_network(parse_network("b1c16", "relu"), channels, heads)
    config = {
        "network": "b1c16", "activation": "relu", "features": features, "labels": "dlshogi2187",
        "heads": list(heads), "view": "before",
    }  # fmt: skip
    save_model(directory, model, config, {}, NONE_SEEN)
    return model


@pytest.fixture(scope="module")
def planes(games_dir):
    return real_planes([games_dir], "dlshogi119", 320)


@pytest.mark.parametrize("to", ["onnx", "savedmodel", "litert"])
def test_a_file_answers_as_the_model_does(tmp_path, planes, to):
    save(tmp_path / "model")
    path = tmp_path / "made" / "file"
    found = export(tmp_path / "model", path, to, planes[:256], planes[256:])
    assert found.positions == 64
    assert found.top1_agreement == 1
    assert found.max_difference < 1e-3
    assert found.value_difference < 1e-5
    assert [one.name for one in path.parent.iterdir()] == ["file"]
    # Written again, it replaces what is there.
    assert export(tmp_path / "model", path, to, planes[:256], planes[256:]) == found


def test_dlshogi_can_load_the_onnx_file(tmp_path, planes):
    model = save(tmp_path / "model")
    path = tmp_path / "model.onnx"
    export(tmp_path / "model", path, "onnx", planes, planes)
    session = onnxruntime.InferenceSession(path.read_bytes())
    shapes = {one.name: one.shape[1:] for one in (*session.get_inputs(), *session.get_outputs())}
    assert shapes["input1"] == [62, 9, 9]
    assert shapes["input2"] == [57, 9, 9]
    assert shapes["output_policy"] == [2187]
    assert shapes["output_value"] == [1]
    # Fed as dlshogi feeds it.
    board = cshogi.Board()
    for usi in ("7g7f", "3c3d", "8h2b+", "3a2b", "B*4e"):
        board.push_usi(usi)
    one = np.zeros((FEATURES1_NUM, 9, 9), np.float32)
    two = np.zeros((FEATURES2_NUM, 9, 9), np.float32)
    make_input_features(board, one, two)
    policy, value = session.run(
        ["output_policy", "output_value"], {"input1": one[None], "input2": two[None]}
    )
    position = position_from_sfen(board.sfen())
    own = dlshogi119.planes_on_host(position["board"], position["hand"]).transpose(0, 2, 3, 1)
    wanted = model.predict_on_batch(own)
    np.testing.assert_allclose(policy, wanted["policy"], atol=1e-4)
    logits = wanted["value"][0]
    assert value[0, 0] == pytest.approx(1 / (1 + np.exp(logits[1] - logits[0])), abs=1e-5)


@pytest.mark.parametrize("to", ["onnx", "litert"])
def test_int8_stays_close(tmp_path, planes, to):
    save(tmp_path / "model")
    plain = tmp_path / "plain"
    export(tmp_path / "model", plain, to, planes, planes)
    small = tmp_path / "small"
    found = export(tmp_path / "model", small, to, planes[:256], planes[256:], "int8")
    assert 0 < found.max_difference < 1
    assert found.top1_agreement > 0.7  # fresh weights rank most moves alike
    assert found.value_difference < 0.05
    assert small.stat().st_size < plain.stat().st_size


def test_the_heads_stay_float(tmp_path, planes):
    onnx = pytest.importorskip("onnx")
    save(tmp_path / "model")
    path = tmp_path / "small.onnx"
    export(tmp_path / "model", path, "onnx", planes[:64], planes, "int8")
    graph = onnx.load(path)
    weights = {one.name: one.data_type for one in graph.graph.initializer}
    heads = set(head_nodes(graph))
    assert heads
    kinds = {"float": 0, "int8": 0}
    for node in graph.graph.node:
        if node.op_type in ("Conv", "MatMul", "Gemm"):
            in_float = weights.get(node.input[1]) == onnx.TensorProto.FLOAT
            kinds["float" if in_float else "int8"] += 1
            assert in_float == (node.name in heads), node.name
    assert kinds == {"float": 4, "int8": 3}


@pytest.mark.parametrize("head", ["policy", "value"])
def test_single_heads_and_other_planes(tmp_path, games_dir, head):
    save(tmp_path / "model", "ginkgo148", (head,), 148)
    path = tmp_path / "model.onnx"
    planes = real_planes([games_dir], "ginkgo148", 40)
    found = export(tmp_path / "model", path, "onnx", planes, planes)
    assert found.max_difference < 1e-3
    assert set(runner_of(path, "onnx")(planes[:2])) == {f"output_{head}"}
    assert np.isnan(found.top1_agreement) == (head == "value")


def test_only_an_export_is_replaced(tmp_path, planes):
    save(tmp_path / "model")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    for to, line in (("onnx", "is a directory"), ("savedmodel", "is no SavedModel")):
        for place in (kept, tmp_path / "model"):
            with pytest.raises(GinkgoError, match=line):
                export(tmp_path / "model", place, to, planes, planes)
    assert (kept / "file").read_text() == "mine"
    assert (tmp_path / "model" / "model.keras").exists()
    with pytest.raises(GinkgoError, match="cannot write"):
        export(tmp_path / "model", kept / "file" / "below", "onnx", planes, planes)


def test_compare_counts_what_differs():
    def runner(policy, value):
        return lambda planes: {
            "output_policy": np.asarray(policy, np.float32)[: len(planes)],
            "output_value": np.asarray(value, np.float32)[: len(planes)],
        }

    ours = runner([[1, 2], [3, 0]], [[0.5], [0.25]])
    theirs = runner([[1, 2], [0, 3]], [[0.5], [0.75]])
    found = compare(ours, theirs, np.zeros((2, 1, 9, 9), np.float32))
    assert found.top1_agreement == 0.5
    assert found.max_difference == 3
    assert found.value_difference == 0.25


def test_command_line(tmp_path, games_dir, capsys):
    save(tmp_path / "model")
    options = ["--positions", str(games_dir), "--calibration", "64", "--compared", "64"]
    assert run(["export", str(tmp_path / "model"), "--to", "onnx", "--json", *options]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["path"] == str(tmp_path / "model" / "model.onnx")
    assert printed["top1_agreement"] == 1
    assert printed["positions"] == 64
    assert (tmp_path / "model" / "model.onnx").exists()
    with pytest.raises(GinkgoError, match="expected onnx or litert"):
        run(
            [
                "export",
                str(tmp_path / "model"),
                "--to",
                "savedmodel",
                "--quantize",
                "int8",
                *options,
            ]
        )
    with pytest.raises(GinkgoError, match="no model directory"):
        run(["export", str(tmp_path / "nowhere")])
    with pytest.raises(GinkgoError, match="no such file"):
        run(["export", str(tmp_path / "model"), "--positions", str(tmp_path / "none")])
