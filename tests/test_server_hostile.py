"""Uploads and requests that are refused, each kind with its status, and stored nowhere."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import re
import struct
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from fleet_parts import (
    OPTIONS,
    PLAY,
    SMALL,
    THRESHOLD,
    Place,
    open_run,
    packed,
    played,
    publish,
    rated,
    tiny_network,
)

from ginkgo.fleet import accounts
from ginkgo.fleet.config import TASK_GAMES
from ginkgo.fleet.database import Quarantined, Task
from ginkgo.fleet.upload import Refused
from ginkgo.fleet.validate import Expected, Validators, validate
from ginkgo.records.game import ENDINGS, STARTPOS
from ginkgo.records.kifu.selfplay import as_arrays
from ginkgo.selfplay.audit import faults_of

EXPECTED = Expected(TASK_GAMES, 16, "first", OPTIONS, THRESHOLD, (STARTPOS,))


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


# --- uploads ----------------------------------------------------------------------------------


def npy(header: bytes, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def member(data: bytes, name: str, content: bytes, **how) -> bytes:
    """The archive with another content of one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for one in old.infolist():
            if one.filename == how.get("leave"):
                continue
            inside = content if one.filename == name else old.read(one)
            new.writestr(one.filename, inside, how.get("compress", zipfile.ZIP_STORED))
        for extra in how.get("extra", ()):
            new.writestr(extra, b"x")
    return stream.getvalue()


def lying(data: bytes) -> bytes:
    """Moves that unpack to more than the archive's directory says."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        right = archive.read("move.npy")
    bomb = member(data, "move.npy", right + bytes(9_000_000), compress=zipfile.ZIP_DEFLATED)
    # Where the directory has it: the name stands 46 bytes after the beginning of an entry.
    places = (match.start() - 46 for match in re.finditer(b"move.npy", bomb))
    [at] = (place for place in places if bomb[place : place + 4] == b"PK\x01\x02")
    return bomb[: at + 24] + struct.pack("<I", len(right)) + bomb[at + 28 :]


def stored_as(array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


class Evil:
    """Unpickling it would leave a file."""

    def __reduce__(self):
        return (open, ("pickled", "w"))


#: What each of them is refused as.
KINDS = {
    "damaged": (
        "nothing",
        "text",
        "pickle",
        "cut",
        "noise",
        "end of the directory",
        "lzma",
        "version 2",
        "a lie about sizes",
    ),
    "members": (
        "more members",
        "a path",
        "an absolute path",
        "a member twice",
        "fewer members",
    ),
    "type": (
        "pickle in an array",
        "no header",
        "python in a header",
        "fortran",
        "big-endian",
    ),
    "size": (
        "bomb",
        "bomb in meta",
        "nested header",
        "float moves",
        "wide moves",
        "float visits",
        "long start",
    ),
    "shape": ("one dimension more",),
    "sizes": (
        "huge shape",
        "shape of another size",
        "fewer moves",
        "fewer games",
        "no game",
        "too many games",
    ),
    "length": (
        "negative plies",
        "too many plies",
    ),
    "meta": (
        "other format",
        "no JSON",
        "nested JSON",
        "other endings",
    ),
    "model": ("other model",),
    "numbers": (
        "foreign number",
        "number of another task",
        "number twice",
    ),
    "range": (
        "a bool of 2",
        "plies beyond the option",
        "negative candidates",
        "no such winner",
        "no such end",
        "no visits",
        "infinite value",
        "value of 2",
        "value below 0",
        "many playouts",
        "negative playouts",
        "random plies",
        "other start",
        "malformed start",
        "start that is no ASCII",
    ),
    "nan": (
        "NaN of a full search",
        "full without visits",
    ),
    "illegal": (
        "no such move",
        "move to its own square",
        "illegal move",
        "illegal visits",
    ),
    "result": (
        "other winner",
        "other end",
        "other position",
        "resigned without leave",
        "a mate that is none",
    ),
    "policy": (
        "visits twice",
        "many visits",
    ),
}


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
    resigned = [game.end for game in games].index("toryo")
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
        "a bool of 2": member(good, "full.npy", stored_as(arrays["full"])[:-1] + b"\x02"),
        "a lie about sizes": lying(good),
        "a member twice": member(good, "", b"", extra=["number.npy"]),
        "fewer members": member(good, "", b"", leave="winner.npy"),
        "other endings": packed(
            games, "first", meta=np.frombuffer(meta.tobytes().replace(b"toryo", b"tory0"), np.uint8)
        ),
        "resigned without leave": changed("may_resign", resigned, False),
        "a mate that is none": changed("end", resigned, ENDINGS.index("tsumi")),
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


def test_hostile_uploads_are_refused(place, games, tmp_path, monkeypatch):
    """Each with 422 and its kind; a copy is set aside, nothing is stored, no file appears."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    task = place.task(place.ann)["task"]
    wanted = {name: kind for kind, names in KINDS.items() for name in names}
    uploads = hostile(games)
    assert uploads.keys() == wanted.keys()
    found = {}
    for name, data in uploads.items():
        answer = place.send(task, data)
        assert answer.status_code == 422, name
        assert answer.json()["detail"]
        found[name] = answer.json()["kind"]
    assert found == wanted
    assert list(here.iterdir()) == []
    assert place.files("games") == []
    assert len(place.files("quarantine")) == len(uploads)
    status = place.status
    assert status["games"] == 0
    assert status["quarantined"] == {kind: len(names) for kind, names in KINDS.items()}
    with place.server.database.session() as session:
        assert all(one.reason and one.sha256 for one in session.query(Quarantined))
    assert place.send(task, packed(games, "first")).status_code == 201


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


GAMES = "tasks/{task}/games"
BAD_REQUESTS = [
    # Without a token that is good.
    ("nobody", "POST", "tasks", b"{}", 401),
    ("nobody", "POST", GAMES, b"x", 401),
    ("nobody", "GET", "models/first/file", b"", 401),
    ("nobody", "PUT", "models/x/file", b"x", 401),
    ("nobody", "POST", "runs/1/close", b"", 401),
    ("forged", "POST", "tasks", b"{}", 401),
    ("forged", "POST", GAMES, b"x", 401),
    ("basic", "GET", "account", b"", 401),
    ("blocked", "POST", "tasks", b"{}", 401),
    ("blocked", "POST", GAMES, b"x", 401),
    # With another one's.
    ("bob", "POST", GAMES, b"x", 404),
    ("tom", "POST", GAMES, b"x", 404),
    ("bob", "POST", "tasks/{rating}/rated", b'{"games": []}', 404),
    ("ann", "PUT", "models/x", b'{"sha256": "%s", "size": 1}' % (b"0" * 64), 403),
    ("ann", "PUT", "models/first/file", b"x", 403),
    ("ann", "PUT", "runs/2", b"{}", 403),
    ("ann", "POST", "runs/1/close", b"", 403),
    ("ann", "GET", "runs/1", b"", 403),
    ("ann", "GET", "runs/1/uploads", b"", 403),
    ("ann", "GET", "uploads/1/file", b"", 403),
    ("ann", "PUT", "matches/m", b"{}", 403),
    ("ann", "GET", "matches/m", b"", 403),
    ("ann", "POST", "matches/m/close", b"", 403),
    # What cannot be.
    ("ann", "POST", "tasks", b"{", 422),
    ("ann", "POST", "tasks", b"[" * 50_000, 400),
    ("ann", "POST", "tasks", b"\xff\xfe", 422),
    ("ann", "POST", "tasks", b'{"games": 0}', 422),
    ("ann", "POST", "tasks", b'{"games": 1e30}', 422),
    ("ann", "POST", "tasks", b'{"games": NaN}', 422),
    ("ann", "POST", "tasks", b'{"holding": "\\u0000"}', 422),
    ("ann", "POST", "tasks", b'{"holding": [%d]}' % 10**40, 422),
    ("long name", "POST", "tasks", b"{}", 422),
    ("ann", "POST", "tasks/0/games", b"x", 422),
    ("ann", "POST", "tasks/-1/games", b"x", 422),
    ("ann", "POST", "tasks/99999999999999999999/games", b"x", 422),
    ("ann", "POST", "tasks/1e3/games", b"x", 422),
    ("ann", "POST", "tasks/{rating}/games", b"x", 404),
    ("ann", "POST", "tasks/{task}/rated", b'{"games": []}', 404),
    ("ann", "POST", "tasks/{rating}/rated", b'{"games": [1]}', 422),
    ("ann", "POST", "tasks/{rating}/rated", b"[" * 10_000, 400),
    ("tom", "PUT", "models/x", b'{"sha256": "0", "size": 1}', 422),
    ("tom", "PUT", "models/x", b'{"sha256": "%s", "size": -1}' % (b"0" * 64), 422),
    ("tom", "PUT", "models/x", b'{"sha256": "%s", "size": 9999999999}' % (b"0" * 64), 413),
    ("tom", "PUT", "models/x/file", b"x", 404),
    ("tom", "PUT", "models/first/file", b"x", 422),
    ("tom", "PUT", "runs/0", b"{}", 422),
    ("tom", "GET", "runs/7", b"", 404),
    ("tom", "GET", "uploads/9/file", b"", 404),
    ("tom", "GET", "matches/none", b"", 404),
    # Names of paths.
    ("ann", "POST", "tasks/..%2f..%2fetc/games", b"x", 404),
    ("ann", "GET", "models/..%2f..%2fserver.db/file", b"", 404),
    ("ann", "GET", "models/%2e%2e/file", b"", 422),
    ("ann", "GET", "models/.hidden/file", b"", 422),
    ("ann", "GET", "models/%00/file", b"", 422),
    ("ann", "GET", "models/a%5Cb/file", b"", 422),
    ("ann", "GET", "models/" + "x" * 3000 + "/file", b"", 422),
    ("tom", "PUT", "models/..%2fx", b'{"sha256": "%s", "size": 1}' % (b"0" * 64), 404),
    ("tom", "GET", "uploads/0/file", b"", 422),
    ("tom", "GET", "uploads/..%2fserver.db/file", b"", 404),
    # What is not there.
    ("tom", "DELETE", "models/first", b"", 405),
    ("ann", "PATCH", "tasks", b"{}", 405),
    ("ann", "GET", "nothing", b"", 404),
]


def test_bad_requests_are_refused(place):
    """Each with its status, and nothing has changed."""
    with place.server.database.session() as session:
        token = accounts.add_user(session, "eve", "worker")
        accounts.block(session, "eve")
    forged = place.ann["Authorization"][:-4] + "AAAA"
    who = {
        "nobody": {},
        "forged": {"Authorization": forged},
        "basic": {"Authorization": "Basic YW5uOng="},
        "blocked": {"Authorization": f"Bearer {token}"},
        "long name": {**place.ann, "Ginkgo-Worker": "x" * 33},
        **{name: getattr(place, name) for name in ("ann", "bob", "tom")},
    }
    wish = {"a": "first", "b": "first", "games": 2, "nodes": 1, "max_ply": 9}
    wish["openings"] = ["startpos"]
    place.client.put("/api/v1/matches/m", json=wish, headers=place.tom)
    numbers = {"rating": place.task(place.ann)["task"], "task": place.task(place.ann)["task"]}
    before = place.status
    wrong = []
    for name, method, path, body, status in BAD_REQUESTS:
        headers = {"Content-Type": "application/json", **who[name]}
        url = "/api/v1/" + path.format(**numbers)
        answer = place.client.request(method, url, content=body, headers=headers)
        if answer.status_code != status:
            wrong.append((name, method, path, body[:60], status, answer.status_code, answer.text))
    assert wrong == []
    # Whoever has a token is there, whatever he asks for.
    assert {**place.status, "workers_alive": 1} == {**before, "workers_alive": 1}
    assert place.files("games") == place.files("quarantine") == []
    assert len(place.files("models")) == 1


# --- rating games -----------------------------------------------------------------------------


def test_rating_games_are_played_again_by_the_referee(place, network, tmp_path):
    publish(place.client, place.tom, "second", tiny_network(tmp_path / "second.onnx", 2))
    wish = {"a": "second", "b": "first", "games": 4, "nodes": 3, "max_ply": 12}
    wish["openings"] = ["startpos moves 7g7f", "startpos moves 2g2f 8c8d"]
    place.client.put("/api/v1/matches/m", json=wish, headers=place.tom)
    task = place.task(place.ann)
    good = rated(task)

    def send(games, who=place.ann):
        url = f"/api/v1/tasks/{task['task']}/rated"
        return place.client.post(url, json={"games": games}, headers=who)

    def changed(**fields):
        return [{**good[0], **fields}, *good[1:]]

    moves, scores = list(good[0]["moves"]), list(good[0]["scores"])
    wrong = {
        "no game": [{}],
        "no number": [{**good[0], "number": None}],
        "foreign number": changed(number=9),
        "number twice": [good[0], good[0]],
        "moves of another kind": changed(moves=[1] * len(moves)),
        "moves that are no list": changed(moves=7),
        "other opening": changed(moves=["2g2f", *moves[1:]]),
        "illegal move": changed(moves=[*moves[:-1], "5i5a"]),
        "no move": changed(moves=[*moves[:-1], "hello"]),
        "goes on": changed(moves=[*moves, "7g7f"], scores=[*scores, 0]),
        "too long": changed(moves=moves * 300, scores=scores * 300),
        "not over": changed(moves=moves[:-1], scores=scores[:-1]),
        "other winner": changed(winner="b" if good[0]["winner"] != "b" else "w"),
        "other end": changed(end="toryo"),
        "scores that do not fit": changed(scores=scores[:-1]),
        "a score of another kind": changed(scores=["x", *scores[1:]]),
        "a huge score": changed(scores=[10**30, *scores[1:]]),
        "resigns": changed(moves=[*moves[:-1], "resign"]),
    }
    for name, games in wrong.items():
        answer = send(games)
        assert answer.status_code == 422, (name, answer.text)
    assert place.status["rating_games"] == 0
    assert send(good, place.bob).status_code == 404
    assert send(good[:3]).json() == {"stored": 3, "known": 0}
    assert send(good).json() == {"stored": 1, "known": 3}
    assert send(good).json() == {"stored": 0, "known": 4}
    result = place.client.get("/api/v1/matches/m", headers=place.tom).json()
    assert (result["games"], result["wanted"], result["a"]) == (4, 4, "second")
    [best, other] = place.client.get("/api/v1/ratings").json()
    assert {best["name"], other["name"]} == {"first", "second"}
    assert best["games"] == 4
    assert place.task(place.ann)["kind"] == "selfplay"


def test_rating_games_that_a_worker_gave_up_are_handed_out_again(place):
    wish = {"a": "first", "b": "first", "games": 4, "nodes": 3, "max_ply": 12}
    wish["openings"] = ["startpos moves 7g7f", "startpos moves 2g2f 8c8d"]
    place.client.put("/api/v1/matches/m", json=wish, headers=place.tom)
    task = place.task(place.ann, worker="one")
    assert (task["kind"], task["first"], task["games"]) == ("rating", 0, 4)
    games = rated(task)
    url = f"/api/v1/tasks/{task['task']}/rated"
    place.client.post(url, json={"games": games[:1]}, headers=place.ann)
    # Another worker of the same user finds nothing to rate, as long as the first one is there.
    assert place.task(place.ann, worker="two")["kind"] == "selfplay"
    with place.server.database.session() as session:
        session.get(Task, task["task"]).expires = time.time() - 1
    again = place.task(place.ann, worker="two")
    assert (again["kind"], again["first"], again["games"]) == ("rating", 2, 2)
    torn = place.task(place.bob)
    assert (torn["kind"], torn["first"], torn["games"]) == ("rating", 0, 2)
    # What comes late is taken all the same, once; what has been decided is handed out no longer.
    answer = place.client.post("/api/v1/matches/m/close", headers=place.tom)
    assert answer.json()["wanted"] == 4
    assert place.task(place.bob, worker="new")["kind"] == "selfplay"
    assert place.client.post(url, json={"games": games}, headers=place.ann).json()["stored"] == 3
    url = f"/api/v1/tasks/{torn['task']}/rated"
    answer = place.client.post(url, json={"games": games[:2]}, headers=place.bob)
    assert answer.json() == {"stored": 0, "known": 2}
