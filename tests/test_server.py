"""The server: accounts, models, runs, tasks, uploads, all in this process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
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
    tiny_network,
)

from ginkgo.errors import GinkgoError
from ginkgo.fleet import accounts
from ginkgo.fleet.config import TASK_GAMES, check_serve, load_worker
from ginkgo.fleet.database import Base, Database, PlayedRow
from ginkgo.records.kifu.selfplay import load_arrays

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
