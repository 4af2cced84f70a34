"""Many machines on one: a server and workers as processes, killed and started again."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from fleet_parts import OPTIONS, THRESHOLD, played, tiny_network

from ginkgo.errors import GinkgoError
from ginkgo.features.labels import LABEL_SCHEME
from ginkgo.fleet import accounts, reference, served
from ginkgo.fleet.client import Away, ServerClient, Turned, patiently
from ginkgo.fleet.config import TASK_GAMES
from ginkgo.fleet.database import Database
from ginkgo.fleet.reinforce import ServedConfig
from ginkgo.fleet.served import ServedLoop, blank
from ginkgo.fleet.spool import Spool
from ginkgo.records import files as record_files
from ginkgo.records.kifu.selfplay import as_arrays, load_arrays, read_arrays, write_arrays
from ginkgo.records.lock import lock
from ginkgo.search.evaluators import HashEvaluator, UniformEvaluator
from ginkgo.selfplay import learn, loop
from ginkgo.selfplay.audit import audit
from ginkgo.selfplay.store import run_folders

#: A hang ends the test after so long; slow machines and debuggers need patience.
WAIT_S = 300


def ginkgo(*arguments, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "ginkgo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **more,
    )


def kill(process: subprocess.Popen, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    process.wait(WAIT_S)
    assert process.stdout is not None
    process.stdout.close()


class Fleet:
    """A server on loopback with a folder, and workers."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, 0
        self.options = ["--database", f"sqlite:///{folder}/s.db", "--storage", str(folder / "f")]
        self.tokens = {"tom": self.account("tom")}
        database = Database(self.options[1])
        with database.session() as session:
            for name in ("ann", "bob"):
                self.tokens[name] = accounts.add_user(session, name, "worker")
        database.close()
        self.processes: list[subprocess.Popen] = []
        self.serve()

    def account(self, name: str) -> str:
        done = ginkgo("serve", *self.options, "--add-user", name, "--role", "trainer")
        text = done.communicate(timeout=WAIT_S)[0]
        assert done.returncode == 0, text
        return text.split()[-1]

    def serve(self) -> subprocess.Popen:
        self.server = ginkgo("serve", *self.options, "--port", str(self.port))
        self.processes.append(self.server)
        line = self.server.stdout.readline()
        assert line.startswith("http://"), line + self.server.stdout.read()
        self.url = line.split("/  ")[0]
        self.port = int(self.url.rpartition(":")[2])
        return self.server

    def worker(self, name: str, **more) -> subprocess.Popen:
        path = self.folder / f"{name}.toml"
        lines = {
            "server": self.url,
            "username": name,
            "token": self.tokens[name],
            "folder": str(self.folder / name),
            "games_per_batch": 6,
            "concurrent": 12,
            **more,
        }
        path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
        process = ginkgo("contribute", "--config", str(path))
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                kill(process)

    def client(self, name: str = "tom") -> ServerClient:
        return ServerClient(self.url, self.tokens[name])


@pytest.fixture
def fleet(tmp_path):
    with contextlib.closing(Fleet(tmp_path)) as fleet:
        yield fleet


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def test_games_come_whatever_is_killed(fleet, tmp_path):
    """A server and two workers, each killed in turn; every game is there once."""
    client = fleet.client()
    network = tiny_network(tmp_path / "tiny.onnx")
    from ginkgo.search.evaluators import make_evaluator

    about = {"reference": reference.answers(make_evaluator(str(network)))}
    client.publish("first", network, about)
    wish = {"model": "first", "games": 60, "options": OPTIONS, "resign_threshold": THRESHOLD}
    client.ask("PUT", "runs/1", json=wish)
    wish = {"a": "first", "b": "first", "games": 4, "nodes": 4, "max_ply": 20}
    openings = ["startpos moves 7g7f", "startpos moves 2g2f 8c8d"]
    client.ask("PUT", "matches/m", json={**wish, "openings": openings})
    ann, bob = fleet.worker("ann"), fleet.worker("bob", rating=False)

    def stored() -> int:
        return client.ask("GET", "runs/1").json()["stored"]

    wait_for(lambda: stored() >= 6, "no game came")
    kill(ann)
    kill(fleet.server)
    spool = tmp_path / "bob" / "games"
    wait_for(lambda: list(spool.glob("game-*.npz")), "no game while the server is away")
    kept = {int(path.stem.split("-")[1]) for path in spool.glob("game-*.npz")}
    fleet.serve()
    ann = fleet.worker("ann")
    wait_for(lambda: stored() >= 60, "the games did not come")
    wait_for(lambda: client.ask("GET", "matches/m").json()["games"] == 4, "no match")
    for process in (ann, bob):
        # Once: the games under way end and are uploaded.
        os.killpg(process.pid, signal.SIGINT)
        text = process.communicate(timeout=WAIT_S)[0]
        assert process.returncode == 0, text
    for name in ("ann", "bob"):
        left = [path for path in (tmp_path / name / "games").glob("*-*.*")]
        assert left == []
        assert list((tmp_path / name / "games" / "refused").iterdir()) == []
        assert "welcome" in (tmp_path / name / "contribute.log").read_text()
    files = client.ask("GET", "runs/1/uploads").json()
    numbers = []
    for one in files:
        meta, arrays = read_arrays(client.ask("GET", f"uploads/{one['upload']}/file").content)
        assert meta["model"] == "first"
        numbers += arrays["number"].tolist()
    assert len(numbers) == len(set(numbers)) == sum(one["games"] for one in files) >= 60
    assert kept <= set(numbers)
    status = client.ask("GET", "status").json()
    assert status["games"] == len(numbers)
    assert (status["quarantined"], status["rating_games"]) == ({}, 4)
    assert status["workers_alive"] == 2
    # A second one in the same folder, and one with another's token.
    with open(tmp_path / "ann" / "lock", "w") as place:
        assert lock(place.fileno())
        second = fleet.worker("ann")
        assert "another worker uses it" in second.communicate(timeout=WAIT_S)[0]
    wrong = fleet.worker("bob", token=fleet.tokens["ann"])
    assert "the token is that of ann, not of bob" in wrong.communicate(timeout=WAIT_S)[0]


# --- the trainer ------------------------------------------------------------------------------


def test_the_loop_with_a_server(fleet, tmp_path, monkeypatch):
    """Two generations whose games and matches workers play; then a user's games are revoked."""
    seeds = itertools.count(1)

    def stand_in(lesson):
        """What `learn.start` leaves on disk, with a network of one layer."""
        first = isinstance(lesson, learn.FirstModel)
        folder = lesson.directory if first else lesson.config.runs / lesson.config.run
        described = {
            **{"network": "b1c8", "activation": "silu", "features": "dlshogi119"},
            **{"labels": LABEL_SCHEME, "heads": ["policy", "value"], "view": "before"},
        }
        folder.mkdir(parents=True, exist_ok=True)
        tiny_network(folder / "model.onnx", next(seeds))
        if not first:
            figures = {"steps": lesson.config.steps, "kl": 0.1, "surprise": None}
            record_files.write_text(folder / learn.RESULT, json.dumps(figures))
        record_files.write_text(folder / "config.json", json.dumps(described))

    monkeypatch.setattr(learn, "start", stand_in)
    monkeypatch.setattr(learn, "finish", lambda _process: None)
    monkeypatch.setattr(loop.report, "complete", lambda *_args: None)
    monkeypatch.setattr(served, "_LOOK_S", 0.2)
    monkeypatch.setenv(served.TOKEN, fleet.tokens["tom"])
    ann = fleet.worker("ann")
    config = ServedConfig(
        run="r", runs=tmp_path, network="b1c8", generations=2, games=20, playouts=4,
        cheap_playouts=2, full_share=0.5, max_ply=30, batch_size=16, window=200, elo_games=4,
        batch=4, server=fleet.url,
    )  # fmt: skip
    ServedLoop(config).run()
    lines = [json.loads(line) for line in (tmp_path / "r" / "generations.jsonl").open()]
    assert [line["generation"] for line in lines] == [0, 1, 2]
    assert lines[1]["games"] >= 20
    assert [line.get("match_games") for line in lines] == [None, 4, 4]
    runs = run_folders(tmp_path / "r")
    assert audit(runs).faults == []
    assert [run.look().complete for run in runs] == [True, True]
    client = fleet.client()
    assert len(client.ask("GET", "ratings").json()) == 3
    os.killpg(ann.pid, signal.SIGINT)
    assert ann.communicate(timeout=WAIT_S)
    # From now on nothing of ann is trained on.
    done = ginkgo("serve", *fleet.options, "--revoke-games", "ann")
    assert "out of the training data" in done.communicate(timeout=WAIT_S)[0]
    assert client.ask("GET", "status").json()["games"] == 0
    fleet.worker("bob")
    ServedLoop(replace(config, generations=3)).run()
    runs = [run.look() for run in run_folders(tmp_path / "r")]
    assert [run.recorded > 0 for run in runs] == [False, False, True]
    assert audit(runs).faults == []


def test_blanked_games_keep_their_places(tmp_path):
    path = tmp_path / "games_00001.npz"
    blank(path)
    assert not path.exists()
    write_arrays(path, as_arrays(played(0, 4), {"model": "m"}))
    _, before = load_arrays(path)
    blank(path)
    _, after = load_arrays(path)
    assert before["full"].any()
    assert not after["full"].any()
    for name in ("number", "plies", "move", "position", "root_value"):
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"server": "ftp://x"}, "--server ftp://x: expected https://HOST"),
        ({"evaluator": "keras"}, "--evaluator keras"),
        ({"side_by_side": True}, "--side-by-side"),
        ({}, "GINKGO_TOKEN"),
        ({"token_file": Path("/no/such")}, "--token-file /no/such"),
    ],
)
def test_mistakes_of_the_trainer_are_named(tmp_path, monkeypatch, change, text):
    monkeypatch.delenv(served.TOKEN, raising=False)
    with pytest.raises(GinkgoError, match=text):
        ServedLoop(replace(ServedConfig(runs=tmp_path, server="http://127.0.0.1:1"), **change))


# --- parts ------------------------------------------------------------------------------------


def test_a_spool_keeps_games_until_they_are_dropped(tmp_path):
    spool = Spool(tmp_path)
    for game in [*played(TASK_GAMES, 5), *played(3 * TASK_GAMES, 2)]:
        spool.keep(game, "m")
    (tmp_path / ".game-1.npz.99.tmp").write_bytes(b"half")
    spool = Spool(tmp_path)
    # Files that are being written at the moment, and others that are not its own.
    for name in (".game-9.npz.99.tmp", ".rated-1-2.json.9.tmp", "some-notes.txt", "game-x.npz"):
        (tmp_path / name).write_bytes(b"half")
    found = spool.uploads(3)
    assert [(one.task, len(one.files)) for one in found] == [(1, 3), (1, 2), (3, 2)]
    assert (len(spool), spool.tasks()) == (7, {1, 3})
    _, arrays = read_arrays(spool.packed(found[0]))
    assert arrays["number"].tolist() == [1024, 1025, 1026]
    spool.drop(found[0])
    spool.set_aside(found[1])
    assert len(spool) == 2
    assert len(list((tmp_path / "refused").iterdir())) == 2


def test_evaluators_are_compared():
    own = reference.answers(HashEvaluator())
    reference.compare(own, reference.answers(HashEvaluator()))
    with pytest.raises(GinkgoError, match="does not compute the model rightly"):
        reference.compare(own, reference.answers(UniformEvaluator()))
    with pytest.raises(GinkgoError):
        reference.compare([{**one, "value": float("nan")} for one in own], own)


class Breaking(BaseHTTPRequestHandler):
    """Gives a file in short pieces, and breaks off in between."""

    data = bytes(range(256)) * 40
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self):
        self.asked.append(self.headers["Range"])
        if len(self.asked) == 2:
            self.send_response(503)
            self.send_header("Retry-After", "0")
            self.end_headers()
            return
        first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        part = self.data[first : first + 3000]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_):
        pass


def test_a_download_goes_on_where_it_was_broken_off(tmp_path):
    import hashlib

    server = ThreadingHTTPServer(("127.0.0.1", 0), Breaking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = ServerClient(f"http://127.0.0.1:{server.server_port}", "t")
    right = hashlib.sha256(Breaking.data).hexdigest()
    model = {"name": "m", "size": len(Breaking.data), "sha256": right}
    with pytest.raises(Away):
        client.download(model, tmp_path)
    assert client.download(model, tmp_path).read_bytes() == Breaking.data
    assert Breaking.asked[:3] == ["bytes=0-", "bytes=3000-", "bytes=3000-"]
    count = len(Breaking.asked)
    client.download(model, tmp_path)
    assert len(Breaking.asked) == count
    with pytest.raises(GinkgoError, match="SHA-256 differs"):
        client.download({**model, "name": "n", "sha256": "0" * 64}, tmp_path)
    assert not list(tmp_path.glob("n.*"))
    for name in ("../m", ".m", "a/b", ""):
        with pytest.raises(GinkgoError, match="a model of the name"):
            client.download({**model, "name": name}, tmp_path)
    server.shutdown()
    server.server_close()
    with pytest.raises(Away):
        client.account()


def test_patience_grows_and_has_an_end():
    waits, said = [], []

    def pause(seconds):
        waits.append(seconds)
        return len(waits) == 12

    def away():
        raise Away("gone", 0.0)

    assert patiently(away, pause, said.append) is None
    assert waits[0] <= 1
    assert waits[-1] >= 150
    assert len(said) == 12
    answers = iter([Away("busy", 7.0), 5])

    def later():
        answer = next(answers)
        if isinstance(answer, Away):
            raise answer
        return answer

    waits.clear()
    assert patiently(later, pause, said.append) == 5
    assert waits == [7.0]
    with pytest.raises(Turned):
        patiently(lambda: (_ for _ in ()).throw(Turned(401, "no")), pause, said.append)
