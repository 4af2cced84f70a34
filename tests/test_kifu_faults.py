"""One small file for each kind of fault that kifu and their readers are known for.

The games were written for these tests.
"""

from __future__ import annotations

import json

import pytest
from kifu_texts import (
    CSA_HEADER,
    CSA_MOVES,
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

from ginkgo.records import STARTPOS, Game
from ginkgo.records.kifu.detect import detect

# --- what kind of file, in what encoding (1, 2, 24) ---------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp932", "euc_jp", "utf-16"])
@pytest.mark.parametrize("name", ["x.kif", "x.kifu", "x.csa", "x.txt", ""])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_01_encoding_and_format_come_from_the_content(encoding, name, line_end):
    text = (KIF_HEADER + FOUR + "   5 投了\n").replace("\n", line_end)
    game = read_one(text.encode(encoding), name)
    assert (game.format, game.encoding, game.black) == ("kif", encoding, "甲")
    assert (list(game.moves), game.winner) == (FOUR_USI, "w")


@pytest.mark.parametrize("encoding", ["utf-8", "cp932", "euc_jp"])
def test_02_csa_is_not_opened_with_the_encoding_of_the_place(encoding):
    text = CSA_HEADER.replace("black", "山田太郎") + CSA_MOVES + "%TORYO\n"
    assert read_one(text.encode(encoding), "x.kif").black == "山田太郎"
    declared = "'CSA encoding=SHIFT_JIS\nV3.0\nN+山\nPI\n+\n+7776FU\n"
    assert read_one(declared.encode("cp932"), "x.csa").black == "山"


def test_the_format_is_told_from_little():
    for text, expected in [
        ("+7776FU\n", "csa"),
        ("'comment\nV2.2\n", "csa"),
        ("手合割：平手\n▲７六歩 △３四歩\n", "ki2"),
        ("▲76歩▽34歩\n", "ki2"),
        ("1 ７六歩(77)\n", "kif"),
        ('{"header": {}, "moves": []}', "jkf"),
        ("startpos moves 7g7f\n", "usi"),
        (f"{STARTPOS}\n", "usi"),
        ("# comment\nposition startpos\n", "usi"),
        ("Dear diary,\n", ""),
    ]:
        assert detect(text.encode()) == expected, text


@pytest.mark.parametrize("tail", ["", "  ", "\t", "　"])
def test_24_blanks_at_line_ends_and_no_newline_at_the_end(tail):
    moves = FOUR.replace("\n", f"{tail}\n").rstrip("\n")
    assert list(kif(moves).moves) == FOUR_USI
    text = (CSA_HEADER + "+7776FU\n-3334FU\n%CHUDAN").replace("FU\n", f"FU{tail}\n")
    assert read_one(text, "x.csa").total == 2


# --- CSA (3, 4, 5, 33, 34, 35, 36) -------------------------------------------------------------


def test_03_even_start_less_some_pieces():
    game = read_one("V2.2\nPI82HI22KA\n-\n-5142OU\n+7776FU\n", "x.csa")
    assert game.start.split()[0] == "lnsgkgsnl/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL"
    assert list(game.moves) == ["5a4b", "7g7f"]
    assert "no KA stands" in refused("V2.2\nPI55KA\n+\n+7776FU\n").reason


@pytest.mark.parametrize("line", ["V1", "V2", "V2.2", "V3.0", "V2.22", "V9", ""])
def test_04_any_version_line_or_none(line):
    game = read_one(f"{line}\nPI\n+\n+7776FU\n-3334FU\n", "x.csa")
    assert game.total == 2
    assert any("version" in note for note in game.notes) == (line in ("V2.22", "V9"))


@pytest.mark.parametrize("moves", ["+7776FU\n", "+7776FU\n-3334FU\n"])
def test_05_the_sign_of_an_illegal_action_names_the_side_that_loses(moves):
    assert read_one(CSA_HEADER + moves + "%+ILLEGAL_ACTION\n").winner == "w"
    assert read_one(CSA_HEADER + moves + "%-ILLEGAL_ACTION\n").winner == "b"


def test_33_hands_in_any_order_and_all_the_rest():
    rows = ["P1 *  *  *  * -OU *  *  *  * "] + [f"P{n}" + " * " * 9 for n in range(2, 9)]
    rows.append("P9 *  *  *  * +OU *  *  *  * ")
    game = read_one("\n".join([*rows, "P+00FU00KA00KI00FU", "P-00AL", "+", "+5958OU"]) + "\n")
    assert game.start.split()[2] == "BG2P2rb3g4s4n4l16p"


def test_34_board_rows_whose_blanks_collapsed():
    rows = ["P1 * * * * -OU * * * *"] + [f"P{n} * * * * * * * * *" for n in range(2, 9)]
    rows.append("P9 *  *  *  * +OU *  *  *  *")
    assert read_one("\n".join([*rows, "+", "+5958OU"]) + "\n").start.split()[0] == (
        "4k4/9/9/9/9/9/9/9/4K4"
    )
    rows[3] = "P4 * * * * * * * *"
    refusal = refused("\n".join([*rows, "+", "+5958OU"]) + "\n", "x.csa")
    assert refusal.line == 4
    assert "nine squares" in refusal.reason


def test_35_statements_joined_by_commas_and_fractions_of_seconds():
    game = read_one(CSA_HEADER + "+7776FU,T12\n-3334FU\nT6.123\n%TORYO,T3\n")
    assert (list(game.times), game.winner) == ([12.0, 6.123], "w")


def test_36_comments_are_never_moves_and_scores_are_black_s():
    text = CSA_HEADER + (
        "'** 30 +7776FU -3334FU\n+7776FU\nT1\n'** 52 -3334FU +2726FU #1234\n"
        "-3334FU\nT2\n'** 110 +2726FU\n'*for programs\n'for people\n%TORYO\n"
    )
    game = read_one(text)
    assert (game.total, list(game.scores)) == (2, [52, -110])
    assert game.comments == {2: "for programs"}


def test_a_comment_that_lost_its_mark_is_noted():
    game = read_one(CSA_HEADER + "+7776FU\n** 30 -3334FU +2726FU\n-3334FU\n%TORYO\n")
    assert game.total == 2
    assert "not understood" in game.notes[0]


def test_no_position_lines_mean_the_even_start():
    game = read_one("N+a\nN-b\n+\n+7776FU\n-3334FU\n", "x.csa")
    assert (game.start, game.total) == (STARTPOS, 2)
    assert "even start" in game.notes[0]


def test_a_move_from_a_square_to_itself_is_refused_with_its_line():
    refusal = refused("+7776FU\n-3334FU\n+2222KA\n", "x.csa")
    assert (refusal.line, refusal.plies) == (3, 2)


@pytest.mark.parametrize(
    ("word", "end", "winner"),
    [
        ("SENTE_WIN_TORYO", "toryo", "b"),
        ("GOTE_WIN_CHECKMATE", "tsumi", "w"),
        ("SENTE_WIN_TIMEOUT", "time_up", "b"),
        ("DRAW_SENNICHI", "sennichite", "d"),
    ],
)
def test_foreign_end_words_are_understood_and_told(word, end, winner):
    game = read_one(CSA_HEADER + CSA_MOVES + word + "\n")
    assert (game.end, game.winner) == (end, winner)
    assert word in game.notes[0]


# --- ends (6, 27, 28, 30, 39–42) ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "end", "after_two", "after_three"),
    [
        ("投了", "toryo", "w", "b"),
        ("切れ負け", "time_up", "w", "b"),
        ("反則負け", "illegal_move", "w", "b"),
        ("反則勝ち", "illegal_action", "b", "w"),
        ("入玉勝ち", "kachi", "b", "w"),
        ("詰み", "tsumi", "w", "b"),
        ("千日手", "sennichite", "d", "d"),
        ("持将棋", "jishogi", "d", "d"),
        ("中断", "chudan", "-", "-"),
        ("封じ手", "chudan", "-", "-"),
        ("不詰", "fuzumi", "-", "-"),
        ("謎の終局", "unknown", "-", "-"),
    ],
)
def test_06_27_28_end_words(word, end, after_two, after_three):
    game = kif(OPENING + f"   3 {word} ( 0:01/00:00:01)\n")
    assert (game.total, game.end, game.winner) == (2, end, after_two)
    game = kif(OPENING + f"   3 ２六歩(27)\n   4 {word}\n")
    assert (game.total, game.end, game.winner) == (3, end, after_three)


@pytest.mark.parametrize(
    ("line", "end", "winner"),
    [
        ("まで2手で後手の勝ち", "toryo", "w"),
        ("まで2手で先手の勝ち", "unknown", "b"),
        ("まで2手で乙の勝ち", "toryo", "w"),
        ("まで2手で先手の反則負け", "illegal_move", "w"),
        ("まで2手で後手の反則負け", "illegal_move", "b"),
        ("まで2手で先手の反則勝ち", "illegal_action", "b"),
        ("まで2手で時間切れにより後手の勝ち", "time_up", "w"),
        ("まで2手で先手の入玉勝ち", "kachi", "b"),
        ("まで2手で千日手", "sennichite", "d"),
        ("まで2手で持将棋", "jishogi", "d"),
        ("まで２手で中断", "chudan", "-"),
        ("まで2手詰", "tsumi", "w"),
        ("まで2手で投了", "toryo", "w"),
    ],
)
def test_28_30_until_lines(line, end, winner):
    for text in (OPENING + line + "\n", "▲７六歩 △３四歩\n" + line + "\n"):
        game = read_one(KIF_HEADER + text)
        assert (game.total, game.end, game.winner) == (2, end, winner)


@pytest.mark.parametrize(
    "ends",
    [
        "   3 投了\n   4 中断\n",
        "   3 投了\nまで2手で先手の勝ち\n",
        "   3 千日手\nまで2手で先手の勝ち\n",
        "まで9手で後手の勝ち\n",
    ],
)
def test_28_contradictory_statements_give_no_result_and_are_quoted(ends):
    game = kif(OPENING + ends)
    assert (game.total, game.winner) == (2, "-")
    [note] = [note for note in game.notes if "contradictory" in note]
    assert "手で" in note or "投了" in note


def test_a_lost_line_at_the_end_is_noticed():
    assert "missing" in refused(KIF_HEADER + OPENING + "   4 投了\n", "x.kif").reason
    assert "missing" in refused(KIF_HEADER + OPENING + "   4 ２六歩(27)\n", "x.kif").reason


FOULS = {
    "two pawns on a file": "   5 ７五歩打\n",
    "a bishop that jumps": "   5 ５五銀(79)\n",
}


@pytest.mark.parametrize(
    ("after", "end", "winner"),
    [
        ("", "illegal_move", "w"),
        ("*反則手にて終局\n", "illegal_move", "w"),
        ("   6 反則勝ち\n", "illegal_action", "w"),
        ("   6 反則負け\n", "illegal_move", "w"),
        ("まで5手で先手の反則負け\n", "illegal_move", "w"),
        ("   6 中断\n", "chudan", "-"),
        ("   6 投了\n", "toryo", "-"),  # that would make the one who broke the rule the winner
    ],
)
def test_a_foul_at_the_end(after, end, winner):
    game = kif(FOUR + "   5 ５五銀(79)\n" + after)
    assert (list(game.moves), game.end, game.winner) == (FOUR_USI, end, winner)
    assert "foul" in game.notes[0]


def test_a_foul_elsewhere_is_refused_with_its_line():
    refusal = refused(KIF_HEADER + FOUR + "   5 ５五銀(79)\n   6 ８四歩(83)\n", "x.kif")
    assert (refusal.line, refusal.plies) == (9, 4)
    assert "ply 5" in refusal.reason


def test_a_move_of_pieces_that_are_not_there_is_no_foul():
    refused(KIF_HEADER + FOUR + "   5 ５五金打\n", "x.kif")  # none in hand
    refused(KIF_HEADER + FOUR + "   5 ５五角(88)\n", "x.kif")  # moved away


def perpetual(first: str, plies: int) -> list[str]:
    """The rook checks along two files in turn; rows 2–4 and 6–8 are empty."""
    rows = ["P1 *  *  *  *  *  *  *  * -OU"]
    rows += [f"P{rank}" + " * " * 9 for rank in range(2, 9)]
    rows[4] = "P5 *  *  *  *  *  *  *  * +HI"
    cycle = ["-1121OU", "+1525HI", "-2111OU", "+2515HI"]
    return [*rows, "P9+OU" + " * " * 8, first, *(cycle * 4)[:plies]]


@pytest.mark.parametrize("plies", [12, 13, 14, 16])
def test_39_40_perpetual_check_loses_whoever_is_to_move(plies):
    text = "\n".join([*perpetual("-", plies), "%SENNICHITE"]) + "\n"
    game = read_one(text, "x.csa")
    assert (game.end, game.winner) == ("perpetual", "w")


def test_39_a_stated_repetition_that_the_moves_lack_is_noted():
    game = read_one(CSA_HEADER + CSA_MOVES + "%SENNICHITE\n")
    assert (game.end, game.winner) == ("sennichite", "d")
    assert "the moves show none" in game.notes[0]


@pytest.mark.parametrize(
    ("word", "winner"), [("%TIME_UP", "w"), ("%ILLEGAL_MOVE", "w"), ("%ERROR", "-"), ("", "-")]
)
def test_41_only_known_ends_give_a_result(word, winner):
    assert read_one(CSA_HEADER + CSA_MOVES + word + "\n").winner == winner


def test_42_a_declared_win():
    declared = CSA_HEADER + CSA_MOVES + "%KACHI\n"
    game = read_one(declared)
    assert (game.winner, game.end) == ("b", "kachi")
    assert "27-point" in game.notes[0]
    refused_by_server = read_one(declared + "'summary:illegal kachi:black lose:white win\n")
    assert (refused_by_server.winner, refused_by_server.end) == ("w", "illegal_action")
    confirmed = read_one(declared + "'summary:kachi:black win:white lose\n")
    assert (confirmed.winner, list(confirmed.notes)) == ("b", [])


def test_the_server_s_summary_is_compared():
    text = CSA_HEADER + CSA_MOVES + "%TORYO\n"
    assert read_one(text + "'summary:toryo:white win:black lose\n").winner == "w"
    game = read_one(text + "'summary:toryo:white lose:black win\n")
    assert game.winner == "-"
    assert "contradictory" in game.notes[0]


# --- KI2 (29, 30) ------------------------------------------------------------------------------


def ki2(rows: dict[int, str], move: str, held: str = "なし") -> list[str]:
    found = read_all(diagram({**KINGS, **rows}, below=held) + move + "\n", "x.ki2")
    return [one.moves[0] if isinstance(one, Game) else one.reason for one in found]


@pytest.mark.parametrize(
    ("word", "origin"),
    [("右", "4g"), ("左", "6g"), ("直", "5g"), ("寄", "4f"), ("引", "5e")],
)
def test_29_which_gold_is_meant(word, origin):
    if word in ("寄", "引"):
        rows = {5: "| ・ ・ ・ ・ 金 ・ ・ ・ ・|", 6: "| ・ ・ ・ ・ ・ 金 ・ ・ ・|"}
    else:
        rows = {7: "| ・ ・ ・ 金 金 金 ・ ・ ・|"}
    assert ki2(rows, f"▲５六金{word}") == [f"{origin}5f"]
    [reason] = ki2(rows, "▲５六金")
    assert "could be meant" in reason


def test_29_bishops_and_rooks_have_no_straight_on():
    rows = {6: "| ・ ・ 馬 馬 ・ ・ ・ ・ ・|"}
    assert ki2(rows, "▲６五馬直")[0].endswith("could be meant")
    assert ki2(rows, "▲６五馬左") == ["7f6e"]
    assert ki2(rows, "▲６五馬右") == ["6f6e"]
    assert ki2(rows, "▲６五馬寄")[0].endswith("could be meant")


def test_29_drop_or_move():
    rows = {6: "| ・ ・ ・ 銀 ・ ・ ・ ・ ・|"}
    assert ki2(rows, "▲５五銀", "銀") == ["6f5e"]
    assert ki2(rows, "▲５五銀打", "銀") == ["S*5e"]
    assert ki2({}, "▲５五銀", "銀") == ["S*5e"]


@pytest.mark.parametrize(
    "text",
    [
        "▲７六歩 △３四歩 ▲２二角成 △同　銀\n",
        "▲76歩▽34歩▲22角成▽同銀\n",
        "☗７六歩　☖３四歩\n☗２二角成　☖同銀\n",
        "▲７六歩\n*△８四歩\n&しおり\n△３四歩\n▲２二角成    △同　銀\nまで4手で中断\n",
        "▲７六歩 △３四歩 ▲２二角成 △同　銀\nまで4手で中断\n変化：2手\n△８四歩\n",
    ],
)
def test_30_spellings_of_ki2(text):
    game = read_one(text)
    assert (game.format, list(game.moves)) == ("ki2", FOUR_USI)


def test_ki2_damage_is_named():
    for text in (
        "▲７六歩 △３四\n",
        "▲７六歩 ▲２六歩\n",
        "▲７六歩 x △３四歩\n",
        "▲７五歩 △３四歩\n",
    ):
        assert refused(text, "x.ki2").line == 1
    assert "the end" in refused("▲７六歩\nまで1手で中断\n△３四歩\n", "x.ki2").reason


# --- USI and SFEN (37, 38), JKF ----------------------------------------------------------------


@pytest.mark.parametrize("hands", ["PSPpbpb", "2PS2p2b", "S2P2b2p", "pPbSPbp"])
def test_37_hands_in_any_order_with_letters_repeated(hands):
    game = read_one(f"sfen 4k4/9/9/9/9/9/9/9/4K4 b {hands} 1 moves 5i5h\n")
    assert game.start.split()[2] == "S2P2b2p"


def test_37_underscores_for_blanks():
    assert read_one("sfen 4k4/9/9/9/9/9/9/9/4K4_b_P_1 moves P*5e\n").total == 1


@pytest.mark.parametrize(
    ("line", "end", "winner"),
    [
        ("startpos moves 7g7f 3c3d resign", "toryo", "w"),
        ("position startpos moves 7g7f 3c3d win", "kachi", "b"),
        ("startpos moves 7g7f 3c3d rep_draw", "sennichite", "d"),
        ("startpos moves 7g7f 3c3d timeout\twinner=w\tend=time_up", "time_up", "w"),
    ],
)
def test_38_end_words_among_usi_moves(line, end, winner):
    game = read_one(f"# comment\n{line}\n", "x.txt")
    assert (list(game.moves), game.end, game.winner) == (["7g7f", "3c3d"], end, winner)


def test_a_list_of_sfens():
    found = read_all(f"{STARTPOS}\nsfen 4k4/9/9/9/9/9/9/9/4K4 w - 7\n", "x.txt")
    assert [game.start.split()[1] for game in found if isinstance(game, Game)] == ["b", "w"]


def test_jkf_with_the_same_square_and_forks():
    text = """{"header": {"先手": "甲"}, "initial": {"preset": "HIRATE"}, "moves": [
      {"comments": ["初め"]},
      {"move": {"from": {"x": 7, "y": 7}, "to": {"x": 7, "y": 6}, "piece": "FU", "color": 0},
       "time": {"now": {"m": 1, "s": 5}}},
      {"move": {"from": {"x": 3, "y": 3}, "to": {"x": 3, "y": 4}, "piece": "FU"},
       "forks": [[{"move": {"from": {"x": 8, "y": 3}, "to": {"x": 8, "y": 4}, "piece": "FU"}}]]},
      {"move": {"from": {"x": 8, "y": 8}, "to": {"x": 2, "y": 2}, "piece": "KA", "promote": true}},
      {"move": {"from": {"x": 3, "y": 1}, "same": true, "piece": "GI"}},
      {"special": "TORYO"}]}"""
    game = read_one(text, "x.jkf")
    assert (list(game.moves), game.winner, game.black) == (FOUR_USI, "w", "甲")
    assert list(game.times) == [65.0, None, None, None]
    assert [list(one.moves) for one in game.variations] == [["8c8d"]]
    assert game.comments == {0: "初め"}


def test_jkf_nests_without_end():
    """Forks within forks: the reader must not run out of stack."""
    node = '{"move": {"from": {"x": 7, "y": 7}, "to": {"x": 7, "y": 6}, "piece": "FU"}'
    text = '{"moves": [{}, ' + (node + ', "forks": [[') * 200
    text += node + "}" + "]]}" * 200 + "]}"
    assert read_one(text, "x.jkf").total == 1
    deep = '{"moves": [{}, ' + (node + ', "forks": [[') * 100_000
    assert "not JSON" in refused(deep, "x.jkf").reason


# --- found by looking at what no known reader does ----------------------------------------------


def jkf(*nodes: dict, **header: str) -> str:
    return json.dumps({"header": header, "moves": [{}, *nodes]})


def jkf_move(name: str, piece: str, **more) -> dict:
    """`7776` or, without an origin, `76`."""
    move = {"to": {"x": int(name[-2]), "y": int(name[-1])}, "piece": piece, **more}
    if len(name) == 4:
        move["from"] = {"x": int(name[0]), "y": int(name[1])}
    return {"move": move}


def test_nobody_wins_a_mate_problem_in_jkf():
    moves = [jkf_move("7776", "FU"), jkf_move("3334", "FU"), {"special": "TORYO"}]
    assert read_one(jkf(*moves)).winner == "w"
    assert read_one(jkf(*moves, 手合割="詰将棋")).winner == "-"


def test_jkf_that_leaves_the_origin_out_is_no_drop():
    """A word that tells pieces on the board apart says so, though the drop would be legal."""
    moves = [
        *(jkf_move("7776", "FU"), jkf_move("3334", "FU"), jkf_move("8822", "KA", promote=True)),
        *(jkf_move("3122", "GI"), jkf_move("55", "KA", relative="H"), {"special": "CHUDAN"}),
    ]
    assert read_one(jkf(*moves)).moves[-1] == "B*5e"
    moves[4] = jkf_move("55", "KA", relative="R")
    assert "cannot read" in refused(jkf(*moves)).reason


def test_a_perpetual_check_that_the_moves_do_not_show_has_no_winner():
    cycle = ["３八飛(28)", "７二飛(82)", "２八飛(38)", "８二飛(72)"] * 3
    moves = "".join(f"{ply:4d} {move}\n" for ply, move in enumerate(cycle, 1))
    assert kif(moves + "まで12手で千日手\n").winner == "d"
    game = kif(moves + "まで12手で連続王手の千日手により先手の勝ち\n")
    assert game.winner == "-"
    assert "contradictory" in game.notes[-1]


@pytest.mark.parametrize("word", ["入玉勝ち", "入玉宣言", "入玉宣言勝ち"])
def test_an_end_word_with_the_sign_of_a_piece_in_it(word):
    game = kif(OPENING + f"   3 {word}\n")
    assert (game.end, game.winner, game.total) == ("kachi", "b", 2)
