"""Requests that are refused, each with its status, and change nothing."""

from __future__ import annotations

from ginkgo.fleet import accounts


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
