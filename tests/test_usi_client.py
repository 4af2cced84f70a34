"""The client, against engines that behave and engines that do not."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import textwrap
import threading
import time

import psutil
import pytest

from ginkgo.search.rules import line_of
from ginkgo.usi.client import (
    Client,
    EngineDied,
    EngineError,
    EngineNonsense,
    EngineTimeout,
    Info,
    read_info,
)

GOOD = """
for line in sys.stdin:
    word = line.split()[0]
    if word == "usi":
        say("id name Fake 1", "id author nobody", "option name Depth type spin default 1")
        say("option name Two Words type check default false", "usiok")
    elif word == "isready":
        say("readyok")
    elif word == "go":
        GO
    elif word == "quit":
        break
"""


def fake(tmp_path, go: str, template: str = GOOD) -> list[str]:
    """An engine of a few lines; `go` is what it does when asked for a move."""
    script = tmp_path / "engine.py"
    head = "import sys, time\ndef say(*lines):\n    for line in lines: print(line, flush=True)\n"
    body = template.replace("        GO", textwrap.indent(go, "        "))
    script.write_text(head + body)
    return [sys.executable, str(script)]


def test_ginkgo_by_its_own_client():
    command = [sys.executable, "-m", "ginkgo", "usi", "--model", "uniform"]
    with Client(command, {"USI_Hash": "64", "RootMateSearch": "0"}) as engine:
        assert engine.name.startswith("ginkgo")
        engine.new_game()
        reply = engine.go("startpos moves 7g7f", "nodes 200", 60)
        line_of(f"startpos moves 7g7f {reply.move}")
        assert reply.info.nodes == 200
        assert reply.info.pv[0] == reply.move
        reply = engine.go("startpos", "infinite", 0.2)
        assert reply.seconds >= 0.2
        engine.game_over("draw")
    assert not engine.alive


def test_last_report_and_ponder_move(tmp_path):
    go = (
        'say("info depth 3 nodes 70 nps 9 time 5 score cp -12 pv 7g7f 3c3d", '
        '"info string hello pv 1a1b", "info depth 9 multipv 2 score cp 5 pv 2g2f", '
        '"info depth x score cp y", "bestmove 7g7f ponder 3c3d")'
    )
    with Client(fake(tmp_path, go), {"Depth": "2", "Two Words": "true"}) as engine:
        assert (engine.name, engine.author) == ("Fake 1", "nobody")
        reply = engine.go("startpos", "byoyomi 10", 20)
    assert (reply.move, reply.ponder) == ("7g7f", "3c3d")
    assert (reply.info.depth, reply.info.nodes, reply.info.cp) == (3, 70, -12)
    assert reply.info.pv == ["7g7f", "3c3d"]


@pytest.mark.parametrize(
    ("go", "error", "message"),
    [
        ("sys.exit(3)", EngineDied, r"ended \(status 3\) instead of bestmove"),
        ("say('info depth 1'); time.sleep(60)", EngineTimeout, "last line was 'info depth 1'"),
        ("say('bestmove')", EngineNonsense, "names no move"),
        ("say('bestmove 7g7f+++')", EngineNonsense, "names no move"),
        ("sys.stdout.buffer.write(b'\\xff\\x00\\nbestmove \\xfe\\n'); sys.stdout.flush()",
         EngineNonsense, r"xfe' names no move"),
        ("import os; os.close(1); time.sleep(60)", EngineDied, "instead of bestmove"),
    ],
)  # fmt: skip
def test_engines_that_fail(tmp_path, go, error, message):
    engine = Client(fake(tmp_path, go))
    with pytest.raises(error, match=message):
        engine.go("startpos", "byoyomi 10", 0.3)
    engine.close(0.1)
    assert not engine.alive


def test_an_engine_that_talks_without_end(tmp_path):
    go = "import itertools\nfor _ in itertools.count(): say('info string ' + 'x' * 1000)"
    engine = Client(fake(tmp_path, go))
    with pytest.raises(EngineTimeout):
        engine.go("startpos", "byoyomi 10", 0.2)
    engine.close(0.1)
    assert not engine.alive


def test_what_nobody_reads_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("ginkgo.usi.client._WAITING", 50)
    go = "say('bestmove 7g7f', *['info depth 1'] * 5000)"
    with Client(fake(tmp_path, go)) as engine:
        assert engine.go("startpos", "byoyomi 10", 60).move == "7g7f"
        engine.send("isready")  # its answer is behind all of them, and is not lost
        deadline = time.monotonic() + 60
        while not (engine._lines.queue and engine._lines.queue[-1] == "readyok"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert engine._lines.qsize() <= 51
        assert engine.go("startpos", "byoyomi 10", 60).move == "7g7f"


def test_a_stopped_engine_answers_late(tmp_path):
    go = "sys.stdin.readline(); say('bestmove resign')"
    with Client(fake(tmp_path, go)) as engine:
        assert engine.go("startpos", "infinite", 0.2, grace=60).move == "resign"


def test_answers_of_an_earlier_search_are_not_taken(tmp_path):
    go = "say('bestmove 7g7f', 'bestmove 9i9h')"
    with Client(fake(tmp_path, go)) as engine:
        assert engine.go("startpos", "byoyomi 10", 20).move == "7g7f"
        time.sleep(0.2)
        assert engine.go("startpos", "byoyomi 10", 20).move == "7g7f"


def test_engines_that_do_not_start(tmp_path):
    with pytest.raises(EngineDied, match="cannot start"):
        Client([str(tmp_path / "none")])
    # It may be gone before anything is sent.
    with pytest.raises(EngineDied, match=r"instead of usiok|died before 'usi'"):
        Client([sys.executable, "-c", "pass"], seconds=20)
    with pytest.raises(EngineTimeout, match="no usiok"):
        Client([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.3)
    with pytest.raises(EngineNonsense, match="no option 'Colour'"):
        Client(fake(tmp_path, "pass"), {"Colour": "red"})


def test_children_of_a_script_end_with_it(tmp_path):
    script = tmp_path / "engine.sh"
    script.write_text(f"#!/bin/sh\n{' '.join(fake(tmp_path, 'time.sleep(300)'))}\nexit 0\n")
    script.chmod(0o755)
    engine = Client([str(script)])
    with pytest.raises(EngineError):
        engine.go("startpos", "byoyomi 1", 0.1)
    group = engine._process.pid
    engine.kill()
    for process in psutil.process_iter(["pid", "status"]):
        with contextlib.suppress(OSError):
            if os.getpgid(process.info["pid"]) == group:
                assert process.info["status"] == psutil.STATUS_ZOMBIE


def test_scores():
    info = Info()
    read_info(["info", "score", "mate", "+", "pv", "7g7f"], info)
    assert (info.cp, info.mate) == (None, 1)
    read_info(["info", "score", "mate", "-4", "pv", "7g7f", "nonsense"], info)
    assert (info.mate, info.pv) == (-4, ["7g7f"])
    read_info(["info", "score", "cp"], info)
    read_info(["info"], info)
    assert info.mate == -4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes that leave their group")
def test_a_child_that_has_left_the_group(tmp_path):
    """It keeps the pipe open; the client must not wait for its end."""
    pid = tmp_path / "pid"
    go = f"""
import os
import signal
if not os.fork():
    os.setsid()
    open({str(pid)!r}, "w").write(str(os.getpid()))
    time.sleep(300)
time.sleep(300)
"""
    engine = Client(fake(tmp_path, go))
    with pytest.raises(EngineTimeout):
        engine.go("startpos", "byoyomi 1", 5)
    done = threading.Thread(target=engine.kill, daemon=True)
    done.start()
    done.join(60)
    try:
        assert not done.is_alive()
        assert not engine.alive
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
