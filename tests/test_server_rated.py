"""Rating games at the server: played again by the referee, handed out again when given up."""

from __future__ import annotations

import time

from fleet_parts import publish, rated, tiny_network

from ginkgo.fleet.database import Task


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
