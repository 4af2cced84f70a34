"""Training on several devices and in several processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ginkgo.errors import GinkgoError
from ginkgo.pipeline import Loader, LoaderConfig, build_index
from ginkgo.training.checkpoint import latest_checkpoint, read_progress
from ginkgo.training.distribution import Distribution, choose

ROOT = Path(__file__).parents[1]

# Three steps on the same boards for each device, so that BatchNorm sees the same statistics on each
# as one device does on all of them together, but with other results, weights, moves and visits: the
# weights must come out equal. Then a step on other boards: statistics must be the mean of all.
STEPS = """
import sys
import numpy as np
import tensorflow as tf


def steps(kind, games, out):
    import keras
    from ginkgo.models import build_network, parse_network
    from ginkgo.pipeline import ParseOptions, build_index
    from ginkgo.pipeline.load import load_block
    from ginkgo.pipeline.parse import POLICY
    from ginkgo.pipeline.ragged import Ragged, as_bytes
    from ginkgo.training.config import TrainConfig
    from ginkgo.training.distribution import choose, split_packed
    from ginkgo.training.recipe import WeightAverage, make_optimizer
    from ginkgo.training.step import TrainStep

    together = choose("" if kind == "one" else kind)
    assert together.replicas == (1 if kind == "one" else 2), together
    keras.utils.set_random_seed(3)
    config = TrainConfig(("x",), heads=("policy", "value"), weight_decay=0.01, clip=0.5, ema=0.9)
    with together.strategy.scope():
        model = build_network(parse_network("b1c8"), 119, config.heads)
        optimizer = make_optimizer(config, model)
    average = WeightAverage(model, config.ema)
    ragged = {"policy": POLICY}
    step = TrainStep(model, optimizer, average, config, ragged=ragged, distribution=together,
                     sources=2)
    games = load_block(build_index([games], "all"), ParseOptions()).positions[:192]
    rng = np.random.default_rng(1)
    first, second = games[:64].copy(), games[:64].copy()
    second["move"] = games["move"][64:128]
    second["result"] = 1 - np.minimum(second["result"], 1)
    first["weight"][::3], second["weight"][::2] = 0.5, 0.0
    positions = np.concatenate([first, second])
    positions["source"] = rng.integers(0, 2, 128)
    lengths = rng.integers(0, 4, 128)
    visits = np.zeros(lengths.sum(), POLICY)
    visits["label"], visits["probability"] = rng.integers(0, 1400, len(visits)), 0.3
    policy = Ragged.of_lengths(visits, lengths)

    def packed(low, high, rows=positions):
        part = policy.part(low, high)
        parts = [as_bytes(rows[low:high]), np.zeros(3, np.int64)]
        return tuple(map(tf.constant, [*parts, as_bytes(part.values), part.offsets]))

    def of_this(rows=positions):
        if kind == "one":
            return packed(0, 128, rows)
        if kind == "mirrored":
            return together.spread(split_packed(packed(0, 128, rows), 2))
        low = 64 * together.worker
        return together.spread([packed(low, low + 64, rows)])

    for number in range(3):
        metrics = step.on_packed(of_this(), 1e-2, number)
    told = together.gathered(b"x" * (5 + 3 * together.worker))
    assert told == [b"x" * (5 + 3 * worker) for worker in range(together.workers)], told
    values = {f"w{n}": np.asarray(w.value) for n, w in enumerate(model.weights)}
    values |= {f"a{n}": v.numpy() for n, v in enumerate(average.values)}
    values |= {name: value.numpy() for name, value in metrics.items()}
    other = positions.copy()
    other["board"][64:], other["hand"][64:] = games["board"][128:], games["hand"][128:]
    step.on_packed(of_this(other), 1e-2, 3)
    for number, weight in enumerate(model.weights):
        copies = together.strategy.experimental_local_results(weight.value)
        for copy in copies:
            np.testing.assert_array_equal(np.asarray(copy), np.asarray(copies[0]), weight.path)
        values[f"later/{number}"] = np.asarray(copies[0])
    np.savez(out + f"-{together.worker}.npz", **values)
    together.anywhere(True)


if __name__ == "__main__":
    kinds, games, out = sys.argv[1:]
    if "mirrored" in kinds:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, logical)
    for kind in kinds.split("+"):
        steps(kind, games, out + "/" + kind)
"""


def environment(index: int | None = None, ports: tuple[int, ...] = ()) -> dict[str, str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    if index is not None:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        task = {"type": "worker", "index": index}
        variables["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    return variables


def free_ports() -> tuple[int, ...]:
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = tuple(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


def start(command: list[object], environ: dict[str, str], log: Path) -> subprocess.Popen:
    with log.open("w") as stream:
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=environ,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def test_several_devices_learn_what_one_does(games_dir, tmp_path):
    """Two logical CPUs, and two processes, against one device with the whole batch."""
    (tmp_path / "steps.py").write_text(STEPS)
    ports = free_ports()
    runs = [("one+mirrored", None), ("multiworker", 0), ("multiworker", 1)]
    processes = []
    for kinds, index in runs:
        command = [tmp_path / "steps.py", kinds, games_dir, tmp_path]
        log = tmp_path / f"{kinds}-{index}.log"
        processes.append(start(command, environment(index, ports), log))
        if index is None:  # one after the other: they are short of cores
            processes[-1].wait(timeout=300)
    for (kinds, index), process in zip(runs, processes, strict=True):
        assert process.wait(timeout=300) == 0, (tmp_path / f"{kinds}-{index}.log").read_text()
    with np.load(tmp_path / "one-0.npz") as arrays:
        one = {name: arrays[name] for name in arrays.files}
    for name in ("mirrored-0", "multiworker-0", "multiworker-1"):
        with np.load(tmp_path / f"{name}.npz") as arrays:
            assert set(arrays.files) == set(one)
            for key, value in one.items():
                if not key.startswith("later"):  # there BatchNorm sees less on each device
                    np.testing.assert_allclose(
                        arrays[key], value, rtol=2e-3, atol=2e-5, err_msg=key
                    )
    names = [f"later/{number}" for number in range(sum(key.startswith("later") for key in one))]
    with (
        np.load(tmp_path / "multiworker-0.npz") as chief,
        np.load(tmp_path / "multiworker-1.npz") as other,
        np.load(tmp_path / "mirrored-0.npz") as mirrored,
    ):
        for name in names:
            np.testing.assert_array_equal(chief[name], other[name])
            np.testing.assert_allclose(chief[name], mirrored[name], rtol=2e-3, atol=2e-5)


def test_a_worker_is_killed_and_all_go_on(games_dir, tmp_path):
    runs = tmp_path / "runs"

    def train(*options: object) -> list[subprocess.Popen]:
        ports = free_ports()
        command = [
            *("-m", "ginkgo", "train", games_dir, "--runs", runs, "--network", "b1c8"),
            *("--batch-size", 64, "--pool", 1024, "--val-positions", 100, "--test-positions", 100),
            *("--distribute", "multiworker", "--eval-every", 1000, "--checkpoint-every", 5),
        ]
        return [
            start([*command, *options], environment(index, ports), tmp_path / f"{index}.log")
            for index in range(2)
        ]

    checkpoints = runs / "run" / "checkpoints"
    chief, other = train("--steps", 100_000)
    deadline = time.time() + 200
    while latest_checkpoint(checkpoints) is None and time.time() < deadline:
        assert chief.poll() is None, (tmp_path / "0.log").read_text()
        time.sleep(0.1)
    os.killpg(other.pid, signal.SIGKILL)
    assert chief.wait(timeout=100) == 1
    text = (tmp_path / "0.log").read_text()
    assert "Traceback" not in text
    lines = text.splitlines()
    assert [line for line in lines if "error:" in line and "worker has gone" in line] == lines[-1:]
    step = read_progress(latest_checkpoint(checkpoints))["step"]
    assert step >= 5
    # Ctrl-C in one of them stops both, after as many steps.
    both = train("--steps", 100_000, "--resume")
    while read_progress(latest_checkpoint(checkpoints))["step"] == step:
        assert both[0].poll() is None, (tmp_path / "0.log").read_text()
        time.sleep(0.1)
    os.killpg(both[1].pid, signal.SIGINT)
    assert [process.wait(timeout=100) for process in both] == [130, 130]
    assert "Traceback" not in (tmp_path / "0.log").read_text() + (tmp_path / "1.log").read_text()
    assert f"resuming after step {step:,}" in (tmp_path / "0.log").read_text()
    done = read_progress(latest_checkpoint(checkpoints))["step"]
    assert done > step
    # What both have drawn is added up.
    known = json.loads((runs / "run" / "run.state.json").read_text())["sources"]["part"]
    drawn = known["pulls"] * known["positions"] / known["games"]
    assert drawn == pytest.approx(64 * done, rel=0.02)
    assert 0 < known["seen"] <= known["games"]


def test_parts_of_the_data_share_no_game_and_miss_none(games_dir):
    index = build_index([games_dir], "all", segment_positions=512)
    keys = []
    for number in range(3):
        part = index.part(number, 3)
        config = LoaderConfig(batch_size=64, pool=256, epochs=1, workers=0)
        with Loader(part, config) as loader:
            keys.append(np.concatenate([batch.keys for batch in loader]))
        assert part.fingerprint() != index.fingerprint()
    together = np.concatenate(keys)
    assert len(together) == index.positions == len(np.unique(together))
    games = [set((part >> 10).tolist()) for part in keys]
    assert not games[0] & games[1]
    assert not games[1] & games[2]
    assert max(map(len, keys)) - min(map(len, keys)) <= max(
        segment.positions for source in index.sources for segment in source.segments
    )
    with pytest.raises(GinkgoError, match="share 1 segments"):
        build_index([games_dir / "part-00000.usi"], "all", segment_positions=1 << 20).part(1, 2)


def test_parts_of_files_of_unlike_sizes_are_alike(games_dir, tmp_path):
    """Every process takes as many positions of a batch: none must see its part far more often."""
    lines = (games_dir / "part-00000.usi").read_text().splitlines(keepends=True)
    for name, games in (("a", 3), ("b", 30), ("c", 3), ("d", 30)):
        (tmp_path / f"{name}.usi").write_text("".join(lines[:games]))
        lines = lines[games:]
    index = build_index([tmp_path], "all")
    parts = [index.part(number, 2) for number in range(2)]
    assert sum(part.positions for part in parts) == pytest.approx(index.positions, abs=2)
    assert parts[0].positions == pytest.approx(parts[1].positions, rel=0.3)
    for part in parts:
        read = sum(segment.positions for source in part.sources for segment in source.segments)
        assert read == pytest.approx(part.positions, abs=4)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "TF_CONFIG is not set; expected"),
        ("{", "TF_CONFIG {: expected"),
        ('{"cluster": {"worker": ["a:1"]}}', "expected"),
        ('{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}', "expected"),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
            "task index 1, but there are 1 workers",
        ),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}', "expected"),
    ],
)
def test_a_wrong_tf_config_is_named(monkeypatch, text, line):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(GinkgoError, match=line):
        choose("multiworker")


def test_batches_must_divide():
    with pytest.raises(GinkgoError, match="--batch-size 1: expected at least 2"):
        choose("").local_batch(1)
    assert choose("").local_batch(130) == 130

    class Four:
        num_replicas_in_sync = 4

    four = Distribution(Four(), worker=1, workers=2)
    assert four.local_batch(128) == 64
    assert four.replicas_here == 2
    for size in (130, 4):
        with pytest.raises(GinkgoError, match=f"--batch-size {size}: expected a multiple of 4"):
            four.local_batch(size)
