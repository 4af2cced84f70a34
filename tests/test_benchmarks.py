"""The benchmarks run and say what they should; the frozen baselines read what ginkgo reads."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
import shuffle

from ginkgo.features.ginkgo148 import pack_positions, planes_on_host
from ginkgo.pipeline.parse import ParseOptions
from ginkgo.pipeline.parse_records import parse_records
from ginkgo.records import Game
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.render import Rendered, render
from ginkgo.records.files import open_binary
from ginkgo.records.sources import game_from_line

ROOT = Path(__file__).resolve().parent.parent

OPTIONS = {
    "naive": "--lines 50 --seconds 0.1 --batch-size 16 --shuffle 32",
    "pipeline": "--workers 1 --batch-size 128 --pool 512 --warmup 2 --positions 512 --seconds 0"
    " --plane-positions 256 --naive-seconds 0.1 --naive-shuffle 32 --naive-lines 50",
    "starvation": "--rate 2000 --workers 1 --batch-size 128 --pool 512 --warmup 0.2 --seconds 0.5",
    "memory": "--workers 1 --batch-size 128 --pool 512 --copies 2",
    "training": "--network b1c8 --batch-size 64 --steps 12 --pool 512 --seconds 0.2",
    "convert": "--games 6 --merged 20 --repeats 1",
    "evaluator": "--formats onnx --batch-sizes 1 4 --seconds 0.1",
    "arena": "--model uniform --playouts 4 --together 4 --games 2 --seconds 0.2 --warm-up 0.1"
    " --max-ply 12 --backends int8",
    "mixing": "--pulls 400 --scale 0.001 --train --network b1c8 --batch-size 64 --steps 12"
    " --pool 512 --turns 1",
    "search": "--positions 2 --simulations 300 --playouts 40 --naive 20 --seconds 0.1",
    "selfplay": "--games 2 --single 1 --concurrent 2 --playouts 4 --cheap-playouts 2 --max-ply 6"
    " --processes 1 --seconds 0.1",
    "fleet": "--workers 3 --uploads 6 --games 2",
    "shuffle": "--workers 0 --pool 512 --batches 32 --keep 0 8 --copies 8 --positions 500",
}
MIXED = {"batch", "per_game", "expected", "measured", "ratio_of_shares_with_mate"}
KEYS = {
    "naive": {"naive_packed_per_second", "naive_148_planes_per_second"},
    "pipeline": {
        "positions_per_second",
        "workers",
        "positions_per_second_per_core",
        "ratio_to_naive",
        "by_workers",
        "naive_packed_per_second",
        "naive_148_planes_per_second",
        "from_generator_per_second",
    },
    "starvation": {"wait_fraction", "consumed_per_second", "rate", "workers", "batch_size"},
    "mixing": {"sizes", "vectors", "ratio", "with_reports_per_second"},
    "memory": {"growth", "peak_1x_mib", "peak_10x_mib"},
    "shuffle": {"steady", "full"},
    "fleet": {
        "uploads_per_second",
        "p50_ms",
        "p99_ms",
        "lost",
        "duplicated",
        "validation_ms_per_game",
        "server_mib",
        "checkers_mib",
    },
    "selfplay": {
        "positions_per_second",
        "evaluator_busy",
        "mean_batch",
        "ratio_to_single_game",
        "evaluated_per_second",
        "bare_per_second",
        "processes",
    },
    "training": {
        "fit_positions_per_second",
        "bare_positions_per_second",
        "ratio",
        "torch_positions_per_second",
    },
    "convert": {
        "csa_games_per_second_per_core",
        "kif_games_per_second_per_core",
        "csa_rsshogi_games_per_second",
        "kif_rsshogi_games_per_second",
        "csa_cshogi_games_per_second",
        "kif_cshogi_games_per_second",
        "merged_games_per_second_per_core",
        "merged_peak_mib",
    },
    "evaluator": {"positions_per_second", "top1_agreement"},
    "arena": {"games_per_minute", "games_per_minute_single", "ratio", "ratio_per_core"},
    "search": {
        "simulations_per_second",
        "outside_evaluator_fraction",
        "playouts_per_second",
        "ratio_to_naive",
        "ratio_to_bare",
        "mean_leaf_depth",
    },
}


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """SFEN records of forty games."""
    lines: list[str] = []
    path = ROOT / "data" / "sample" / "engine-games.usi.gz"
    with open_binary(path) as stream:
        for number, text in enumerate(itertools.islice(stream, 40), 1):
            game = game_from_line(path, number, text)
            assert isinstance(game, Game)
            rendered = render(game, ConvertConfig((), ""))
            assert isinstance(rendered, Rendered)
            lines += rendered.data.decode().splitlines()
    return lines


@pytest.fixture(scope="module")
def running(lines, tmp_path_factory):
    """All scripts, started at once: most of their time goes into imports."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "few.sfenx").write_text("\n".join(lines) + "\n")
    scripts = {}
    for name, options in OPTIONS.items():
        # These begin with games, not with records, or with nothing.
        games = name in ("convert", "search", "arena", "fleet", "selfplay")
        data = [] if games else ["--data", str(folder / "few.sfenx")]
        command = [sys.executable, f"benchmarks/{name}.py", *data, *options.split()]
        with (folder / f"{name}.err").open("w") as errors:
            scripts[name] = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True
            )
    yield scripts, folder
    for script in scripts.values():
        if script.poll() is None:
            script.kill()
        script.communicate()


@pytest.mark.parametrize("name", OPTIONS)
def test_script(name, running):
    scripts, folder = running
    output, _ = scripts[name].communicate(timeout=600)
    errors = (folder / f"{name}.err").read_text()
    assert scripts[name].returncode == 0, errors
    result = json.loads(output.splitlines()[-1])
    assert KEYS[name] <= result.keys()
    machine = {"cpu", "cores", "memory_gib", "python", "libraries", "load_average"}
    assert machine <= result["machine"].keys()
    if name == "shuffle":
        assert all(entry.keys() >= MIXED for entry in result["steady"] + result["full"])
        assert len(result["steady"]) == len(result["full"]) == 2


def test_baselines_read_what_ginkgo_reads(lines):
    some = lines[::40]
    block = parse_records([line.encode() for line in some], ParseOptions(), path="some")
    packed = list(naive.read_packed(some))
    assert len(packed) == len(block.positions) == len(some)
    for name in ("board", "hand", "color", "move", "result", "ply", "total"):
        ours, theirs = block.positions[name], np.array([one[name] for one in packed])
        assert np.array_equal(ours, theirs), name
    with_cshogi = [one for line in some for one in naive._pack_with_cshogi(line)]
    for name in ("board", "hand", "move", "result"):
        theirs = np.array([one[name] for one in with_cshogi])
        assert np.array_equal(block.positions[name], theirs), name


def test_naive_planes_are_those_of_ginkgo148(lines):
    some = lines[::160]
    block = parse_records([line.encode() for line in some], ParseOptions(), path="some")
    planes = np.stack([one["planes"] for one in naive.read_planes148(some)])
    assert np.array_equal(planes, planes_on_host(*pack_positions(block.positions)))


@pytest.mark.parametrize(("per_game", "with_mate"), [(8, 0.027), (32, 0.112), (100, 0.304)])
def test_exact_share_against_a_simulation(per_game, with_mate):
    """Shares with a mate for batch 256 and pool 32,768 that were once simulated."""
    share = shuffle.exact_share(256, np.array([per_game]), 32768, 10**9)
    assert 1 - share[0] == pytest.approx(with_mate, rel=0.02)
