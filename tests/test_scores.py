"""Scores in comments of kifu: what programs write, and who is meant."""

from __future__ import annotations

import json

import pytest
from kifu_texts import CSA_HEADER, KIF_HEADER, read_one

from ginkgo.records.kifu.scores import Scores, read_score


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # The player's own, before the move was made.
        ("* 123 +7776FU", (123, False)),
        ("* -45", (-45, False)),
        ("* 30.5 -8384FU #1234", (30, False)),
        ("* 30 #1234", (30, False)),
        ("*評価値=+82", (82, False)),
        ("*詰み=先手勝ち:15手", (30000, False)),
        ("*対局 時間 00:00.8 深さ 22/28 ノード数 9 評価値 88 読み筋 ▲３四飛(24)", (88, False)),
        # An analysis, of the position after the move.
        ("#評価値=-5.5", (-5, True)),
        ("#詰み=後手勝ち", (-30000, True)),
        ("*解析 0 ○ 時間 00:00.1 深さ 3/5 ノード数 9 評価値 12 読み筋 △", (12, True)),
        ("*解析 0 △ 候補1 時間 00:00.0 評価値 0 読み筋 △３三角(22)", (0, True)),
        ("*解析 0 評価値 +詰 3 読み筋 ▲５二金打", (30000, True)),
        ("*解析 0 評価値 -詰 読み筋 ▲５二金打", (-30000, True)),
        # Other moves than the best, and what people write.
        ("*解析 0  候補2 評価値 3 読み筋 ▲", None),
        ("*解析 0  候補12 評価値 3 読み筋 ▲", None),
        ("*解析 0 読み筋 評価値 3", None),
        ("*3時間後", None),
        ("* 3 時間後", None),
        ("評価値=3", None),
        ("評価値は 100 くらい", None),
        ("*評価値=99999999999999999999", None),
        ("*", None),
        ("", None),
    ],
)
def test_what_programs_write(text, found):
    assert read_score(text) == found


def test_whose_move_is_meant_and_which_is_believed():
    scores = Scores()
    scores.note(0, "*評価値=1")  # of no move
    scores.note(0, "#評価値=10")
    scores.note(1, "*評価値=20")
    assert scores.by_move(False, 3) == [10, None, None]
    scores.note(2, "*評価値=30")
    scores.note(1, "#評価値=40")
    scores.note(1, "#評価値=50")
    scores.note(9, "#評価値=60")
    assert scores.by_move(False, 3) == [10, -50, None]
    assert scores.by_move(True, 3) == [-10, 50, None]
    assert Scores().by_move(False, 3) == []


KIF = (
    KIF_HEADER
    + "**解析 0 時間 00:00.1 深さ 3/5 ノード数 9 評価値 40 読み筋 ▲７六歩(77)\n"
    + "   1 ７六歩(77)\n*#評価値=-70\n*面白い\n   2 ３四歩(33)\n*#詰み=後手勝ち:7手\n"
    + "   3 ２六歩(27)\n   4 投了\n"
)


@pytest.mark.parametrize("comments", [True, False])
def test_scores_of_a_kif_whether_or_not_comments_are_kept(comments):
    game = read_one(KIF, comments=comments)
    assert list(game.scores) == [40, 70, -30000]
    assert (game.comments is not None) == comments
    assert list(read_one(KIF_HEADER + "   1 ７六歩(77)\n*面白い\n").scores) == []


def test_scores_of_the_other_formats():
    ki2 = "先手：甲\n後手：乙\n\n*#評価値=5\n▲７六歩\n**評価値=6\n△３四歩\n*#評価値=7\n▲２六歩\n"
    assert list(read_one(ki2, "a.ki2").scores) == [5, None, 7]
    csa = CSA_HEADER + "+7776FU\nT1\n'** 6 -3334FU\n-3334FU\n'**評価値=7\n+2726FU\n"
    assert list(read_one(csa).scores) == [6, -7, None]
    csa = csa.replace("+7776FU\n", "'*#評価値=5\n+7776FU\n", 1)
    assert list(read_one(csa).scores) == [5, -7, None]
    nodes = [
        {"comments": ["#評価値=5"]},
        {"move": {"from": {"x": 7, "y": 7}, "to": {"x": 7, "y": 6}, "piece": "FU"}},
        {
            "move": {"from": {"x": 3, "y": 3}, "to": {"x": 3, "y": 4}, "piece": "FU"},
            "comments": ["何か", "*評価値=8"],
        },
    ]
    jkf = json.dumps({"header": {}, "moves": nodes})
    assert list(read_one(jkf, "a.jkf").scores) == [5, -8]


def test_a_game_whose_first_move_is_white_s():
    text = KIF.replace("手合割：平手", "手合割：香落ち").replace("７六歩(77)", "３四歩(33)", 3)
    text = text.replace("   2 ３四歩(33)", "   2 ７六歩(77)").replace("２六歩(27)", "８四歩(83)")
    assert list(read_one(text).scores) == [-40, -70, 30000]
