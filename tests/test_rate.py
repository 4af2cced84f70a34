"""`ginkgo rate`: ratings against a general optimiser and known strengths; the verb."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from ginkgo import cli
from ginkgo.arena.rating import ELO_PER_LOG, rate
from ginkgo.errors import GinkgoError


def results(elos: dict[str, float], games: int, seed: int) -> dict[tuple[str, str], float]:
    """Points of a tournament between players of known strength, a tenth of the games drawn."""
    rng = np.random.default_rng(seed)
    points = {}
    names = list(elos)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            chance = 1 / (1 + 10 ** ((elos[other] - elos[one]) / 400))
            draws = rng.binomial(games, 0.1)
            # So that the expected score is that of the difference, draws included.
            won = rng.binomial(games - draws, (chance - 0.05) / 0.9) + draws / 2
            points[one, other], points[other, one] = won, games - won
    return points


def test_against_a_general_optimiser():
    from scipy.optimize import minimize

    points = results({"a": 0, "b": 100, "c": -150, "d": 30}, 60, 1)
    names = sorted({one for pair in points for one in pair})

    def loss(strengths):
        total = 0.0
        for (one, other), score in points.items():
            gap = strengths[names.index(one)] - strengths[names.index(other)]
            total += (score + 0.5) * np.log1p(math.exp(-gap))  # half the prior's game each way
        return total

    best = minimize(loss, np.zeros(4), tol=1e-10).x
    found = {one.name: one for one in rate(points, "b", 50)}
    assert found["b"].elo == found["b"].low == found["b"].high == 50
    for index, name in enumerate(names):
        expected = 50 + ELO_PER_LOG * (best[index] - best[names.index("b")])
        assert found[name].elo == pytest.approx(expected, abs=0.1)
    assert found["a"].games == 180
    assert found["a"].score == sum(score for (one, _), score in points.items() if one == "a")


def test_intervals_cover_the_truth():
    truth = {"a": 0.0, "b": 120.0, "c": -200.0}
    hits = 0
    for seed in range(200):
        found = rate(results(truth, 100, seed), "a")
        hits += sum(one.low <= truth[one.name] <= one.high for one in found if one.name != "a")
    # A tenth of draws makes the intervals some 5 % too wide.
    assert 370 <= hits <= 397


def test_who_has_won_everything_has_a_rating():
    found = {one.name: one for one in rate({("a", "b"): 20.0, ("b", "a"): 0.0}, "b")}
    assert 400 < found["a"].elo < 1000
    assert found["a"].low > 100
    assert math.isfinite(found["a"].high)


def test_what_cannot_be_rated():
    apart = {("a", "b"): 1.0, ("b", "a"): 0.0, ("c", "d"): 1.0, ("d", "c"): 0.0}
    with pytest.raises(GinkgoError, match="no chain of games leads from a to c, d"):
        rate(apart, "a")
    with pytest.raises(GinkgoError, match="--anchor e: has no games; players are a, b, c, d"):
        rate(apart, "e")


def test_rating_list_of_matches(tmp_path, capsys):
    for a, b in (("uniform:nodes=2", "uniform:nodes=3"), ("uniform", "uniform:nodes=3")):
        cli.run(["match", a, b, "--nodes", "4", "--games", "2", "--max-ply", "12", "--no-kifu",
                 "-o", str(tmp_path / "matches" / a.replace(":", "-"))])  # fmt: skip
    # A model says how many samples it was trained on.
    config = tmp_path / "matches" / "uniform" / "config.json"
    settings = json.loads(config.read_text())
    settings["players"][0]["samples"] = 1000
    config.write_text(json.dumps(settings))
    capsys.readouterr()
    files = {name: tmp_path / f"ratings.{name}" for name in ("md", "png", "json")}
    assert cli.run(["rate", str(tmp_path / "matches"), "--anchor", "uniform:nodes=3",
                    "--anchor-elo", "100", "-o", str(files["md"]), "--png", str(files["png"]),
                    "--json", str(files["json"])]) == 0  # fmt: skip
    table = capsys.readouterr().out
    assert files["md"].read_text() == table
    assert "| uniform nodes=4 |" in table
    found = json.loads(files["json"].read_text())
    assert found["anchor"] == "uniform:nodes=3"
    ratings = {one["name"]: one for one in found["ratings"]}
    assert ratings["uniform:nodes=3"]["elo"] == 100
    assert ratings["uniform:nodes=3"]["games"] == 4
    assert ratings["uniform nodes=4"]["samples"] == 1000
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    # The same name with other files is another player.
    settings["players"][1]["fingerprint"] = "abcdef0123"
    config.write_text(json.dumps(settings))
    with pytest.raises(GinkgoError, match=r"no chain of games leads from uniform:nodes=3"):
        cli.run(["rate", str(tmp_path / "matches"), "--anchor", "uniform:nodes=3"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(GinkgoError, match="no match in it"):
        cli.run(["rate", str(tmp_path / "empty")])
