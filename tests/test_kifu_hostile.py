"""Kifu that are malformed or unusual in ways beyond the known list, each of its whole kind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kifu_texts import CSA_HEADER, CSA_MOVES, KIF_HEADER, read_all, read_one, refused

from ginkgo.errors import GinkgoError
from ginkgo.records import ENDINGS, STARTPOS, Game, Refusal, parse_game_line, parse_record
from ginkgo.records.kifu import jkf, ki2, kif, write
from ginkgo.records.kifu.stream import raw_games
from ginkgo.records.positions import write_records, write_sfens
from ginkgo.records.replay import played, replay
from ginkgo.records.sfen import check_sfen

ROOT = Path(__file__).parent.parent
OPENING = "   1 ７六歩(77)\n   2 ３四歩(33)\n"
CSA_GAME = CSA_HEADER + CSA_MOVES + "%TORYO\n"

# --- who has won ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end", "winner"),
    [
        ("先手の時間切れ", "time_up", "w"),
        ("後手時間切れ", "time_up", "b"),
        ("時間切れにより後手の負け", "time_up", "b"),
        ("先手の時間切れ負け", "time_up", "w"),
        ("先手の時間切れ勝ち", "time_up", "b"),
        ("先手の反則", "illegal_move", "w"),
        ("後手の反則により先手の勝ち", "illegal_move", "b"),
        ("後手の反則負けで先手の勝ち", "illegal_move", "b"),
        ("先手の投了", "toryo", "w"),
        ("後手投了", "toryo", "b"),
        ("後手の入玉宣言", "kachi", "w"),
        ("後手の入玉宣言勝ち", "kachi", "w"),
        ("連続王手の千日手により先手の勝ち", "perpetual", "b"),
        ("後手の勝ち（先手時間切れ）", "time_up", "w"),
        ("千日手で先手の勝ち", "sennichite", "-"),
        ("先手の勝ち、後手の勝ち", "unknown", "-"),
        ("時間切れ", "time_up", "-"),
    ],
)
def test_until_lines_say_who_lost_as_well_as_who_won(text, end, winner):
    for moves in (OPENING, "▲７六歩 △３四歩\n"):
        game = read_one(f"{KIF_HEADER}{moves}まで2手で{text}\n")
        assert (game.end, game.winner) == (end, winner)


def test_until_lines_with_names_that_lie_within_each_other():
    header = KIF_HEADER.replace("甲", "田中").replace("乙", "中")
    assert read_one(f"{header}{OPENING}まで2手で田中の勝ち\n").winner == "b"
    assert read_one(f"{header}{OPENING}まで2手で中の勝ち\n").winner == "w"


@pytest.mark.parametrize("end", ["%TORYO", "%CHUDAN", "%MATTA", "%TORYO,T3", "#TIME_UP"])
@pytest.mark.parametrize("move", ["+2726FU", "+2726FU,T1", "+2726FU "])
def test_csa_moves_after_the_end_would_turn_the_winner_round(end, move):
    refusal = refused(f"{CSA_HEADER}{CSA_MOVES}{end}\n{move}\n", "x.csa")
    assert (refusal.line, refusal.plies) == (11, 2)
    assert "after the end" in refusal.reason


@pytest.mark.parametrize("line", ["N+other", "V2.2"])
def test_csa_games_that_no_slash_parts(line):
    refusal = refused(CSA_HEADER + CSA_MOVES + line + "\n+2726FU\n", "x.csa")
    assert "'/'" in refusal.reason
    assert refusal.line == 10


def test_csa_a_declaration_in_a_client_s_log():
    game = read_one(CSA_HEADER + CSA_MOVES + "%KACHI\n#JISHOGI\n#WIN\n")
    assert (game.end, game.winner) == ("kachi", "b")
    assert read_one(CSA_HEADER + CSA_MOVES + "#JISHOGI\n").winner == "d"


def test_unknown_end_words_are_told():
    game = read_one(CSA_HEADER + CSA_MOVES + "%ILLEGAL_ACTION\n")
    assert (game.end, game.winner) == ("unknown", "-")
    assert "'%ILLEGAL_ACTION'" in game.notes[0]


def test_usi_end_words_against_what_the_line_states():
    game = parse_game_line("startpos moves 7g7f 3c3d resign\twinner=b")
    assert game.winner == "-"
    assert "'resign'" in game.notes[0]
    assert "'winner=b'" in game.notes[0]
    assert parse_game_line("startpos moves 7g7f 3c3d resign\twinner=w\tend=toryo").winner == "w"


# --- nothing is passed over --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        (["P1-OU" + " * " * 8, "P9+OU" + " * " * 8], 2, "lacks P2 P3 P4 P5 P6 P7 P8"),
        (["P1-OU" + " * " * 8] * 2, 2, "already"),
        (["P+55FU", "P-55FU"], 2, "already"),
        (["P+55FU", "P5" + " * " * 9], 2, "already"),
        (["P+55FU", "PI"], 2, "after other lines"),
    ],
)
def test_csa_positions_that_lack_or_repeat_something(lines, line, reason):
    refusal = refused("\n".join([*lines, "+", "+9192OU"]) + "\n", "x.csa")
    assert refusal.line == line
    assert reason in refusal.reason


def diagram(row: str, hand: str = "なし") -> str:
    rows = ["|v玉 ・ ・ ・ ・ ・ ・ ・ ・|", row, *["| ・ ・ ・ ・ ・ ・ ・ ・ ・|"] * 6]
    rows.append("| 玉 ・ ・ ・ ・ ・ ・ ・ ・|")
    return "\n".join([f"後手の持駒：{hand}", *rows, "先手の持駒：なし", "先手番"]) + "\n"


@pytest.mark.parametrize("sign", ["v", "V", "Ｖ", "ｖ"])
def test_diagrams_mark_white_in_several_ways(sign):
    game = read_one(diagram(f"| ・{sign}歩 ・ ・ ・ ・ ・ ・ ・|") + "1 ８八玉(99)\n")
    assert game.start.split("/")[1] == "1p7"


@pytest.mark.parametrize(
    ("row", "hand", "line"),
    [
        ("| ・w歩 ・ ・ ・ ・ ・ ・ ・|", "なし", 3),
        ("| ・ ・ ・ ・ ・ ・ ・ ・ ・?|", "なし", 3),
        ("| ・ ・ ・ ・ ・ ・ ・ ・ ・|", "飛　玉", 1),
        ("| ・ ・ ・ ・ ・ ・ ・ ・ ・|", "残り全部", 1),
    ],
)
def test_diagrams_with_signs_that_mean_nothing(row, hand, line):
    refusal = refused(diagram(row, hand) + "1 ８八玉(99)\n", "x.kif")
    assert refusal.line == line
    assert "cannot read" in refusal.reason


def test_pieces_in_hand_are_added_up_and_need_a_diagram():
    row = "| ・ ・ ・ ・ ・ ・ ・ ・ ・|"
    game = read_one(diagram(row, "歩 歩　歩二、角") + "1 ８八玉(99)\n")
    assert game.start.split()[2] == "b4p"
    assert refused(f"手合割：平手\n後手の持駒：角\n{OPENING}", "x.kif").line == 2
    assert read_one(f"手合割：平手\n後手の持駒：なし\n{OPENING}").total == 2


@pytest.mark.parametrize(
    "word", ["香落", "角落ち", "飛車落", "２枚落ち", "2枚落", "二枚", "10枚落ち"]
)
def test_handicaps_in_every_spelling(word):
    start = read_one(f"手合割：{word}\n1 ５二玉(51)\n").start
    assert start.split()[1] == "w"


def test_a_diagram_after_the_moves_is_not_the_start():
    drawn = diagram("| ・ ・ ・ ・ ・ ・ ・ ・ ・|")
    game = read_one(KIF_HEADER + OPENING + "   3 投了\n" + drawn)
    assert (game.start, game.total, game.winner) == (STARTPOS, 2, "w")
    assert any("not understood" in note for note in game.notes)


def test_lines_with_unknown_words_are_not_all_ends():
    text = KIF_HEADER + "   1 ?\n   2 ??\n   3 ???\n"
    assert refused(text, "x.kif").line == 5
    assert "cannot read" in refused(text, "x.kif").reason


@pytest.mark.parametrize(
    "line",
    ["X ７六歩(77)", "X ７六歩(77) ( 0:01/00:00:01)", "１手目　７六歩(77)", "\xa01 ７六歩(77)"],
)
def test_the_first_move_is_not_passed_over_either(line):
    text = diagram("| ・ ・ 歩 ・ ・ ・ ・ ・ ・|").replace("先手番\n", "")
    # Where no line says who moves, the first move that can be read would.
    refusal = refused(f"{text}{line}\n2 ８二玉(91)\n", "x.kif")
    assert refusal.line == 12
    assert "cannot read" in refusal.reason


def test_remarks_with_moves_in_them_are_no_moves():
    for text in ("備考：７六歩(77)からの変化\n" + OPENING, OPENING + "備考：２六歩打は悪手\n"):
        assert read_one(KIF_HEADER + text).total == 2


def test_notes_do_not_grow_without_end():
    notes = read_one(CSA_HEADER + CSA_MOVES + "what?\n" * 500).notes
    assert len(notes) == 21
    assert notes[-1].startswith("480 more")


# --- nothing takes for ever --------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "1" + " " * 60_000 + "x",
        " " * 60_000 + "x",
        "1 ７六歩" + " " * 60_000 + "(77",
        "1" * 60_000 + " ７六歩(77)",
        "▲" * 20_000 + "７六歩" + " " * 20_000,
        "(" * 60_000,
        "変化：" + "9" * 9000 + "手",
        "まで" + "9" * 9000 + "手で先手の勝ち",
        "'black_rate:" + ":1" * 20_000 + "x",
        "+7776FU,T" + "9" * 9000,
        "手数＝" + "9" * 9000,
    ],
)
def test_long_lines_take_no_longer_than_they_are(line):
    for name in ("x.kif", "x.ki2", "x.csa"):
        begun = time.process_time()
        read_all(f"{line}\n1 ７六歩(77)\n{line}\n", name)
        # Quadratic time would be minutes: no machine is that slow.
        assert time.process_time() - begun < 20


def test_variations_without_end(monkeypatch):
    """Each is played from the start of the game: a small file could ask for days of that."""
    for module in (kif, ki2, jkf):
        monkeypatch.setattr(module, "MOST_BRANCH_PLIES", 20)
    text = KIF_HEADER + OPENING + "変化：2手\n   2 ８四歩(83)\n" * 50
    node = '{"move": {"from": {"x": 3, "y": 3}, "to": {"x": 3, "y": 4}, "piece": "FU"}'
    first = node.replace("3", "7").replace('"y": 4', '"y": 6')
    tree = f'{{"moves": [{{}}, {first}}}, {node}, "forks": [{", ".join([f"[{node}}}]"] * 50)}]}}]}}'
    for whole, name in (
        (text, "x.kif"),
        ("▲７六歩 △３四歩\n" + "変化：2手\n△８四歩\n" * 50, "x.ki2"),
        (tree, "x.jkf"),
    ):
        game = read_one(whole, name)
        assert (list(game.moves), len(game.variations)) == (["7g7f", "3c3d"], 10)
        assert "too many variations" in game.notes[-1]


def test_numbers_without_end_are_no_numbers(tmp_path):
    long = "9" * 400
    game = read_one(f"{CSA_HEADER}+7776FU\nT{long}\n-3334FU,T{long}\n'black_rate:a:{long}\n")
    assert (game.total, game.rate_b, list(game.times)) == (2, None, [])
    for text in ("nan", "inf", "-inf", "1e999"):
        with pytest.raises(GinkgoError, match="expected a number"):
            parse_game_line(f"startpos moves 7g7f\trate_b={text}")
        with pytest.raises(GinkgoError, match="expected a number"):
            parse_record(f"{STARTPOS},1,7g7f,b,rate={text}")
    with pytest.raises(GinkgoError, match="number of plies"):
        parse_record(f"{STARTPOS},{long * 20},7g7f,b")
    move = '{"move": {"from": {"x": 7, "y": 7}, "to": {"x": 7, "y": 6}, "piece": "FU"},'
    timed = f'{{"moves": [{{}}, {move} "time": {{"now": {{"m": 1e999, "s": 1}}}}}}]}}'
    game = read_one(timed, "x.jkf")
    assert list(game.times) == []
    assert "７六歩" in write.write_kif(game)


def test_times_and_comments_come_back_from_what_is_written():
    game = Game(moves=["7g7f", "3c3d"], times=[1_234_567.0, 0.125], comments={1: "a\r+2726FU\r\nb"})
    for text in (write.write_csa(game), write.write_kif(game)):
        back = read_one(text)
        assert list(back.moves) == list(game.moves)
        assert back.comments == {1: "a\n+2726FU\nb"}
        assert list(back.times) == list(game.times)


# --- SFENs and records that a game's loop writes -------------------------------------------------


def test_sfens_are_cshogi_s(sample_lines):
    import cshogi

    games = [parse_game_line(line) for line in sample_lines[::20]]
    games.append(Game(start="4k4/9/9/9/9/9/9/9/4K4 w 2r2b4g4s4n4l18p 65000", moves=["P*5e"]))
    for game in games:
        board, expected = cshogi.Board(game.start), []
        for usi in game.moves:
            expected.append(board.sfen())
            board.push_usi(usi)
        packed = played(game)
        assert replay(game) == write_sfens(game.start, packed) == expected
        lines = [
            f"{sfen},{game.total},{usi},x\n" for sfen, usi in zip(expected, game.moves, strict=True)
        ]
        start, total = game.start, game.total
        every = write_records(start, packed, total, (b",x\n", b",x\n")).decode()
        assert every == "".join(lines)
        odd = write_records(start, packed, total, (None, b",x\n"), 2).decode()
        assert odd == "".join(lines[3::2])


def test_start_positions_in_canonical_form():
    sfen = "4k4/45/9/111111111/9/9/9/9/4K4 b P 1"
    assert check_sfen(sfen) == "4k4/9/9/9/9/9/9/9/4K4 b P 1"
    game = parse_game_line(f"sfen {sfen} moves P*5e")
    assert replay(game) == ["4k4/9/9/9/9/9/9/9/4K4 b P 1"]
    assert game.hash == parse_game_line("sfen 4k4/9/9/9/9/9/9/9/4K4 b P moves P*5e").hash


def test_raw_games_of_nothing(tmp_path):
    for name in ("x.csa", "x.kif", "x.hcpe", "x.zip", "x.7z", "x.tar", "x.csa.gz", "x.zst"):
        path = tmp_path / name
        path.write_bytes(b"")
        for raw in raw_games(path):
            assert isinstance(raw, Refusal) or not raw.data


@pytest.mark.parametrize("winner", ["b", "w", "d", "-"])
def test_no_format_turns_what_is_not_clear_into_a_result(winner):
    """A game whose end and winner do not agree comes back as it was."""
    for end in ENDINGS:
        for moves in (["7g7f", "3c3d"], ["7g7f"]):
            game = Game(moves=moves, winner=winner, end=end)
            for text in (write.write_csa(game), write.write_kif(game), write.write_ki2(game)):
                back = read_one(text)
                assert (back.end, back.winner) == (end, winner), text
                if winner == "-":  # other programs, which pass over hints, see no winner either
                    plain = "\n".join(line for line in text.split("\n") if "#ginkgo" not in line)
                    assert read_one(plain).winner == "-", text
