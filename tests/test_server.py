"""The server: accounts, models, tasks, uploads good and bad, all in this process."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from fastapi.testclient import TestClient
from fleet_parts import OPTIONS, PLAY, THRESHOLD, open_run, packed, played, publish, tiny_network

from ginkgo.errors import GinkgoError
from ginkgo.fleet import accounts
from ginkgo.fleet.app import make_app
from ginkgo.fleet.config import TASK_GAMES, ServeConfig, check_serve, load_worker
from ginkgo.fleet.database import Base, Database, PlayedRow, Quarantined
from ginkgo.fleet.upload import Refused
from ginkgo.fleet.validate import Expected, Validators, validate
from ginkgo.records.game import STARTPOS
from ginkgo.records.kifu.selfplay import as_arrays, load_arrays
from ginkgo.selfplay.audit import faults_of

SMALL = ServeConfig(
    largest_upload=400_000, largest_model=3_000_000, models_accepted=2, figures_seconds=0
)


class Here:
    """Checks uploads in this process, which starts sooner."""

    def __init__(self, _processes):
        pass

    def check(self, data, expected):
        return validate(data, expected)

    def close(self):
        pass


@pytest.fixture(autouse=True)
def _checks_here(monkeypatch):
    monkeypatch.setattr("ginkgo.fleet.app.Validators", Here)


class Place:
    """A server with an account for a worker, one for another, one for the trainer."""

    def __init__(self, folder, config=SMALL):
        self.folder = folder
        self.config = replace(
            config, database=f"sqlite:///{folder}/server.db", storage=str(folder / "files")
        )
        self.app = make_app(self.config)
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


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return tiny_network(tmp_path_factory.mktemp("network") / "tiny.onnx")


@pytest.fixture
def place(tmp_path, network):
    place = Place(tmp_path)
    with place.client:
        publish(place.client, place.tom, "first", network)
        open_run(place.client, place.tom, 1, "first")
        yield place


@pytest.fixture(scope="module")
def games():
    """Sixteen games with the numbers 1024 to 1039, those of the first task."""
    return played(TASK_GAMES, 16)


EXPECTED = Expected(TASK_GAMES, 16, "first", OPTIONS, THRESHOLD, (STARTPOS,))


# --- the way of a game ------------------------------------------------------------------------


def test_games_are_stored_once_however_often_they_come(place, games):
    task = place.task(place.ann)
    assert (task["kind"], task["first"], task["options"]) == ("selfplay", TASK_GAMES, OPTIONS)
    data = packed(games[:10], "first")
    assert place.send(task["task"], data).json() == {"stored": 10, "known": 0}
    again = place.send(task["task"], data)
    assert (again.status_code, again.json()) == (200, {"stored": 0, "known": 10})
    # With others beside them, as after an answer that was lost; and in another packing.
    both = place.send(task["task"], packed(games[5:], "first"))
    assert (both.status_code, both.json()) == (201, {"stored": 6, "known": 5})
    assert place.send(task["task"], packed(games, "first")).json() == {"stored": 0, "known": 16}
    plies = sum(game.plies for game in games)
    assert (place.status["games"], place.status["positions"]) == (16, plies)
    assert place.status["quarantined"] == {}
    # What the trainer gets is what was played.
    place.client.post("/api/v1/runs/1/close", headers=place.tom)
    files = place.client.get("/api/v1/runs/1/uploads", headers=place.tom).json()
    assert [one["games"] for one in files] == [10, 6]
    numbers = []
    for one in files:
        answer = place.client.get(f"/api/v1/uploads/{one['upload']}/file", headers=place.tom)
        path = place.folder / "back.npz"
        path.write_bytes(answer.content)
        meta, arrays = load_arrays(path)
        assert (meta["model"], meta["options"]) == ("first", OPTIONS)
        numbers += arrays["number"].tolist()
    assert numbers == [game.number for game in games]


def test_another_game_under_a_number_is_refused(place, games):
    task = place.task(place.ann)["task"]
    place.send(task, packed(games[:1], "first"))
    other = replace_number(games[1], games[0].number)
    answer = place.send(task, packed([other, games[2]], "first"))
    assert (answer.status_code, answer.json()["kind"]) == (409, "conflict")
    assert place.status["games"] == 1


def replace_number(game, number):
    return type(game)(**{**vars(game), "number": number})


def test_what_comes_after_a_run_was_closed_goes_to_the_next_one(place, games):
    task = place.task(place.ann)["task"]
    place.send(task, packed(games[:4], "first"))
    state = place.client.post("/api/v1/runs/1/close", headers=place.tom).json()
    assert (state["stored"], state["closed"]) == (4, True)
    place.send(task, packed(games[4:], "first"))
    assert len(place.client.get("/api/v1/runs/1/uploads", headers=place.tom).json()) == 1
    open_run(place.client, place.tom, 2, "first")
    state = place.client.get("/api/v1/runs/2", headers=place.tom).json()
    assert (state["stored"], state["closed"]) == (12, False)


def test_games_of_old_models_are_refused(place, games, tmp_path):
    task = place.task(place.ann)["task"]
    for number, name in enumerate(("second", "third")):
        publish(place.client, place.tom, name, tiny_network(tmp_path / "next.onnx", 2 + number))
        open_run(place.client, place.tom, 2 + number, name)
        answer = place.send(task, packed(games[number : number + 1], "first"))
        assert answer.status_code == (201, 410)[number]
    assert answer.json()["kind"] == "old model"


def test_no_more_games_are_handed_out_than_are_wanted(place):
    open_run(place.client, place.tom, 2, "first", games=20)
    tasks = [place.task(place.ann, 30, worker="w")]
    tasks.append(place.task(place.ann, 30, worker="w", holding=[tasks[0]["task"]]))
    assert [task["run"] for task in tasks] == [2, 2]
    wish = {"holding": [task["task"] for task in tasks]}
    named = {**place.ann, "Ginkgo-Worker": "w"}
    answer = place.client.post("/api/v1/tasks", json=wish, headers=named)
    assert (answer.status_code, answer.headers["Retry-After"]) == (204, "10")
    assert place.client.post("/api/v1/tasks", json={}, headers=place.bob).status_code == 204
    # A worker that has begun anew no longer plays what it had before.
    assert place.task(place.ann, 10, worker="w")["games"] == 10


def test_revoked_games_are_counted_no_longer(place, games):
    place.send(place.task(place.ann)["task"], packed(games, "first"))
    with place.server.database.session() as session:
        assert accounts.revoke_games(session, "ann") == 16
    assert place.status["games"] == 0
    [one] = place.client.get("/api/v1/runs/1/uploads", headers=place.tom).json()
    assert one["revoked"]
    assert place.client.get("/api/v1/statistics").json()["users"] == []


def test_odd_games_are_flagged(place, games):
    short = [game for game in played(TASK_GAMES, 16, replace(PLAY, max_ply=8))]
    wish = {"model": "first", "games": 100, "options": {**OPTIONS, "max_ply": 8}}
    wish["resign_threshold"] = THRESHOLD
    assert place.client.put("/api/v1/runs/2", json=wish, headers=place.tom).status_code == 200
    task = place.task(place.ann)
    assert place.send(task["task"], packed(short, "first")).status_code == 201
    again = [replace_number(game, game.number + TASK_GAMES) for game in short]
    assert place.send(place.task(place.ann)["task"], packed(again, "first")).status_code == 201
    flagged = place.status["flagged"]
    assert flagged["short"] == 32
    assert flagged["duplicate"] >= 16


# --- who may do what --------------------------------------------------------------------------


def test_tokens(place):
    get = place.client.get
    assert get("/api/v1/account", headers=place.ann).json() == {"name": "ann", "role": "worker"}
    for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic YTpi"}):
        answer = get("/api/v1/account", headers=headers)
        assert answer.status_code == 401
        assert "WWW-Authenticate" in answer.headers
    kept = (place.folder / "server.db").read_bytes()
    assert place.ann["Authorization"].split()[1].encode() not in kept
    with place.server.database.session() as session:
        accounts.block(session, "ann")
        token = accounts.add_user(session, "bob", "worker")
    assert get("/api/v1/account", headers=place.ann).status_code == 401
    assert get("/api/v1/account", headers=place.bob).status_code == 401
    new = {"Authorization": f"Bearer {token}"}
    assert get("/api/v1/account", headers=new).json()["name"] == "bob"


def test_only_the_trainer_publishes(place):
    for method, path in (
        ("PUT", "models/x"),
        ("PUT", "models/x/file"),
        ("PUT", "runs/2"),
        ("POST", "runs/1/close"),
        ("GET", "runs/1"),
        ("GET", "runs/1/uploads"),
        ("GET", "uploads/1/file"),
        ("PUT", "matches/m"),
        ("GET", "matches/m"),
    ):
        notice = {"sha256": "0" * 64, "size": 1}
        answer = place.client.request(method, f"/api/v1/{path}", json=notice, headers=place.ann)
        assert answer.status_code in (403, 422), (method, path)
        assert place.client.request(method, f"/api/v1/{path}").status_code in (401, 422)
    assert place.status["models"] == 1
    assert place.status["run"] == {"number": 1, "wanted": 100, "stored": 0}


def test_a_task_belongs_to_one_user(place, games):
    task = place.task(place.ann)["task"]
    assert place.send(task, packed(games, "first"), place.bob).status_code == 404
    assert place.send(task + 1, packed(games, "first")).status_code == 404
    assert place.status["games"] == 0


def test_old_clients_and_hasty_ones(tmp_path, network):
    config = replace(SMALL, oldest_client="0.2.0", requests_per_minute=5, open_tasks=2)
    place = Place(tmp_path, config)
    with place.client:
        publish(place.client, place.tom, "first", network)
        open_run(place.client, place.tom, 1, "first")
        answer = place.client.post("/api/v1/tasks", json={}, headers=place.ann)
        assert answer.status_code == 426
        assert "0.2.0" in answer.json()["detail"]
        new = {**place.ann, "User-Agent": "ginkgo/0.2.0"}
        for _ in range(2):
            place.task(new)
        answer = place.client.post("/api/v1/tasks", json={}, headers=new)
        assert (answer.status_code, "open" in answer.json()["detail"]) == (429, True)
        codes = [place.client.get("/api/v1/account", headers=new).status_code for _ in range(3)]
        assert codes == [200, 429, 429]
        assert place.client.get("/api/v1/account", headers=place.bob).status_code == 200


# --- models -----------------------------------------------------------------------------------


def test_a_model_in_parts(place, network):
    data = network.read_bytes()
    assert place.client.get("/api/v1/models/newest", headers=place.ann).json()["name"] == "first"

    def part(text):
        headers = {**place.ann, "Range": text}
        return place.client.get("/api/v1/models/first/file", headers=headers)

    assert place.client.get("/api/v1/models/first/file", headers=place.ann).content == data
    answer = part("bytes=100-")
    assert (answer.status_code, answer.content) == (206, data[100:])
    assert answer.headers["Content-Range"] == f"bytes 100-{len(data) - 1}/{len(data)}"
    assert part("bytes=5-9").content == data[5:10]
    for text in (f"bytes={len(data)}-", "bytes=-5", "lines=1-", "bytes=1-2,4-5", "bytes=9e9-"):
        assert part(text).status_code == 416
    assert place.client.get("/api/v1/models/no/file", headers=place.ann).status_code == 404


def test_a_model_that_is_not_what_was_announced(place, network):
    put = place.client.put
    notice = {"sha256": "0" * 64, "size": network.stat().st_size}
    assert put("/api/v1/models/x", json=notice, headers=place.tom).json() == {"there": False}
    answer = put("/api/v1/models/x/file", content=network.read_bytes(), headers=place.tom)
    assert answer.status_code == 422
    assert place.client.get("/api/v1/models/newest", headers=place.ann).json()["name"] == "first"
    assert put("/api/v1/models/first", json=notice, headers=place.tom).status_code == 409
    assert put("/api/v1/models/y/file", content=b"1", headers=place.tom).status_code == 404
    for name in ("..", "a%2Fb", ".x", "x" * 200, "%00"):
        answer = put(f"/api/v1/models/{name}", json=notice, headers=place.tom)
        assert answer.status_code in (404, 405, 422), name


@pytest.mark.parametrize(
    "change",
    [
        {"options": {**OPTIONS, "playouts": 0}},
        {"options": {**OPTIONS, "playouts": 1.5}},
        {"options": {**OPTIONS, "openings": 1}},
        {"options": {}},
        {"games": 0},
        {"model": "../x"},
        {"openings": ["startpos moves 7g7e"]},
        {"openings": ["sfen 9/9 b - 1"]},
        {"resign_threshold": 2},
        {"seed": -1},
    ],
)
def test_runs_that_cannot_be(place, change):
    wish = {"model": "first", "games": 5, "options": OPTIONS, **change}
    assert place.client.put("/api/v1/runs/2", json=wish, headers=place.tom).status_code == 422


# --- hostile uploads --------------------------------------------------------------------------


def npy(header: bytes, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def member(data: bytes, name: str, content: bytes, **how) -> bytes:
    """The archive with another content of one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for one in old.infolist():
            inside = content if one.filename == name else old.read(one)
            new.writestr(one.filename, inside, how.get("compress", zipfile.ZIP_STORED))
        for extra in how.get("extra", ()):
            new.writestr(extra, b"x")
    return stream.getvalue()


def stored_as(array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


class Evil:
    """Unpickling it would leave a file."""

    def __reduce__(self):
        return (open, ("pickled", "w"))


def hostile(games) -> dict[str, bytes]:
    """Uploads by what is wrong with them."""
    good = packed(games, "first")
    arrays = as_arrays(games, {"model": "first"})
    n, plies = len(games), len(arrays["move"])
    head = b"{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }\n"
    full = int(arrays["full"].argmax())
    some = int(np.flatnonzero(arrays["candidates"] > 1)[0])
    at = int(arrays["candidates"][:some].sum())

    def changed(name, place, value):
        array = arrays[name].copy()
        array[place] = value
        return packed(games, "first", **{name: array})

    def typed(name, dtype):
        return packed(games, "first", **{name: arrays[name].astype(dtype)})

    moves = arrays["move"]
    swapped = moves.copy()
    swapped[[2, 3]] = moves[[3, 2]]
    object_array = np.empty(n, object)
    object_array[:] = Evil()
    meta = arrays["meta"]
    last = int(arrays["plies"][0])
    return {
        "nothing": b"",
        "text": b"hello",
        "pickle": pickle.dumps(Evil()),
        "cut": good[: len(good) // 2],
        "noise": good[:60] + bytes(100) + good[160:],
        "end of the directory": good[:-10],
        "pickle in an array": member(good, "number.npy", stored_as(object_array)),
        "bomb": member(good, "move.npy", bytes(300_000_000), compress=zipfile.ZIP_DEFLATED),
        "bomb in meta": member(good, "meta.npy", bytes(9_000_000), compress=zipfile.ZIP_DEFLATED),
        "lzma": member(good, "move.npy", b"x", compress=zipfile.ZIP_LZMA),
        "more members": member(good, "", b"", extra=["other.npy"]),
        "a path": member(good, "", b"", extra=["../../evil.npy"]),
        "an absolute path": member(good, "", b"", extra=["/tmp/evil.npy"]),
        "huge shape": member(good, "move.npy", npy(head % 999_999_999)),
        "shape of another size": member(good, "move.npy", npy(head % plies, bytes(4))),
        "no header": member(good, "move.npy", b"\x93NUMPY\x01\x00\xff\xff"),
        "python in a header": member(good, "move.npy", npy(b"__import__('os').getpid()\n")),
        "nested header": member(good, "move.npy", npy(b"(" * 5000)),
        "version 2": member(good, "move.npy", b"\x93NUMPY\x02\x00" + bytes(100)),
        "fortran": member(
            good, "position.npy", stored_as(np.asfortranarray(arrays["position"]))
        ),
        "one dimension more": packed(games, "first", move=moves[:, None]),
        "float moves": typed("move", np.float64),
        "wide moves": typed("move", np.int64),
        "big-endian": typed("number", ">i8"),
        "float visits": typed("policy_visits", np.float32),
        "a bool of 2": member(
            good, "full.npy", stored_as(arrays["full"]).replace(b"\x01", b"\x02")[:-1] + b"\x02"
        ),
        "fewer moves": packed(games, "first", move=moves[:-1]),
        "fewer games": packed(games, "first", winner=arrays["winner"][:-1]),
        "no game": packed([], "first"),
        "negative plies": changed("plies", 0, -1),
        "too many plies": changed("plies", 0, 513),
        "plies beyond the option": packed(
            played(TASK_GAMES, 16, replace(PLAY, max_ply=80)), "first"
        ),
        "negative candidates": changed("candidates", 0, -1),
        "other format": packed(games, "first", meta=np.frombuffer(b'{"format": "x"}', np.uint8)),
        "no JSON": packed(games, "first", meta=meta[:-3]),
        "nested JSON": packed(games, "first", meta=np.frombuffer(b"[" * 60_000, np.uint8)),
        "other model": packed(games, "second"),
        "foreign number": changed("number", 0, 5),
        "number of another task": changed("number", 0, 5 * TASK_GAMES),
        "number twice": changed("number", 0, int(arrays["number"][1])),
        "no such winner": changed("winner", 0, 3),
        "other winner": changed("winner", 0, (int(arrays["winner"][0]) + 1) % 3),
        "no such end": changed("end", 0, 99),
        "other end": changed("end", 0, 3),
        "no such move": changed("move", 3, 0x7FFF),
        "move to its own square": changed("move", 3, 5 << 7 | 5),
        "illegal move": packed(games, "first", move=swapped),
        "illegal visits": changed("policy_move", at, 40 << 7 | 41),
        "visits twice": changed("policy_move", at, int(arrays["policy_move"][at + 1])),
        "no visits": changed("policy_visits", at, 0),
        "many visits": changed("policy_visits", at, 60_000),
        "NaN of a full search": changed("root_value", full, np.nan),
        "infinite value": changed("root_value", full, np.inf),
        "value of 2": changed("root_value", full, 2.0),
        "value below 0": changed("root_value", full, -0.5),
        "many playouts": changed("playouts", full, 1 << 30),
        "negative playouts": changed("playouts", full, -1),
        "random plies": changed("random_plies", 0, 100),
        "full without visits": changed("full", int((~arrays["full"]).argmax()), True),
        "other position": changed("position", (last - 1, 3), 255),
        "other start": changed("start", 0, "4k4/9/9/9/9/9/9/9/4K4 b - 1"),
        "malformed start": changed("start", 0, "9/9/9 x"),
        "long start": packed(games, "first", start=np.array(["k" * 500] * n)),
        "start that is no ASCII": changed("start", 0, "王" * 20),
        "too many games": packed(played(TASK_GAMES, 17), "first"),
    }  # fmt: skip


def test_a_good_upload_is_found_good(games):
    found = validate(packed(games, "first"), EXPECTED)
    assert [game.number for game in found] == [game.number for game in games]
    assert [game.end for game in found] == [game.end for game in games]
    assert all(not faults_of(game.arrays, game.end, 40, THRESHOLD) for game in found)


def test_hostile_uploads_are_refused(games, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = {}
    for name, data in hostile(games).items():
        try:
            validate(data, EXPECTED)
        except Refused as refused:
            kinds[name] = refused.kind
        else:
            pytest.fail(f"{name} was taken")
    assert len(kinds) >= 60
    assert list(tmp_path.iterdir()) == []
    assert kinds["illegal move"] == "illegal"
    assert kinds["other winner"] == kinds["other end"] == "result"
    assert kinds["bomb"] == "size"
    assert kinds["NaN of a full search"] == "nan"
    assert kinds["pickle in an array"] == "type"
    assert kinds["number twice"] == "numbers"


def test_checks_in_a_process_of_their_own(games):
    validators = Validators(1)
    try:
        assert len(validators.check(packed(games, "first"), EXPECTED)) == 16
        with pytest.raises(Refused, match="no zip archive"):
            validators.check(b"hello", EXPECTED)
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        assert len(validators.check(packed(games, "first"), EXPECTED)) == 16
    finally:
        validators.close()


def test_what_is_refused_is_set_aside_with_its_reason(place, games):
    task = place.task(place.ann)["task"]
    uploads = hostile(games)
    names = ("cut", "bomb", "illegal move", "other winner", "visits twice", "number twice")
    for name in names:
        answer = place.send(task, uploads[name])
        assert answer.status_code == 422, name
        assert answer.json()["detail"]
    assert place.status["games"] == 0
    assert place.files("games") == []
    assert sum(place.status["quarantined"].values()) == len(names) == len(place.files("quarantine"))
    with place.server.database.session() as session:
        kept = session.query(Quarantined).all()
        assert all(one.reason and one.sha256 for one in kept)
    assert place.send(task, packed(games, "first")).status_code == 201


def test_quarantine_has_room_for_so_many(tmp_path, network, games):
    place = Place(tmp_path, replace(SMALL, quarantined_files=2))
    with place.client:
        publish(place.client, place.tom, "first", network)
        open_run(place.client, place.tom, 1, "first")
        task = place.task(place.ann)["task"]
        for number in range(4):
            assert place.send(task, b"junk %d" % number).status_code == 422
    assert len(place.files("quarantine")) == 2
    assert place.status["quarantined"] == {"damaged": 4}


def test_a_large_body_is_refused_before_it_is_read(place):
    task = place.task(place.ann)["task"]
    read = []

    def body():
        for _ in range(1000):
            read.append(1)
            yield bytes(10_000)

    headers = {**place.ann, "Content-Length": "500000"}
    url = f"/api/v1/tasks/{task}/games"
    assert place.client.post(url, content=body(), headers=headers).status_code == 413
    # Without a length: as soon as it is too much.
    assert place.client.post(url, content=body(), headers=place.ann).status_code == 413
    for length in ("-1", "x", "9" * 30):
        headers = {**place.ann, "Content-Length": length}
        assert place.client.post(url, content=b"", headers=headers).status_code == 413
    big = {"games": 1, "x": "y" * 2_000_000}
    assert place.client.post("/api/v1/tasks", json=big, headers=place.ann).status_code == 413
    assert place.files("quarantine") == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "tasks", b"{"),
        ("POST", "tasks", b'{"games": 0}'),
        ("POST", "tasks", b'{"games": 1e30}'),
        ("POST", "tasks", b'{"games": NaN}'),
        ("POST", "tasks", b'{"holding": "\\u0000"}'),
        ("POST", "tasks/0/games", b"x"),
        ("POST", "tasks/-1/games", b"x"),
        ("POST", "tasks/99999999999999999999/games", b"x"),
        ("POST", "tasks/1e3/games", b"x"),
        ("POST", "tasks/..%2f..%2fetc/games", b"x"),
        ("POST", "tasks/1/rated", b'{"games": [1]}'),
        ("POST", "tasks/1/rated", b"[" * 10_000),
        ("GET", "models/..%2f..%2fserver.db/file", b""),
        ("GET", "models/%2e%2e/file", b""),
        ("GET", "uploads/0/file", b""),
        ("DELETE", "models/first", b""),
        ("GET", "nothing", b""),
    ],
)
def test_requests_that_make_no_sense(place, method, path, body):
    headers = {**place.ann, "Content-Type": "application/json"}
    answer = place.client.request(method, f"/api/v1/{path}", content=body, headers=headers)
    assert 400 <= answer.status_code < 500


# --- tables, options --------------------------------------------------------------------------


def test_migrations_make_the_tables_that_the_code_has(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/x.db")
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()
    Database(f"sqlite:///{tmp_path}/x.db").close()
    with pytest.raises(GinkgoError, match="--database nonsense"):
        Database("nonsense://secret@host/x")
    with pytest.raises(GinkgoError) as error:
        Database("postgresql+psycopg://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(error.value)


def test_status_needs_no_token(place):
    assert place.status["newest_model"] == "first"
    description = place.client.get("/openapi.json").json()
    assert "/api/v1/tasks/{number}/games" in description["paths"]
    assert place.client.get("/api/v1/ratings").json() == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"validators": 0}, "--validators 0: expected at least 1"),
        ({"ahead": 0.5}, "--ahead 0.5"),
        ({"port": 70_000}, "--port 70000"),
        ({"oldest_client": "new"}, "--oldest-client new: expected a version"),
        ({"add_user": "a b"}, "--add-user 'a b'"),
        ({"task_hours": float("nan")}, "--task-hours nan"),
    ],
)
def test_mistakes_of_the_server_are_named(change, text):
    with pytest.raises(GinkgoError, match=text):
        check_serve(replace(SMALL, **change))


GOOD_TOML = 'server = "https://x"\nusername = "ann"\ntoken = "t"\n'


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("server = 1", "server = 1: expected str"),
        ('server = "x"', "no username in it"),
        ("a = b", "no TOML"),
        (GOOD_TOML + "gamess = 1", "gamess: expected one of"),
        (GOOD_TOML + "threads = 0", "threads = 0: expected 1 to 256"),
        (GOOD_TOML + "rating = 1", "rating = 1: expected bool"),
        (GOOD_TOML + 'log = "../x"', "expected a plain name"),
        (GOOD_TOML.replace("https", "ftp"), "expected https://HOST"),
    ],
)
def test_mistakes_in_a_workers_file_are_named(tmp_path, text, mistake):
    path = tmp_path / "contribute.toml"
    path.write_text(text)
    with pytest.raises(GinkgoError, match=mistake):
        load_worker(path)


def test_games_of_a_thousand_uploads_have_different_numbers(place):
    with place.server.database.session() as session:
        assert session.query(PlayedRow).count() == 0
    firsts = [place.task(place.ann, 1)["first"] for _ in range(3)]
    assert firsts == [TASK_GAMES, 2 * TASK_GAMES, 3 * TASK_GAMES]
