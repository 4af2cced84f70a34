"""Kifu end to end: archives, packed formats, round trips, direct training."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import cshogi
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kifu_texts import core, hcpe3, read_all, read_one, refused

from ginkgo.features.position import sfen_from_position
from ginkgo.pipeline import Loader, LoaderConfig, build_index
from ginkgo.pipeline.load import load_block
from ginkgo.pipeline.parse import ParseOptions
from ginkgo.pipeline.scan import Scan
from ginkgo.records import Game, Refusal, format_game_line
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.records.kifu import write
from ginkgo.records.kifu.huffman import unpack
from ginkgo.records.kifu.japanese import HANDICAPS
from ginkgo.records.kifu.packed import HCPE, PSV, pack
from ginkgo.records.kifu.stream import raw_games
from ginkgo.records.replay import replay
from ginkgo.records.sources import find_sources, read_games

ROOT = Path(__file__).parent.parent

# --- round trips -------------------------------------------------------------------------------

#: Endings with who wins by them, seen from the side to move.
ENDINGS = [
    *(("toryo", "lose"), ("kachi", "win"), ("tsumi", "lose"), ("time_up", "lose")),
    *(("illegal_move", "lose"), ("illegal_action", "win"), ("illegal_action", "lose")),
    *(("sennichite", "d"), ("jishogi", "d"), ("hikiwake", "d"), ("max_moves", "d")),
    *(("chudan", "-"), ("unknown", "-"), ("unknown", "win"), ("unknown", "d"), ("matta", "-")),
    *(("fuzumi", "-"), ("error", "-")),
]


def random_game(seed: int, plies: int, start: str, opening: int, ending: tuple[str, str]) -> Game:
    """A random game from a random position."""
    rng, board = random.Random(seed), cshogi.Board(start)
    moves: list[str] = []
    for ply in range(opening + plies):
        if ply == opening:
            start, moves = board.sfen(), []
        legal = list(board.legal_moves)
        if not legal:
            break
        move = rng.choice(legal)
        moves.append(cshogi.move_to_usi(move))
        board.push(move)
    mover = "b" if board.turn == cshogi.BLACK else "w"
    other = "w" if mover == "b" else "b"
    end, rule = ending
    return Game(
        start=start,
        moves=moves,
        winner={"win": mover, "lose": other}.get(rule, rule),
        end=end,
        black="先手の人",
        white="W: x",
        times=[float(rng.randint(0, 4000)) for _ in moves],
        comments={0: "一行目\n同　歩(77)", len(moves): "+7776FU"} if moves else None,
    )


games = st.builds(
    random_game,
    st.integers(0, 10**6),
    st.integers(1, 120),
    st.sampled_from(sorted(HANDICAPS.values())),
    st.sampled_from([0, 0, 1, 17, 40]),
    st.sampled_from(ENDINGS),
)


def test_a_piece_that_a_library_leaves_ambiguous_is_named():
    """Golds on 3h, 1h and 3i can go to 2h: 左 alone would fit the first and the last."""
    start = "3p3n1/L1pr1s+N2/Gpb1k1b1l/p1K5p/2PPPs1pP/PP1S2pP1/N5P1L/2R1p1G1G/L3S1GN1 b 2P 117"
    names = []
    for origin in ("3h", "1h", "3i"):
        game = Game(start=start, moves=[f"{origin}2h"], winner="b", end="toryo")
        text = write.write_ki2(game)
        names.append(next(line for line in text.splitlines() if line.startswith("▲")))
        assert read_one(text, "x.ki2").moves == game.moves
    assert names[0] == "▲２八金左寄"
    assert len(set(names)) == 3


@settings(max_examples=30, deadline=None)
@given(games)
def test_every_game_comes_back_from_every_format(game):
    for text, name in (
        (write.write_csa(game), "csa"),
        (write.write_kif(game), "kif"),
        (write.write_ki2(game), "ki2"),
        (format_game_line(game) + "\n", "usi"),
    ):
        back = read_one(text, "x.txt")
        assert back.format == name
        assert core(back) == core(game), text
        assert (back.black, back.white) == (game.black, game.white)
        if name != "usi":
            assert back.comments == game.comments
        if name in ("csa", "kif"):
            assert list(back.times) == list(game.times)


@settings(max_examples=15, deadline=None)
@given(games)
def test_libraries_read_what_is_written(game):
    """A second opinion on the writers, and so on the readers that invert them."""
    from rsshogi.record import Record

    for text, read in (
        (write.write_csa(game), Record.from_csa_str),
        (write.write_kif(game), Record.from_kif_str),
        (write.write_ki2(game), Record.from_ki2_str),
    ):
        if game.end in ("kachi", "fuzumi", "matta", "error", "max_moves", "unknown", "hikiwake"):
            continue  # words that it does not know in every format
        record = read(text)
        assert [entry.move.to_usi() for entry in record.moves] == list(game.moves)
        assert record.init_position_sfen.split()[:3] == game.start.split()[:3]


def test_python_shogi_agrees_on_kif():
    import shogi.KIF

    for seed in range(8):
        game = random_game(seed, 60, HANDICAPS["平手"], 0, ("toryo", "lose"))
        [read] = shogi.KIF.Parser.parse_str(write.write_kif(game).replace("(UTF-8)", ""))
        assert read["moves"] == list(game.moves)
        assert read["win"] == game.winner


# --- packed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hcpe", "psv"])
@settings(max_examples=12, deadline=None)
@given(games)
def test_packed_positions_are_cshogi_s(kind, game):
    sfens = replay(game)
    rows = pack(sfens, kind)
    board, hands, color, good = unpack(rows, "hcp" if kind == "hcpe" else "psfen")
    assert good.all()
    other = cshogi.Board()
    for index in range(0, len(sfens), 7):
        (other.set_hcp if kind == "hcpe" else other.set_psfen)(rows[index : index + 1])
        assert other.sfen().split()[:3] == sfens[index].split()[:3]
        assert other.pieces == board[index].tolist()
        # There the hands are in the order P L N S G B R.
        order = [0, 1, 2, 3, 6, 4, 5]
        assert [list(hand) for hand in other.pieces_in_hand] == hands[index][:, order].tolist()
        assert other.turn == color[index]


@settings(max_examples=120, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.sampled_from(["hcp", "psfen"]))
def test_damaged_positions_never_reach_cshogi(data, kind):
    """cshogi would end the process: that this test ends at all is the point."""
    rows = np.frombuffer(data, np.uint8).reshape(1, 32)
    if unpack(rows, kind)[3][0]:
        board = cshogi.Board()
        (board.set_hcp if kind == "hcp" else board.set_psfen)(rows.copy())


@pytest.mark.parametrize("kind", ["hcpe", "psv"])
def test_packed_records_read_as_games_of_one_ply(kind):
    game = random_game(3, 80, HANDICAPS["二枚落ち"], 0, ("toryo", "lose"))
    game.scores = list(range(-40, -40 + game.total))
    sfens = replay(game)
    data = write.pack_positions(game, kind, sfens, range(game.total))
    found = read_all(data, f"x.{kind}")
    assert [one.moves[0] for one in found] == list(game.moves)
    assert [one.start.split()[:3] for one in found] == [sfen.split()[:3] for sfen in sfens]
    assert {one.winner for one in found} == {game.winner}
    assert [one.scores[0] for one in found] == list(game.scores)
    # Cut short, the rest is read and the cut told of.
    *whole, last = read_all(data[:-5], f"x.{kind}")
    assert len(whole) == game.total - 1
    assert isinstance(last, Refusal)
    assert "cut short" in last.reason


@pytest.mark.parametrize(("kind", "dtype"), [("hcpe", HCPE), ("psv", PSV)])
def test_moves_packed_in_another_way_are_noticed(kind, dtype):
    game = random_game(3, 80, HANDICAPS["平手"], 0, ("toryo", "lose"))
    data = write.pack_positions(game, kind, replay(game), range(game.total))
    records = np.frombuffer(data, dtype).copy()
    records["move"] = (records["move"] & 0x7F) << 7 | records["move"] >> 7 & 0x7F
    assert "moves are legal" in refused(records.tobytes(), f"x.{kind}").reason


@pytest.mark.parametrize(
    ("result", "winner", "end"),
    [
        *((0, "d", "unknown"), (1, "b", "unknown"), (2, "w", "unknown"), (4, "d", "sennichite")),
        *((8 + 1, "b", "kachi"), (8 + 2, "w", "kachi"), (16, "d", "max_moves")),
        (0x16, "d", "max_moves"),  # what dlshogi writes in place of 16
    ],
)
def test_hcpe3_results(result, winner, end):
    data = bytearray(hcpe3(random_game(1, 30, HANDICAPS["平手"], 0, ("toryo", "lose"))))
    data[34] = result
    game = read_one(bytes(data), "x.hcpe3")
    assert (game.winner, game.end) == (winner, end)


def test_hcpe3_games_with_visits(tmp_path):
    found = [random_game(seed, 50, HANDICAPS["平手"], 0, ("toryo", "lose")) for seed in range(70)]
    data = b"".join(map(hcpe3, found))
    back = read_all(data, "x.hcpe3")
    assert [list(game.moves) for game in back] == [list(game.moves) for game in found]
    assert [game.winner for game in back] == [game.winner for game in found]
    assert back[0].policies[0][back[0].moves[0]] == 3
    assert back[0].scores[0] == -25
    path = tmp_path / "x.bin"
    path.write_bytes(data)
    convert(ConvertConfig((str(path),), str(tmp_path / "out"), workers=1))
    lines = "".join(file.read_text() for file in (tmp_path / "out").glob("*/*.sfenx"))
    assert lines.count("\n") == sum(game.total for game in found)
    assert ",score=-25,policy=" in lines
    *whole, last = read_all(data[:-3], "x.hcpe3")
    assert len(whole) == 69
    assert isinstance(last, Refusal)


# --- archives, merged files, standard input ----------------------------------------------------


FORMS = [
    *("merged.csa", "merged.csa.gz", "merged.csa.zst", "oddly-named.txt", "kif"),
    *("all.zip", "all.tar", "all.tar.gz", "all.tgz", "all.tar.zst", "all.7z"),
]


@pytest.mark.parametrize("form", FORMS)
def test_the_same_games_from_every_form(kifu, some_games, form):
    [source] = find_sources([kifu[form]])
    found = [game for file in source.files for _, game in read_games(file)]
    assert [core(game) for game in found] == [core(game) for game in some_games]


@pytest.mark.parametrize("form", ["all.zip", "all.tar.gz", "all.7z", "all.tar.zst"])
def test_damaged_archives_are_refused(kifu, tmp_path, form):
    path = tmp_path / form
    path.write_bytes(kifu[form].read_bytes()[:-300])
    *_, last = list(raw_games(path))
    assert isinstance(last, Refusal)
    path.write_bytes(b"nothing of the kind")
    [refusal] = list(raw_games(path))
    assert isinstance(refusal, Refusal)


def sfens(positions: np.ndarray) -> list[str]:
    return sorted(sfen_from_position(position).rsplit(" ", 1)[0] for position in positions)


@pytest.mark.parametrize("form", ["merged.csa", "oddly-named.txt", "kif", "all.zip", "all.tar.gz"])
def test_training_reads_every_form_directly(kifu, some_games, form):
    scan = Scan([kifu[form]], fraction=0, segment_positions=300)
    index = scan.view("train")
    assert index.games == len(some_games)
    assert len(scan.files[0].segments) > 1 or form in ("kif", "merged.csa")
    positions = load_block(index, ParseOptions()).positions
    assert len(positions) == index.positions == sum(game.total for game in some_games)
    expected = [sfen.rsplit(" ", 1)[0] for game in some_games for sfen in replay(game)]
    assert sfens(positions) == sorted(expected)


def test_reader_processes_give_the_same_in_any_number(tmp_path, kifu):
    """Archives, merged files and packed positions go on where the last job was."""
    packed = tmp_path / "packed"
    convert(ConvertConfig((str(kifu["kif"]),), str(packed), to="psv", workers=1))
    paths = [kifu["all.zip"], kifu["oddly-named.txt"], kifu["kif"], packed]
    index = build_index(paths, "all", segment_positions=300)
    expected = np.sort(load_block(index, ParseOptions()).keys)
    told = []
    for workers in (0, 2):
        config = LoaderConfig(
            batch_size=64, pool=256, workers=workers, epochs=2, seed=1, coverage=True
        )
        with Loader(index, config) as loader:
            batches = list(loader)
            loader.acknowledge(len(batches))
            seen = loader.seen().progress
        told.append(np.concatenate([batch.keys for batch in batches]))
        # Every game of every kind of file counts once, however often it comes.
        assert seen.seen == seen.games == tuple(source.games for source in index.sources)
        assert [seen.epochs(number) for number in range(len(seen.games))] == pytest.approx(
            [2] * len(seen.games)
        )
    assert (told[0] == told[1]).all()
    assert (np.sort(told[0]) == np.repeat(expected, 2)).all()


@pytest.mark.parametrize("kind", ["hcpe", "psv"])
def test_training_reads_packed_positions_directly(tmp_path, kifu, some_games, kind):
    out = tmp_path / "out"
    convert(ConvertConfig((str(kifu["merged.csa"]),), str(out), to=kind, workers=1))
    played = [game for game in some_games if game.winner != "-"]
    scan = Scan([out], fraction=0)
    positions = load_block(scan.view("train"), ParseOptions()).positions
    expected = Scan([kifu["kif"]], fraction=0).view("train")
    same = load_block(expected, ParseOptions()).positions
    same = same[same["result"] != 3]
    assert len(positions) == sum(game.total for game in played)
    for name in ("board", "hand", "color", "move", "result"):
        order = [
            np.lexsort([*p["board"].T.tolist(), p["move"], p["result"]]) for p in (positions, same)
        ]
        assert (positions[name][order[0]] == same[name][order[1]]).all()


def test_standard_input(kifu, some_games):
    data = kifu["merged.csa"].read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "ginkgo", "inspect", "-", "--json"],
        **{"input": data, "capture_output": True, "cwd": ROOT},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["plies"] for one in found] == [game.total for game in some_games]
    assert {one["file"] for one in found} == {"-"}


# --- what a search found -----------------------------------------------------------------------


def test_visits_become_soft_targets_directly_and_through_records(tmp_path):
    found = [random_game(seed, 40, HANDICAPS["平手"], 0, ("toryo", "lose")) for seed in range(40)]
    path = tmp_path / "x.hcpe3"
    path.write_bytes(b"".join(hcpe3(game, visits=3 + n) for n, game in enumerate(found)))
    out = tmp_path / "out"
    convert(ConvertConfig((str(path),), str(out), workers=1, val_fraction=0))
    blocks = []
    for source in (path, out / "train"):
        index = Scan([source], fraction=0).view("train")
        assert index.policies
        blocks.append(load_block(index, ParseOptions(policies=True)))
    direct, recorded = blocks
    assert len(direct.positions) == sum(game.total for game in found)
    for name in ("board", "hand", "color", "move", "result", "score"):
        assert (direct.positions[name] == recorded.positions[name]).all(), name
    targets = direct.ragged["policy"]
    assert (targets.offsets == recorded.ragged["policy"].offsets).all()
    assert (targets.values == recorded.ragged["policy"].values).all()
    first = targets.part(0, 1).values
    # Three visits of the move that was played, one of another.
    assert first["label"][0] == direct.positions["move"][0]
    assert first["probability"].tolist() == [0.75, 0.25]
    assert load_block(index, ParseOptions()).ragged == {}


def test_visits_of_illegal_moves_are_damage():
    games = [random_game(seed, 20, HANDICAPS["平手"], 0, ("toryo", "lose")) for seed in range(30)]
    data = bytearray(b"".join(map(hcpe3, games)))
    # The second candidate of the first move: a king that leaves the board's middle.
    data[36 + 10 : 36 + 12] = (40 | 44 << 7).to_bytes(2, "little")
    first, *rest = read_all(bytes(data), "x.hcpe3")
    assert isinstance(first, Refusal)
    assert "visits of an illegal move" in first.reason
    assert len(rest) == 29
    assert all(isinstance(game, Game) for game in rest)
