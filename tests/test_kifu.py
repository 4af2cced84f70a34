"""Kifu end to end: archives, packed formats, round trips, direct training, the verb `inspect`."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import cshogi
import fuzz_kifu
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from kifu_texts import hcpe3, read_all, read_one, refused

from ginkgo.features.position import sfen_from_position
from ginkgo.pipeline import Loader, LoaderConfig, build_index
from ginkgo.pipeline.load import load_block
from ginkgo.pipeline.parse import ParseOptions
from ginkgo.pipeline.scan import Scan
from ginkgo.records import Game, Refusal, format_game_line, parse_game_line, parse_record
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.merge import merge_split
from ginkgo.records.convert.run import convert
from ginkgo.records.inspect import main as inspect_main
from ginkgo.records.kifu import write
from ginkgo.records.kifu.huffman import unpack
from ginkgo.records.kifu.japanese import HANDICAPS
from ginkgo.records.kifu.packed import HCPE, PSV, pack
from ginkgo.records.kifu.stream import raw_games
from ginkgo.records.replay import replay
from ginkgo.records.sources import find_sources, game_from_line, read_games
from ginkgo.records.split import merged_games
from ginkgo.records.stats import main as stats_main

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


def core(game: Game) -> tuple:
    return (game.start.split()[:3], list(game.moves), game.winner, game.end)


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


@pytest.fixture(scope="session")
def some_games(sample_lines) -> list[Game]:
    return [parse_game_line(line) for line in sample_lines[:30]]


@pytest.fixture(scope="session")
def kifu(tmp_path_factory, some_games) -> dict[str, Path]:
    """The same games in every form, by name."""
    folder = tmp_path_factory.mktemp("kifu")
    csa = "/\n".join(map(write.write_csa, some_games)).encode()
    kif = {f"k/{n:03d}.kif": write.write_kif(g).encode("cp932") for n, g in enumerate(some_games)}
    ki2 = {f"k/{n:03d}.ki2": write.write_ki2(g).encode() for n, g in enumerate(some_games)}
    (folder / "merged.csa").write_bytes(csa)
    (folder / "merged.csa.gz").write_bytes(gzip.compress(csa))
    (folder / "merged.csa.zst").write_bytes(zstandard.ZstdCompressor().compress(csa))
    (folder / "oddly-named.txt").write_bytes(csa)
    for name, data in kif.items():
        path = folder / "kif" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "Dear reader,\n")
        for name, data in ki2.items():
            archive.writestr(name, data)
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz")):
        with tarfile.open(folder / f"all{suffix}", mode) as archive:
            for name, data in kif.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    raw = zstandard.ZstdCompressor().compress((folder / "all.tar").read_bytes())
    (folder / "all.tar.zst").write_bytes(raw)
    import py7zr

    with py7zr.SevenZipFile(folder / "all.7z", "w") as archive:
        archive.writeall(folder / "kif" / "k", "k")
    names = [path.name for path in folder.iterdir()]
    return {name: folder / name for name in names}


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


# --- conversion --------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["usi", "csa", "kif", "ki2"])
def test_convert_there_and_back(tmp_path, kifu, some_games, to):
    there, back = tmp_path / "there", tmp_path / "back"
    workers = 2 if to == "kif" else 1
    config = ConvertConfig((str(kifu["merged.csa"]),), str(there), to=to, workers=workers)
    assert convert(config)["games"] == len(some_games)
    convert(ConvertConfig((str(there),), str(back), to="usi", workers=1))
    text = "".join(path.read_text() for path in sorted(back.glob("*.usi")))
    found = [core(parse_game_line(line)) for line in text.splitlines()]
    assert found == [core(game) for game in some_games]


def test_variations_become_games_without_a_result(tmp_path):
    text = (
        "手合割：平手\n1 ７六歩(77)\n2 ３四歩(33)\n3 投了\n変化：2手\n2 ８四歩(83)\n3 ２六歩(27)\n"
    )
    (tmp_path / "a.kif").write_text(text)
    for variations, expected in ((False, 2), (True, 4)):
        out = tmp_path / str(variations)
        config = ConvertConfig(
            (str(tmp_path / "a.kif"),), str(out), workers=1, variations=variations
        )
        assert convert(config)["positions"] == expected
        lines = "".join(path.read_text() for path in out.glob("*/*.sfenx")).splitlines()
        assert [line.split(",")[2:4] for line in lines[2:]] == [["8c8d", "-"], ["2g2f", "-"]][
            : expected - 2
        ]


def test_duplicates_are_written_once_across_sources(tmp_path, kifu, some_games):
    sources = (str(kifu["merged.csa"]), str(kifu["kif"]), str(kifu["all.zip"]))
    report = convert(ConvertConfig(sources, str(tmp_path / "out"), workers=1))
    assert report["games"] == len(some_games)
    assert report["duplicates"] == 2 * len(some_games)


def test_problems_with_one_king_are_not_for_training(tmp_path):
    path = tmp_path / "p.csa"
    path.write_text("P-51OU\nP+53FU00KI\n+\n+0052KI\n")
    [(_, game)] = read_games(path)
    assert list(game.moves) == ["G*5b"]
    report = convert(ConvertConfig((str(path),), str(tmp_path / "out"), workers=1))
    assert (report["games"], len(report["refused"])) == (0, 1)
    assert "one king a side" in report["refused"][0]["reason"]


# --- inspect -----------------------------------------------------------------------------------


def test_inspect_prints_a_line_a_game(kifu, tmp_path, capsys, some_games):
    bad = tmp_path / "bad.kif"
    bad.write_text("手合割：平手\n1 ７五歩(77)\n2 ３四歩(33)\n")
    first = str(kifu["kif"] / "k" / "000.kif")
    assert inspect_main([first, str(bad), "--board", "--moves"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{some_games[0].total} plies" in lines[0]
    assert lines[1].split() == list(some_games[0].moves)
    assert lines[2].startswith("後手の持駒")
    assert lines[-1] == f"{bad}: refused: line 2: ply 1: illegal move 7g7e"
    assert inspect_main([first, str(bad), "--json", "--moves"]) == 0
    good, wrong = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["moves"] == list(some_games[0].moves)
    assert (good["format"], good["encoding"], good["index"]) == ("kif", "cp932", 0)
    assert (good["winner"], good["end"], good["refused"]) == (
        some_games[0].winner if some_games[0].winner != "-" else None,
        some_games[0].end,
        None,
    )
    assert (wrong["plies"], wrong["winner"]) == (0, None)
    assert "line 2" in wrong["refused"]


def test_fuzz():
    """A little of what `tests/fuzz_kifu.py` does."""
    result = fuzz_kifu.run_batch(fuzz_kifu.sample_files(3), seed=7, count=120, slow_s=math.inf)
    assert result["failures"] == []
    assert result["read"] > 100
    assert result["refused"] > 100


# --- merging and counting ----------------------------------------------------------------------


def test_merge_duplicates(tmp_path):
    lines = [
        "startpos moves 7g7f 3c3d\twinner=b\tend=toryo",
        "startpos moves 7g7f 8c8d\twinner=w\tend=toryo",
        "startpos moves 2g2f 8c8d\twinner=b\tend=toryo",
        "startpos moves 2g2f 8c8d 2f2e\twinner=-\tend=chudan",
    ]
    (tmp_path / "g.usi").write_text("\n".join(lines) + "\n")
    config = ConvertConfig(
        (str(tmp_path / "g.usi"),), str(tmp_path / "out"), workers=1, merge_duplicates=True
    )
    report = convert(config)
    assert report["positions"] == 9
    assert report["merged_positions"] == 4
    [path] = (tmp_path / "out").glob("*/*.sfenx")
    hashes = [game_from_line(Path("g.usi"), 1, line.encode()).hash for line in lines]
    assert merged_games(path.parent).tolist() == sorted(hashes)
    found = [parse_record(line) for line in path.read_text().splitlines()]
    assert found[0].policy == {"7g7f": 2, "2g2f": 2}
    assert (found[0].winner, found[0].other) == ("b", {"count": "4", "value": "0.6667"})
    assert (found[1].winner, found[1].policy) == ("d", {"3c3d": 1, "8c8d": 1})
    assert found[2].other == {"count": "2", "value": "0"}
    assert (found[3].winner, found[3].other) == ("-", {"count": "1"})
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert manifest["files"] == {path.name: {"games": 4, "positions": 4}}
    convert(replace(config, merge_duplicates=False, overwrite=True))
    assert merged_games(path.parent) is None


def test_only_training_positions_are_merged(tmp_path, sample_lines):
    (tmp_path / "g.usi").write_text("\n".join(sample_lines[:200]) + "\n")
    reports = {}
    for merge in (False, True):
        config = ConvertConfig(
            (str(tmp_path / "g.usi"),), str(tmp_path / str(merge)), workers=1, val_fraction=0.1,
            merge_duplicates=merge,
        )  # fmt: skip
        reports[merge] = convert(config)
    for split in ("val", "test"):
        one, other = (
            sorted(path.read_bytes() for path in (tmp_path / name / split).glob("*.sfenx"))
            for name in ("False", "True")
        )
        assert one == other != []
    assert 0 < reports[True]["merged_positions"] < reports[False]["splits"]["train"]["positions"]


def test_merging_in_parts_gives_the_same(tmp_path, kifu):
    folders = []
    for name, size in (("whole", 1 << 28), ("parts", 20_000)):
        out = tmp_path / name
        convert(ConvertConfig((str(kifu["merged.csa"]),), str(out), workers=1, val_fraction=0))
        shards = merge_split(out / "train", "none", size)
        assert (len(shards) > 1) == (name == "parts")
        files = (out / "train").glob("merged-*.sfenx")
        folders.append(sorted(line for file in files for line in file.read_text().splitlines()))
    assert folders[0] == folders[1] != []


def test_stats_of_games_and_of_their_records(tmp_path, kifu, some_games, capsys):
    out = tmp_path / "out"
    convert(ConvertConfig((str(kifu["kif"]),), str(out), workers=1, val_fraction=0))
    picture = tmp_path / "s.png"
    told = []
    for path in (kifu["merged.csa"], out / "train"):
        assert stats_main([str(path), "--json", "--plot", str(picture)]) == 0
        told.append(json.loads(capsys.readouterr().out))
        del told[-1]["sources"]
    assert told[0] == told[1]
    assert told[0]["games"] == len(some_games)
    assert told[0]["positions"] == sum(game.total for game in some_games)
    assert told[0]["audit"]["contradicted"] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert stats_main([str(kifu["merged.csa"]), str(kifu["kif"])]) == 0
    assert "contradicted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("winner", "end", "verdict"),
    [
        ("b", "tsumi", "confirmed"),
        ("w", "tsumi", "contradicted"),
        ("b", "toryo", "confirmed"),
        ("-", "chudan", "undecided"),
    ],
)
def test_the_audit_looks_at_the_last_position(tmp_path, capsys, winner, end, verdict):
    path = tmp_path / "g.usi"
    start = "sfen 4k4/9/4P4/9/9/9/9/9/4K4 b G 1"
    path.write_text(f"{start} moves G*5b\twinner={winner}\tend={end}\n")
    assert stats_main([str(path), "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)["audit"]
    assert [key for key, number in audit.items() if number] == [verdict]
    path.write_text(f"startpos moves 7g7f\twinner=w\tend={end}\n")
    assert stats_main([str(path), "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)["audit"]
    assert audit["contradicted"] == (end in ("tsumi", "toryo"))


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
