"""CSA files: endings, winners, positions, several games in one."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kifu_texts import CSA_HEADER, CSA_MOVES, read_all, read_one, refused

from ginkgo.errors import GinkgoError
from ginkgo.records import Game, Refusal
from ginkgo.records.kifu.encoding import decode_japanese


@pytest.mark.parametrize(
    ("word", "end", "after_two", "after_three"),
    [
        ("%TORYO", "toryo", "w", "b"),
        ("%TORYO,T12", "toryo", "w", "b"),
        ("%KACHI", "kachi", "b", "w"),
        ("%TIME_UP", "time_up", "w", "b"),
        ("#TIME_UP", "time_up", "w", "b"),
        ("%ILLEGAL_MOVE", "illegal_move", "w", "b"),
        ("%+ILLEGAL_ACTION", "illegal_action", "w", "w"),
        ("%-ILLEGAL_ACTION", "illegal_action", "b", "b"),
        ("%TSUMI", "tsumi", "w", "b"),
        ("%SENNICHITE", "sennichite", "d", "d"),
        ("%JISHOGI", "jishogi", "d", "d"),
        ("%HIKIWAKE", "hikiwake", "d", "d"),
        ("%MAX_MOVES", "max_moves", "d", "d"),
        ("%CHUDAN", "chudan", "-", "-"),
        ("#ABNORMAL", "chudan", "-", "-"),
        ("%MATTA", "matta", "-", "-"),
        ("%FUZUMI", "fuzumi", "-", "-"),
        ("%ERROR", "error", "-", "-"),
        ("%NEWWORD", "unknown", "-", "-"),
        ("", "unknown", "-", "-"),
        ("'summary:max_moves:a draw:b draw", "max_moves", "d", "d"),
        ("%KACHI\n'summary:illegal kachi:a lose:b win", "illegal_action", "w", "b"),
    ],
)
def test_csa_endings(word, end, after_two, after_three):
    game = read_one(CSA_HEADER + CSA_MOVES + word + "\n")
    assert (game.moves, game.end, game.winner) == (["7g7f", "3c3d"], end, after_two)
    game = read_one(CSA_HEADER + CSA_MOVES + "+2726FU\n" + word + "\n")
    assert (game.total, game.end, game.winner) == (3, end, after_three)


def test_csa_names_and_ratings():
    notes = "'black_rate:black+0123abc:3456.5\n'white_rate:white+4567def:-12\n'** 30 -3334FU\n"
    game = read_one(CSA_HEADER + notes + CSA_MOVES + "%TORYO\n")
    assert (game.black, game.white, game.rate_b, game.rate_w) == ("black", "white", 3456.5, -12)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp932", "euc_jp"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csa_encodings_and_line_ends(encoding, line_end):
    text = CSA_HEADER.replace("black", "先手の人") + "'開始日時\n" + CSA_MOVES + "%TORYO\n"
    game = read_one(text.replace("\n", line_end).encode(encoding))
    assert (game.black, game.total, game.winner) == ("先手の人", 2, "w")


def test_csa_text_in_no_encoding_is_refused():
    with pytest.raises(GinkgoError):
        decode_japanese(b"N+\x81\xff\xfe\n")
    assert "neither UTF-8" in refused(b"N+\x81\xff\xfe\n+7776FU\n").reason


def test_csa_positions_and_comma_statements():
    rows = ["P1-OU" + " * " * 8] + [f"P{rank}" + " * " * 9 for rank in range(2, 9)]
    rows += ["P9" + " * " * 8 + "+OU", "P+00KI00FU", "-", "-9192OU,T3", "%TORYO"]
    game = read_one("\n".join(rows) + "\n")
    assert game.start.split()[:3] == ["k8/9/9/9/9/9/9/9/8K", "w", "GP"]
    assert (game.moves, game.winner) == (["9a9b"], "w")


def test_csa_several_games_each_with_its_line():
    one = CSA_HEADER + CSA_MOVES + "%TORYO\n"
    text = one + "/\n" + one.replace("+7776FU", "+7775FU") + "/\n" + one + "/\n"
    found = read_all(text)
    assert [isinstance(game, Game) for game in found] == [True, False, True]
    assert [game.game for game in found if isinstance(game, Game)] == ["game-1", "game-3"]
    assert "ply 1" in found[1].reason
    assert found[1].line == 17
    assert read_one(one).game == "game"


def test_csa_recorded_foul_is_left_out_and_loses():
    game = read_one(CSA_HEADER + CSA_MOVES + "+7674FU\n%ILLEGAL_MOVE\n")
    assert (game.total, game.winner, game.end) == (2, "w", "illegal_move")
    assert "foul" in game.notes[0]
    # A piece that is not there is no foul but a damaged file.
    assert refused(CSA_HEADER + CSA_MOVES + "+7675KI\n%ILLEGAL_MOVE\n").line == 10


@pytest.mark.parametrize("sign", ["N", "V", "$", "#", "%", "T", "x", "P", ""])
def test_csa_a_move_that_lost_its_sign_is_never_passed_over(sign):
    text = CSA_HEADER + CSA_MOVES + f"{sign}2726FU\n%TORYO\n"
    assert refused(text, "a.csa").line == 10


def test_csa_repetition_with_checks_all_the_time_is_lost_by_the_checker():
    rows = [f"P{rank}" + " * " * 9 for rank in range(2, 9)]
    rows = ["P1" + " * " * 8 + "-OU", *rows, "P9+OU" + " * " * 8]
    rows[4] = "P5" + " * " * 8 + "+HI"
    # The rook checks along the first and the second file in turn.
    cycle = ["-1121OU", "+1525HI", "-2111OU", "+2515HI"]
    game = read_one("\n".join([*rows, "-", *cycle * 3, "%SENNICHITE"]) + "\n")
    assert (game.end, game.winner) == ("perpetual", "w")


def test_csa_repetition_without_checks_is_a_draw():
    cycle = ["+2838HI", "-8272HI", "+3828HI", "-7282HI"]
    game = read_one(CSA_HEADER + "\n".join([*cycle * 3, "%SENNICHITE"]) + "\n")
    assert (game.end, game.winner) == ("sennichite", "d")


@settings(max_examples=150, deadline=None)
@example(0, b"\xfe\xff", 0)
@example(0, b"\xff\xfe", 1)
@given(st.integers(0, 200), st.binary(max_size=6), st.integers(0, 12))
def test_csa_damage_never_crashes_nor_loses_moves(place, junk, cut):
    data = (CSA_HEADER + CSA_MOVES + "+8822UM\n-3122GI\n%TORYO\n").encode()
    for game in read_all(data[:place] + junk + data[place + cut :], "a.csa"):
        assert isinstance(game, Game | Refusal)
        if isinstance(game, Game):
            assert len(game.moves) <= 5
