"""`ginkgo play`: a game over HTTP, as the page plays it."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request

import pytest

from ginkgo.errors import GinkgoError
from ginkgo.play.game import Game
from ginkgo.play.server import main, make_server
from ginkgo.search.config import SearchConfig
from ginkgo.search.rules import Line


@pytest.fixture
def page():
    game = Game("uniform", 0.02, SearchConfig(nodes=3000))
    server = make_server(game, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def ask(page: str, verb: str = "", argument: str = "", kind: str = "application/json") -> dict:
    request = urllib.request.Request(f"{page}/state")
    if verb:
        body = json.dumps({"do": verb, "with": argument}).encode()
        request = urllib.request.Request(f"{page}/do", body, {"Content-Type": kind})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_game_in_the_browser(page):
    with urllib.request.urlopen(page, timeout=60) as answer:
        text = answer.read().decode()
    assert '<svg id="board"' in text
    files = re.findall(r'(?:src|href)="(/[^"]+)"', text)
    assert len(files) == 3
    for name in files:
        with urllib.request.urlopen(page + name, timeout=60) as answer:
            assert answer.read(), name
    state = ask(page)
    assert (state["moves"], len(state["legal"]), len(state["rates"])) == ([], 30, 1)
    assert state["thoughts"]
    state = ask(page, "move", "7g7f")
    assert len(state["moves"]) == 2
    assert len(state["rates"]) == 3
    assert Line(moves=state["moves"]).board.sfen() == state["sfen"]
    wrong = ask(page, "move", "7g7f")
    assert "illegal move" in wrong["error"]
    assert wrong["moves"] == state["moves"]
    assert ask(page, "back")["moves"] == []
    assert ask(page, "back")["moves"] == []
    # The engine begins where a person plays White.
    state = ask(page, "new", "w")
    assert len(state["moves"]) == 1
    state = ask(page, "move", "resign")
    assert state["result"] == "Black wins (resignation)"
    assert state["legal"] == []
    assert "over" in ask(page, "move", state["moves"][0])["error"]
    state = ask(page, "new", "bw")
    state = ask(page, "move", "7g7f")
    assert state["moves"] == ["7g7f"]
    assert ask(page, "back")["moves"] == []
    assert "expected b, w" in ask(page, "new", "x")["error"]


def test_other_requests_are_refused(page):
    for path, body in (("/no", None), ("/do", b"{}"), ("/do", b"[1]"), ("/do", b"no")):
        request = urllib.request.Request(page + path, body, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=60)
    with pytest.raises(urllib.error.HTTPError):
        ask(page, "move", "7g7f", "text/plain")


def test_mistakes():
    with pytest.raises(GinkgoError, match="no model directory"):
        main(["no/such", "--no-browser"])
    with pytest.raises(GinkgoError, match="expected more than 0"):
        main(["--seconds", "0", "--no-browser"])
