"""The command `ginkgo <verb>`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from ginkgo import __version__, cli
from ginkgo.errors import run_main
from ginkgo.examples import EXAMPLES
from ginkgo.options import names_of
from ginkgo.records.lock import lock

ROOT = Path(__file__).parent.parent


def test_help_and_version(capsys):
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in cli.VERBS)
    assert Path(text.split()[-1]).is_file()  # the documentation
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


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("evaluate x y --positons 3", "no option --positons: did you mean --positions?"),
        ("evaluate x y --positons=3", "no option --positons: did you mean --positions?"),
        # A required option that is missing as well does not hide the one that is misspelt.
        ("convert x --tooo csa", "no option --tooo: did you mean --to?"),
        ("train x --batch_sise 4", "no option --batch_sise: did you mean --batch-size?"),
        ("doctor --zzzzzz", "no option --zzzzzz;"),
        ("convert x", "missing: --out;"),
        ("convert", "missing: --out;"),
        ("evaluate", "missing: MODEL;"),
        ("match", "missing: A, B;"),
        ("evaluate x y --split tets", "--split tets: did you mean test?"),
        ("evaluate x y --split qqq", "--split qqq: expected one of auto test val train all"),
        ("evaluate x y --positions", "missing: a value for --positions;"),
        ("evaluate x y --positions many", "--positions: expected a whole number, not 'many';"),
        ("play --seconds long", "--seconds: expected a number, not 'long';"),
        ("play x y", "unexpected: y;"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(arguments, said, capsys):
    verb, *rest = arguments.split()
    with pytest.raises(SystemExit) as end:
        cli.run([verb, *rest])
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}")
    assert error.endswith(f"see ginkgo {verb} --help\n")
    assert error.count("\n") == 1


def test_without_the_hook_tyro_tells_it_itself(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro._errors", None)
    with pytest.raises(SystemExit) as end:
        cli.run(["play", "--sceonds", "3"])
    assert end.value.code == 2
    assert "--seconds" in capsys.readouterr().err


@pytest.mark.parametrize("verb", cli.VERBS)
def test_each_verb_has_two_examples_that_parse(verb):
    examples = EXAMPLES[verb]
    assert len(examples) == 2
    for command, text in examples:
        program, named, *rest = shlex.split(command)
        assert (program, named) == ("ginkgo", verb)
        assert text
        tyro.cli(cli.VERBS[verb].load_options(), args=rest, console_outputs=False)


def test_examples_are_of_verbs():
    assert set(EXAMPLES) == set(cli.VERBS)


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_ends_with_the_examples(verb, capsys):
    with pytest.raises(SystemExit) as end:
        cli.run([verb, "--help"])
    assert not end.value.code
    text = capsys.readouterr().out
    assert all(command in text.partition("examples:")[2] for command, _ in EXAMPLES[verb])
    # The dataclass that the table names is the one that the verb parses.
    names = names_of(cli.VERBS[verb].load_options())
    assert all(name in text for name in names if not name.startswith("--no-"))


def test_unknown_shell_is_one_line(capsys):
    assert cli.run(["--completion", "powershell"]) == 2
    assert capsys.readouterr().err.endswith("expected bash zsh fish tcsh\n")


def test_completion_in_bash():
    script = _run("--completion", "bash").stdout
    function = re.search(r"complete .*-F (\w+) .*ginkgo", script)[1]

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; {function}"
        told = 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{asked}\n{told}"], capture_output=True, text=True
        )
        return set(done.stdout.split())

    assert "evaluate" in completed("ginkgo", "eval")
    assert "--min-ply" in completed("ginkgo", "evaluate", "--min")


# --- the process ------------------------------------------------------------------------------


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


# --- where something is missing ---------------------------------------------------------------

#: Python without what it has on Linux only.
ELSEWHERE = """
import os, signal, sys
sys.modules["fcntl"] = None
for name in "sched_getaffinity nice killpg fork".split():
    delattr(os, name)
del signal.pthread_sigmask, signal.SIGKILL
"""


def test_all_verbs_load_where_python_has_less():
    """As on Windows. Whatever a verb lacks there is told in one line."""
    code = f"""{ELSEWHERE}
import importlib
from ginkgo.cli import VERBS, run
from ginkgo.errors import missing
for name, verb in VERBS.items():
    try:
        importlib.import_module(verb.module)
        verb.load_options()
    except ModuleNotFoundError as error:
        print(name, missing(error))
run(["--completion", "bash"])
"""
    done = _run(code=code)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if "no module" in line]
    assert told == []
    assert "--min-ply" in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fcntl", "Python has no module fcntl on this system; docs/FAQ.md says what works where"),
        ("tyro.conf", "the Python package tyro is missing: pip install -r requirements.txt"),
    ],
)
def test_a_missing_module_is_one_line(name, said, monkeypatch, capsys):
    def load(_name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cli.importlib, "import_module", load)
    with pytest.raises(SystemExit) as end:
        run_main(lambda: cli.run(["stats", "x"]))
    assert (end.value.code, capsys.readouterr().err) == (1, f"error: {said}\n")


def test_a_fault_of_ginkgo_s_own_is_not_hidden():
    def wrong():
        raise ModuleNotFoundError("No module named 'ginkgo.nothing'", name="ginkgo.nothing")

    with pytest.raises(ModuleNotFoundError):
        run_main(wrong)


def test_a_lock_is_one_process_s(tmp_path):
    with open(tmp_path / "lock", "w") as first, open(tmp_path / "lock", "w") as second:
        assert lock(first.fileno())
        assert not lock(second.fileno())
    with open(tmp_path / "lock", "w") as third:
        assert lock(third.fileno())


def test_without_locks_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with open(tmp_path / "lock", "w") as first, open(tmp_path / "lock", "w") as second:
        assert lock(first.fileno())
        assert lock(second.fileno())
