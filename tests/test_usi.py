"""The engine's side of the protocol, as transcripts, and as a program."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ginkgo.errors import GinkgoError
from ginkgo.search.evaluators import HashEvaluator
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line, line_of
from ginkgo.search.search import Search, run
from ginkgo.usi.engine import Engine
from ginkgo.usi.mate import is_mating_line
from ginkgo.usi.options import OPTIONS

ROOT = Path(__file__).resolve().parent.parent
MATE_IN_3 = "3p2k2/9/3S+R4/9/9/9/9/9/5K3 b GP 1"
ANSWER = re.compile(r"bestmove ([1-9PLNSGBR]\S+)( ponder \S+)?$")


class Talk:
    """A conversation with an engine that runs in a thread of this process."""

    def __init__(self, **options) -> None:
        self._in: queue.Queue[str | None] = queue.Queue()
        self._out: queue.Queue[str] = queue.Queue()
        values = {"Model": "uniform", "USI_Hash": 64, "RootMateSearch": 0, **options}
        self.engine = Engine(values, self)  # type: ignore[arg-type]
        self.heard: list[str] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # What the engine takes for its output.
    def write(self, text: str) -> None:
        self._out.put(text.rstrip("\n"))

    def flush(self) -> None:
        pass

    def _run(self) -> None:
        try:
            self.engine.run(iter(self._in.get, None))
        except GinkgoError as error:
            self._error = error

    def say(self, *lines: str) -> None:
        for line in lines:
            self._in.put(line)

    def wait(self, pattern: str) -> list[str]:
        """Lines up to the first one that matches."""
        lines, self.heard = self.heard, []
        while True:
            lines.append(self._out.get(timeout=60))
            if re.match(pattern, lines[-1]):
                return lines

    def silent(self, seconds: float = 0.15) -> list[str]:
        """What comes in so short a time, but for info lines."""
        lines: list[str] = []
        try:
            while True:
                line = self._out.get(timeout=seconds)
                (self.heard if line.startswith("info") else lines).append(line)
        except queue.Empty:
            return lines

    def end(self) -> list[str]:
        self._in.put(None)
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self.silent(0.01)


@pytest.fixture
def talk():
    talk = Talk()
    talk.say("usi", "isready", "usinewgame")
    talk.wait("readyok")
    yield talk
    talk.end()


def best(lines: list[str]) -> str:
    assert sum(line.startswith("bestmove") for line in lines) == 1
    match = ANSWER.fullmatch(lines[-1])
    assert match, lines[-1]
    return match[1]


# --- transcripts ------------------------------------------------------------------------------


def test_answer_to_usi_names_every_option():
    talk = Talk()
    talk.say("usi")
    lines = talk.wait("usiok")
    assert lines[0].startswith("id name ginkgo ")
    assert lines[1].startswith("id author ")
    named = [line.split()[2] for line in lines if line.startswith("option name ")]
    assert named == [option.name for option in OPTIONS]
    assert "option name USI_Ponder type check default false" in lines
    assert "option name MultiPV type spin default 1 min 1 max 593" in lines
    assert "option name BookFile type filename default <empty>" in lines
    combo = next(line for line in lines if "name Evaluator" in line)
    assert combo.endswith("type combo default auto var auto var onnx var int8 var keras")
    talk.end()


def test_a_game(talk):
    moves: list[str] = []
    for _ in range(6):
        position = "position startpos" + (f" moves {' '.join(moves)}" if moves else "")
        talk.say(position, "go btime 1000 wtime 1000 byoyomi 40")
        move = best(talk.wait("bestmove"))
        line_of(f"startpos moves {' '.join([*moves, move])}")
        moves.append(move)
    talk.say("gameover win", "usinewgame", "position startpos", "go nodes 50")
    best(talk.wait("bestmove"))


def test_info_lines(talk):
    talk.say("setoption name MultiPV value 3", "position startpos", "go nodes 400")
    lines = talk.wait("bestmove")
    infos = [line for line in lines if " pv " in line]
    pattern = (
        r"info depth \d+ seldepth \d+ time \d+ nodes \d+ nps \d+ hashfull \d+ "
        r"score (cp|mate) -?\d+ multipv [123] pv( \S+)+"
    )
    assert len(infos) >= 3
    assert all(re.fullmatch(pattern, line) for line in infos)
    last = infos[-3:]
    assert [line.split(" multipv ")[1][0] for line in last] == ["1", "2", "3"]
    assert " nodes 400 " in last[0]
    for line in last:
        line_of(f"startpos moves {line.split(' pv ')[1]}")
    assert last[0].split(" pv ")[1].split()[0] == best(lines)


@pytest.mark.parametrize("limits", ["infinite", "ponder btime 1000 wtime 1000", "ponder", ""])
def test_stop_ends_a_search_without_end(talk, limits):
    talk.say("position startpos moves 7g7f", f"go {limits}")
    assert talk.silent() == []
    talk.say("stop")
    best(talk.wait("bestmove"))
    talk.say("stop", "stop")
    assert talk.silent() == []


def test_stop_at_once_and_before_any_go(talk):
    talk.say("stop", "ponderhit", "position startpos", "go infinite", "stop")
    best(talk.wait("bestmove"))
    talk.say("go byoyomi 100000", "stop", "go nodes 3")
    best(talk.wait("bestmove"))
    best(talk.wait("bestmove"))
    assert talk.silent() == []


def test_ponderhit_starts_the_clock(talk):
    talk.say("position startpos moves 7g7f 3c3d", "go ponder btime 0 wtime 0 byoyomi 100")
    assert talk.silent(0.4) == []
    talk.say("ponderhit")
    best(talk.wait("bestmove"))
    # A search that is over already waits for the hit all the same.
    talk.say(f"position sfen {MATE_IN_3}", "go ponder byoyomi 100")
    assert talk.silent(0.4) == []
    talk.say("ponderhit")
    assert best(talk.wait("bestmove")) == "5c3c"


def test_a_decided_position_waits_for_stop_when_analysed(talk):
    talk.say("position sfen 4k4/9/4P4/9/9/9/9/9/4K4 b G 1", "go infinite")
    assert talk.silent() == []
    talk.say("stop")
    lines = talk.wait("bestmove")
    assert best(lines) == "G*5b"
    assert any(" score mate 1 " in line for line in lines)


@pytest.mark.parametrize(
    "command",
    ["usinewgame", "isready", "position startpos", "gameover lose", "go nodes 5",
     "setoption name MultiPV value 2"],
)  # fmt: skip
def test_every_go_has_its_answer_whatever_comes_between(talk, command):
    talk.say("position startpos moves 7g7f", "go infinite", command, "go nodes 5")
    wanted = 3 if command.startswith("go") else 2
    lines: list[str] = []
    for _ in range(wanted):
        lines += talk.wait("bestmove")
    assert sum(line.startswith("bestmove") for line in lines) == wanted
    assert talk.silent() == []


def test_positions_that_cannot_be(talk):
    for bad in (
        "startpos moves 7g7f 7g7f",
        "startpos moves 2h2b",
        "sfen 9/9 b - 1",
        "nonsense",
        "",
        "startpos moves 0000",
    ):
        talk.say(f"position {bad}")
        assert talk.wait("info string error")[-1].startswith("info string error: ")
        talk.say("go nodes 10")
        assert talk.wait("bestmove")[-1] == "bestmove resign"
        talk.say("go mate 100")
        assert talk.wait("checkmate")[-1] == "checkmate timeout"
    talk.say("position startpos moves 7g7f", "go nodes 10")
    best(talk.wait("bestmove"))


def test_unknown_and_malformed_commands(talk):
    talk.say("", "hello world", "go byoyomi", "go nodes many", "setoption", "setoption name X")
    talk.say("setoption name MultiPV value 0", "setoption name USI_Ponder value maybe")
    talk.say("setoption name Evaluator value abacus", "position startpos", "go nodes 10")
    lines = talk.wait("bestmove")
    best(lines)
    strings = [line for line in lines if line.startswith("info string")]
    assert len(strings) == 8
    assert strings[0] == "info string unknown command hello"
    assert "info string error: option MultiPV: 0; expected 1 to 593" in strings


def test_crlf_and_spaces(talk):
    talk.say("isready\r\n")
    assert talk.wait("readyok")[-1] == "readyok"
    talk.say("position  startpos   moves 7g7f\r\n", " go nodes 10 \r\n")
    best(talk.wait("bestmove"))


def test_positions_without_a_move_to_find(talk):
    talk.say("position sfen 8k/6G2/7G1/9/9/9/9/9/4K4 w - 2", "go byoyomi 1000")
    assert talk.wait("bestmove")[-1] == "bestmove resign"
    camp = "3+RKS+B2/3GGSS2/3+RG+B3/9/9/9/9/9/4k4 b 2P 1"
    talk.say(f"position sfen {camp}", "go byoyomi 1000")
    assert talk.wait("bestmove")[-1] == "bestmove win"
    talk.say("setoption name EnteringKingRule value NoEnteringKing", "go nodes 20")
    best(talk.wait("bestmove"))


def test_resigns_when_mated_or_told_to(talk):
    line = Line(MATE_IN_3, ["5c3c"])
    position = f"position sfen {MATE_IN_3} moves {' '.join(line.usi)}"
    talk.say(position, "go nodes 3000")
    assert talk.wait("bestmove")[-1] == "bestmove resign"
    talk.say("setoption name ResignValue value 0", position, "go nodes 3000")
    lines = talk.wait("bestmove")
    best(lines)
    assert any(" score mate -" in line for line in lines)


def test_draws_by_length(talk):
    talk.say("setoption name MaxMovesToDraw value 2", "setoption name DrawValueWhite value 900")
    talk.say("position startpos moves 7g7f", "go nodes 300")
    lines = [line for line in talk.wait("bestmove") if " score cp " in line]
    assert int(lines[-1].split(" score cp ")[1].split()[0]) > 1000


def test_moves_go_depth_and_nodes_limit(talk):
    talk.say("setoption name NodesLimit value 30", "position startpos", "go infinite")
    assert talk.silent() == []
    talk.say("stop")
    assert " nodes 30 " in str(talk.wait("bestmove"))
    talk.say("setoption name NodesLimit value 0", "go depth 3")
    best(talk.wait("bestmove"))


def test_small_searches_take_small_batches():
    """Two batches of 16 leaves would hardly be a search of 32."""
    talk = Talk(Model="hash", BatchSize=16)
    talk.say("isready", "position startpos moves 7g7f", "go nodes 32")
    talk.wait("bestmove")
    search = talk.engine._thinker.search
    visits = []
    for batch in (2, 16):
        other = Search(replace(search.config, batch=batch), line_of("startpos moves 7g7f"))
        other.begin()
        run([other], Queue(HashEvaluator()), 32)
        visits.append([(one.move, one.visits) for one in other.candidates()])
    assert [(one.move, one.visits) for one in search.candidates()] == visits[0] != visits[1]
    talk.end()


def test_go_mate(talk):
    talk.say(f"position sfen {MATE_IN_3}", "go mate 5000")
    answer = talk.wait("checkmate")[-1].split()[1:]
    assert is_mating_line(MATE_IN_3, answer)
    assert len(answer) == 3
    talk.say("position startpos", "go mate infinite")
    assert talk.wait("checkmate")[-1] == "checkmate nomate"
    talk.say("position startpos", "go mate 1000", "stop")
    assert talk.wait("checkmate")[-1] in ("checkmate timeout", "checkmate nomate")


def test_mate_search_beside_the_search():
    talk = Talk(RootMateSearch=100000)
    talk.say("isready", f"position sfen {MATE_IN_3}", "go byoyomi 20000")
    lines = talk.wait("bestmove")
    assert best(lines) == "5c3c"
    assert any(" score mate 3 " in line for line in lines)
    talk.end()


def test_book(tmp_path):
    path = tmp_path / "book.db"
    start = Line().board.sfen()
    path.write_text(
        f"#YANEURAOU-DB2016 1.00\n// a comment\nsfen {start}\n2g2f 8c8d 10 1 5\n7g7f 3c3d 30 1 9\n"
        f"sfen {Line(moves=['7g7f']).board.sfen()}\n9i9a none 0 0 1\n"
    )
    talk = Talk(BookFile=str(path))
    talk.say("isready", "position startpos", "go byoyomi 100")
    lines = talk.wait("bestmove")
    assert lines[-1] == "bestmove 7g7f ponder 3c3d"
    assert "info depth 0 score cp 30 pv 7g7f 3c3d" in lines
    talk.say("position startpos moves 7g7f", "go nodes 10")
    lines = talk.wait("bestmove")
    assert "info string book: ply 2: illegal move 9i9a" in lines
    assert best(lines) != "9i9a"
    talk.say("setoption name BookMoves value 0", "position startpos", "go nodes 10")
    assert " pv " in str(talk.wait("bestmove"))
    talk.say("setoption name BookMoves value 9", "setoption name BookRandom value true")
    seen = set()
    for _ in range(40):
        talk.say("go nodes 10")
        seen.add(best(talk.wait("bestmove")))
    assert seen == {"2g2f", "7g7f"}
    talk.end()


@pytest.mark.parametrize(
    ("option", "message"),
    [({"Model": "no/such"}, "no model directory"), ({"BookFile": "no/such"}, "cannot read")],
)
def test_what_cannot_be_loaded_ends_the_engine(option, message):
    talk = Talk(**option)
    talk.say("usi", "isready")
    assert message in talk.wait("info string error")[-1]
    with pytest.raises(GinkgoError, match=message):
        talk.end()


def test_a_go_that_cannot_be_obeyed_is_answered():
    talk = Talk(Model="no/such")
    talk.say("position startpos", "go byoyomi 100")
    lines = talk.wait("info string error")
    assert lines == ["bestmove resign", "info string error: no/such: no model directory "
                     "(no config.json in it)"]  # fmt: skip
    talk.end()


def test_end_of_input_in_mid_search():
    talk = Talk()
    talk.say("isready", "position startpos", "go infinite")
    talk.wait("readyok")
    lines = talk.end()
    assert sum(line.startswith("bestmove") for line in lines) <= 1


# --- the program ------------------------------------------------------------------------------


def _program(text: bytes, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "ginkgo", "usi", *arguments],
        input=text,
        cwd=ROOT,
        capture_output=True,
        timeout=120,
    )


def test_program_with_the_bundled_net_and_any_bytes():
    text = b"usi\r\nsetoption name USI_Hash value 64\r\n\xff\xfe what\r\nisready\r\n"
    done = _program(text + b"position startpos moves 2g2f\r\ngo nodes 30\r\n")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert lines.count("usiok") == lines.count("readyok") == 1
    assert "info string model pretrained/model-int8.onnx" in lines
    assert sum(line.startswith("bestmove") for line in lines) == 1


def test_program_says_what_is_wrong():
    done = _program(b"usi\nisready\n", "--model", "no/such")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: no/such: no model directory")
    done = _program(b"", "--options", "MultiPV=many")
    assert done.returncode == 1
    assert b"expected a number" in done.stderr


def test_usi_is_answered_without_heavy_imports():
    code = """
import io, sys
from ginkgo.usi import engine
engine.Engine({}, io.StringIO()).run(["usi", "setoption name MultiPV value 2"])
print(sorted({"tensorflow", "keras", "cshogi", "numba", "onnxruntime", "numpy", "tyro"}
             & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_every_option_is_explained():
    lines = (ROOT / "docs" / "ENGINE.md").read_text().splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert list(rows) == [option.name for option in OPTIONS]
    for option in OPTIONS:
        default = str(option.default).lower() if option.kind == "check" else option.default
        text = f"| `{option.name}` | {default if default != '' else 'empty'} | {option.help}"
        if option.kind == "spin":
            text += f" {option.low} to {option.high}."
        elif option.kind == "combo":
            text += " One of " + ", ".join(f"`{choice}`" for choice in option.choices) + "."
        assert rows[option.name] == f"{text} |"
