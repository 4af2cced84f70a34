"""`ginkgo match` where surroundings and options are not as they should be."""

from __future__ import annotations

import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ginkgo import cli
from ginkgo.arena.config import MatchConfig, checked
from ginkgo.arena.engines import Seat, play_game
from ginkgo.arena.folder import GAMES, MatchFolder, read_games
from ginkgo.arena.openings import Opening, Openings, read_openings
from ginkgo.arena.players import Limits, as_process, limited, parse_player
from ginkgo.arena.referee import Pairing, Played, Rules
from ginkgo.arena.run import _folder_name, _players
from ginkgo.arena.statistics import Sprt
from ginkgo.errors import GinkgoError

ROOT = Path(__file__).parent.parent
SETTINGS = {"players": [{"name": name, "engine": name} for name in ("first", "second")]}
#: Kings go to and fro until the position is there for the fourth time.
ENGINE = """
import os, signal, sys, time
plies = 0
for line in iter(sys.stdin.readline, ""):
    word = line.split()[0]
    if word == "usi":
        print("usiok", flush=True)
    elif word == "isready":
        print("readyok", flush=True)
    elif word == "position":
        plies = len(line.split()[3:])
    elif word == "go":
        print("bestmove " + ["5i5h", "5a5b", "5h5i", "5b5a"][plies % 4], flush=True)
    elif word == "gameover":
        AFTER
    elif word == "quit":
        break
AT_END
"""


def engine(tmp_path: Path, after: str = "pass", at_end: str = "") -> str:
    path = tmp_path / "engine.py"
    path.write_text(ENGINE.replace("AFTER", after).replace("AT_END", at_end))
    return f"usi:{sys.executable} -S -E {path}"


def a_game(number: int = 0) -> Played:
    black = "b" if number % 2 else "a"
    start = Opening().start
    return Played(number, black, "b", "toryo", "", start, 0, ("7g7f",), (31,), (0.5,))


# --- the folder -------------------------------------------------------------------------------


def test_two_matches_in_one_folder(tmp_path):
    with MatchFolder(tmp_path / "m", SETTINGS, kifu=False) as folder:
        folder.add(a_game())
        with pytest.raises(GinkgoError, match="another match is under way there"):
            MatchFolder(tmp_path / "m", SETTINGS, kifu=False)
    with MatchFolder(tmp_path / "m", SETTINGS, kifu=False) as folder:
        assert [one.number for one in folder.games] == [0]
    # What is refused lets go of the folder.
    with pytest.raises(GinkgoError, match="give another folder"):
        MatchFolder(tmp_path / "m", {**SETTINGS, "seed": 1}, kifu=False)
    MatchFolder(tmp_path / "m", SETTINGS, kifu=False).__exit__()


def test_games_without_settings(tmp_path):
    (tmp_path / GAMES).write_text(json.dumps(a_game().to_json()) + "\n")
    with pytest.raises(GinkgoError, match=r"holds games but no config\.json"):
        MatchFolder(tmp_path, SETTINGS, kifu=False)


@pytest.mark.parametrize(
    "wrong", [{"winner": "x"}, {"black": "b"}, {"number": "0"}, {"number": -2}, {"moves": 3}]
)
def test_lines_that_are_no_game(tmp_path, wrong):
    good = a_game().to_json()
    (tmp_path / GAMES).write_text(f"{json.dumps(good)}\n{json.dumps({**good, **wrong})}\n")
    with pytest.raises(GinkgoError, match=r"games\.jsonl:2: no game of a match"):
        read_games(tmp_path)


def test_a_line_that_is_written_in_parts(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr("os.write", lambda file, data: write(file, data[:7]))
    with MatchFolder(tmp_path / "m", SETTINGS, kifu=False) as folder:
        folder.add(a_game(0))
        folder.add(a_game(1))
    assert read_games(tmp_path / "m") == [a_game(0), a_game(1)]


def test_a_full_disk(tmp_path, monkeypatch):
    """What was written of a line is cut off when the match goes on."""
    write, room = os.write, [300]

    def into_little_room(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(file, data[: room[0]])
        room[0] -= done
        return done

    with (
        MatchFolder(tmp_path / "m", SETTINGS, kifu=False) as folder,
        monkeypatch.context() as patch,
    ):
        patch.setattr("os.write", into_little_room)
        folder.add(a_game(0))
        with pytest.raises(GinkgoError, match=r"games\.jsonl: cannot write: No space left"):
            folder.add(a_game(1))
        assert [one.number for one in folder.games] == [0]
    with MatchFolder(tmp_path / "m", SETTINGS, kifu=False) as folder:
        folder.add(a_game(1))
    assert read_games(tmp_path / "m") == [a_game(0), a_game(1)]


def test_kif_in_the_encoding_of_its_suffix(tmp_path):
    """cshogi reads `.kif` as Shift-JIS, whatever its first line says."""
    import cshogi.CSA
    import cshogi.KIF

    settings = {"players": [{"name": "弱い"}, {"name": "強い"}]}
    with MatchFolder(tmp_path, settings, kifu=True) as folder:
        folder.add(a_game())
    read = cshogi.KIF.Parser.parse_file(str(tmp_path / "kifu" / "00001.kif"))
    assert read.names == ["弱い", "強い"]
    assert [cshogi.move_to_usi(move) for move in read.moves] == ["7g7f"]
    assert read.win == cshogi.BLACK_WIN


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"patience": float("nan")}, {"patience": float("inf")}, {"margin": 10**18},
        {"nodes": 10**10}, {"games": 10**12}, {"sprt": (float("-inf"), 0.0)},
        {"sprt": (0.0, 10_000.0)}, {"sprt": (float("nan"), 5.0)},
    ],
)  # fmt: skip
def test_numbers_out_of_reach(options):
    with pytest.raises(GinkgoError, match=f"--{next(iter(options))}"):
        checked(MatchConfig("a", "b", **options))


@pytest.mark.parametrize("model", ["logistic", "normalized"])
@pytest.mark.parametrize("counts", [[1, 0, 0, 0, 9], [0, 0, 9, 1, 0], [3, 12, 41, 33, 11]])
def test_the_widest_tests_have_a_ratio(model, counts):
    import numpy as np

    for test in ((-1000, 1000), (999, 1000), (-1000, -999)):
        assert np.isfinite(Sprt(*test, model=model).ratio(np.array(counts)))


def test_a_time_out_of_reach():
    with pytest.raises(GinkgoError, match="expected milliseconds"):
        _players(MatchConfig("uniform", "uniform", time=f"byoyomi={10**18}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("usi:it's", "No closing quotation in its command"),
        ("usi:/bin/\udcff", "expected UTF-8"),
        ("runs/\nx", "without control characters"),
        ("", "expected a model, or usi: and a command"),
        (":nodes=2", "expected a model"),
    ],
)
def test_names_that_cannot_be(text, message):
    with pytest.raises(GinkgoError, match=message):
        parse_player(text)


@pytest.mark.parametrize("option", ["backend=foo", "threads=0", "batch=5000"])
def test_a_process_does_not_pass_over_its_options(option):
    with pytest.raises(GinkgoError, match=r"engine uniform.*; expected"):
        as_process(parse_player(f"uniform:byoyomi=10,{option}"))


def test_trees_that_are_too_large(tmp_path, monkeypatch):
    def search(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ginkgo.arena.batched.Search", search)
    with pytest.raises(GinkgoError, match="no memory for the trees"):
        cli.run(["match", "uniform:nodes=9", "uniform", "-o", str(tmp_path), "--games", "2"])


def test_the_name_of_a_folder_is_short_enough():
    config = MatchConfig("usi:/bin/engine " + "強" * 200, "usi:/bin/engine " + "弱" * 200)
    name = _folder_name(config)
    assert len(name.encode()) < 200
    assert name.startswith("engine-強")


# --- openings ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openings.usi.gz", "openings.usi.zst"])
def test_openings_in_a_damaged_file(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"startpos moves 7g7f\n" * 99)[:-9])
    with pytest.raises(GinkgoError, match=name):
        read_openings(path, 0, 0)


def test_openings_after_which_nothing_is_played(tmp_path):
    with pytest.raises(GinkgoError, match="--max-ply 8: expected more than the 8 plies"):
        Openings(None, 0, 0, max_ply=8)
    path = tmp_path / "openings.usi"
    path.write_text("startpos moves 7g7f 3c3d\nstartpos moves 2g2f\n")
    assert read_openings(path, 0, 0, max_ply=2) == [Opening(moves=("2g2f",))]
    with pytest.raises(GinkgoError, match="no opening in it: games are over in all 2"):
        read_openings(path, 0, 0, max_ply=1)


# --- engines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["os._exit(0)", "time.sleep(0.2); os._exit(0)"])
def test_an_engine_that_ends_after_each_game(tmp_path, after):
    """Before or after the next game has looked at it: that game is played all the same."""
    player = limited(parse_player(engine(tmp_path, after)), Limits(byoyomi=20_000))
    seats = {name: Seat(player, Rules(), 20) for name in "ab"}
    try:
        for number in range(2):
            played = play_game(Pairing(number, Opening()), seats, Rules(), 20, 500)
            assert (played.end, played.winner) == ("sennichite", "d")
    finally:
        for seat in seats.values():
            seat.stop()


def test_ended_from_outside(tmp_path):
    """SIGTERM ends the match as Ctrl-C does, with engines that would outlive their input."""
    pids = tmp_path / "pids"
    at_end = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(300)"
    text = engine(tmp_path, at_end=at_end)
    out = tmp_path / "m"
    command = [sys.executable, "-m", "ginkgo", "match", text, text + " other", "-o", str(out)]
    running = subprocess.Popen(
        [*command, "--games", "9000", "--no-kifu"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while running.poll() is None:
            if (out / GAMES).exists() and (out / GAMES).stat().st_size:
                break
            time.sleep(0.1)
        running.send_signal(signal.SIGTERM)
        output, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 143, errors
    assert "broken off" in output
    for pid in pids.read_text().split() if pids.exists() else ():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)


# --- the rating list --------------------------------------------------------------------------


def test_a_picture_of_names_with_signs(tmp_path):
    for name in ("$x$", r"a $\frac$"):
        folder = tmp_path / f"{len(name)}"
        player = {"name": name, "engine": f"usi:/bin/{name}"}
        other = {"name": "uniform", "engine": "uniform"}
        with MatchFolder(folder, {"players": [player, other]}, kifu=False) as games:
            games.add(a_game(0))
    assert cli.run(["rate", str(tmp_path), "--png", str(tmp_path / "ratings.png")]) == 0
    assert (tmp_path / "ratings.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(GinkgoError, match="--anchor-elo nan"):
        cli.run(["rate", str(tmp_path), "--anchor-elo", "nan"])
