"""What the tests of many machines share: a network of one layer, games, requests."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from pathlib import Path

import cshogi
import numpy as np
import onnx
from fastapi.testclient import TestClient
from onnx import TensorProto, helper, numpy_helper

from ginkgo.arena.referee import Pairing, Referee, Rules
from ginkgo.fleet import accounts
from ginkgo.fleet.app import make_app
from ginkgo.fleet.config import ServeConfig
from ginkgo.fleet.matches import opening_of
from ginkgo.fleet.validate import Validators, validate
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


SMALL = ServeConfig(
    largest_upload=400_000, largest_model=3_000_000, models_accepted=2, figures_seconds=0
)


class Here(Validators):
    """Checks uploads in this process, which starts sooner."""

    def __init__(self):
        pass

    def check(self, data, expected):
        return validate(data, expected)

    def close(self):
        pass


class Place:
    """A server with an account for a worker, one for another, one for the trainer."""

    def __init__(self, folder, config=SMALL, **options):
        self.folder = folder
        urls = {"database": f"sqlite:///{folder}/server.db", "storage": str(folder / "files")}
        self.config = replace(config, **{**urls, **options})
        self.app = make_app(self.config, Here())
        self.server = self.app.state.server
        self.client = TestClient(self.app)
        with self.server.database.session() as session:
            tokens = {
                name: accounts.add_user(session, name, role)
                for name, role in (("ann", "worker"), ("bob", "worker"), ("tom", "trainer"))
            }
        agent = {"User-Agent": "ginkgo/0.1.0"}
        self.ann, self.bob, self.tom = (
            {"Authorization": f"Bearer {token}", **agent} for token in tokens.values()
        )

    def task(self, who, games=16, **wish):
        who = {**who, "Ginkgo-Worker": wish.pop("worker", "")}
        answer = self.client.post("/api/v1/tasks", json={"games": games, **wish}, headers=who)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, task, data, who=None):
        return self.client.post(
            f"/api/v1/tasks/{task}/games", content=data, headers=who or self.ann
        )

    @property
    def status(self):
        return self.client.get("/api/v1/status").json()

    def files(self, kind):
        return [path for path in (self.folder / "files" / kind).rglob("*") if path.is_file()]


def rate(place, a: str, b: str, games: int, nodes: int = 4, max_ply: int = 12) -> None:
    """Have a match played through the server: its tasks, the arena, its uploads."""
    openings = ["startpos moves 7g7f", "startpos moves 2g2f 8c8d"] * games
    wish = {"a": a, "b": b, "games": games, "nodes": nodes, "max_ply": max_ply}
    wish["openings"] = openings[: games // 2]
    answer = place.client.put(f"/api/v1/matches/{a}-{b}", json=wish, headers=place.tom)
    assert answer.status_code == 200, answer.text
    task = place.task(place.ann, games)
    assert task["kind"] == "rating"
    sent = place.client.post(
        f"/api/v1/tasks/{task['task']}/rated", json={"games": rated(task)}, headers=place.ann
    )
    assert sent.json() == {"stored": task["games"], "known": 0}, sent.text


def rated(task: dict) -> list[dict]:
    """The games of a rating task, played by two evaluators of no model."""
    rules = Rules(max_ply=task["max_ply"])
    found = []
    for number in range(task["first"], task["first"] + task["games"]):
        opening = opening_of(task["openings"][(number - task["first"]) // 2])
        referee = Referee(Pairing(number, opening), rules)
        board = cshogi.Board()
        rng = np.random.default_rng(number)
        for usi in opening.moves:
            board.push_usi(usi)
        while not referee.over:
            move = cshogi.move_to_usi(int(rng.choice(list(board.legal_moves))))
            board.push_usi(move)
            referee.answer(move, 10)
        found.append(referee.played().to_json())
    return found
