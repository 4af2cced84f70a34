"""`ginkgo convert` as processes that are interrupted or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def _convert_process(source: Path, out: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "ginkgo", "convert", str(source), "-o", str(out)]
    return subprocess.Popen(
        [*command, "--workers", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=Path(__file__).parent.parent,
        # A shell that runs the tests in the background has SIGINT ignored, and so would this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def _session(leader: int) -> list[int]:
    """Processes of a session that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_leave_no_process(tmp_path, sample_lines, sign):
    source, out = tmp_path / "engine.usi", tmp_path / "out"
    source.write_text("\n".join(sample_lines[:200] * 60))
    process = _convert_process(source, out)
    deadline = time.monotonic() + 30
    while not list(out.glob("train/*.sfenx")) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    if sign == signal.SIGINT:
        os.killpg(process.pid, sign)  # as a terminal does
    else:
        process.kill()
    stdout, stderr = process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while _session(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _session(process.pid) == []
    if sign == signal.SIGINT:
        assert process.returncode == 130
        assert b"Traceback" not in stderr
        assert stdout == b""
        assert not list(out.glob("**/*"))
    else:
        assert not (out / "train" / "manifest.json").exists()
