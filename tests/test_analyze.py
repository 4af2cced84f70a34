"""`ginkgo analyze`: what it writes is read back, by its own readers and as GUIs read it."""

from __future__ import annotations

import json
import re
import zipfile

import pytest
from kifu_texts import KIF_HEADER, read_all, read_one

from ginkgo.errors import GinkgoError
from ginkgo.play import analysis, analyze
from ginkgo.play.analysis import Effort, Judged, judge, losses
from ginkgo.play.comments import commented
from ginkgo.play.graph import win_rate_graph
from ginkgo.records import Game
from ginkgo.records.kifu.write import kif_file, write_csa
from ginkgo.search.evaluators import HashEvaluator, UniformEvaluator

MOVES = ["7g7f", "3c3d", "8h2b+", "3a2b", "B*4e", "4a5b"]
KIF = (
    KIF_HEADER
    + "*開始前の言葉\n   1 ７六歩(77)   ( 0:01/00:00:01)\n   2 ３四歩(33)   ( 0:02/00:00:02)\n"
    + "*角道を開けた\n   3 ２二角成(88)\n   4 同　銀(31)\n   5 ４五角打\n   6 ５二金(41)\n"
    + "   7 投了\n"
)
#: 1. 5c3c 3a2a 2. G*2b, and mated.
MATE = Game(
    start="3p2k2/9/3S+R4/9/9/9/9/9/5K3 b GP 1",
    moves=["5c3c", "3a2a", "G*2b"],
    winner="b",
    end="tsumi",
)
EFFORT = Effort(nodes=60, seconds=0, mate_nodes=2000)


def ran(arguments: list, capsys) -> tuple[int, list[str], str]:
    """Exit status, lines of standard output, standard error."""
    status = analyze.main([str(one) for one in arguments])
    text = capsys.readouterr()
    return status, text.out.splitlines(), text.err


@pytest.fixture
def kif(tmp_path):
    path = tmp_path / "対局.kif"
    path.write_bytes(KIF.encode("cp932"))
    return path


def test_what_is_written_is_read_back(kif, tmp_path, capsys):
    out = tmp_path / "out"
    status, lines, _ = ran([kif, "-o", out, "--model", "hash", "--nodes", 50, "--json"], capsys)
    assert status == 0
    [found] = map(json.loads, lines)
    assert found["complete"]
    assert [one["move"] for one in found["positions"]] == [None, *MOVES]
    assert (out / "対局.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    data = (out / "対局.kif").read_bytes()
    assert data == data.decode("cp932").encode("cp932")
    back = read_one(data, "対局.kif")
    before = read_one(KIF)
    for name in ("start", "moves", "winner", "end", "black", "white", "times"):
        assert getattr(back, name) == getattr(before, name), name
    # The score of a move is that of the position before it, in the mover's view.
    scores = [one["score"] for one in found["positions"][:-1]]
    assert list(back.scores) == [-s if ply % 2 else s for ply, s in enumerate(scores)]
    assert back.comments is not None
    assert back.comments[0].startswith("開始前の言葉\n*Engines 0 ginkgo hash\n先手の勝率 ")
    assert back.comments[2].startswith("角道を開けた\n先手の勝率 ")
    # Once more: the earlier analysis gives way to the new one.
    ran([out / "対局.kif", "-o", tmp_path / "more", "--model", "hash", "--nodes", 50], capsys)
    again = read_one((tmp_path / "more" / "対局.kif").read_bytes(), "対局.kif")
    assert list(again.scores) == list(back.scores)
    assert again.comments is not None
    times = re.compile(r"時間 \S+")
    assert {ply: times.sub("", text) for ply, text in again.comments.items()} == {
        ply: times.sub("", text) for ply, text in back.comments.items()
    }


#: As ShogiGUI reads a line, and ShogiHome (patterns of own making, after what they accept).
GUI = re.compile(
    r"\*\*解析 0( ○)? 時間 \d\d:\d\d\.\d 深さ \d+/\d+ ノード数 \d+ 評価値 "
    r"(-?\d+|[+-]詰 \d+) 読み筋( [▲△](?:[１-９][一二三四五六七八九]|同　)\S+)+"
)
HOME_MATE = re.compile(r"\*#詰み=(先手|後手)勝ち:\d+手")


def test_comments_are_in_the_form_that_guis_read():
    judged = list(judge(MATE, HashEvaluator(), EFFORT))
    assert [one.mate for one in judged] == [3, 2, 1, 0]
    assert [one.rate for one in judged] == [1, 1, 1, 1]
    assert judged[0].line == tuple(MATE.moves)
    text = kif_file(commented(MATE, judged, [], "x")).decode("cp932")
    lines = [line for line in text.splitlines() if line.startswith("**解析")]
    assert len(lines) == 3
    assert all(GUI.fullmatch(line) for line in lines)
    assert "評価値 +詰 3 読み筋 ▲３三龍(53) △２一玉(31) ▲２二金打" in lines[0]
    assert " ○ " in lines[1]
    assert len([line for line in text.splitlines() if HOME_MATE.fullmatch(line)]) == 3
    back = read_one(text)
    assert list(back.scores) == [30000, -30000, 30000]
    assert (back.moves, back.winner, back.end) == (MATE.moves, "b", "tsumi")
    game = Game(moves=MOVES, winner="b", end="toryo")
    text = kif_file(commented(game, list(judge(game, HashEvaluator(), EFFORT)), [], "x"))
    lines = [line for line in text.decode("cp932").splitlines() if line.startswith("**解析")]
    assert len(lines) == 7
    assert all(GUI.fullmatch(line) for line in lines)
    assert all(("△" if ply % 2 else "▲") == line.split("読み筋 ")[1][0]
               for ply, line in enumerate(lines))  # fmt: skip


def test_recaptures_are_worded_by_the_move_before():
    game = Game(moves=MOVES[:3])
    here = [Judged(ply, 0.5, 0, line=("3a2b",) if ply == 3 else ()) for ply in range(4)]
    assert "読み筋 △同　銀(31)" in (commented(game, here, [], "x").comments or {})[3]


def test_losses_and_their_marks():
    game = Game(moves=MOVES)
    rates = [0.5, 0.5, 0.62, 0.4, 0.75, 0.75, 0.2]
    judged = [Judged(ply, rate, 0, line=("1g1f",)) for ply, rate in enumerate(rates)]
    found = losses(game, judged, 0.1, 0.2)
    assert [loss.mark for loss in found] == ["", "mistake", "blunder", "blunder", "", ""]
    assert found[1].rate == pytest.approx(0.12)
    # The best move loses nothing, whatever the next position looks like.
    judged[3] = Judged(3, 0.4, 0, line=("3a2b",))
    assert losses(game, judged, 0.1, 0.2)[3] == analysis.Loss(4, 0.0, "")
    assert len(losses(game, judged[:3], 0.1, 0.2)) == 2
    text = (commented(game, judged, found, "x").comments or {})[3]
    assert text == "先手の勝率 40.0% 悪手: -22.0% 最善手 ▲１六歩(17)\n" + text.split("\n")[1]


def test_games_of_every_kind(tmp_path, capsys):
    """Several in a file or archive, names twice, White first, declarations, nothing to search."""
    (tmp_path / "a").mkdir()
    games = [Game(moves=MOVES[:2], winner="b", end="toryo"), Game(moves=MOVES[:3], end="chudan")]
    (tmp_path / "several.csa").write_text("/\n".join(map(write_csa, games)))
    (tmp_path / "a" / "several-1.csa").write_text(write_csa(games[0]))
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("x/one.csa", write_csa(games[0]))
        archive.writestr("x/two.csa", write_csa(games[1]))
    camp = "3+RKS+B2/3GGSS2/3+RG+B3/9/9/9/9/9/4k4 b 2P 1"
    lines = [
        "startpos moves 7g7f 3c3d\twinner=b\tend=toryo",
        f"sfen {camp} moves P*9h",
        "startpos moves 7g7f 7g7f",
        "sfen lnsgkgsn1/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1 moves 3c3d 7g7f",
        "sfen 4k4/9/4P4/9/9/9/9/9/9 b G 1 moves G*5b",
        "startpos",
    ]
    (tmp_path / "lines.usi").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    effort = ["--model", "uniform", "--nodes", 20, "--mate-nodes", 0]
    status, lines, errors = ran([tmp_path, "-o", out, *effort], capsys)
    assert status == 1
    assert len(lines) == 8
    left_out = errors.splitlines()
    assert len([line for line in left_out if "left out" in line]) == 3
    assert any("illegal move 7g7f" in line for line in left_out)
    assert any("one king" in line for line in left_out)
    assert any("no moves" in line for line in left_out)
    names = {path.name for path in out.glob("*.kif")}
    assert names == {
        *("several-1.kif", "several-1(2).kif", "several-2.kif"),
        *("lines-1.kif", "lines-2.kif", "lines-4.kif", "one.kif", "two.kif"),
    }
    assert len(list(out.glob("*.png"))) == 8
    handicap = read_one((out / "lines-4.kif").read_bytes())
    assert handicap.moves == ["3c3d", "7g7f"]
    assert len(handicap.scores) == 2
    assert "先手の勝率 100.0%" in (read_one((out / "lines-2.kif").read_bytes()).comments or {})[0]


def test_ctrl_c_keeps_what_was_done(kif, tmp_path, capsys, monkeypatch):
    looked = analysis._searched

    def interrupted(search, queue, ply, effort):
        if ply == 3:
            raise KeyboardInterrupt
        return looked(search, queue, ply, effort)

    monkeypatch.setattr(analysis, "_searched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ran([kif, "-o", tmp_path / "out", "--model", "uniform", "--nodes", 20], capsys)
    assert "3 positions analysed" in capsys.readouterr().out
    game = read_one((tmp_path / "out" / "対局.kif").read_bytes())
    assert game.moves == MOVES
    assert [score is not None for score in game.scores] == [True] * 3 + [False] * 3


def test_time_for_a_position_and_the_same_again():
    game = Game(moves=MOVES[:1])
    for one in judge(game, UniformEvaluator(), Effort(1, 0.01, 0)):
        assert one.nodes >= 20
    again = [
        [(one.rate, one.score, one.line, one.nodes) for one in judge(game, HashEvaluator(), EFFORT)]
        for _ in range(2)
    ]
    assert again[0] == again[1]


@pytest.mark.parametrize("title", ["Black – White", "甲 – 乙", "\ufffe\U0001f400", ""])
def test_graph_needs_no_font(title):
    judged = [Judged(ply, rate, 0) for ply, rate in enumerate([0.5, 0.9, 0.1])]
    marks = [analysis.Loss(1, 0.4, "mistake"), analysis.Loss(2, 0.8, "blunder")]
    assert len(win_rate_graph(title, 34, judged, marks)) > 5000
    assert win_rate_graph(title, 0, judged[:1], [])


def test_names_that_shift_jis_lacks_are_written_in_utf_8():
    game = Game(moves=["7g7f"], black="髙橋 🐲", winner="b", end="toryo")
    data = kif_file(game)
    assert data.startswith(b"#KIF version=2.0 encoding=UTF-8")
    assert read_one(data, "a.kif").black == "髙橋 🐲"
    [back] = read_all(kif_file(Game(moves=["7g7f"], black="高橋", end="chudan")), "a.kif")
    assert (back.black, back.encoding) == ("高橋", "cp932")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no files given"),
        (["no/such.kif"], "no such file"),
        (["--nodes", "0", "."], "expected 1 or more"),
        (["--time", "-1", "."], "expected 0 or more seconds"),
        (["--mate-nodes", "-1", "."], "expected 0 or more"),
        (["--threads", "0", "."], "expected 1 or more"),
        (["--mistake", "0.5", "."], "mistake <= blunder"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys):
    with pytest.raises(GinkgoError, match=message) as caught:
        ran(arguments, capsys)
    assert "\n" not in str(caught.value)


def test_mistakes_of_model_and_output(kif, tmp_path, capsys):
    with pytest.raises(GinkgoError, match="no model directory"):
        ran([kif, "-o", tmp_path / "x", "--model", "no/such"], capsys)
    (tmp_path / "file").write_text("")
    with pytest.raises(GinkgoError, match="cannot write"):
        ran([kif, "-o", tmp_path / "file", "--model", "uniform"], capsys)
    with pytest.raises(GinkgoError, match="would be overwritten"):
        ran([kif, "-o", kif.parent, "--model", "uniform"], capsys)
    # Nor by the game of another file, which comes first.
    (tmp_path / "対局.csa").write_text(write_csa(Game(moves=MOVES[:1])))
    with pytest.raises(GinkgoError, match=r"対局.kif: would be overwritten"):
        ran([tmp_path, "-o", kif.parent, "--model", "uniform", "--nodes", 1], capsys)
    assert kif.read_bytes() == KIF.encode("cp932")
