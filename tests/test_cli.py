"""The command `ginkgo <verb>`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ginkgo import __version__, cli

ROOT = Path(__file__).parent.parent


def test_help_and_version(capsys):
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in cli.VERBS)
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"ginkgo {__version__}\n"
    assert cli.run([]) == 2
    assert capsys.readouterr().err.startswith("usage")


@pytest.mark.parametrize(
    ("verb", "hint"), [("covnert", "did you mean 'convert'?"), ("qqq", "expected one of analyze")]
)
def test_unknown_verb(verb, hint, capsys):
    assert cli.run([verb]) == 2
    error = capsys.readouterr().err
    assert hint in error
    assert error.count("\n") == 1


def _run(*arguments: str, code: str = "") -> subprocess.CompletedProcess:
    command = ["-c", code] if code else ["-m", "ginkgo"]
    return subprocess.run(
        [sys.executable, *command, *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_a_mistake_is_one_line():
    done = _run("convert", "/no/such/games", "-o", "/no/such/place")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: /no/such/games: no such file or directory\n"


def test_help_loads_nothing_heavy():
    code = """
import sys
from ginkgo.cli import run
try:
    run(sys.argv[1:])
except SystemExit:
    pass
heavy = {"tensorflow", "keras", "cshogi", "rsshogi", "numba"}
if sys.argv[1] == "--help":
    heavy |= {"numpy", "tyro", "rich"}
print("loaded", sorted(heavy & set(sys.modules)))
"""
    helps = [[verb, "--help"] for verb in ("inspect", "stats", "convert")]
    for arguments in (["--help"], *helps):
        done = _run(*arguments, code=code)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("loaded []\n")
    assert "--min-ply" in done.stdout
    assert "--val-fraction" in done.stdout


def test_conversion_does_without_tensorflow():
    code = """
import sys
import ginkgo.records.convert, ginkgo.records.replay
print("tensorflow" in sys.modules)
"""
    assert _run(code=code).stdout == "False\n"
