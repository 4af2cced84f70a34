"""Training: the loop with its checkpoints, and the scripts end to end."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf

from ginkgo.errors import GinkgoError
from ginkgo.features import dlshogi119, position
from ginkgo.models import build_network, load_games, load_model
from ginkgo.models.export import export
from ginkgo.pipeline import ParseOptions
from ginkgo.pipeline.load import load_block
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.training.checkpoint import latest_checkpoint
from ginkgo.training.config import TrainConfig
from ginkgo.training.heldout import find_data
from ginkgo.training.metrics import value_metrics
from ginkgo.training.trainer import Interrupted, Trainer

ROOT = Path(__file__).parents[1]


# --- the run ----------------------------------------------------------------------------------


def test_a_run_leaves_a_model_that_gives_its_figures_again(config):
    report = Trainer(replace(config, report=config.runs / "report.json")).run()
    heldout = report["heldout"]
    for name in ("accuracy", "log_loss", "majority_accuracy"):
        assert 0 <= heldout[name] <= 1.5
    assert heldout["material_log_loss"] < 0.75
    assert set(report["by_source"]) == {"part"}
    assert set(report["by_source"]["part"]) >= {"accuracy", "material_accuracy", "games"}
    assert report["positions"] == 12 * 64
    assert 0 <= report["wait_fraction"] <= 1
    assert json.loads((config.runs / "report.json").read_text())["heldout"] == heldout

    model, saved = load_model(config.runs / "tiny")
    assert saved["features"] == "dlshogi119"
    assert saved["labels"] == "dlshogi2187"
    assert saved["name"].startswith("tiny-b1c8-s768-d")
    test = load_block(
        find_data(config.data, (), (), 0.05)["test"], ParseOptions(), config.test_positions
    ).positions
    planes = dlshogi119.planes_on_host(test["board"], test["hand"]).transpose(0, 2, 3, 1)
    logits = model.predict_on_batch(planes)["value"]
    decided = test["result"] <= position.WIN
    hits = (logits[:, 0] > logits[:, 1]) == (test["result"] == position.WIN)
    assert hits[decided].mean() == pytest.approx(heldout["accuracy"])


def test_win_rates_are_as_sure_as_the_validation_games_want(config):
    trainer = Trainer(replace(config, report=config.runs / "report.json"))
    report = trainer.run()
    scale = report["value_scale"]
    assert 0.25 < scale < 4
    assert scale != 1
    val = trainer.evaluation.val.positions
    planes = dlshogi119.planes_on_host(val["board"], val["hand"]).transpose(0, 2, 3, 1)
    logits = load_model(config.runs / "tiny")[0].predict_on_batch(planes)["value"]
    margin = (logits[:, 0] - logits[:, 1]) / scale  # what it was before
    losses = {
        factor: value_metrics(val, 1 / (1 + np.exp(-factor * margin)))["log_loss"]
        for factor in (0.9 * scale, scale, 1.1 * scale)
    }
    assert min(losses, key=losses.get) == scale


def test_without_test_games_the_validation_games_are_judged(config, games_dir, tmp_path):
    """Their sources may be others than those of the training data."""
    one, two, three = sorted(games_dir.iterdir())
    run = replace(config, data=(one,), val=(two, three), val_fraction=0.0, steps=2)
    report = Trainer(run).run()
    assert report["heldout"]["games"] > 80


def test_the_best_weights_are_kept_and_patience_ends_the_run(config):
    """From step 5 on the net is spoilt: what is kept was best at step 4."""

    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch >= 5:
                head = trainer.model.get_layer("value")
                head.kernel.assign(100 * tf.ones_like(head.kernel))
                head.bias.assign([30.0, -30.0])

    settings = replace(config, ema=0.0, eval_every=2, patience=2, calibrate=False)
    trainer = Trainer(replace(settings, heads=("policy", "value"), best_by="value"), [Spoil()])
    report = trainer.run()
    assert report["best_step"] == 4
    assert report["steps"] == 8
    kept = trainer.evaluation.best_loss
    assert trainer.evaluation.validate(8)["val/value_log_loss"] > 2 * kept
    trainer.evaluation.use_best()
    assert trainer.evaluation.value_scale == 1  # the calibration is left out
    val = trainer.evaluation.val
    model, _ = load_model(config.runs / "tiny")
    planes = dlshogi119.planes_on_host(val.positions["board"], val.positions["hand"])
    logits = model.predict_on_batch(planes.transpose(0, 2, 3, 1))["value"]
    win = 1 / (1 + np.exp(logits[:, 1] - logits[:, 0]))
    assert value_metrics(val.positions, win)["log_loss"] == pytest.approx(kept, rel=1e-4)


def test_without_results_the_moves_alone_choose(config, games_dir, tmp_path):
    lines = (games_dir / "part-00000.usi").read_text().splitlines()
    undecided = tmp_path / "undecided.usi"
    undecided.write_text("".join(line.split("\t")[0] + " \twinner=-\n" for line in lines))
    both = replace(config, heads=("policy", "value"), val=(undecided,), steps=2, eval_every=1)
    trainer = Trainer(both)
    trainer.run()
    assert np.isfinite(trainer.evaluation.best_loss)
    assert trainer.evaluation.best_step > 0
    with pytest.raises(GinkgoError, match="--best-by value: no validation game has a result"):
        Trainer(replace(both, run="other", best_by="value"))


def test_bfloat16_leaves_a_model_that_everyone_can_play(config):
    trainer = Trainer(replace(config, precision="bfloat16", steps=2, heads=("policy", "value")))
    trainer.run()
    assert trainer.model.get_layer("stem").compute_dtype == "bfloat16"
    assert build_network(trainer.network, 119, ("value",)).get_layer("stem").compute_dtype == (
        "float32"
    ), "what one run trains in must not reach the networks that are made after it"
    model, _ = load_model(config.runs / "tiny")
    assert model.get_layer("stem").compute_dtype == "float32"
    planes = np.random.default_rng(0).random((64, 119, 9, 9), np.float32).round()
    found = export(
        config.runs / "tiny", config.runs / "tiny" / "model.onnx", "onnx", planes, planes
    )
    assert found.top1_agreement > 0.9
    # Another training of the same run must not leave the export of other weights there.
    own = config.runs / "tiny" / "model-of-mine.onnx"
    own.write_bytes(b"")
    Trainer(replace(config, resume=True, steps=3, heads=("policy", "value"))).run()
    assert not (config.runs / "tiny" / "model.onnx").exists()
    assert own.exists()  # no engine takes it for the model's


def test_other_planes_after_the_move_with_scores(config, games_dir, tmp_path):
    """`ginkgo148`, `--view after` and `--score-share` in one run."""
    records = tmp_path / "records"
    convert(ConvertConfig((str(games_dir / "part-00000.usi"),), str(records), workers=1))
    (file,) = (records / "train").glob("*.sfenx")
    lines = []
    for line in file.read_text().splitlines():
        sfen, *_, winner = line.split(",")[:4]
        score = 300 if winner == sfen.split(" ")[1] else -300
        lines.append(f"{line},score={score}\n")
    file.write_text("".join(lines))
    options = {"features": "ginkgo148", "view": "after", "score_share": 0.3, "optimizer": "sgd"}
    val = (games_dir / "part-00001.usi",)
    run = replace(config, data=(records / "train",), val=val, steps=3, **options)
    report = Trainer(run).run()
    assert 0 < report["heldout"]["log_loss"] < 3
    _, saved = load_model(config.runs / "tiny")
    assert (saved["features"], saved["view"]) == ("ginkgo148", "after")


def test_scores_are_asked_for_in_vain(config):
    with pytest.raises(GinkgoError, match="carry no search scores"):
        Trainer(replace(config, score_share=0.5)).run()


def test_a_resumed_run_ends_with_the_same_weights(config):
    whole = Trainer(replace(config, run="whole"))
    whole.run()

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 7:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        Trainer(config, [Stop()]).run()
    resumed = Trainer(replace(config, resume=True))
    assert resumed.step == 7
    resumed.run()
    for one, other in zip(whole.average.values, resumed.average.values, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_resumed_run_must_be_the_same(config):
    Trainer(replace(config, steps=1)).run()
    for other, line in (
        ({"network": "b2c8"}, "--network: the run began with b1c8, not b2c8"),
        ({"activation": "relu"}, "--activation: the run began with silu, not relu"),
        ({"val_fraction": 0.1}, "--val-fraction: the run began with 0.05, not 0.1"),
    ):
        with pytest.raises(GinkgoError, match=line):
            Trainer(replace(config, resume=True, steps=2, **other))


def test_ctrl_c_while_waiting_for_input_saves_what_is_trained(config, monkeypatch):
    """The signal arrives inside `next`, where an input-bound run spends its time."""
    from ginkgo.training.clock import InputClock

    real, calls = InputClock.__iter__, []

    def batches(clock):
        for batch in real(clock):
            calls.append(1)
            if len(calls) == 6:
                os.kill(os.getpid(), signal.SIGINT)
            yield batch

    monkeypatch.setattr(InputClock, "__iter__", batches)
    with pytest.raises(Interrupted):
        Trainer(config).run()
    monkeypatch.undo()
    resumed = Trainer(replace(config, resume=True))
    assert resumed.step == 5
    resumed.loader.close()


def test_an_unusable_line_under_strict_is_one_clear_error(config, games_dir, tmp_path):
    text = (games_dir / "part-00000.usi").read_text() + "startpos moves 7g7f 7g7f\twinner=b\n"
    (tmp_path / "bad.usi").write_text(text)
    settings = replace(config, data=(tmp_path / "bad.usi",), strict=True)
    with pytest.raises(GinkgoError, match=r"bad\.usi:81: illegal move"):
        Trainer(settings).run()


def test_a_full_disk_keeps_the_old_checkpoint_and_the_run(config, monkeypatch, capsys):
    """The disk fills up after the first checkpoint and has room again for the last one."""
    import ginkgo.training.checkpoint as checkpoint

    calls, real = [], np.savez

    def savez(stream, **arrays):
        if isinstance(stream, io.BytesIO):  # part of a checkpoint, in memory
            return real(stream, **arrays)
        calls.append(latest_checkpoint(config.runs / "tiny" / "checkpoints"))
        if len(calls) == 2:
            stream.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(stream, **arrays)

    monkeypatch.setattr(checkpoint.np, "savez", savez)
    Trainer(replace(config, checkpoint_every=4)).run()
    folder = config.runs / "tiny" / "checkpoints"
    assert [path.name for path in sorted(folder.iterdir())] == [
        "step-00000004.npz",
        "step-00000012.npz",
    ]
    warnings = [line for line in capsys.readouterr().err.splitlines() if "No space" in line]
    assert len(warnings) == 1
    assert "step-00000008.npz" in warnings[0]


def test_mistakes_are_named(config, tmp_path):
    with pytest.raises(GinkgoError, match="no such file"):
        Trainer(replace(config, data=(tmp_path / "nowhere",)))
    with pytest.raises(GinkgoError, match="no checkpoint to resume"):
        Trainer(replace(config, resume=True))
    with pytest.raises(GinkgoError, match="expected b<blocks>c<filters>"):
        Trainer(replace(config, network="resnet"))
    Trainer(replace(config, steps=1)).run()
    with pytest.raises(GinkgoError, match="exists already"):
        Trainer(config)


def test_a_run_starts_from_another_models_weights(config):
    Trainer(replace(config, heads=("policy", "value"))).run()
    first, _ = load_model(config.runs / "tiny")
    trainer = Trainer(replace(config, run="next", init=config.runs / "tiny", heads=("policy",)))
    trunk = [layer for layer in trainer.model.layers if layer.weights]
    assert len(trunk) > 6
    for layer in trunk:
        theirs = first.get_layer(layer.name).get_weights()
        assert all(map(np.array_equal, layer.get_weights(), theirs)), layer.name
    # The weights know the first run's training games: none of them is held out, and the model
    # that comes of it remembers them.
    known = load_games(config.runs / "tiny")
    assert len(known.val)
    assert not np.isin(trainer.indices["test"].hashes, known.all).any()
    assert not np.isin(trainer.indices["val"].hashes, known.train).any()
    trainer.run()
    for ours, theirs in zip(load_games(config.runs / "next"), known, strict=True):
        assert np.isin(theirs, ours).all()
    # Without --network and --activation the run takes those of the model that it starts from.
    like = replace(config, run="like", init=config.runs / "next", network="", activation="")
    assert Trainer(like).network.name == "b1c8"
    for other in ({"network": "b2c8"}, {"features": "ginkgo148"}, {"activation": "relu"}):
        (name,) = other
        with pytest.raises(GinkgoError, match=f"tiny: {name} .*, not {other[name]}"):
            Trainer(replace(config, run="other", init=config.runs / "tiny", **other))


def script(name: str, *options: object, **kwargs) -> subprocess.Popen:
    command = [sys.executable, ROOT / name, *map(str, options)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
    )


@pytest.mark.parametrize(
    ("name", "figure"), [("train_value.py", "accuracy"), ("train_policy.py", "policy_top1")]
)
def test_scripts_end_to_end(games_dir, tmp_path, name, figure):
    report = tmp_path / "report.json"
    process = script(
        name, games_dir, "--runs", tmp_path, "--network", "b1c8", "--steps", 4,
        "--batch-size", 64, "--pool", 1024, "--val-positions", 200, "--report", report,
    )  # fmt: skip
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "tensorboard --logdir" in out
    assert figure in json.loads(report.read_text())["heldout"]


def test_ctrl_c_saves_and_leaves_nothing(games_dir, tmp_path):
    process = script(
        "train_value.py", games_dir, "--runs", tmp_path, "--network", "b1c8", "--steps", 100_000,
        "--batch-size", 64, "--pool", 1024, "--val-positions", 200, "--workers", 2,
        start_new_session=True,
    )  # fmt: skip
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("step"):
            break
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everyone gets it
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    assert "Traceback" not in "".join(lines) + rest
    assert "--resume" in rest
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is not None
    deadline = time.time() + 10
    while any(child.is_running() for child in children) and time.time() < deadline:
        time.sleep(0.1)
    assert not any(child.is_running() for child in children)


def loss_curve(logs: Path) -> dict[int, float]:
    """Training loss by step; of a step done twice, the later one."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curve: dict[int, float] = {}
    for path in sorted(logs.iterdir(), key=lambda path: path.stat().st_mtime):
        events = EventAccumulator(str(path), size_guidance={"tensors": 0})
        events.Reload()
        for event in events.Tensors("train/loss"):
            curve[event.step] = float(tf.make_ndarray(event.tensor_proto))
    return curve


def test_a_killed_run_goes_on_with_the_same_loss_curve(games_dir, tmp_path):
    """`kill -9` at whatever moment: only what follows the last checkpoint is done again."""
    settings = TrainConfig(
        data=(games_dir,),
        runs=tmp_path,
        network="b1c8",
        batch_size=64,
        pool=1024,
        val_positions=100,
        test_positions=100,
        steps=80,
        eval_every=40,
        checkpoint_every=7,
        deterministic=True,
    )
    Trainer(replace(settings, run="whole")).run()
    process = script(
        "train_value.py", games_dir, "--runs", tmp_path, "--network", "b1c8", "--batch-size", 64,
        "--pool", 1024, "--val-positions", 100, "--test-positions", 100, "--steps", 80,
        "--eval-every", 40, "--checkpoint-every", 7, "--deterministic", "--run", "killed",
        start_new_session=True,
    )  # fmt: skip
    checkpoints = tmp_path / "killed" / "checkpoints"
    moment = int(np.random.default_rng().integers(1, 6))
    print(f"killed at checkpoint {moment} or a little later")
    while max((path.stem for path in checkpoints.glob("step-*.npz")), default="") < (
        f"step-{7 * moment:08}"
    ):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive, "reader processes outlive the trainer"
    Trainer(replace(settings, run="killed", resume=True)).run()
    whole, killed = (loss_curve(tmp_path / run / "logs") for run in ("whole", "killed"))
    assert set(whole) == set(range(1, 81))
    assert killed == whole
    models = [load_model(tmp_path / run)[0] for run in ("whole", "killed")]
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_mistake_is_one_line(tmp_path):
    process = script("train_value.py", tmp_path / "nowhere", "--runs", tmp_path)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    lines = [line for line in err.splitlines() if "nowhere" in line]
    assert lines[-1].startswith("error: ")
    assert "Traceback" not in err
