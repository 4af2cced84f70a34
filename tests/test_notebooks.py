"""The notebooks run from a fresh start on the bundled data, and draw what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: Pictures that each draws.
PICTURES = {"1_records": 4, "2_curves": 5, "3_eye": 4, "4_selfplay": 3}

# The cells of each in order and in a namespace of their own, as Jupyter runs them; `plt.show` keeps
# the pictures. One process for all: to load the libraries anew for each takes longer than the rest.
RUNNER = """
import json, sys
from pathlib import Path
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

def show():
    for number in plt.get_fignums():
        count = len(list(out.glob(f"{path.stem}-*.png")))
        plt.figure(number).savefig(out / f"{path.stem}-{count}.png")
    plt.close("all")

plt.show, out = show, Path(sys.argv[1])
for path in map(Path, sys.argv[2:]):
    names = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    assert not plt.get_fignums(), "a picture that is not shown"
"""


def test_the_notebooks_draw_their_pictures(tmp_path):
    """In a place without runs, as after a fresh clone."""
    assert {path.stem for path in NOTEBOOKS} == set(PICTURES)
    (tmp_path / "data").symlink_to(ROOT / "data")
    out = Path(os.environ.get("GINKGO_PICTURES", tmp_path))  # to look at them
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(out), *map(str, NOTEBOOKS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, count in PICTURES.items():
        pictures = sorted(out.glob(f"{name}-*.png"))
        assert len(pictures) == count, name
        for picture in pictures:
            assert np.std(imread(picture)[..., :3]) > 0.02, f"{picture.name} is nearly empty"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_is_kept_in_the_repository(path):
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    for cell in cells:
        assert not cell.get("outputs"), "clear all outputs before committing"
        assert cell.get("execution_count") is None
    assert len({cell["id"] for cell in cells}) == len(cells)
