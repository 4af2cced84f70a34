"""Files of kifu as they lie about: archives, links, pipes, names and texts in any encoding."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from kifu_texts import CSA_HEADER, CSA_MOVES, KIF_HEADER, read_one, refused

from ginkgo.errors import GinkgoError
from ginkgo.records import Game, Refusal
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.records.files import find_files
from ginkgo.records.inspect import inspect
from ginkgo.records.inspect import main as inspect_main
from ginkgo.records.kifu.detect import detect
from ginkgo.records.sources import read_games
from ginkgo.records.stats import main as stats_main

ROOT = Path(__file__).parent.parent
OPENING = "   1 ７六歩(77)\n   2 ３四歩(33)\n"
CSA_GAME = CSA_HEADER + CSA_MOVES + "%TORYO\n"


def zipped(entries: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(entries: dict[str, bytes], mode: str = "w") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def test_archives_within_archives(tmp_path):
    game = CSA_GAME.encode()
    inner = {
        "a.zip": zipped({"1.csa": game, "empty.csa": b""}),
        "b.tar.gz": tarred({"2.csa": game}, "w:gz"),
        "c.tgz": tarred({"3.csa": game}, "w:gz"),
        "d.tar": tarred({"e.zip": zipped({"4.csa": game})}),
    }
    path = tmp_path / "all.zip"
    path.write_bytes(zipped(inner))
    found = list(inspect([str(path)]))
    assert [one.game for _, _, one in found if isinstance(one, Game) and one.moves] == [
        *("all/a/1", "all/b/2", "all/c/3", "all/d/e/4")
    ]
    assert found[0][0] == f"{path}!a.zip!1.csa"
    deep = game
    for _ in range(5):
        deep = zipped({"x.zip": deep, "1.csa": game})
    path.write_bytes(deep)
    found = list(inspect([str(path)]))
    assert any(isinstance(one, Refusal) and "deep" in one.reason for _, _, one in found)


def test_damage_to_one_member_leaves_the_others(tmp_path):
    path = tmp_path / "x.zip"
    data = bytearray(zipped({"1.csa": CSA_GAME.encode(), "2.csa": CSA_GAME.encode()}))
    place = data.index(b"+7776FU")
    data[place : place + 7] = b"+2726FU"
    path.write_bytes(data)
    bad, good = inspect([str(path)])
    assert isinstance(bad[2], Refusal)
    assert bad[0] == f"{path}!1.csa"
    assert isinstance(good[2], Game)
    cut = tmp_path / "x.tar"
    cut.write_bytes(tarred({"1.csa": CSA_GAME.encode(), "2.csa": CSA_GAME.encode() * 30})[:2500])
    kinds = [type(one) for _, _, one in inspect([str(cut)])]
    assert kinds[0] is Game
    assert kinds[-1] is Refusal


def test_directories_with_links_in_circles_and_to_nowhere(tmp_path):
    games = tmp_path / "games"
    (games / "deep").mkdir(parents=True)
    (games / "deep" / "a b.csa").write_text(CSA_GAME)
    (games / "deep" / "up").symlink_to(games)
    (games / "gone.csa").symlink_to("nowhere")
    (games / "round.kif").symlink_to("round.kif")
    (games / "elsewhere").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.csa").write_text(CSA_GAME.replace("7776", "2726"))
    found = {file: one for file, _, one in inspect([str(games)])}
    assert [Path(file).name for file in found] == ["a b.csa", "b.csa", "gone.csa", "round.kif"]
    assert [isinstance(one, Refusal) for one in found.values()] == [False, False, True, True]
    report = convert(ConvertConfig((str(games),), str(tmp_path / "out"), workers=1))
    assert (report["games"], len(report["refused"])) == (2, 2)


def test_patterns_end_where_links_lead_in_circles(tmp_path, monkeypatch):
    folder = tmp_path / "games" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.csa").write_text(CSA_GAME)
    for number in range(6):
        (folder / f"up{number}").symlink_to(tmp_path / "games")
    monkeypatch.chdir(tmp_path)
    expected = [Path("games/deep/a.csa")]
    for pattern in ("games/**/*.csa", "**/*.csa", "ga*/**/deep/a.*", f"{tmp_path}/**"):
        found = find_files([pattern], [".csa"])
        assert [file.absolute() for file in found] == [file.absolute() for file in expected]


def test_a_directory_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.csa").write_text(CSA_GAME)
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(GinkgoError, match="shut: Permission denied"):
        find_files([tmp_path], [".csa"])


def test_names_in_no_encoding(tmp_path, capsys):
    folder = os.fsencode(tmp_path) + b"/g\xff"
    os.mkdir(folder)
    for name, text in ((b"\xfe.csa", CSA_GAME), (b"bad\xfe.csa", "+7775FU\n"), (b"\xfd.usi", "x")):
        with open(folder + b"/" + name, "w") as stream:
            stream.write(text)
    path = os.fsdecode(folder)
    assert inspect_main([path, "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["plies"] for one in found) == [0, 0, 2]
    assert "\\udcfe.csa" in found[-1]["file"]
    report = convert(ConvertConfig((path,), str(tmp_path / "out"), workers=1))
    assert (report["games"], len(report["refused"])) == (1, 2)
    assert stats_main([path]) == 0


def test_output_that_the_terminal_cannot_show(tmp_path):
    (tmp_path / "g.csa").write_text(CSA_GAME.replace("black", "先手"))
    done = subprocess.run(
        [sys.executable, "-m", "ginkgo", "inspect", str(tmp_path / "g.csa")],
        **{"capture_output": True, "cwd": ROOT, "env": os.environ | {"PYTHONIOENCODING": "ascii"}},
    )
    assert done.returncode == 0, done.stderr
    assert b"2 plies" in done.stdout


@pytest.mark.parametrize("name", ["pipe", "pipe.usi", "pipe.csa"])
def test_pipes_are_read_once_and_whole(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    games = [CSA_GAME.replace("3334FU", move) for move in ("8384FU", "3334FU", "4344FU")]
    writer = threading.Thread(target=path.write_text, args=("/\n".join(games),))
    writer.start()
    report = convert(ConvertConfig((str(path),), str(tmp_path / "out"), workers=1))
    writer.join()
    assert report["games"] == 3


@pytest.mark.parametrize("name", ["x.usi", "x.sfen", "x.csa", "x.kif", "x.jkf", "x.psv"])
def test_content_decides_in_every_verb(tmp_path, name):
    path = tmp_path / name
    texts = {
        "csa": CSA_GAME,
        "kif": KIF_HEADER + OPENING + "3 投了\n",
        "usi": "startpos moves 7g7f 3c3d\twinner=w\tend=toryo\n",
        "jkf": '{"header": {}, "moves": [{}, {"special": "TORYO"}]}',
    }
    for kind, text in texts.items():
        path.write_text(text)
        [(_, game)] = read_games(path)
        assert isinstance(game, Game), game
        assert game.format == kind
        if kind != "jkf":
            out = tmp_path / f"{kind}-out"
            report = convert(ConvertConfig((str(path),), str(out), workers=1))
            assert (report["games"], report["positions"]) == (1, 2)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_files_of_many_games_in_any_encoding(tmp_path, encoding, line_end):
    lines = "startpos moves 7g7f\twinner=b\n# x\n\nstartpos moves 2g2f\twinner=b\n"
    for name, text in (("g.csa", f"{CSA_GAME}/\n{CSA_GAME}"), ("g.usi", lines)):
        path = tmp_path / name
        path.write_bytes(text.replace("\n", line_end).encode(encoding))
        found = [game for _, game in read_games(path)]
        assert [isinstance(game, Game) for game in found] == [True, True], found
        assert [one.total for _, _, one in inspect([str(path)])] == [len(g.moves) for g in found]


def test_text_in_jis():
    game = read_one((KIF_HEADER + OPENING).encode("iso2022_jp"), "x.kif")
    assert (game.encoding, game.black, game.total) == ("iso2022_jp", "甲", 2)
    assert "JIS" in refused(b"\x1b$B\x01\x02 1\n+7776FU\n", "x.csa").reason


def test_a_jkf_with_any_name():
    assert detect(b'{"header": {}, "moves": [{}]}', "x.csa") == "jkf"
