"""What the tests of many machines share: a network of one layer, games, requests."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ginkgo.records.kifu.selfplay import PlayedGame, as_arrays
from ginkgo.search.evaluators import HashEvaluator
from ginkgo.search.many import play_many
from ginkgo.search.queue import Queue
from ginkgo.selfplay.config import PlayOptions
from ginkgo.selfplay.game import load_openings, play_game

PLAY = PlayOptions(playouts=6, cheap_playouts=3, full_share=0.5, max_ply=40, batch=4, resign=0.4)
OPTIONS = {one.name: getattr(PLAY, one.name) for one in fields(PLAY) if one.name != "openings"}
THRESHOLD = 0.45


def tiny_network(path: Path, seed: int = 1) -> Path:
    """An ONNX file in dlshogi's format: logits and win rate from the mean of each plane."""
    rng, kind = np.random.default_rng(seed), TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info(f"in{count}", kind, ["n", count, 9, 9]) for count in (62, 57)
    ]
    nodes = [
        helper.make_node("ReduceMean", [f"in{count}"], [f"mean{count}"], axes=[2, 3], keepdims=0)
        for count in (62, 57)
    ]
    nodes.append(helper.make_node("Concat", ["mean62", "mean57"], ["means"], axis=1))
    outputs, weights = [], []
    for head, width, last in (("policy", 2187, "Identity"), ("value", 1, "Sigmoid")):
        weight = rng.normal(size=(119, width)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w_{head}"))
        nodes.append(helper.make_node("MatMul", ["means", f"w_{head}"], [f"raw_{head}"]))
        nodes.append(helper.make_node(last, [f"raw_{head}"], [head]))
        outputs.append(helper.make_tensor_value_info(head, kind, ["n", width]))
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, weights)
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def played(first: int, games: int, options: PlayOptions = PLAY) -> list[PlayedGame]:
    """Games of self-play, numbered from `first`."""
    coming = (
        play_game(number, options, load_openings(None), THRESHOLD, (7,))
        for number in range(first, first + games)
    )
    found = list(play_many(coming, [[Queue(HashEvaluator())]], 16))
    return sorted(found, key=lambda game: game.number)


def packed(games: list[PlayedGame], model: str, **changes) -> bytes:
    """An upload; `changes` replace arrays."""
    import io

    stream = io.BytesIO()
    np.savez_compressed(stream, **{**as_arrays(games, {"model": model}), **changes})
    return stream.getvalue()


def publish(client, headers: dict, name: str, path: Path) -> None:
    """Give the server a model."""
    data = path.read_bytes()
    notice = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "about": {}}
    assert client.put(f"/api/v1/models/{name}", json=notice, headers=headers).status_code == 200
    answer = client.put(f"/api/v1/models/{name}/file", content=data, headers=headers)
    assert answer.status_code == 200, answer.text


def open_run(client, headers: dict, number: int, model: str, games: int = 100) -> None:
    """Ask for games."""
    wish = {"model": model, "games": games, "options": OPTIONS, "resign_threshold": THRESHOLD}
    answer = client.put(f"/api/v1/runs/{number}", json=wish, headers=headers)
    assert answer.status_code == 200, answer.text
