"""KIF: one small file for each kind of fault in moves, headers, diagrams and variations.

The games were written for these tests; the numbers are those of `test_kifu_faults`.
"""

from __future__ import annotations

import pytest
from kifu_texts import (
    FOUR,
    FOUR_USI,
    KIF_HEADER,
    KINGS,
    OPENING,
    diagram,
    kif,
    read_all,
    read_one,
    refused,
)

from ginkgo.records import Refusal

# --- KIF: moves (7, 8, 9, 23, 31, 32) ----------------------------------------------------------


def test_07_a_drop_with_a_zero_origin():
    game = kif(FOUR + "   5 ３三角打(00)\n   6 同　桂(21)\n")
    assert list(game.moves[4:]) == ["B*3c", "2a3c"]


@pytest.mark.parametrize(
    "line", ["５ ７七角(88)", "abc", "   5 ３三(22)", "   5 X三角打", "   6 ９六歩(97)"]
)
def test_07_no_move_line_is_ever_skipped(line):
    text = KIF_HEADER + FOUR + line + "\n   6 ８四歩(83)\n   7 ９六歩(97)\n"
    found = read_all(text, "x.kif")
    assert len(found) == 1
    if line == "abc":  # then ply 5 is missing
        assert "missing" in found[0].reason
    assert isinstance(found[0], Refusal), found


def test_08_not_promoting_may_be_written_out():
    moves = "   1 ７六歩(77)\n   2 ３四歩(33)\n   3 ２二角不成(88)\n   4 同　銀(31)\n"
    assert list(kif(moves).moves) == ["7g7f", "3c3d", "8h2b", "3a2b"]
    assert list(kif(moves.replace("不成", "生")).moves) == ["7g7f", "3c3d", "8h2b", "3a2b"]


@pytest.mark.parametrize(
    "spelling", ["同銀(31)", "同　銀(31)", "同 銀(31)", "同銀　(31)", "△同　銀(31)"]
)
def test_09_same_square_in_every_spelling(spelling):
    assert list(kif(FOUR.replace("同　銀(31)", spelling)).moves) == FOUR_USI


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("( 1:05/00:01:05)", 65.0),
        ("(0:4/0:0:4)", 4.0),
        ("(00:12 / 00:00:12)", 12.0),
        ("(1:00:07/1:00:07)", 3607.0),
        ("(0:01.5/00:00:01)", 1.5),
        ("( 0:09/)", 9.0),
        ("", None),
        ("(?)", None),
        ("( 0:02/00:00:02)+", 2.0),
    ],
)
@pytest.mark.parametrize("gap", ["", " ", "   "])
def test_23_times_in_every_spelling_never_cost_a_move(time, seconds, gap):
    game = kif(FOUR.replace("(77)\n", f"(77){gap}{time}\n"))
    assert list(game.moves) == FOUR_USI
    assert (list(game.times) or [None])[0] == seconds


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("７六歩", "７６歩"),
        ("７六歩", "76歩"),
        ("   2", "２"),
        ("３四歩", "△３四歩"),
        ("   2 ", "   2　"),
    ],
)
def test_full_and_half_width_digits(old, new):
    assert list(kif(FOUR.replace(old, new)).moves) == FOUR_USI


@pytest.mark.parametrize("king", ["玉", "王"])
@pytest.mark.parametrize(("dragon", "name"), [("龍", "成銀"), ("竜", "全")])
def test_32_each_piece_by_any_of_its_names(king, dragon, name):
    rows = {
        1: f"| ・ ・ ・ ・v{king} ・ ・ ・ ・|",
        5: f"| ・ ・ ・ ・ ・ ・ ・ ・ {dragon}|",
        6: "| ・ ・ ・ ・ ・ ・ ・ ・ 全|",
        9: f"| ・ ・ ・ ・ {king} ・ ・ ・ ・|",
    }
    moves = f"1 １四{dragon}(15)\n2 ４一{king}(51)\n3 １五{name}(16)\n4 ５一{king}(41)\n"
    game = read_one(diagram(rows) + moves, "x.kif")
    assert list(game.moves) == ["1e1d", "5a4a", "1f1e", "4a5a"]


# --- KIF: header, diagram, who moves (16–22, 25, 26) ------------------------------------------


@pytest.mark.parametrize("word", ["詰将棋", "その他", "平手", "二枚落ち", ""])
def test_16_17_18_the_diagram_counts_whatever_word_stands_beside_it(word):
    for text in (f"手合割：{word}\n" + diagram(KINGS), diagram(KINGS) + f"手合割：{word}\n"):
        game = read_one(text + "1 ５八玉(59)\n", "x.kif")
        assert game.start.split()[0] == "4k4/9/9/9/9/9/9/9/4K4"
        assert list(game.moves) == ["5i5h"]


def test_16_a_mate_problem_has_no_winner():
    rows = {1: "| ・ ・ ・ ・v玉 ・ ・ ・ ・|", 3: "| ・ ・ ・ ・ 歩 ・ ・ ・ ・|", 9: KINGS[9]}
    moves = "1 ５二金打\n2 詰み\nまで1手で詰み\n"
    stated = read_one(diagram(rows, below="金") + moves, "x.kif")
    assert (stated.end, stated.winner) == ("tsumi", "b")
    problem = read_one("手合割：詰将棋\n" + diagram(rows, below="金") + moves, "x.kif")
    assert (problem.end, problem.winner) == ("tsumi", "-")


def test_16_a_problem_with_one_king_is_read_and_not_for_training():
    rows = {1: KINGS[1], 3: "| ・ ・ ・ ・ 歩 ・ ・ ・ ・|"}
    game = read_one(diagram(rows, below="金") + "1 ５二金打\n", "x.kif")
    assert list(game.moves) == ["G*5b"]
    assert "one king" in game.notes[0]


def test_16_an_unknown_handicap_without_a_diagram_is_not_guessed():
    refusal = refused(KIF_HEADER.replace("平手", "三十枚落ち") + OPENING, "x.kif")
    assert "unknown handicap" in refusal.reason


@pytest.mark.parametrize("held", ["角　歩十八", "角 歩十八", "角歩18", "角　歩１８　"])
def test_19_hands_of_the_diagram(held):
    game = read_one(diagram(KINGS, below=held) + "1 ５八玉(59)\n", "x.kif")
    assert game.start.split()[2] == "B18P"
    assert read_one(diagram(KINGS) + "1 ５八玉(59)\n").start.split()[2] == "-"


def test_20_a_turned_board_is_turned_only_on_the_screen():
    game = read_one("盤面回転\n" + KIF_HEADER + FOUR, "x.kif")
    assert list(game.moves) == FOUR_USI


@pytest.mark.parametrize(
    ("end", "winner"), [("まで2手で上手の勝ち", "w"), ("まで2手で下手の勝ち", "b")]
)
def test_21_the_giver_of_a_handicap_moves_first(end, winner):
    header = "手合割：二枚落ち\n下手：甲\n上手：乙\n"
    game = read_one(header + "1 ６二銀(71)\n2 ７六歩(77)\n" + end + "\n", "x.kif")
    assert game.start.split()[1] == "w"
    assert (game.black, game.white, game.winner) == ("甲", "乙", winner)
    # After two plies the giver is to move: it resigns, and loses.
    assert read_one(header + "1 ６二銀(71)\n2 ７六歩(77)\n3 投了\n").winner == "b"


def test_21_who_moves_from_a_diagram():
    assert read_one(diagram(KINGS) + "後手番\n1 ４二玉(51)\n").start.split()[1] == "w"
    assert read_one(diagram(KINGS) + "先手番\n1 ５八玉(59)\n").start.split()[1] == "b"
    # No line says so: the first move does.
    assert read_one(diagram(KINGS) + "1 ４二玉(51)\n").start.split()[1] == "w"


def test_22_ply_numbers_are_labels():
    text = diagram(KINGS) + "手数＝34\n"
    game = read_one(text + "35 ５八玉(59)\n36 ４二玉(51)\nまで36手で中断\n", "x.kif")
    assert (game.total, game.start.split()[3]) == (2, "35")
    assert read_one(text + "1 ５八玉(59)\n2 ４二玉(51)\n").total == 2


def test_25_comments_may_stand_anywhere():
    text = "*先頭\n手合割：平手\n*中\n# 一行\n先手：甲\n手数----指手---------消費時間--\n*初め\n"
    text += OPENING.replace("(77)\n", "(77)\n*** 二つ\n*同　歩(11)\n#同　歩(11)\n")
    game = read_one(text, "x.kif")
    assert (game.total, game.black) == (2, "甲")
    assert game.comments == {0: "先頭\n中\n初め", 1: "** 二つ\n同　歩(11)"}


def test_26_bookmarks_are_no_error():
    text = "&しおり\n" + FOUR.replace("(77)\n", "(77)\n&\n& 二\n")
    assert list(kif(text).moves) == FOUR_USI


# --- variations (10–15) ------------------------------------------------------------------------


BRANCHED = KIF_HEADER + (
    "   1 ７六歩(77)\n   2 ３四歩(33)+\n   3 ２二角成(88) ( 0:01/00:00:01)+\n   4 同　銀(31)\n"
    "まで4手で中断\n\n"
    "変化：3手\n   3 ２六歩(27)\n   4 ４四歩(43)\n   5 投了\n\n"
    "変化：2手\n   2 ８四歩(83)\n   3 ２六歩(27)+\n\n"
    "変化：3手\n   3 ９六歩(97)\n"
)


def test_12_13_the_main_line_is_the_game():
    game = read_one(BRANCHED, "x.kif")
    assert (list(game.moves), game.end, game.winner) == (FOUR_USI, "chudan", "-")
    assert [(one.ply, list(one.moves)) for one in game.variations] == [
        (3, ["2g2f", "4c4d"]),
        (2, ["8c8d", "2g2f"]),
        (3, ["9g9f"]),
    ]
    assert game.variations[2].start.split()[0].startswith("lnsgkgsnl/1r5b1/p1ppppppp/1p7")


def test_10_a_branch_of_a_branch_that_begins_with_the_same_square():
    text = (
        KIF_HEADER
        + OPENING
        + (
            "   3 ６六歩(67)\n変化：3手\n   3 ２二角成(88)\n   4 同　銀(31)\n"
            "変化：4手\n   4 同　飛(82)\n"
        )
    )
    game = read_one(text, "x.kif")
    assert [list(one.moves) for one in game.variations] == [["8h2b+", "3a2b"], ["8b2b"]]


def test_11_14_branches_late_in_the_game_and_from_its_end():
    moves = []
    for ply in range(1, 13):
        move = ["５八玉(59)", "５二玉(51)", "５九玉(58)", "５一玉(52)"][(ply - 1) % 4]
        moves.append(f"  {ply:2d} {move} ( 0:00/00:00:00){'+' if ply == 11 else ''}\n")
    text = KIF_HEADER + "".join(moves) + "  13 投了\nまで12手で後手の勝ち\n"
    text += "変化：11手\n  11 ２六歩(27)\n変化：13手\n  13 ２六歩(27)\n"
    game = read_one(text, "x.kif")
    assert (game.total, game.winner) == (12, "w")
    # The second goes back from the branch before it, which is too short.
    assert [one.ply for one in game.variations] == [11]
    assert any("variation cut" in note for note in game.notes)
    ended = KIF_HEADER + OPENING + "   3 投了\n変化：3手\n   3 ２六歩(27)\n"
    assert [list(one.moves) for one in read_one(ended).variations] == [["2g2f"]]


@pytest.mark.parametrize("line", ["変化：2手です", "変化：九手", "変化：99手", "変化"])
def test_a_damaged_branch_never_touches_the_main_line(line):
    game = read_one(KIF_HEADER + FOUR + f"\n{line}\n   2 ８四歩(83)\n   3 ?\n", "x.kif")
    assert list(game.moves) == FOUR_USI
