"""The server on PostgreSQL, where there is one, and with other storages than a folder."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from fleet_parts import Place, open_run, packed, played, publish, rate, tiny_network
from postgres import postgresql, programs

from ginkgo.errors import GinkgoError
from ginkgo.fleet.config import TASK_GAMES
from ginkgo.fleet.database import Base, Database
from ginkgo.fleet.storage import Storage
from ginkgo.records.kifu.selfplay import read_arrays


@pytest.fixture(scope="module")
def postgres(tmp_path_factory):
    """URL of a PostgreSQL of its own."""
    if programs() is None:
        pytest.skip("needs PostgreSQL")
    with postgresql(tmp_path_factory.mktemp("postgres")) as url:
        yield url


def test_games_and_matches_on_postgresql(postgres, tmp_path):
    place = Place(tmp_path, database=postgres)
    with place.server.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    games = played(TASK_GAMES, 12)
    with place.client:
        for seed, name in ((1, "first"), (2, "second")):
            publish(place.client, place.tom, name, tiny_network(tmp_path / "tiny.onnx", seed))
        open_run(place.client, place.tom, 1, "first")
        task = place.task(place.ann, 12, rating=False, worker="w")
        assert task["first"] == TASK_GAMES
        # The same games at once, in packings that share some: each is stored once.
        parts = [packed(games[low : low + 6], "first") for low in (0, 2, 4, 6)] * 2
        gate = threading.Barrier(len(parts))

        def send(data):
            gate.wait()
            return place.send(task["task"], data)

        with ThreadPoolExecutor(len(parts)) as pool:
            answers = list(pool.map(send, parts))
        codes = Counter(answer.status_code for answer in answers)
        assert codes.keys() <= {200, 201, 503}
        assert all(place.send(task["task"], part).status_code in (200, 201) for part in parts)
        assert place.send(task["task"], b"junk").status_code == 422
        rate(place, "second", "first", 4)
        place.client.post("/api/v1/runs/1/close", headers=place.tom)
        assert place.status["games"] == 12
        assert place.status["rating_games"] == 4
        numbers = []
        for one in place.client.get("/api/v1/runs/1/uploads", headers=place.tom).json():
            answer = place.client.get(f"/api/v1/uploads/{one['upload']}/file", headers=place.tom)
            numbers += read_arrays(answer.content)[1]["number"].tolist()
        assert sorted(numbers) == [game.number for game in games]
        for path in ("statistics", "ratings", "models", "games", f"games/{TASK_GAMES}"):
            assert place.client.get(f"/api/v1/{path}").json(), path
        assert "second" in place.client.get("/").text
    Database(postgres).close()


def test_games_in_a_storage_of_another_kind(tmp_path):
    """`memory://` stands for S3 and the like: both are written and read through fsspec."""
    place = Place(tmp_path, storage="memory://bucket/ginkgo")
    games = played(TASK_GAMES, 4)
    network = tiny_network(tmp_path / "tiny.onnx")
    with place.client:
        publish(place.client, place.tom, "first", network)
        open_run(place.client, place.tom, 1, "first")
        task = place.task(place.ann, 4)["task"]
        assert place.send(task, packed(games, "first")).status_code == 201
        assert place.send(task, b"junk").status_code == 422
        headers = {**place.ann, "Range": "bytes=100-199"}
        part = place.client.get("/api/v1/models/first/file", headers=headers)
        assert part.content == network.read_bytes()[100:200]
        [one] = place.client.get("/api/v1/runs/1/uploads", headers=place.tom).json()
        answer = place.client.get(f"/api/v1/uploads/{one['upload']}/file", headers=place.tom)
        assert len(read_arrays(answer.content)[1]["number"]) == 4
    kinds = {path.split("/")[3] for path in fsspec.filesystem("memory").find("/bucket/ginkgo")}
    assert kinds == {"games", "models", "quarantine"}
    assert not (tmp_path / "files").exists()


def test_a_storage_that_fails(tmp_path, monkeypatch):
    """Nothing is acknowledged that is not stored; the sender is told to come again."""
    place = Place(tmp_path, storage="memory://broken")
    with place.client:
        publish(place.client, place.tom, "first", tiny_network(tmp_path / "tiny.onnx"))
        open_run(place.client, place.tom, 1, "first")
        task = place.task(place.ann, 2)["task"]
        data = packed(played(TASK_GAMES, 2), "first")

        def full(*_):
            raise OSError("no space left")

        with monkeypatch.context() as broken:
            broken.setattr(place.server.storage._fs, "pipe_file", full)
            answer = place.send(task, data)
            assert (answer.status_code, "Retry-After" in answer.headers) == (503, True)
        assert place.status["games"] == 0
        assert place.send(task, data).status_code == 201


def test_storages_that_cannot_be(tmp_path):
    for url in ("nonsense://bucket", "s3://"):
        with pytest.raises(GinkgoError, match="--storage"):
            Storage(url)
    with pytest.raises(GinkgoError, match="cannot read"):
        Storage(str(tmp_path)).read("no")
    Storage(str(tmp_path)).remove("no")
