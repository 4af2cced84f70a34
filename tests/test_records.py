"""Games and records as text, replay by the rules, CSA files, sources."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import cshogi
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ginkgo.errors import GinkgoError
from ginkgo.features.labels import dead_end, rotate_moves
from ginkgo.features.position import position_from_sfen
from ginkgo.records import (
    ENDINGS,
    STARTPOS,
    WINNERS,
    Game,
    Record,
    format_game_line,
    format_record,
    parse_game_line,
    parse_record,
)
from ginkgo.records.csa import decode_japanese, read_csa
from ginkgo.records.files import atomic_write, find_files
from ginkgo.records.replay import IllegalMove, breaks_promotion, replay
from ginkgo.records.sfen import check_sfen
from ginkgo.records.sources import Refusal, find_sources, read_games, source_name

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=12)


def random_game(seed: int, plies: int) -> list[str]:
    """USI moves of a random game."""
    rng, board, moves = random.Random(seed), cshogi.Board(), []
    for _ in range(plies):
        legal = list(board.legal_moves)
        if not legal:
            break
        move = rng.choice(legal)
        moves.append(cshogi.move_to_usi(move))
        board.push(move)
    return moves


games = st.builds(
    lambda seed, plies, winner, end, texts, rates: Game(
        moves=random_game(seed, plies),
        winner=winner,
        end=end,
        game=texts[0],
        black=texts[1],
        white=texts[2],
        rate_b=rates[0],
        rate_w=rates[1],
    ),
    st.integers(0, 10**6),
    st.integers(1, 120),
    st.sampled_from(WINNERS),
    st.sampled_from(ENDINGS),
    st.tuples(TEXT, TEXT, TEXT),
    st.tuples(*2 * [st.none() | st.integers(0, 5000).map(float)]),
)


@settings(max_examples=40, deadline=None)
@given(games)
def test_game_lines_round_trip(game):
    assert parse_game_line(format_game_line(game)) == game


@settings(max_examples=40, deadline=None)
@given(games, st.integers(-30000, 30000))
def test_records_round_trip(game, score):
    for sfen, move in list(zip(replay(game), game.moves, strict=True))[::17]:
        record = Record(sfen, game.total, move, game.winner, game.game, game.end, game.rate_b)
        record.score = score
        record.policy = {move: 3, "7g7f": 1}
        assert parse_record(format_record(record)) == record


@settings(max_examples=20, deadline=None)
@given(games)
def test_replay_gives_the_positions_of_the_game(game):
    board, sfens = cshogi.Board(), replay(game)
    assert len(sfens) == game.total
    for ply, (sfen, move) in enumerate(zip(sfens, game.moves, strict=True), 1):
        assert sfen == board.sfen()
        assert sfen.endswith(f" {ply}")
        assert check_sfen(sfen) == sfen
        position_from_sfen(sfen)
        board.push_usi(move)


def test_replay_accepts_the_legal_moves_and_no_others():
    """Every move there could be, at a few positions with hands and promotions."""
    squares = [f"{file}{rank}" for file in range(1, 10) for rank in "abcdefghi"]
    moves = [a + b + sign for a in squares for b in squares if a != b for sign in ("", "+")]
    moves += [f"{piece}*{square}" for piece in "PLNSGBR" for square in squares]
    for sfen in (
        "l6nl/5+P1gk/2np1S3/p1p4Pp/3P2Sp1/1PPb2P1P/P5GS1/R8/LN4bKL w RGgsn5p 1",
        "4k4/P1N2L3/2N6/9/9/9/9/8n/4K4 b PLNplsg 1",
        "4k4/9/9/9/9/2n6/9/p1l5P/4K4 w Pp 1",
    ):
        board = cshogi.Board(sfen)
        white = board.turn == cshogi.WHITE
        expected = {
            cshogi.move_to_usi(move)
            for move in board.legal_moves
            if not breaks_promotion(move, white)
        }
        assert len(expected) > 5
        accepted = set()
        for usi in moves:
            try:
                replay(Game(start=sfen, moves=[usi]))
            except IllegalMove:
                continue
            accepted.add(usi)
        assert accepted == expected


def test_promotion_rule_agrees_with_the_one_for_arrays():
    rng, board = random.Random(5), cshogi.Board()
    for _ in range(150):
        pieces = list(board.legal_moves)
        if not pieces:
            break
        position = position_from_sfen(board.sfen())
        candidates = [move for move in board.pseudo_legal_moves]
        candidates += [move ^ 0x4000 for move in candidates if (move >> 7 & 0x7F) < 81]
        turned = rotate_moves(np.array(candidates, np.int32), position["color"])
        stuck = dead_end(np.repeat(position["board"], len(candidates), 0), turned)
        scalar = [breaks_promotion(move, board.turn == cshogi.WHITE) for move in candidates]
        assert scalar == stuck.tolist()
        board.push(rng.choice(pieces))


@pytest.mark.parametrize(
    ("moves", "ply"),
    [
        (["7g7f+"], 1),  # promotes outside the zone
        (["7g7f", "3c3d", "xyz"], 3),
        (["7g7f", "先手"], 2),
        (["7g7f", "7g7f"], 2),
        (["resign"], 1),
        (["P*5e"], 1),  # no piece in hand
        (["7g7f", "3c3d", "8h2b+", "3a2b", "4i4h", "B*5e", "P*5d"], 7),
    ],
)
def test_replay_names_ply_and_move(moves, ply):
    with pytest.raises(IllegalMove, match=f"ply {ply}: .*{moves[-1].replace('*', '.')[:4]}"):
        replay(Game(moves=moves))


@pytest.mark.parametrize(
    ("start", "move"),
    [
        ("4k4/9/9/9/9/9/4P4/9/4K4 b P 1", "P*5e"),  # two pawns on a file
        ("7nk/8l/7G1/9/9/9/9/9/4K4 b P 1", "P*1b"),  # square taken
        ("7nk/9/7G1/9/9/9/9/9/4K4 b P 1", "P*1b"),  # mate by a dropped pawn
        ("4k4/9/9/9/9/9/9/4r4/4K4 b P 1", "P*5e"),  # leaves the king in check
        ("4k4/9/4r4/9/9/9/4G4/9/4K4 b - 1", "5g4g"),  # pinned
        ("4k4/9/9/4N4/9/9/9/9/4K4 b - 1", "5d4b"),  # never could move again
        ("4k4/9/9/9/9/9/9/9/4K4 b L 1", "L*1a"),
        ("4k4/8G/9/9/9/9/9/9/4K4 b - 1", "1b1a+"),  # gold
        ("4k4/8+S/9/9/9/9/9/9/4K4 b - 1", "1b1a+"),  # promoted already
        ("4k4/9/9/9/9/9/9/9/4K4 b - 1", "5a5b"),  # the other side's piece
    ],
)
def test_replay_refuses_what_the_rules_forbid(start, move):
    with pytest.raises(IllegalMove, match="ply 1: illegal move"):
        replay(Game(start=start, moves=[move]))


@pytest.mark.parametrize(
    ("sfen", "reason"),
    [
        ("", "expected an SFEN"),
        ("hello", "expected an SFEN"),
        ("lnsgkgsnl/9/9/9/9/9/9/9 b - 1", "8 ranks"),
        ("4k4/9/9/9/9/9/9/9/4K3 b - 1", "8 squares"),
        ("4k4/9/9/9/9/9/9/9/4K5 b - 1", "10 squares"),
        ("4k4/9/9/9/9/9/9/9/4X4 b - 1", "malformed rank"),
        ("4k4/9/4+G4/9/9/9/9/9/4K4 b - 1", "malformed rank"),
        ("9/9/9/9/9/9/9/9/4K4 b - 1", "one king"),
        ("4k4/9/9/9/9/9/9/9/3KK4 b - 1", "one king"),
        ("4k4/4K4/9/9/9/9/9/9/9 b - 1", "side by side"),
        ("4k4/9/9/9/9/9/9/9/4K4 x - 1", "expected an SFEN"),
        ("4k4/9/9/9/9/9/9/9/4K4 b 0P 1", "malformed hands"),
        ("4k4/9/9/9/9/9/9/9/4K4 b K 1", "malformed hands"),
        ("4k4/9/9/9/9/9/9/9/4K4 b 2 1", "malformed hands"),
        ("4k4/9/9/9/9/9/9/9/4K4 b 19P 1", "19 pieces P"),
        ("4k4/9/9/4R4/9/9/9/9/4K4 b Rr 1", "3 pieces R"),
        ("4k4/9/9/9/9/9/9/9/4K4 b - x", "malformed ply"),
        ("4k4/9/9/9/9/9/9/9/4K4 b - 70000", "malformed ply"),
        ("4k4/9/4R4/9/9/9/9/9/4K4 b - 1", "in check"),
        ("٤k4/9/9/9/9/9/9/9/4K4 b - 1", "malformed rank"),
    ],
)
def test_impossible_start_positions_are_refused(sfen, reason):
    with pytest.raises(GinkgoError, match=reason):
        replay(Game(start=sfen, moves=["5i5h"]))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 80), st.text(" /+bKkPp0123456789-", max_size=3))
def test_damaged_sfens_never_reach_the_board(seed, place, text):
    """cshogi would end the process: that this test ends at all is the point."""
    sfen = STARTPOS if seed % 2 else "4k4/9/9/9/9/9/9/9/4K4 b 2Pb 7"
    damaged = sfen[:place] + text + sfen[place + seed % 3 :]
    try:
        canonical = check_sfen(damaged)
    except GinkgoError:
        return
    cshogi.Board(canonical)
    assert check_sfen(canonical) == canonical


# --- CSA --------------------------------------------------------------------------------------

HEADER = "V2.2\nN+black\nN-white\nPI\n+\n"
MOVES = "+7776FU\nT1\n-3334FU\nT2\n"


def read_one(text: str | bytes) -> Game:
    [(_, game)] = read_csa(text.encode() if isinstance(text, str) else text)
    assert isinstance(game, Game), game
    return game


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
    game = read_one(HEADER + MOVES + word + "\n")
    assert (game.moves, game.end, game.winner) == (["7g7f", "3c3d"], end, after_two)
    game = read_one(HEADER + MOVES + "+2726FU\n" + word + "\n")
    assert (game.total, game.end, game.winner) == (3, end, after_three)


def test_csa_names_and_ratings():
    notes = "'black_rate:black+0123abc:3456.5\n'white_rate:white+4567def:-12\n'** 30 -3334FU\n"
    game = read_one(HEADER + notes + MOVES + "%TORYO\n")
    assert (game.black, game.white, game.rate_b, game.rate_w) == ("black", "white", 3456.5, -12)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp932", "euc_jp"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csa_encodings_and_line_ends(encoding, line_end):
    text = HEADER.replace("black", "先手の人") + "'開始日時\n" + MOVES + "%TORYO\n"
    game = read_one(text.replace("\n", line_end).encode(encoding))
    assert (game.black, game.total, game.winner) == ("先手の人", 2, "w")


def test_csa_text_in_no_encoding_is_refused():
    with pytest.raises(GinkgoError):
        decode_japanese(b"N+\x81\xff\xfe\n")
    [(line, error)] = read_csa(b"N+\x81\xff\xfe\n")
    assert line == 1
    assert isinstance(error, GinkgoError)


def test_csa_positions_and_comma_statements():
    rows = ["P1-OU" + " * " * 8] + [f"P{rank}" + " * " * 9 for rank in range(2, 9)]
    rows += ["P9" + " * " * 8 + "+OU", "P+00KI00FU", "-", "-9192OU,T3", "%TORYO"]
    game = read_one("\n".join(rows) + "\n")
    assert game.start.split()[:3] == ["k8/9/9/9/9/9/9/9/8K", "w", "GP"]
    assert (game.moves, game.winner) == (["9a9b"], "w")


def test_csa_several_games_each_with_its_line():
    one = HEADER + MOVES + "%TORYO\n"
    text = one + "/\n" + one.replace("-3334FU", "-3335FU") + "/\n" + one + "/\n"
    found = list(read_csa(text.encode()))
    assert [line for line, _ in found] == [1, 12, 23]
    assert [isinstance(game, Game) for _, game in found] == [True, False, True]
    assert "ply 2" in str(found[1][1])


def test_csa_recorded_foul_is_left_out_and_loses():
    game = read_one(HEADER + MOVES + "+7675KI\n%ILLEGAL_MOVE\n")
    assert (game.total, game.winner) == (2, "w")


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
    game = read_one(HEADER + "\n".join([*cycle * 3, "%SENNICHITE"]) + "\n")
    assert (game.end, game.winner) == ("sennichite", "d")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 200), st.binary(max_size=6), st.integers(0, 12))
def test_csa_damage_never_crashes_nor_loses_moves(place, junk, cut):
    data = (HEADER + MOVES + "+8822UM\n-3122GI\n%TORYO\n").encode()
    for _, game in read_csa(data[:place] + junk + data[place + cut :]):
        assert isinstance(game, Game | GinkgoError)
        if isinstance(game, Game):
            assert len(game.moves) <= 5


# --- sources ----------------------------------------------------------------------------------


def test_source_names():
    names = {
        "a/amateur.usi": "amateur",
        "a/amateur-00012.sfenx.gz": "amateur",
        "a/amateur-0012.usi.zst": "amateur-0012",
        "a/2023-10-00001.usi": "2023-10",
        "a/-00001.usi": "-00001",
        "x/wdoor/1.csa": "wdoor",
        "x/wdoor/1-00001.csa.gz": "wdoor",
    }
    assert {path: source_name(path) for path in names} == names


def test_find_sources(tmp_path):
    for name in ("b/1.csa", "b/2.csa", "a/g.usi", "a/g-00001.usi", "c/r-00000.sfenx", "c/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    found = {
        source.name: [file.name for file in source.files] for source in find_sources([tmp_path])
    }
    assert found == {
        "b": ["1.csa", "2.csa"],
        "g": ["g-00001.usi", "g.usi"],
        "r": ["r-00000.sfenx"],
    }
    with pytest.raises(GinkgoError, match="no such"):
        find_sources([tmp_path / "none"])
    with pytest.raises(GinkgoError, match="expected a file of kind"):
        find_sources([tmp_path / "c" / "x.txt"])


def test_find_files_takes_a_file_once(tmp_path, monkeypatch):
    (tmp_path / "d").mkdir()
    for name in ("a.usi", "b.usi"):
        (tmp_path / "d" / name).write_text("")
    (tmp_path / "d" / "link.usi").symlink_to("a.usi")
    (tmp_path / "e").symlink_to("d")
    (tmp_path / "circle.usi").symlink_to("circle.usi")
    monkeypatch.chdir(tmp_path)
    both = [Path("d/a.usi"), Path("d/b.usi")]
    assert find_files(["d", tmp_path / "d", "e", "d/../d/b.usi", "d/*"], [".usi"]) == both
    again = [tmp_path / "d" / "b.usi", Path("e/a.usi")]
    assert find_files([tmp_path / "d" / "b.usi", "e/*.usi", "d"], [".usi"]) == again
    assert find_files(["e/link.usi", "d"], [".usi"]) == [Path("e/link.usi"), Path("d/b.usi")]
    assert find_files(["*.usi"], [".usi"]) == [Path("circle.usi")]


def test_read_games_of_lines(tmp_path):
    path = tmp_path / "g.usi"
    path.write_bytes(b"\n".join([b"startpos moves 7g7f\twinner=b", b"", b"\xff\xfe", b"nonsense"]))
    kinds = [
        (line, game.kind if isinstance(game, Refusal) else game.total)
        for line, game in read_games(path)
    ]
    assert kinds == [(1, 1), (3, "not UTF-8"), (4, "malformed game line")]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_read_games_of_a_file_cut_short(tmp_path, suffix):
    path = tmp_path / f"g.usi{suffix}"
    rng = random.Random(1)
    with atomic_write(path) as stream:
        for _ in range(20000):
            stream.write(f"startpos moves 7g7f\tgame={rng.random()}\n".encode())
    path.write_bytes(path.read_bytes()[:-2000])
    *good, (line, last) = read_games(path)
    assert all(isinstance(game, Game) for _, game in good)
    assert 100 < len(good) < 20000
    assert isinstance(last, Refusal)
    assert last.kind == "damaged file"
    assert (last.file, last.line, line) == (str(path), len(good) + 1, len(good) + 1)


def test_read_games_of_kifu(tmp_path):
    path = tmp_path / "one.csa.gz"
    path.write_bytes(gzip.compress((HEADER + MOVES + "%TORYO\n").encode()))
    [(line, game)] = read_games(path)
    assert isinstance(game, Game)
    assert (line, game.game) == (1, "one")
    path.write_bytes(path.read_bytes()[:-20])
    [(line, refusal)] = read_games(path)
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "damaged file"
    [(line, refusal)] = read_games(Path(tmp_path / "none.csa"))
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "unreadable file"
