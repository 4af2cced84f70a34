"""Options that cannot work are refused in one line, before TensorFlow is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ginkgo.errors import GinkgoError
from ginkgo.training import config as config_module
from ginkgo.training.config import ACTIVATIONS, TrainConfig, check

ROOT = Path(__file__).parents[1]
DATA = (Path("records/train"),)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    DATA[0].mkdir(parents=True)


def refusal(**fields: object) -> str:
    """What `check` says of a configuration that differs from the default in `fields`."""
    with pytest.raises(GinkgoError) as caught:
        check(replace(TrainConfig(DATA), **fields))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_pass():
    check(TrainConfig(DATA))
    for heads in (("policy",), ("policy", "value")):
        check(TrainConfig(DATA, heads=heads))


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 2, "pool": 2, "min_fill": 2},
        {"epochs": 3},
        {"steps": 3},
        {"warmup": 0.0, "ema": 0.0, "clip": 0.0, "weight_decay": 0.0, "label_smoothing": 0.0},
        {"val_fraction": 0.0},
        {"val_fraction": 0.45, "seed": 2**32 - 1},
        {"view": "after"},
        {"endings": ("toryo", "tsumi")},
        {"heads": ("policy", "value"), "best_by": "policy"},
        {"heads": ("policy",), "best_by": "policy"},
        {"features": "ginkgo148", "mirror": True},
        {"report": Path("report.json")},
        {"report": Path("runs/run/report.json")},
        {"run": "b1c8 v1.0", "runs": Path("new/folder")},
        *({"activation": name} for name in ACTIVATIONS),
    ],
    ids=str,
)
def test_what_works_passes(fields):
    check(replace(TrainConfig(DATA), **fields))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("batch_size", 0, "--batch-size 0: expected at least 2"),
        ("batch_size", 1, "--batch-size 1: expected at least 2"),
        *(
            (name, -1, f"--{name.replace('_', '-')} -1: expected at least 0")
            for name in (
                *("epochs", "steps", "keep", "workers"),
                *("eval_every", "checkpoint_every", "patience"),
            )
        ),
        ("min_ply", 0, "--min-ply 0: expected at least 1"),
        ("val_positions", 0, "--val-positions 0: expected at least 1"),
        ("test_positions", 0, "--test-positions 0: expected at least 1"),
        ("min_rating", -1.0, "--min-rating -1: expected at least 0"),
        ("min_rating", float("nan"), "--min-rating nan: expected a finite number"),
        ("weight_decay", -0.1, "--weight-decay -0.1: expected at least 0"),
        ("clip", -1.0, "--clip -1: expected at least 0"),
        ("clip", float("inf"), "--clip inf: expected a finite number"),
        ("learning_rate", 0.0, "--learning-rate 0: expected more than 0"),
        ("learning_rate", float("nan"), "--learning-rate nan: expected a finite number"),
        ("value_weight", 0.0, "--value-weight 0: expected more than 0"),
        *(
            (name, value, f"--{name.replace('_', '-')} {value:g}: expected at least 0 and less")
            for name in ("warmup", "ema", "label_smoothing")
            for value in (-0.5, 1.0)
        ),
        ("seed", -1, "--seed -1: expected 0 to 4294967295"),
        ("seed", 2**32, "--seed 4294967296: expected 0 to 4294967295"),
        ("val_fraction", -0.01, "--val-fraction -0.01: expected 0 to 0.45"),
        ("val_fraction", 0.5, "--val-fraction 0.5: expected 0 to 0.45"),
        ("pool", 512, "--pool 512: expected at least --batch-size 1024"),
        ("min_fill", -1, "--min-fill -1: expected 0 to --pool 1048576"),
        ("min_fill", 1 << 21, "--min-fill 2097152: expected 0 to --pool 1048576"),
    ],
)
def test_numbers(name, value, expected):
    assert refusal(**{name: value}).startswith(expected)


def test_epochs_and_steps():
    assert refusal(epochs=3, steps=5) == "--epochs 3 --steps 5: give one of them"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"data": ()}, "no data given: expected files, directories or globs, or --source"),
        ({"heads": ()}, "--heads: expected some of policy value"),
        ({"heads": ("value", "value")}, "--heads value value: expected each head once"),
        (
            {"best_by": "policy"},
            "--best-by policy: expected sum or a head that is trained (value)",
        ),
        (
            {"heads": ("policy",), "best_by": "value"},
            "--best-by value: expected sum or a head that is trained (policy)",
        ),
        (
            {"heads": ("policy", "value"), "view": "after"},
            "--view after: the policy head would see its move played; expected before",
        ),
        ({"endings": ("toryo", "tsumo")}, "--endings tsumo: did you mean tsumi?"),
        (
            {"endings": ("illegal",)},
            "--endings illegal: did you mean illegal_move or illegal_action?",
        ),
        ({"endings": ("toryo,tsumi",)}, "--endings toryo,tsumi: expected blanks between endings"),
        ({"endings": ("",)}, "--endings '': expected one of toryo "),
        ({"activation": "rleu"}, "--activation rleu: did you mean relu"),
        ({"activation": "xyz"}, "--activation xyz: expected one of relu silu "),
        ({"run": ""}, "--run '': expected a plain name"),
        ({"run": "a/b"}, "--run a/b: expected a plain name"),
        ({"run": "a\\b"}, "--run 'a\\b': expected a plain name"),
        ({"run": ".."}, "--run ..: expected a plain name"),
        ({"run": ".hidden"}, "--run .hidden: expected a plain name"),
    ],
    ids=str,
)
def test_choices(fields, expected):
    assert refusal(**fields).startswith(expected)


def test_places():
    Path("file").touch()
    Path("folder").mkdir()
    Path("runs").mkdir()
    Path("runs/taken").touch()
    place = "exists and is not a directory"
    assert refusal(runs=Path("file")) == f"--runs file: file {place}"
    assert refusal(runs=Path("file/deeper")) == f"--runs file/deeper: file {place}"
    assert refusal(run="taken") == f"--run taken: runs/taken {place}"
    report = Path("nowhere/report.json")
    assert refusal(report=report) == "--report nowhere/report.json: no directory nowhere"
    assert refusal(report=Path("file/x.json")) == "--report file/x.json: no directory file"
    assert refusal(report=Path("folder")) == "--report folder: is a directory; expected a file"


def test_places_without_permission(monkeypatch):
    """By a stand-in for the system's answer: root may write everywhere."""
    Path("locked").mkdir()
    monkeypatch.setattr(config_module.os, "access", lambda path, _mode: Path(path).name != "locked")
    expected = "locked: no permission to write"
    assert refusal(report=Path("locked/x.json")) == f"--report locked/x.json: {expected}"
    assert refusal(runs=Path("locked/runs")) == f"--runs locked/runs: {expected}"


@pytest.mark.parametrize(
    ("script", "options", "error"),
    [
        ("train_value.py", "--batch-size 0", "--batch-size 0: expected at least 2"),
        (
            "train_policy.py",
            "--view after",
            "--view after: the policy head would see its move played; expected before",
        ),
    ],
)
def test_scripts_answer_before_tensorflow(tmp_path, script, options, error):
    for name in ("tensorflow", "keras"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('loaded')\n")
    done = subprocess.run(
        [sys.executable, ROOT / script, "records/train", *options.split()],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {error}\n")
