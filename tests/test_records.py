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
    path.write_bytes(gzip.compress(b"V2.2\nPI\n+\n+7776FU\n-3334FU\n%TORYO\n"))
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
