"""The server's page: figures, charts, games to replay, in a browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from datetime import date
from xml.etree import ElementTree

import cshogi
import numpy as np
import pytest
import uvicorn
from fleet_parts import Place, open_run, packed, played, publish, rate, tiny_network

from ginkgo.fleet import accounts, charts, figures
from ginkgo.fleet.config import TASK_GAMES
from ginkgo.fleet.page import _ago
from ginkgo.fleet.remembered import Remembered


@pytest.fixture(scope="module")
def games():
    return played(TASK_GAMES, 6)


@pytest.fixture(scope="module")
def place(tmp_path_factory, games):
    """A server with two models, games of one user and a match."""
    folder = tmp_path_factory.mktemp("page")
    place = Place(folder)
    with place.client:
        for seed, name in ((1, "first"), (2, "second")):
            publish(place.client, place.tom, name, tiny_network(folder / "tiny.onnx", seed))
        open_run(place.client, place.tom, 1, "second")
        task = place.task(place.ann, 6, rating=False)
        assert place.send(task["task"], packed(games, "second")).status_code == 201
        rate(place, "second", "first", 6)
        yield place


def test_the_page_tells_what_there_is(place, games):
    answer = place.client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    text = answer.text
    for what in ("second", "ann", str(games[0].number), f">{len(games)}<", 'src="/charts/elo.svg"'):
        assert what in text, what
    # Nothing comes from another place, and no script stands in the page.
    assert not re.findall(r'(?:src|href)="(?!/|/web/)', text)
    assert re.findall("<script[^>]*>(.*?)</script>", text) == ["", ""]
    for path in re.findall(r'(?:src|href)="(/(?:web|charts)/[^"]+)"', text):
        found = place.client.get(path)
        assert found.status_code == 200, path
        assert found.content


def test_what_programs_may_ask_is_a_page_of_its_own(place):
    """Every path of the description is on it, and nothing of it comes from elsewhere."""
    answer = place.client.get("/docs")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    paths = place.client.get("/openapi.json").json()["paths"]
    assert len(paths) > 10
    for path, operations in paths.items():
        assert answer.text.count(f"<code>{path}</code>") == len(operations), path
    assert "Needs a token" in answer.text
    assert not re.findall(r'(?:src|href)="(?!/|/web/)', answer.text)
    assert "<script" not in answer.text
    assert place.client.get("/redoc").status_code == 404


def test_an_empty_server_has_a_page(tmp_path):
    place = Place(tmp_path)
    assert "No games have been asked for yet" in place.client.get("/").text
    for name in ("elo", "games", "positions"):
        assert place.client.get(f"/charts/{name}.svg").text.count("<svg") == 1


def test_only_its_own_files_are_given(place):
    for path in ("/web/../app.py", "/web/index.html", "/web/%2e%2e/app.py", "/web/", "/web/x.js"):
        assert place.client.get(path).status_code in (404, 422), path
    for path in ("/charts/x.svg", "/charts/..%2f.svg", "/?game=0", "/?game=x", f"/?game={10**30}"):
        assert place.client.get(path).status_code in (404, 422), path


def test_names_are_escaped(place):
    with place.server.database.session() as session:
        accounts.find_user(session, "ann").name = "<script>x"
    text = place.client.get("/").text
    with place.server.database.session() as session:
        accounts.find_user(session, "<script>x").name = "ann"
    assert "&lt;script&gt;x" in text
    assert "<script>x" not in text


def test_charts_show_the_figures():
    days = [{"day": "2026-03-05", "games": 1234, "positions": 5}]
    with_games = charts.per_day(days, "games", date(2026, 3, 10))
    ElementTree.fromstring(with_games)
    assert b"games per day" in with_games
    assert b"1,200" in with_games
    assert b"1,200" not in charts.per_day(days, "games", date(2026, 7, 1))
    rating = {"name": "m", "elo": 120.0, "low": 100.0, "high": 150.0, "games": 8}
    models = [{"name": "m", "created": 1.7e9, "size": 1}]
    assert b"no rating games yet" in charts.elo([], models)
    drawn = charts.elo([rating, {**rating, "name": "forgotten"}], models)
    ElementTree.fromstring(drawn)
    assert b"no rating games yet" not in drawn


def test_games_to_replay(place, games):
    listed = place.client.get("/api/v1/games").json()
    assert [one["number"] for one in listed] == [game.number for game in reversed(games)]
    assert len(place.client.get("/api/v1/games?count=2").json()) == 2
    game = max(games, key=lambda one: one.plies)
    found = place.client.get(f"/api/v1/games/{game.number}").json()
    board = cshogi.Board()
    for usi, before in zip(found["moves"], found["sfens"], strict=False):
        assert board.sfen() == before
        board.push_usi(usi)
    assert found["sfens"][-1] == board.sfen()
    assert len(found["moves"]) == game.plies
    values = np.array(game.root_values, np.float16).astype(float)
    black = [
        None if np.isnan(value) else round(value if ply % 2 == 0 else 1 - value, 4)
        for ply, value in enumerate(values.tolist())
    ]
    assert found["rates"] == pytest.approx(black)
    assert (found["winner"], found["end"], found["model"]) == (game.winner, game.end, "second")
    assert place.client.get("/api/v1/games/5").status_code == 404


def test_only_the_newest_games_can_be_seen(place, games, monkeypatch):
    monkeypatch.setattr(figures, "_GAMES", 0)
    assert place.client.get(f"/api/v1/games/{games[0].number}").status_code == 404


def test_figures_are_remembered_for_a_while():
    made = []
    kept = Remembered(3600, size=2)
    for key in ("a", "a", "b", "c", "a"):
        kept.get(key, lambda key=key: made.append(key))
    assert made == ["a", "b", "c", "a"]
    hasty = Remembered(0)
    assert [hasty.get("a", lambda: len(made)) for _ in range(2)] == [4, 4]
    made.append("d")
    assert hasty.get("a", lambda: len(made)) == 5


def test_times_in_words():
    now = time.time()
    words = [_ago(now - seconds) for seconds in (1, 130, 7300, 200_000)]
    assert words == ["just now", "2 min ago", "2 h ago", "2 d ago"]
    assert _ago(None) == "–"


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_game_is_on_the_board_of_a_browser(place, games, tmp_path):
    game = max(games, key=lambda one: one.plies)
    server = uvicorn.Server(uvicorn.Config(place.app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/?game={game.number}"
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    finally:
        server.should_exit = True
        thread.join(60)
    page = done.stdout
    assert f"Ply 0 of {game.plies}" in page, done.stderr
    assert page.count('class="piece"') == 40
    assert "polyline" in page
