"""`ginkgo match`: engines by name, the referee, counting, whole matches, faults."""

from __future__ import annotations

import json
import math
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kifu_texts import read_one

from ginkgo import cli
from ginkgo.arena.config import MatchConfig, checked
from ginkgo.arena.engines import Clocks
from ginkgo.arena.folder import GAMES, read_games
from ginkgo.arena.openings import (
    Opening,
)
from ginkgo.arena.players import Limits, as_process, parse_player
from ginkgo.arena.referee import Pairing, Played, Referee, Rules
from ginkgo.arena.statistics import Sprt
from ginkgo.arena.tally import Tally
from ginkgo.errors import GinkgoError
from ginkgo.records.kifu.write import write_csa, write_kif

ROOT = Path(__file__).parent.parent
KEYS = {
    *("games", "wins", "losses", "draws", "elo", "elo_low", "elo_high", "los", "llr"),
    *("llr_bounds", "verdict", "endings", "pentanomial", "black_score", "distinct_games"),
}


# --- engines by name --------------------------------------------------------------------------


def test_engines_by_name():
    player = parse_player("pretrained:nodes=64,c_init=1.5,batch=2,mate_in_one=false,seed=3")
    assert (player.model, player.limits, player.batchable) == ("pretrained", Limits(64), True)
    assert player.search == {"c_init": 1.5, "batch": 2, "mate_in_one": False}
    assert player.randomness.temperature > 0  # else the seed would change nothing
    assert parse_player("runs/x:seed=3,noise=0.25").randomness.temperature == 0
    assert not parse_player("pretrained:byoyomi=1000").batchable
    assert not parse_player("pretrained:RootMateSearch=5").batchable
    engine = parse_player("usi:/opt/e --flag -x=1:nodes=3000,Skill Level=20")
    assert engine.command == ("/opt/e", "--flag", "-x=1")
    assert (engine.limits.nodes, engine.options) == (3000, {"Skill Level": "20"})
    assert parse_player("usi:/opt/a:b").command == ("/opt/a:b",)
    assert parse_player(r"usi:'C:\e.exe':depth=3").command == (r"C:\e.exe",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pretrained:noodes=3", "did you mean nodes"),
        ("pretrained:nodes=many", "expected a whole number"),
        ("pretrained:nodes=-1", "expected a number of 0 or more"),
        ("pretrained:nodes=1,fast", "'fast'; expected NAME=VALUE"),
        ("pretrained:noise=2", "expected 0 to 1"),
        ("pretrained:MultiPV=0", "expected 1 to 593"),
        ("pretrained:fpu=nan", "expected a number"),
        ("usi:", "expected a command"),
    ],
)
def test_engines_that_mean_nothing(text, message):
    with pytest.raises(GinkgoError, match=message):
        parse_player(text)


def test_a_model_as_a_process():
    player = as_process(parse_player("pretrained:nodes=8,policy_temperature=1.2,BookMoves=4"))
    assert player.options["PolicyTemperature"] == "120"
    assert player.options["BookMoves"] == "4"
    assert player.options["RootMateSearch"] == "0"
    with pytest.raises(GinkgoError, match="gumbel works between models"):
        as_process(parse_player("pretrained:gumbel=8"))
    with pytest.raises(GinkgoError, match="seed works between models"):
        as_process(parse_player("pretrained:seed=8"))
    with pytest.raises(GinkgoError, match="no program /no/such/engine"):
        as_process(parse_player("usi:/no/such/engine"))


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(nodes=5, depth=2), "nodes 5 depth 2"),
        (Limits(byoyomi=1000), "btime 0 wtime 0 byoyomi 1000"),
        (Limits(main=60000, increment=500), "btime 60000 wtime 60000 binc 500 winc 500"),
        (Limits(movetime=300), "movetime 300"),
    ],
)
def test_limits_as_the_protocol_says_them(limits, expected):
    clocks = Clocks({"b": limits, "w": limits})
    assert clocks.go("b") == clocks.go("w") == expected


def test_clocks():
    clocks = Clocks({"b": Limits(main=1000, byoyomi=300), "w": Limits(main=1000, increment=100)})
    clocks.spend("b", 900)
    clocks.spend("w", 900)
    assert (clocks.allowed("b"), clocks.allowed("w")) == (400, 200)
    clocks.spend("b", 350)
    assert clocks.allowed("b") == 300
    assert clocks.go("w") == "btime 0 wtime 200 binc 100 winc 100"
    assert Clocks({"b": Limits(5), "w": Limits(movetime=7)}).allowed("b") is None


@pytest.mark.parametrize(
    "options",
    [
        {"games": 3}, {"sprt": (5.0, 0.0)}, {"alpha": 0.7}, {"patience": 0.0}, {"nodes": -1},
        {"adjudicate": (0, 4)},
    ],
)  # fmt: skip
def test_options_that_mean_nothing(options):
    with pytest.raises(GinkgoError):
        checked(MatchConfig("a", "b", **options))


# --- the referee ------------------------------------------------------------------------------

#: Black may declare: king and eleven pieces in the camp, 28 points.
ENTERED = "K8/PPPPPPPPP/RB7/9/9/9/9/9/8k b RB2G 101"
MATED = "4k4/9/4P4/9/9/9/9/9/4K4 b G 1"
ENDS = {
    "resign": (("resign",), "w", "toryo"),
    "illegal": (("7g7e",), "w", "illegal_move"),
    "nonsense": (("7g7f", "x"), "b", "illegal_move"),
    "own king": (("5i5h", "5a5b", "5h5i", "5b5a") * 3, "d", "sennichite"),
    "false declaration": (("win",), "w", "illegal_action"),
}


def referee(*answers: str, start: str = "", rules: Rules = Rules(), number: int = 0) -> Referee:  # noqa: B008
    found = Referee(Pairing(number, Opening(start) if start else Opening()), rules)
    for answer in answers:
        assert not found.over
        found.answer(answer)
    return found


@pytest.mark.parametrize("name", ENDS)
def test_endings(name):
    answers, winner, end = ENDS[name]
    played = referee(*answers).played()
    assert (played.winner, played.end) == (winner, end)
    assert bool(played.reason) == (end in ("illegal_move", "illegal_action"))
    assert Played.from_json(json.loads(json.dumps(played.to_json()))) == played


def test_mate_declaration_and_the_last_ply():
    assert referee("G*5b", start=MATED).played().end == "tsumi"
    played = referee("win", start=ENTERED).played()
    assert (played.winner, played.end) == ("b", "kachi")
    assert referee(start=ENTERED, rules=Rules(declare=True)).played().end == "kachi"
    assert not referee(start=ENTERED).over
    played = referee("7g7f", "3c3d", rules=Rules(max_ply=2)).played()
    assert (played.winner, played.end, played.score) == ("d", "max_moves", 0.5)


def test_perpetual_check_loses():
    found = referee(start="4k4/9/9/9/9/9/9/9/K4R3 b - 1")
    for answer in ("4i5i", "5a4a", "5i4i", "4a5a") * 3:
        found.answer(answer)
    played = found.played()
    assert (played.winner, played.end) == ("w", "perpetual")


def test_resignation_when_both_agree():
    rules = Rules(adjudicate=(1000, 3))
    moves = ("7g7f", "3c3d", "2g2f", "8c8d", "2f2e", "8d8e")
    found = referee(rules=rules)
    for move, score in zip(moves, (1500, -1200, 900, -1100, 1000, None), strict=True):
        found.answer(move, score)
        if found.over:
            break
    # 900 broke the row; White's third answer was never asked for.
    assert not found.over
    found = referee(rules=rules)
    for move, score in zip(moves, (100, -1200, 1000, -1100, 1000, 0), strict=True):
        found.answer(move, score)
        if found.over:
            break
    played = found.played()
    assert (played.winner, played.end, played.plies) == ("b", "toryo", 5)


@given(st.integers(0, 5), st.sampled_from(["b", "w", "d"]))
def test_points_of_the_first_engine(number, winner):
    black = Pairing(number, Opening()).black
    played = Played(number, black, winner, "toryo", "", "", 0, (), (), ())
    assert played.score == (0.5 if winner == "d" else (winner == "b") == (number % 2 == 0))


@pytest.mark.parametrize("name", ENDS)
def test_kifu_are_read_back(name):
    answers, winner, end = ENDS[name]
    played = referee(*answers, number=1).played()
    for text in (
        write_csa(played.game(("first", "second"), comments=False)),
        write_kif(played.game(("first", "second"))),
    ):
        game = read_one(text)
        assert list(game.moves) == list(played.moves)
        assert (game.winner, game.end, game.black) == (winner, end, "second")


def test_faults_in_kifu():
    for end, word in (("crash", "%-ILLEGAL_ACTION"), ("no_start", "%-ILLEGAL_ACTION"),
                      ("no_answer", "%TIME_UP")):  # fmt: skip
        found = referee("7g7f")
        found.fault("w", end, "it\nsaid nothing")
        played = found.played()
        assert (played.winner, played.end, played.reason) == ("b", end, "it said nothing")
        text = write_csa(played.game(("first", "second")))
        assert word in text
        assert "it said nothing" in text
        assert read_one(text).winner == "b"
        assert read_one(write_kif(played.game(("first", "second")))).winner == "b"


def test_scores_in_kifu():
    found = referee()
    found.answer("7g7f", 31, 0.5)
    found.answer("3c3d", 12, 1.0)
    found.answer("resign")
    played = found.played()
    csa = write_csa(played.game(("a", "b"), comments=False))
    assert "'** 31" in csa
    assert "'** -12" in csa
    assert "T0.5" in csa
    kif = write_kif(played.game(("a", "b")))
    assert "*#評価値=31" in kif
    assert "*#評価値=-12" in kif


# --- counting ---------------------------------------------------------------------------------


def some_games(seed: int, count: int, strength: float = 0.6) -> list[Played]:
    rng = random.Random(seed)
    games = []
    for number in range(count):
        black = "b" if number % 2 else "a"
        result = rng.choices(["a", "b", "d"], [strength, 0.9 - strength, 0.1])[0]
        winner = "d" if result == "d" else "b" if result == black else "w"
        moves = ("7g7f", "3c3d")[: rng.randrange(3)]
        games.append(Played(number, black, winner, "toryo", "", Opening().start, 0, moves, (), ()))
    return games


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([None, Sprt(0, 60), Sprt(-5, 60, model="normalized")]))
def test_the_order_in_which_games_end_does_not_matter(seed, sprt):
    games = some_games(seed, 24)
    shuffled = random.Random(seed).sample(games, len(games))
    results = []
    for order in (games, shuffled):
        tally = Tally(sprt)
        for one in order:
            tally.add(one)
        results.append(tally.result())
    assert results[0] == results[1]
    assert sum(results[0]["pentanomial"]) * 2 == results[0]["games"]
    assert results[0].keys() >= KEYS
    json.dumps(results[0], allow_nan=False)


def test_incomplete_pairs_wait():
    tally = Tally()
    for one in some_games(0, 6)[:5]:
        tally.add(one)
    assert (tally.result()["games"], tally.result()["games_played"]) == (4, 5)
    json.dumps(Tally(Sprt(0, 5)).result(), allow_nan=False)


def test_a_test_without_variance_stays_undecided():
    tally = Tally(Sprt(0, 10))
    for number in range(400):
        black = "b" if number % 2 else "a"
        tally.add(Played(number, black, "b", "toryo", "", Opening().start, 0, (), (), ()))
    result = tally.result()
    assert (result["verdict"], result["llr"], result["elo"]) == ("undecided", 0, 0)
    assert result["elo_low"] < 0 < result["elo_high"]
    assert (result["black_score"], result["distinct_games"], result["duplicates"]) == (1, 1, 398)


# --- whole matches ----------------------------------------------------------------------------


def match(*arguments: str) -> int | None:
    return cli.run(["match", *map(str, arguments)])


def test_models(tmp_path, capsys):
    out, figures = tmp_path / "m", tmp_path / "result.json"
    command = ["uniform:nodes=24,seed=1", "uniform:nodes=8,seed=2", "-o", out, "--json", figures,
               "--max-ply", "60"]  # fmt: skip
    assert match(*command, "--games", 4, "--sprt", 0, 10) == 0
    table = capsys.readouterr().out
    assert "Elo of A over B" in table
    result = json.loads(figures.read_text())
    assert result.keys() >= KEYS
    assert result["games"] == result["wins"] + result["losses"] + result["draws"] == 4
    assert result["verdict"] == "undecided"
    games = read_games(out)
    assert sorted(one.number for one in games) == [0, 1, 2, 3]
    by_number = {one.number: one for one in games}
    for first, second in ((0, 1), (2, 3)):
        assert by_number[first].moves[:8] == by_number[second].moves[:8]
        assert (by_number[first].black, by_number[second].black) == ("a", "b")
    assert by_number[0].moves[:8] != by_number[2].moves[:8]
    assert result["duplicates"] == 0
    for one in games:
        for suffix, encoding in ((".csa", "utf-8"), (".kif", "cp932")):
            file = out / "kifu" / f"{one.number + 1:05d}{suffix}"
            game = read_one(file.read_text(encoding))
            assert (list(game.moves), game.winner) == (list(one.moves), one.winner)
    # Going on: nothing is played again; a line that was torn off is.
    file = out / GAMES
    before = file.read_bytes()
    assert match(*command, "--games", 4, "--sprt", 0, 10) == 0
    assert file.read_bytes() == before
    file.write_bytes(before[:-20])
    assert match(*command, "--games", 6, "--sprt", 0, 10) == 0
    assert sorted(one.number for one in read_games(out)) == list(range(6))
    # The same games again, whatever ran beside them.
    assert {one.number: one.moves for one in read_games(out)}.items() >= {
        one.number: one.moves for one in games
    }.items()
    with pytest.raises(GinkgoError, match="max_ply 60, not 50"):
        match(*command[:-1], 50, "--games", 4, "--sprt", 0, 10)
    with pytest.raises(GinkgoError, match="give another folder"):
        match("uniform:nodes=25,seed=1", *command[1:], "--games", 4, "--sprt", 0, 10)
    file.write_text("{}\n")
    with pytest.raises(GinkgoError, match=rf"{re.escape(str(file))}:1: no game"):
        match(*command, "--games", 4, "--sprt", 0, 10)


def test_the_same_model_twice_is_undecided(tmp_path):
    """Each pair is one game played twice: no variance, no verdict."""
    out = tmp_path / "m"
    assert match("uniform:nodes=2", "uniform:nodes=2", "-o", out, "--games", 4, "--max-ply", 16,
                 "--sprt", 0, 10, "--no-kifu", "--concurrency", 3) == 0  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert (result["verdict"], result["elo"], result["pentanomial"]) == (
        "undecided", 0, [0, 0, 2, 0, 0]
    )  # fmt: skip
    assert result["elo_low"] < 0 < result["elo_high"]
    assert (result["distinct_games"], result["duplicates"]) == (2, 0)
    assert not (out / "kifu").exists()


ENGINE = """
import os, random, sys, time
import cshogi
board, random = cshogi.Board(), random.Random(os.getpid())
moves = 0
for line in sys.stdin:
    word = line.split()[0]
    if word == "usi":
        print("id name Tiny\\noption name Level type spin default 1", flush=True)
        print("usiok", flush=True)
    elif word == "isready":
        print("readyok", flush=True)
    elif word == "position":
        board.set_position(line[9:].strip())
    elif word == "go":
        moves += 1
        FAULT
        legal = [cshogi.move_to_usi(move) for move in board.legal_moves]
        print("info depth 1 score cp 10", flush=True)
        print("bestmove " + random.choice(legal or ["resign"]), flush=True)
    elif word == "quit":
        break
"""
FAULTS = {
    "crash": "if moves == 2: os.kill(os.getpid(), 9)",
    "no_answer": "if moves == 2: time.sleep(600)",
    "illegal_move": "if moves == 2: print('bestmove 5i5a', flush=True); continue",
    "no_start": "",
    "time_up": "if moves == 2: time.sleep(3)",
}


def script(tmp_path: Path, name: str, fault: str = "pass") -> str:
    path = tmp_path / f"{name}.py"
    path.write_text("import sys; sys.exit(3)" if not fault else ENGINE.replace("FAULT", fault))
    return f"usi:{sys.executable} {path}"


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_engines(name, tmp_path):
    """The engine loses both games by its fault, and the match comes to its end."""
    good, bad = script(tmp_path, "good"), script(tmp_path, name, FAULTS[name])
    seconds = 2 if name in ("no_answer", "time_up") else 60
    out = tmp_path / "m"
    assert match(f"{good}:Level=2", bad, "--time", f"byoyomi={1000 * seconds}", "--margin", 100,
                 "--games", 2, "--max-ply", 12, "-o", out) == 0  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert (result["games"], result["wins"], result["endings"]) == (2, 2, {name: 2})
    assert result["faults"] == {"a": {}, "b": {name: 2}}
    assert math.isfinite(result["elo_low"])
    for one in read_games(out):
        assert one.reason
        kifu = (out / "kifu" / f"{one.number + 1:05d}.csa").read_text()
        assert read_one(kifu).winner == one.winner


def test_an_option_that_the_engine_lacks(tmp_path):
    with pytest.raises(GinkgoError, match="has no option 'Colour'"):
        match(
            f"{script(tmp_path, 'good')}:Colour=red", "uniform", "-o", tmp_path / "m", "--games", 2
        )


def test_a_verdict_ends_the_match(tmp_path):
    """Against an engine that resigns three times out of ten."""
    weak = script(tmp_path, "weak", "if random.random() < .3: print('bestmove resign', flush=True)"
                                    "; continue")  # fmt: skip
    out = tmp_path / "m"
    command = [script(tmp_path, "good"), weak, "--max-ply", 16, "-o", out, "--sprt", 0, 100]
    assert match(*command, "--games", 200) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["verdict"] == "accepted"
    assert result["llr"] > result["llr_bounds"][1]
    assert result["games"] < 200
    # Another call adds nothing.
    count = len(read_games(out))
    assert match(*command, "--games", 200) == 0
    assert len(read_games(out)) == count


def test_interrupted_and_gone_on_with(tmp_path):
    out = tmp_path / "m"
    engines = [script(tmp_path, name) for name in ("good", "other")]
    options = ["--max-ply", "12", "-o", str(out)]
    command = [sys.executable, "-m", "ginkgo", "match", *engines, "--games", "9000", *options]
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background of a shell has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while running.poll() is None:
            if (out / GAMES).exists() and (out / GAMES).read_bytes().count(b"\n") >= 3:
                break
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130, errors
    assert "Traceback" not in errors
    assert "broken off" in output
    games = read_games(out)
    assert 3 <= len(games) < 9000
    assert not {one.end for one in games} & {"crash", "no_answer", "no_start"}
    wanted = max(one.number for one in games) // 2 * 2 + 2
    assert match(*engines, "--games", wanted, *options) == 0
    assert sorted(one.number for one in read_games(out)) == list(range(wanted))
