"""Mistakes with files, folders and values, verb by verb: one line that names the place."""

from __future__ import annotations

import json

import pytest

from ginkgo import cli
from ginkgo.errors import GinkgoError, run_main
from ginkgo.models.directory import find_model


@pytest.fixture
def box(tmp_path, monkeypatch):
    """A folder with all sorts of things that are not what was expected, to be in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game.usi").write_text("startpos moves 7g7f 3c3d\twinner=b\tend=toryo\n")
    (tmp_path / "empty.usi").touch()
    (tmp_path / "loop.usi").symlink_to("loop.usi")
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    return tmp_path


def told(capsys, command: str) -> str:
    """What is said of a mistake on standard error."""
    with pytest.raises(SystemExit) as end:
        run_main(lambda: cli.run([{"''": ""}.get(word, word) for word in command.split()]))
    assert end.value.code in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("analyze game.usi -o file", "file/.ginkgo: cannot write: file is not a directory"),
        ("analyze game.usi -o file/x", "file/x/.ginkgo: cannot write: file is not a directory"),
        ("convert game.usi -o file", "file: not a directory"),
        ("convert game.usi -o out --report folder", "folder: cannot write: Is a directory"),
        ("match uniform hash -o file", "file/games.jsonl: cannot write: file is not a directory"),
        ("match uniform hash --json file/x", "file/x: cannot write: file is not a directory"),
        ("selfplay --model uniform -o file", "file: cannot write: file is not a directory"),
        ("reinforce --runs file", "file/reinforce: cannot write: file is not a directory"),
        ("stats game.usi --plot folder", "folder: cannot write: Is a directory"),
        ("stats game.usi --plot file/x", "file/x: cannot write: file is not a directory"),
    ],
)
def test_places_that_cannot_be_written(box, capsys, command, said):
    assert told(capsys, command) == said
    assert (box / "file").read_text() == "hello"


@pytest.mark.parametrize("verb", ["inspect", "stats", "analyze", "convert", "train", "evaluate x"])
def test_files_that_are_not_there(box, capsys, verb):
    more = {"convert": " -o out", "train": " --runs r"}.get(verb, "")
    if verb.startswith("evaluate"):
        assert told(capsys, f"{verb} nothing{more}").startswith("x: no model directory")
    else:
        assert told(capsys, f"{verb} nothing{more}") == "nothing: no such file or directory"


def test_files_without_a_game(box, capsys):
    assert told(capsys, "analyze empty.usi").endswith("empty.usi: no game in it")
    assert told(capsys, "stats empty.usi").startswith("no game could be used")
    assert cli.run(["inspect", "empty.usi"]) == 0
    assert capsys.readouterr().err == "empty.usi: no game in it\n"


@pytest.mark.parametrize("verb", ["train", "evaluate pretrained"])
def test_files_without_a_game_for_a_network(box, capfd, verb):
    import gzip

    (box / "cut.usi.gz").write_bytes(gzip.compress(b"startpos moves 7g7f\n" * 99)[:30])
    for name, why in (("empty.usi", "ginkgo inspect says what"), ("cut.usi.gz", "cut.usi.gz:1: ")):
        with pytest.raises(GinkgoError, match=rf"{name}: no games to .*; {why}"):
            cli.run([*verb.split(), name])


def test_links_that_lead_in_a_circle(box, capsys):
    assert cli.run(["analyze", "loop.usi"]) == 1
    assert "loop.usi: left out: line 1: cannot be opened" in capsys.readouterr().err
    assert cli.run(["inspect", "loop.usi"]) == 0
    assert "cannot be opened" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--port 99999", "--port 99999: expected 0 to 65,535"),
        ("--port -1", "--port -1: expected 0 to 65,535"),
        ("--seconds nan", "--seconds nan: expected more than 0"),
        ("--seconds inf", "--seconds inf: expected more than 0"),
        ("--max-ply 0", "--max-ply 0: expected at least 1"),
        ("''", "'': no model directory (no config.json in it)"),
        ("folder", "folder: no model directory (no config.json in it)"),
    ],
)
def test_values_of_play(box, capsys, options, said):
    assert told(capsys, f"play --no-browser {options}") == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON: "),
        ("[]", "expected a JSON object, not list"),
        ("{}", "no 'network' in it"),
        ({"labels": "other"}, "labels other; expected dlshogi2187"),
        ({"features": "other"}, "planes 'other'; expected one of dlshogi119 ginkgo148"),
        ({"heads": "policy"}, "heads 'policy'; expected a list"),
    ],
)
@pytest.mark.parametrize("verb", ["play", "selfplay --model", "reinforce --from"])
def test_a_model_directory_that_is_none(box, capsys, verb, text, said):
    if isinstance(text, dict):
        known = json.loads((find_model("pretrained") / "config.json").read_text())
        text = json.dumps(known | text)
    (box / "folder" / "config.json").write_text(text)
    assert told(capsys, f"{verb} folder").startswith(f"folder/config.json: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON: "),
        ("[]", "expected a JSON object, not list"),
        ('{"players": [1, 2]}', "no settings of a match: expected two players"),
        ('{"players": [{"name": "a"}, {"name": "b"}]}', "no settings of a match: expected two"),
    ],
)
@pytest.mark.parametrize("verb", ["rate folder", "match uniform hash -o folder"])
def test_a_match_that_is_none(box, capsys, verb, text, said):
    (box / "folder" / "config.json").write_text(text)
    (box / "folder" / "games.jsonl").write_text("{}\n")
    assert f"folder/config.json: {said}" in told(capsys, verb)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("runs/run/reinforce.json", "[]", "expected a JSON object, not list"),
        ("runs/run/reinforce.json", "\udcff", "not valid JSON: "),
        ("runs/run/generations.jsonl", "[]\n", "expected a generation"),
        ("runs/run/generations.jsonl", "{\n", "cannot be read: "),
        ("out/training_data/run_001/run.json", "[]", "expected a JSON object, not list"),
        ("out/training_data/run_001/run.json", "{}", "no 'games' in it"),
        ("out/training_data/run_001/games_00000.npz", "rubbish", "damaged: no numpy arrays in it"),
    ],
)
def test_a_run_that_is_damaged(box, capsys, name, text, said):
    place = box / name
    place.parent.mkdir(parents=True)
    place.write_bytes(text.encode(errors="surrogateescape"))
    play = "selfplay --model uniform -o out --games 1"
    line = told(capsys, play if name.startswith("out") else "reinforce --run run")
    assert line.startswith(name)
    assert said in line
