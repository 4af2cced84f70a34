"""Self-play games: the targets, the games themselves, their files, and what reads them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import cshogi
import numpy as np
import pytest

from ginkgo.arena.openings import Opening
from ginkgo.errors import GinkgoError
from ginkgo.features.labels import labels_from_moves, rotate_moves
from ginkgo.pipeline import ParseOptions, build_index
from ginkgo.pipeline.load import load_block
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.records.game import STARTPOS, Game
from ginkgo.records.inspect import inspect
from ginkgo.records.kifu.selfplay import (
    GUMBEL_VISITS,
    load_arrays,
    read_arrays,
    write_arrays,
)
from ginkgo.records.stats import count
from ginkgo.search.evaluators import HashEvaluator
from ginkgo.search.many import play_many
from ginkgo.search.queue import Queue
from ginkgo.selfplay.audit import audit, faults_of
from ginkgo.selfplay.cli import main
from ginkgo.selfplay.config import PlayOptions, SelfplayConfig, check
from ginkgo.selfplay.game import load_openings, play_game
from ginkgo.selfplay.resign import PlayedOn, calibrated, tally
from ginkgo.selfplay.run import open_run, play_run
from ginkgo.selfplay.store import figures_of, run_folder, run_folders

SMALL = SelfplayConfig(
    model="hash", playouts=12, cheap_playouts=4, full_share=0.5, max_ply=70, temperature_plies=20,
    games=24, concurrent=12, file_games=5, processes=1, never_resign=0.3, resign=0.42,
    random_plies=6,
)  # fmt: skip
#: The same with a Gumbel root search, and other seeds.
GUMBEL = replace(SMALL, gumbel=6, seed=1)


def played(folder: Path, config: SelfplayConfig):
    config = replace(config, out=folder)
    run = open_run(config)
    play_run(config, run, say=lambda _text: None)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of one folder: PUCT, and Gumbel."""
    folder = tmp_path_factory.mktemp("selfplay")
    return [played(folder, SMALL), played(folder, GUMBEL)]


@pytest.fixture(scope="module")
def files(runs) -> list[Path]:
    return [path for run in runs for path in run.files()]


# --- resignation ------------------------------------------------------------------------------


def games_played_on(count: int, wrong: int, low: float) -> list[PlayedOn]:
    """Games in which Black once thinks little of its position, and mostly loses."""
    values = np.array([0.5, 0.5, low, 0.5])
    return [PlayedOn(values, False, "b" if n < wrong else "w") for n in range(count)]


def test_the_threshold_keeps_false_resignations_rare():
    sure, doubtful = games_played_on(100, 1, 0.045), games_played_on(100, 30, 0.145)
    assert tally(sure, 0.05) == (100, 1)
    assert tally(sure, 0.04) == (0, 0)
    assert calibrated(sure + doubtful, 0.05, 0.1) == 0.14
    assert calibrated(doubtful, 0.05, 0.1) == 0.0
    assert calibrated(sure[:10], 0.05, 0.1) == 0.1  # too few to tell
    assert calibrated(sure[:10], 0.05, 0.0) == 0.0


def test_white_resigns_too():
    game = PlayedOn(np.array([0.9, 0.01]), False, "b")
    assert tally([game], 0.05) == (1, 0)
    assert tally([game._replace(white_first=True)], 0.05) == (1, 1)


# --- games ------------------------------------------------------------------------------------


def test_every_stored_game_is_right(runs):
    found = audit(runs)
    assert found.faults == []
    assert found.games == 48
    assert {"max_moves", "toryo"} <= set(found.endings)


def test_what_is_stored_of_a_position(runs):
    for run, config in zip(runs, (SMALL, GUMBEL), strict=True):
        for _, meta, arrays in run.arrays():
            assert meta["model"] == "hash"
            assert meta["options"]["playouts"] == 12
            full, playouts = arrays["full"], arrays["playouts"]
            assert (playouts[full] <= 12).all()
            assert (playouts[~full] <= 4).all()
            assert ((arrays["candidates"] > 0) == full).all()
            searched = playouts > 0
            assert np.isfinite(arrays["root_value"][searched]).all()
            assert (arrays["random_plies"] <= config.random_plies).all()
        share = run.recorded / run.positions
        assert 0.3 < share < 0.6
        figures = figures_of(run, run.options["resign_threshold"])
        assert figures["games"] == config.games
        assert 0 <= figures["resigned"] <= 1


def test_same_seed_same_games_whatever_runs_beside(tmp_path, runs):
    again = played(tmp_path, replace(SMALL, concurrent=3, file_games=24))
    games = {}
    for run in (runs[0], again):
        found = {}
        for game in inspect([str(path) for path in run.files()]):
            assert isinstance(game[2], Game)
            number = int(game[2].game.rpartition("-")[2])
            found[number] = (game[2].moves, game[2].end, game[2].winner, game[2].policies)
        games[run.path.parent.parent] = found
    first, second = games.values()
    assert first == second
    assert len({tuple(moves) for moves, *_ in first.values()}) == SMALL.games


def test_a_second_run_plays_other_games(runs, tmp_path):
    first = played(tmp_path, replace(SMALL, games=4))
    second = played(tmp_path, replace(SMALL, games=4))
    assert (first.number, second.number) == (1, 2)
    moves = {tuple(game.moves) for _, _, game in inspect([str(tmp_path)]) if isinstance(game, Game)}
    assert len(moves) == 8


def one_game(options: PlayOptions, start: str = STARTPOS, threshold: float = 0.0, seed: int = 0):
    game = play_game(0, options, [Opening(start)], threshold, (seed,))
    return next(play_many([game], [[Queue(HashEvaluator())]], 1))


@pytest.mark.parametrize(
    ("start", "winner", "end"),
    [
        # Mated already, a mate in one, a declaration, and nothing but kings and a pawn.
        ("4k4/4G4/4P4/9/9/9/9/9/4K4 w - 1", "b", "tsumi"),
        ("4k4/9/4P4/9/9/9/9/9/4K4 b G 1", "b", "tsumi"),
        ("+R+R+B+BGGGGK/SSSS+N+N+N+N1/LLLL5/9/9/9/9/9/k8 b 18P 1", "b", "kachi"),
        ("4k4/9/9/9/9/9/9/9/4K4 b P 1", None, "max_moves"),
    ],
)
def test_how_games_end(start, winner, end):
    options = PlayOptions(playouts=8, cheap_playouts=8, max_ply=10, random_plies=0, resign=0)
    game = one_game(options, start)
    assert game.end == end
    assert game.winner == (winner or "d")


def test_repetition_ends_a_game():
    # Two kings and two rooks with nowhere to go soon repeat; whoever checks all the time has lost.
    options = PlayOptions(playouts=6, cheap_playouts=6, max_ply=400, random_plies=0, resign=0)
    ends = set()
    for seed in range(4):
        game = one_game(options, "k8/9/9/9/9/9/9/9/K8 b - 1", seed=seed)
        ends.add(game.end)
    assert ends <= {"sennichite", "perpetual", "max_moves"}
    assert "sennichite" in ends


def test_who_is_lost_resigns_unless_it_must_not():
    options = PlayOptions(playouts=4, cheap_playouts=4, max_ply=30, random_plies=0, never_resign=0)
    game = one_game(options, threshold=0.6)
    assert (game.end, game.winner, game.plies) == ("toryo", "w", 0) or game.end == "toryo"
    stubborn = replace(options, never_resign=1.0)
    assert one_game(stubborn, threshold=0.6).end != "toryo"


def test_the_audit_finds_what_is_wrong(runs):
    _, meta, arrays = next(runs[0].arrays())
    from ginkgo.records.kifu.selfplay import select_games

    games = [select_games(arrays, n, n + 1) for n in range(len(arrays["number"]))]
    ends = [meta["endings"][int(game["end"][0])] for game in games]
    assert [faults_of(game, end, 70) for game, end in zip(games, ends, strict=True)] == [[]] * 5
    game, end = games[0], ends[0]
    other = {**game, "winner": (game["winner"] + 1) % 3}
    assert "the last position says" in faults_of(other, end, 70)[0]
    assert faults_of(game, "kachi", 70)
    assert faults_of({**game, "position": game["position"] ^ 1}, end, 70)
    assert faults_of({**game, "move": game["move"][::-1]}, end, 70)
    assert faults_of({**game, "full": ~game["full"]}, end, 70)


def test_openings_from_a_file(tmp_path):
    file = tmp_path / "openings.txt"
    file.write_text("startpos moves 7g7f 3c3d\n\nposition startpos moves 2g2f\n")
    found = load_openings(file)
    assert [opening.moves for opening in found] == [("7g7f", "3c3d"), ("2g2f",)]
    options = PlayOptions(playouts=2, cheap_playouts=2, max_ply=4, random_plies=0)
    [game] = play_many([play_game(0, options, found[:1], 0.0, (0,))], [[Queue(HashEvaluator())]], 1)
    assert [cshogi.move_to_usi(move) for move in game.moves[:2]] == ["7g7f", "3c3d"]
    assert game.full[:2] == [False, False]
    assert load_openings(None)[0].start == STARTPOS
    file.write_text("startpos moves 7g7e\n")
    with pytest.raises(GinkgoError, match=r"openings.txt:1: .*7g7e"):
        load_openings(file)


# --- files ------------------------------------------------------------------------------------


def test_convert_keeps_what_the_searches_found(files, tmp_path):
    paths = tuple(str(path) for path in files)
    convert(ConvertConfig(sources=paths, out=str(tmp_path / "sfenx"), val_fraction=0, workers=1))
    records = build_index([tmp_path / "sfenx" / "train"], "all")
    games = build_index(files, "all")
    options = ParseOptions(policies=True)
    first, second = load_block(games, options), load_block(records, options)

    def rows(block):
        found = {}
        for row, position in enumerate(block.positions):
            policy = block.ragged["policy"].part(row, row + 1).values
            key = (position["board"].tobytes(), position["hand"].tobytes(), int(position["ply"]))
            shares = {int(label): round(float(p), 2) for label, p in policy}
            value = round(float(position["root_value"]), 2)
            found.setdefault(key, []).append((int(position["move"]), value, shares))
        return found

    from_games, from_records = rows(first), rows(second)
    assert from_games.keys() == from_records.keys()
    different = sum(
        sorted(map(str, one)) != sorted(map(str, from_records[key]))
        for key, one in from_games.items()
    )
    assert different <= 0.05 * len(first.positions)  # roundings
    for to in ("csa", "kif", "usi"):
        convert(ConvertConfig(sources=paths, out=str(tmp_path / to), to=to, workers=1))
    kifu = [game for _, _, game in inspect([str(tmp_path / "csa")])]
    moved = [game for _, _, game in inspect(paths) if isinstance(game, Game) and game.moves]
    assert {tuple(game.moves) for game in kifu if isinstance(game, Game)} == {
        tuple(game.moves) for game in moved
    }


def test_stats_reads_them(files):
    found = count([str(path) for path in files])
    assert set(found) == {"run_001", "run_002"}
    resigned_at_once = sum(int((load_arrays(path)[1]["plies"] == 0).sum()) for path in files)
    assert sum(one.games for one in found.values()) == 48 - resigned_at_once
    assert not any(one.audit["contradicted"] for one in found.values())


def test_the_visits_of_played_games_sum(files):
    for path in files:
        _, arrays = load_arrays(path)
        counts = arrays["candidates"].astype(int)
        ply = np.repeat(np.arange(len(counts)), counts)
        total = np.bincount(ply, arrays["policy_visits"], len(counts))
        searched = total[counts > 0]
        assert len(searched)
        wanted = np.maximum(1, arrays["playouts"][counts > 0])
        assert (searched == wanted).all() or (searched == GUMBEL_VISITS).all()


def test_the_pipeline_trains_on_full_searches(runs, files):
    block = load_block(build_index(files, "all"), ParseOptions(policies=True))
    assert len(block.positions) == sum(run.recorded for run in runs)
    assert np.isfinite(block.positions["root_value"]).all()
    row = 0
    for path in files:
        _, arrays = load_arrays(path)
        ends = np.cumsum(arrays["candidates"], dtype=int)
        ply = 0
        for start, plies in zip(arrays["start"], arrays["plies"], strict=True):
            color = int(str(start).split()[1] == "w")
            for place in range(ply, ply + plies):
                if not arrays["full"][place]:
                    continue
                side = (color + place - ply) % 2
                low = ends[place] - arrays["candidates"][place]
                moves = arrays["policy_move"][low : ends[place]].astype(np.int32)
                turned = rotate_moves(moves, np.full(len(moves), side, np.uint8))
                visits = arrays["policy_visits"][low : ends[place]].astype(float)
                target = block.ragged["policy"].part(row, row + 1).values
                assert target["label"].tolist() == labels_from_moves(turned).tolist()
                np.testing.assert_allclose(target["probability"], visits / visits.sum(), rtol=2e-3)
                assert block.positions["color"][row] == side
                row += 1
            ply += plies
    assert row == len(block.positions)


@pytest.mark.parametrize("fault", ["cut", "noise", "sizes", "foreign"])
def test_a_damaged_file_is_refused_by_name(files, tmp_path, fault):
    path = tmp_path / "games_00000.npz"
    data = bytearray(files[0].read_bytes())
    if fault == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif fault == "noise":
        data[len(data) // 3 : len(data) // 3 + 40] = bytes(40)
        path.write_bytes(data)
    else:
        meta, arrays = read_arrays(bytes(data))
        if fault == "sizes":
            arrays["move"] = arrays["move"][:-1]
        else:
            meta["format"] = "another"
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        write_arrays(path, {"meta": text, **arrays})
    with pytest.raises(GinkgoError, match=r"games_00000\.npz: "):
        load_arrays(path)
    [(_, _, refusal)] = inspect([str(path)])
    assert not isinstance(refusal, Game)
    assert run_folders(tmp_path) == []


@pytest.mark.parametrize("name", ["move", "policy_move"])
@pytest.mark.parametrize("number", [0x7FFF, 0x8000, 81 | 3 << 7, 3 | 3 << 7, 3 | 88 << 7])
def test_a_number_that_is_no_move_spoils_its_game_only(files, tmp_path, name, number):
    meta, arrays = load_arrays(files[0])
    first = next(game for game, plies in enumerate(arrays["plies"]) if plies and plies < 60)
    ply = int(arrays["plies"][:first].sum())
    place = ply if name == "move" else int(arrays["candidates"][:ply].sum())
    arrays[name][place] = number
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    write_arrays(tmp_path / "games_00000.npz", {"meta": text, **arrays})
    found = [game for _, _, game in inspect([str(tmp_path / "games_00000.npz")])]
    assert len(found) == len(arrays["number"])
    refused = [game for game in found if not isinstance(game, Game)]
    assert [one.reason for one in refused] == [f"{number:#06x} is no move"]
    assert found[first] is refused[0]


def test_other_arrays_are_no_games(tmp_path, files):
    np.savez(tmp_path / "games.npz", train=np.zeros(3))
    (tmp_path / "games_00000.npz").write_bytes(files[0].read_bytes())
    assert [source.games for source in build_index([tmp_path], "all").sources] == [5]


# --- the verb ---------------------------------------------------------------------------------


def test_ginkgo_selfplay(tmp_path, capsys):
    report = tmp_path / "report.json"
    command = "--model hash --games 6 --playouts 6 --cheap-playouts 3 --max-ply 30 --processes 2"
    arguments = [*command.split(), "--out", str(tmp_path / "out"), "--report", str(report)]
    assert main(arguments) == 0
    assert "6 games" in capsys.readouterr().out
    figures = json.loads(report.read_text())
    assert figures["games"] == figures["new_games"] == 6
    assert figures["mean_batch"] > 1
    assert audit(run_folders(tmp_path / "out")).faults == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"playouts": 0}, "--playouts 0: expected at least 1"),
        ({"full_share": 0.0}, "--full-share 0: expected more than 0"),
        ({"noise": 1.5}, "--noise 1.5: expected 0 to 1"),
        ({"max_ply": 1000}, "--max-ply 1000: expected 1 to 512"),
        ({"openings": Path("/no/such")}, "/no/such: no such file"),
        ({"noise_alpha": float("nan")}, "--noise-alpha nan: expected a finite number"),
    ],
)
def test_mistakes_are_named(change, text):
    with pytest.raises(GinkgoError, match=text):
        check(replace(SMALL, **change))


def test_killed_at_any_moment(tmp_path):
    """kill -9 of the whole tree, then of the first process alone, whose children must end with it:
    nothing stored is lost or there twice, and the rest is played."""
    command = [
        *(sys.executable, "-m", "ginkgo", "selfplay", "--model", "hash", "--games", "30"),
        *("--playouts", "24", "--cheap-playouts", "8", "--max-ply", "60", "--processes", "2"),
        *("--concurrent", "5", "--file-games", "3", "-o", str(tmp_path)),
    ]
    root = Path(__file__).parent.parent
    rng, stored = random.Random(4), {}
    for kill in (os.killpg, os.kill):
        process = subprocess.Popen(
            command, cwd=root, start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wanted = len(stored) + rng.randrange(1, 4)
        while process.poll() is None and len(list(tmp_path.rglob("games_*.npz"))) < wanted:
            time.sleep(0.02)
        if process.returncode is None:
            time.sleep(rng.random() * 0.1)
            with contextlib.suppress(ProcessLookupError):
                kill(process.pid, signal.SIGKILL)
        _, errors = process.communicate()  # until the last child has ended too
        assert process.returncode in (0, -signal.SIGKILL), errors
        now = {path: path.read_bytes() for path in tmp_path.rglob("games_*.npz")}
        assert stored.items() <= now.items()
        stored = now
    config = SelfplayConfig(
        model="hash", games=30, playouts=24, cheap_playouts=8, max_ply=60, processes=1,
        out=tmp_path,
    )  # fmt: skip
    run = run_folder(tmp_path, 1)
    play_run(config, run, say=lambda _text: None)
    assert stored.items() <= {path: path.read_bytes() for path in run.files()}.items()
    assert len(run_folders(tmp_path)) == 1
    assert run.look().stored == set(range(30))
    assert audit([run]).faults == []
    assert list(tmp_path.rglob("*.tmp")) == []


def test_two_processes_do_not_store_in_one_run(tmp_path, runs):
    """They would overwrite each other's files; and looking on must not harm who stores."""
    config = replace(SMALL, games=4, out=tmp_path)
    run = open_run(config)
    with run.alone():
        begun = run.path / ".games_00000.npz.1.tmp"
        begun.touch()
        assert open_run(config).path == run.path
        assert begun.exists()
        with pytest.raises(GinkgoError, match="another process works on this run"):
            play_run(config, open_run(config), say=lambda _text: None)
    play_run(config, run, say=lambda _text: None)
    assert not begun.exists()


def test_files_are_numbered_on_beyond_five_digits(tmp_path, files):
    run = run_folder(tmp_path, 1)
    run.path.mkdir(parents=True)
    for number, file in zip((99_999, 100_000), files, strict=False):
        (run.path / f"games_{number}.npz").write_bytes(file.read_bytes())
    run.look()
    assert [path.stem for path in run.files()] == ["games_99999", "games_100000"]
    assert run.store([], {}).stem == "games_100001"


def test_cshogi_packs_moves_as_the_file_has_them():
    board = cshogi.Board()
    for move in board.legal_moves:
        assert board.move_from_move16(cshogi.move16(move)) == move
        assert cshogi.move16(move) == move & 0xFFFF
