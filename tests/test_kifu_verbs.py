"""The verbs on kifu of every form: `convert`, `inspect`, `stats`, and the merging of positions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import fuzz_kifu
import pytest
from kifu_texts import core

from ginkgo.records import parse_game_line, parse_record
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.merge import merge_split
from ginkgo.records.convert.run import convert
from ginkgo.records.inspect import main as inspect_main
from ginkgo.records.sources import game_from_line, read_games
from ginkgo.records.split import merged_games
from ginkgo.records.stats import main as stats_main

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
