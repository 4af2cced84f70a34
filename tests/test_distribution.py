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
from ginkgo.training.distribution import choose

ROOT = Path(__file__).parents[1]

# Three steps on the same positions for each device, so that BatchNorm sees the same statistics on
# each as one device does on all of them together: the weights must come out equal.
STEPS = """
import sys
import numpy as np
import tensorflow as tf

if __name__ == "__main__":
    kind, games, out = sys.argv[1:]
    if kind == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, logical)
    from ginkgo.models import build_network, parse_network
    from ginkgo.pipeline import ParseOptions, build_index
    from ginkgo.pipeline.load import load_block
    from ginkgo.training.config import TrainConfig
    from ginkgo.training.distribution import choose, split_packed
    from ginkgo.training.recipe import WeightAverage, make_optimizer
    from ginkgo.training.step import TrainStep
    import keras

    together = choose("" if kind == "one" else kind)
    assert together.replicas == (1 if kind == "one" else 2), together
    keras.utils.set_random_seed(3)
    config = TrainConfig(("x",), heads=("policy", "value"), weight_decay=0.01, clip=0.5, ema=0.9)
    with together.strategy.scope():
        model = build_network(parse_network("b1c8"), 119, config.heads)
        optimizer = make_optimizer(config, model)
    average = WeightAverage(model, config.ema)
    step = TrainStep(model, optimizer, average, config, distribution=together)
    half = load_block(build_index([games], "all"), ParseOptions()).positions[:64]
    half["weight"][::3] = 0.5
    rows = half.view(np.uint8).reshape(64, -1)
    numbers = np.zeros(3, np.int64)
    both = (tf.constant(np.concatenate([rows, rows])), tf.constant(numbers))
    for number in range(3):
        if kind == "one":
            packed = both
        elif kind == "mirrored":
            packed = together.spread(split_packed(both, 2))
        else:
            packed = together.spread([(tf.constant(rows), tf.constant(numbers))])
        metrics = step.on_packed(packed, 1e-2, number)
    told = together.gathered(b"x" * (5 + 3 * together.worker))
    assert told == [b"x" * (5 + 3 * worker) for worker in range(together.workers)], told
    values = {f"w{n}": np.asarray(w.value) for n, w in enumerate(model.weights)}
    values |= {f"a{n}": v.numpy() for n, v in enumerate(average.values)}
    values |= {name: value.numpy() for name, value in metrics.items()}
    np.savez(out + f"-{together.worker}.npz", **values)
    together.any(True)
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
    runs = [("one", None), ("mirrored", None), ("multiworker", 0), ("multiworker", 1)]
    processes = []
    for kind, index in runs:
        command = [tmp_path / "steps.py", kind, games_dir, tmp_path / kind]
        log = tmp_path / f"{kind}-{index}.log"
        processes.append(start(command, environment(index, ports), log))
        if index is None:  # one after the other: they are short of cores
            processes[-1].wait(timeout=200)
    for (kind, index), process in zip(runs, processes, strict=True):
        assert process.wait(timeout=200) == 0, (tmp_path / f"{kind}-{index}.log").read_text()
    with np.load(tmp_path / "one-0.npz") as arrays:
        one = {name: arrays[name] for name in arrays.files}
    for name in ("mirrored-0", "multiworker-0", "multiworker-1"):
        with np.load(tmp_path / f"{name}.npz") as arrays:
            assert set(arrays.files) == set(one)
            for key, value in one.items():
                np.testing.assert_allclose(arrays[key], value, rtol=2e-3, atol=2e-5, err_msg=key)


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
    report = tmp_path / "report.json"
    both = train("--steps", step + 7, "--resume", "--report", report)
    for index, process in enumerate(both):
        assert process.wait(timeout=200) == 0, (tmp_path / f"{index}.log").read_text()
    assert json.loads(report.read_text())["positions"] == 64 * (step + 7)
    assert f"resuming after step {step:,}" in (tmp_path / "0.log").read_text()


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
    assert min(map(len, keys)) > index.positions / 6
    with pytest.raises(GinkgoError, match="share 1 segments"):
        build_index([games_dir / "part-00000.usi"], "all", segment_positions=1 << 20).part(1, 2)


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
    with pytest.raises(GinkgoError, match="--batch-size 1: expected a multiple of the 1 devices"):
        choose("").local_batch(1)
    assert choose("").local_batch(130) == 130
