"""What goes wrong around an engine: it answers all the same, and says why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import cshogi
import numpy as np
import pytest
from test_usi import MATE_IN_3, Talk, best

from ginkgo.errors import GinkgoError
from ginkgo.search import search as search_module
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import Batch, Evaluation, HashEvaluator, UniformEvaluator
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.search import Search, run
from ginkgo.search.tree import EDGES_PER_NODE, nodes_in
from ginkgo.usi import engine as engine_module
from ginkgo.usi import mate as mate_module
from ginkgo.usi import thinker as thinker_module
from ginkgo.usi.clock import budget, parse_go
from ginkgo.usi.mate import MateProcess
from ginkgo.usi.options import parse_setoption
from ginkgo.usi.tsume import is_problem_line

PROBLEM = "3p2k2/9/3S+R4/9/9/9/9/9/9 b GP 1"
#: Black's king is in check from 5b and can only take there.
FORCED = "4k4/9/9/9/9/9/9/3PgP3/3PKP3 b - 1"


class Slow(UniformEvaluator):
    """Takes a time for each position."""

    def evaluate(self, batch: Batch) -> Evaluation:
        time.sleep(0.01 * len(batch.counts))
        return super().evaluate(batch)


class Failing(UniformEvaluator):
    """Fails when it is told to."""

    failing = False

    def evaluate(self, batch: Batch) -> Evaluation:
        if Failing.failing:
            raise GinkgoError("the network's answer is not a finite number")
        return super().evaluate(batch)


# --- positions and commands -------------------------------------------------------------------


def test_a_problem_with_one_king_is_for_go_mate_alone():
    talk = Talk()
    talk.say("isready", f"position sfen {PROBLEM}", "go mate 60000")
    answer = talk.wait("checkmate")[-1].split()[1:]
    assert is_problem_line(PROBLEM, answer)
    talk.say("go nodes 10")
    lines = talk.wait("bestmove")
    assert lines[-1] == "bestmove resign"
    assert "info string the position has one king: only go mate can search it" in lines
    talk.say("position sfen l2pk3l/9/4P4/9/9/9/9/9/L7L b G 1", "go mate 60000")
    lines = talk.wait("checkmate")
    assert lines[-1] == "checkmate notimplemented"
    assert lines[-2].startswith("info string ")
    talk.say("position sfen 4k4/9/4P4/9/9/9/9/9/9 b S 1", "go mate 60000")
    assert talk.wait("checkmate")[-1] == "checkmate nomate"
    talk.say(f"position sfen {PROBLEM} moves 5c3c 5c3c")
    talk.wait("info string error")
    talk.say("go mate 100")
    assert talk.wait("checkmate")[-1] == "checkmate timeout"
    talk.say("position startpos", "go nodes 10")
    best(talk.wait("bestmove"))
    talk.end()


def test_times_with_fractions():
    go = parse_go(["btime", "59000.5", "wtime", "1e3", "byoyomi", "-3.0"])
    assert (go.btime, go.wtime, go.byoyomi, go.timed) == (59000, 1000, 0, True)
    for text in ("btime nan", "btime inf", "btime x", "btime"):
        with pytest.raises(GinkgoError, match="expected a number"):
            parse_go(text.split())


def test_an_option_that_is_left_empty():
    assert parse_setoption(["name", "Model", "value"])[1] == "pretrained"
    assert parse_setoption(["name", "Model", "value", "<empty>"])[1] == "pretrained"
    assert parse_setoption(["name", "BookFile", "value"])[1] == ""
    assert parse_setoption(["name", "BookFile", "value", "<empty>"])[1] == ""


def test_a_game_behind_its_limit_goes_on():
    talk = Talk()
    talk.say("isready", "setoption name MaxMovesToDraw value 4")
    talk.say(f"position sfen {MATE_IN_3.replace(' 1', ' 9')}", "go nodes 3000")
    assert any(" score mate 3 " in line for line in talk.wait("bestmove"))
    talk.end()


def test_the_only_move_is_played_at_once_where_a_clock_runs():
    assert [cshogi.move_to_usi(move) for move in cshogi.Board(FORCED).legal_moves] == ["5i5h"]
    talk = Talk(USI_Hash=1024)  # a fast machine fills the usual one of the tests in 60 ms
    talk.say("isready", f"position sfen {FORCED}", "go btime 0 wtime 0 byoyomi 3600000")
    assert best(talk.wait("bestmove")) == "5i5h"
    talk.say("go movetime 300")
    lines = talk.wait("bestmove")
    assert int(lines[-2].split(" time ")[1].split()[0]) >= 150
    talk.end()


def test_an_analysis_never_resigns():
    line = Line(MATE_IN_3, ["5c3c"])
    talk = Talk()
    talk.say("isready")
    talk.wait("readyok")
    talk.say(f"position sfen {MATE_IN_3} moves {' '.join(line.usi)}", "go infinite")
    assert talk.silent(0.5) == []
    talk.say("stop")
    best(talk.wait("bestmove"))
    talk.end()


def test_a_stray_ponderhit_does_not_set_the_clock_back():
    clock = thinker_module.Clock(budget(parse_go(["movetime", "1000"]), False, 0, 0, 0), True)
    began = clock.began
    time.sleep(0.01)
    clock.hit()
    assert clock.began == began
    clock = thinker_module.Clock(clock.limits, False)
    began = clock.began
    time.sleep(0.01)
    clock.hit()
    assert clock.began > began
    hit = clock.began
    clock.hit()
    assert clock.began == hit


def test_a_tree_too_large_for_the_clock_begins_anew(monkeypatch):
    talk = Talk()
    talk.say("isready", "position startpos", "go nodes 300")
    best(talk.wait("bestmove"))
    assert talk.engine._thinker is not None
    tree = talk.engine._thinker.search.tree
    talk.say("go byoyomi 60000 nodes 1")
    best(talk.wait("bestmove"))
    assert tree.size > 100  # kept
    monkeypatch.setattr(thinker_module, "_MOVED", 1000.0)
    talk.say("go ponder byoyomi 60000 nodes 1", "stop")
    best(talk.wait("bestmove"))
    assert tree.size > 100
    talk.say("go byoyomi 60000 nodes 1")
    best(talk.wait("bestmove"))
    assert tree.size < 100
    talk.end()


# --- loading ----------------------------------------------------------------------------------


def test_long_loading_is_not_silent(monkeypatch):
    monkeypatch.setattr(engine_module, "_PATIENCE", 0.02)

    def slowly(*arguments):
        time.sleep(0.2)
        return UniformEvaluator()

    monkeypatch.setattr(thinker_module, "make_evaluator", slowly)
    talk = Talk()
    talk.say("isready")
    assert "info string still loading" in talk.wait("readyok")
    assert "info string still loading" not in talk.silent(0.1) + talk.heard
    talk.end()


def test_a_slow_network_gets_smaller_batches(monkeypatch):
    monkeypatch.setattr(thinker_module, "make_evaluator", lambda *_: Slow())
    talk = Talk(BatchSize=32)
    talk.say("isready")
    [line] = [line for line in talk.wait("readyok") if "BatchSize is" in line]
    assert 1 <= int(line.split()[-1]) <= 9
    talk.say("position startpos", "go nodes 60")
    best(talk.wait("bestmove"))
    talk.end()


def test_more_memory_than_there_is(monkeypatch):
    def refuse(*_):
        raise MemoryError

    # The tree of the warming up is small.
    made = []

    def search(config, line=None):
        made.append(config.nodes)
        return refuse() if config.nodes > 10_000_000 else Search(config, line)

    monkeypatch.setattr(thinker_module, "Search", search)
    talk = Talk(USI_Hash=1048576)
    talk.say("isready")
    assert "USI_Hash 1048576" in talk.wait("info string error")[-1]
    with pytest.raises(GinkgoError, match="not so much memory"):
        talk.end()
    assert made[-1] * EDGES_PER_NODE < 2**31
    assert nodes_in(1 << 40) * EDGES_PER_NODE + (1024 + 1) * 593 < 2**31


def test_no_process_for_the_mate_search(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(mate_module.subprocess, "Popen", refuse)
    talk = Talk(RootMateSearch=1000)
    talk.say("isready", "position startpos", "go nodes 100")
    best(talk.wait("bestmove"))
    talk.say("go mate 1000")
    assert talk.wait("checkmate")[-1] == "checkmate timeout"
    talk.end()


@pytest.mark.skipif(not hasattr(os, "O_ASYNC"), reason="POSIX only")
def test_a_mate_search_does_not_outlive_a_killed_engine():
    """The engine is killed, as a GUI may do, while its child searches for minutes."""
    child = """
import sys, time
from ginkgo.usi import mate
solve = mate.search_mate
mate.search_mate = lambda sfen, *limits: solve(sfen, *limits) if " 2" in sfen else time.sleep(600)
mate.serve()
"""
    code = f"""
import subprocess, sys, time
from ginkgo.usi import mate
mate._spawn = lambda: subprocess.Popen([sys.executable, "-c", {child!r}], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
process = mate.MateProcess()
for _ in range(2):
    process.start({MATE_IN_3.replace(" 1", " 2")!r}, 1000)
    print(process.poll(600).moves)
process.start({MATE_IN_3!r}, 1000)
time.sleep(0.5)
print(process._process.pid, flush=True)
time.sleep(600)
"""
    engine = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    for _ in range(2):  # what comes in between two searches does not end it
        assert engine.stdout.readline() == "('5c3c', '3a2a', 'G*2b')\n"
    number = int(engine.stdout.readline())
    os.kill(number, 0)
    engine.kill()
    engine.wait()
    engine.stdout.close()
    for _ in range(300):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        with open(f"/proc/{number}/stat") as stat:  # ended, and nobody here to fetch it
            if stat.read().split(")")[1].split()[0] == "Z":
                return
        time.sleep(0.1)
    os.kill(number, 9)
    pytest.fail("it outlived the engine")


def test_the_mate_search_is_found_from_any_folder(tmp_path, monkeypatch):
    """A module of the same name in the folder that a GUI starts the engine in is not taken."""
    for name in ("cshogi", "ginkgo", "random", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.setattr(sys, "path", [path or os.getcwd() for path in sys.path])
    monkeypatch.chdir(tmp_path)
    process = MateProcess()
    process.start(MATE_IN_3, 10_000)
    found = process.poll(600)
    assert found is not None
    assert len(found.moves) == 3
    process.close()


# --- searching --------------------------------------------------------------------------------


def test_a_failing_network_costs_one_move_only(monkeypatch):
    monkeypatch.setattr(thinker_module, "make_evaluator", lambda *_: Failing())
    talk = Talk()
    talk.say("isready", "position startpos", "go nodes 100")
    best(talk.wait("bestmove"))
    Failing.failing = True
    talk.say("position startpos moves 7g7f", "go nodes 300")
    lines = talk.wait("bestmove")
    assert any("not a finite number" in line for line in lines)
    Line(moves=["7g7f", best(lines)])
    Failing.failing = False
    talk.say("go nodes 300")
    lines = talk.wait("bestmove")
    best(lines)
    assert any(" nodes 300 " in line for line in lines)
    talk.end()


def test_other_rules_begin_another_tree():
    search = Search(SearchConfig(nodes=5000))
    queue = Queue(HashEvaluator(), 0)
    search.begin()
    run([search], queue, 200)
    size = search.tree.size
    search.begin(config=search.config)
    assert search.tree.size == size
    search.begin(config=replace(search.config, draw_value=0.3))
    assert search.tree.size == 1
    run([search], queue, 100)
    fresh = Search(replace(search.config, draw_value=0.3))
    fresh.begin()
    run([fresh], queue, 100)
    assert [one.visits for one in search.candidates()] == [one.visits for one in fresh.candidates()]


def test_a_tree_left_in_any_state_can_be_begun_anew():
    search = Search(SearchConfig(nodes=5000, batch=8))
    queue = Queue(HashEvaluator(), 0)
    search.begin()
    run([search], queue, 50)
    queue.clear()
    search.gather(queue, 8)  # and never evaluated
    search.forget()
    assert search.tree.size == 1
    search.begin()
    run([search], queue, 50)
    assert search.simulations == 50
    assert search_module.kernels.PENDING not in search.tree.nodes.state[: search.tree.size]


def test_the_memory_of_positions_forgets_the_oldest():
    class Noting(HashEvaluator):
        def note(self, place, board):
            pass

    queue = Queue(Noting(), cached=100)  # type: ignore[arg-type]
    search = Search(SearchConfig(nodes=5000, batch=16))
    search.begin()
    keys: list[int] = []
    while search.simulations < 600:
        queue.clear()
        search.gather(queue, 16)
        queue.evaluate()
        for key in np.unique(queue.keys).tolist():
            if key not in keys:
                keys.append(key)
        search.apply(queue)
        assert len(queue._cache) <= 100
        assert set(queue._order) == set(queue._cache)
        assert len(queue._order) == len(queue._cache)
    assert len(queue._cache) == 100
    assert len(set(keys[-116:]) & set(queue._cache)) >= 84


def test_a_busy_mate_search_never_keeps_the_clock_waiting(monkeypatch):
    """It is replaced beside the search, and until then the engine plays without it."""
    hard = "l3k3l/4g4/p1n1p1npp/2p3p2/3P1P3/2P3P2/P1N1P1N1P/4G4/L3K3L b RBGSPrbgs4p 90"
    spawn, allowed = mate_module._spawn, threading.Event()

    def slowly():
        allowed.wait(600)
        return spawn()

    process = MateProcess()
    assert not process.start_soon(MATE_IN_3, 10_000)  # there is no process yet
    assert process._renewal is not None
    process._renewal.join()
    assert process.start_soon(hard, 10**9)
    monkeypatch.setattr(mate_module, "_spawn", slowly)
    assert not process.start_soon(MATE_IN_3, 10_000)
    assert not process.start_soon(MATE_IN_3, 10_000)
    assert process.poll() is None
    allowed.set()
    process._renewal.join()
    assert process.start_soon(MATE_IN_3, 10_000)
    found = process.poll(600)
    assert found is not None
    assert len(found.moves) == 3
    process.close()
