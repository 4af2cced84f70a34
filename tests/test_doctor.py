"""`ginkgo doctor`: the verb to its end, and what it concludes from machines that are not here."""

from __future__ import annotations

import json
import re

import pytest

from ginkgo.cli import run
from ginkgo.doctor import advice, as_text, device, look
from ginkgo.errors import GinkgoError
from ginkgo.training.recipe import choose_precision


def test_doctor_end_to_end(games_dir, tmp_path, capsys):
    file = games_dir / "part-00000.usi"
    options = ["--network", "b1c8", "--batch-sizes", "16", "--seconds", "0.05"]
    places = ["--data", str(file), "--runs", str(tmp_path / "runs")]
    assert run(["doctor", *options, *places, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["faults"] == []
    assert report["versions"]["packages"]["tensorflow"] == report["tensorflow"]["version"]
    assert report["gpu"]["names"] == []
    assert report["gpu"]["why"]
    precisions = ["bfloat16"] * (choose_precision("auto") == "bfloat16") + ["float32"]
    assert [step["precision"] for step in report["steps"]] == precisions
    for step in report["steps"]:
        assert (step["network"], step["batch_size"]) == ("b1c8", 16)
        assert step["positions_per_second"] > 0
    assert report["input"][0]["workers"] == 1
    assert all(entry["positions_per_second"] > 0 for entry in report["input"])
    assert any("--batch-size 16" in text for text in report["advice"])
    assert any("--workers" in text for text in report["advice"])
    assert not (tmp_path / "runs").exists(), "a look leaves nothing behind"
    text = as_text(report)
    assert text[-1] == "ginkgo can train here"
    assert all("\n" not in line for line in text)


@pytest.mark.parametrize(
    "options", [["--seconds", "-1"], ["--seconds", "nan"], ["--batch-sizes", "1"]]
)
def test_options_that_cannot_work(options):
    with pytest.raises(GinkgoError, match=options[0]):
        run(["doctor", *options])


# --- machines that are not here ---------------------------------------------------------------


def _device(**what):
    tensorflow = {"version": "2.21.0", "cuda": "12.5", "error": ""}
    return {"tensorflow": tensorflow, "gpus": [], "log": [], "steps": [], **what}


@pytest.mark.parametrize(
    ("driver", "hidden", "found", "why"),
    [
        ([], None, _device(), "nvidia-smi"),
        (["H200, 570"], "", _device(), "CUDA_VISIBLE_DEVICES='' hides all"),
        (["H200, 570"], "-1", _device(), "hides all"),
        (
            ["H200, 570"],
            "0",
            _device(log=["x", "Cannot dlopen some GPU libraries."]),
            r"Cannot dlopen .*make train GPU=1",
        ),
        (
            ["H200, 570"],
            None,
            _device(tensorflow={"version": "2.21.0", "cuda": None, "error": ""}),
            "without CUDA",
        ),
        (
            ["H200, 570"],
            None,
            _device(tensorflow={"version": None, "cuda": None, "error": "does not load: SIGILL"}),
            "does not load",
        ),
    ],
)
def test_why_there_is_no_gpu(driver, hidden, found, why, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(look, "_driver", lambda: driver)
    assert re.search(why, look.gpu(found)["why"])


def test_gpu_in_use_needs_no_reason(monkeypatch):
    monkeypatch.setattr(look, "_driver", lambda: ["H200, 570"])
    assert look.gpu(_device(gpus=["NVIDIA H200"])) == {
        "names": ["NVIDIA H200"],
        "driver": ["H200, 570"],
        "why": "",
    }


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
        ("raise ImportError('no module named tensorflow')", "no module named tensorflow"),
    ],
)
def test_tensorflow_that_does_not_load_is_told(code, why, monkeypatch, tmp_path):
    stub = tmp_path / "python"
    stub.write_text(f'#!/bin/sh\nexec {device.sys.executable} -c "{code}"\n')
    stub.chmod(0o755)
    monkeypatch.setattr(device.sys, "executable", str(stub))
    found = device.ask("", 1.0)
    assert why in found["tensorflow"]["error"]
    assert found["steps"] == []


def test_what_was_measured_before_a_crash_is_kept(monkeypatch, tmp_path):
    stub = tmp_path / "python"
    trial = {"network": "b10c192", "batch_size": 4096, "precision": "bfloat16"}
    lines = [
        {"tensorflow": _device()["tensorflow"], "gpus": ["H200"]},
        {"step": {**trial, "batch_size": 256, "positions_per_second": 1000.0}},
        {"trying": trial},
    ]
    told = "\n".join(map(json.dumps, lines))
    stub.write_text(f"#!/bin/sh\ncat <<'EOF'\n{told}\nEOF\nkill -9 $$\n")
    stub.chmod(0o755)
    monkeypatch.setattr(device.sys, "executable", str(stub))
    found = device.ask("", 1.0)
    assert found["gpus"] == ["H200"]
    assert [entry.get("error") for entry in found["steps"]] == [None, "ended by SIGKILL"]
    assert found["steps"][1]["batch_size"] == 4096


def _report(step_rate: float, reader_rate: float, cores: int, **machine):
    places = [{"what": "runs", "path": "runs", "writable": True, "error": "", "free_gib": 100.0}]
    return {
        "versions": {"packages": {"numpy": "2"}},
        "tensorflow": {"version": "2.21.0", "error": ""},
        "gpu": {"names": [], "driver": []},
        "machine": {"cores": cores, "load": 0.0, "memory_free_gib": 16.0, **machine},
        "places": places,
        "input": [{"workers": 1, "positions_per_second": reader_rate}],
        "steps": [
            {
                "network": "b5c64",
                "batch_size": 128,
                "precision": "float32",
                "positions_per_second": step_rate,
            }
        ],
    }


@pytest.mark.parametrize(
    ("step_rate", "reader_rate", "cores", "said"),
    [
        (300, 100_000, 2, "--workers 1"),
        (90_000, 50_000, 16, "--workers 3"),
        (90_000, 10_000, 4, "12 readers on 4 cores"),
    ],
)
def test_advice_on_workers(step_rate, reader_rate, cores, said):
    texts = advice.advice(_report(step_rate, reader_rate, cores))
    assert any(said in text for text in texts), texts


def test_advice_on_what_is_short():
    report = _report(300, 100_000, 2, memory_free_gib=1.0, load=5.0)
    shared = {"what": "shared memory", "path": "/dev/shm", "writable": True, "free_gib": 0.06}
    report["places"] += [shared]
    texts = " ".join(advice.advice(report))
    assert "--pool" in texts
    assert "--shm-size" in texts
    assert "load 5.0" in texts
    report["places"][0] |= {"writable": False, "error": "Permission denied"}
    report["versions"]["packages"]["cshogi"] = None
    assert len(advice.faults(report)) == 2
