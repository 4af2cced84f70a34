"""Training on mixed sources: losses by source, the state that survives a crash, the verbs."""

import json
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from ginkgo.errors import GinkgoError
from ginkgo.features import position
from ginkgo.models import build_network, parse_network
from ginkgo.pipeline import ParseOptions, build_index
from ginkgo.pipeline.history import read
from ginkgo.pipeline.load import load_block
from ginkgo.training.cli import main as train
from ginkgo.training.config import TrainConfig, check, sources_by_name
from ginkgo.training.coverage import main as show
from ginkgo.training.recipe import make_optimizer
from ginkgo.training.sources import state_path
from ginkgo.training.step import TrainStep
from ginkgo.training.trainer import Trainer


@pytest.fixture
def config(games_dir, tmp_path) -> TrainConfig:
    """Two named sources and one of the data, tiny, three batches at a time."""
    one, two, three = sorted(games_dir.iterdir())
    return TrainConfig(
        data=(three,),
        source=(f"first={one}", f"second={two}"),
        mix="ucb",
        mix_chunk=3,
        runs=tmp_path / "runs",
        network="b1c8",
        batch_size=32,
        steps=42,
        eval_every=42,
        checkpoint_every=8,
        pool=1024,
        val_positions=100,
        test_positions=100,
        deterministic=True,
    )


class Crash(keras.callbacks.Callback):
    """The process ends without a word, as after kill -9."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.step:
            raise MemoryError


@pytest.mark.parametrize("heads", [("value",), ("policy", "value")])
def test_losses_by_source(config, games_dir, heads):
    """Each is what the loss of a batch of that source's positions alone would be."""
    positions = load_block(build_index([games_dir], "all"), ParseOptions()).positions[:96].copy()
    positions["source"] = np.arange(96) % 3
    positions["source"][positions["source"] == 1] = 3  # nothing of source 1
    positions["weight"][:40] = 0.5
    positions["weight"][positions["source"] == 2] = 0
    keras.utils.set_random_seed(1)
    settings = replace(config, heads=heads, mirror=False, value_weight=0.7)
    model = build_network(parse_network("b1c8"), 119, heads)
    step = TrainStep(model, make_optimizer(settings, model), None, settings, sources=4)
    batch = {
        name: tf.constant(np.ascontiguousarray(positions[name])) for name in positions.dtype.names
    }
    kept = [weight.numpy() for weight in model.weights]
    found = step(batch, 0.0, 0)
    losses, counts = found["by_source"].numpy()
    assert counts.tolist() == [32, 0, 32, 32]
    assert np.isnan(losses[1])
    assert np.isnan(losses[2]) == (heads == ("value",))
    # BatchNorm sees the whole batch, so the outputs are taken from it.
    for weight, value in zip(model.weights, kept, strict=True):
        weight.assign(value)
    from ginkgo.training.step import planes_of

    outputs = model(planes_of(batch, "dlshogi119"), training=True)
    for source in (0, 3):
        rows, expected = positions["source"] == source, 0.0
        if "policy" in heads:
            logits = tf.nn.log_softmax(outputs["policy"]).numpy()
            expected -= logits[np.arange(96), positions["move"]][rows].mean()
        if "value" in heads:
            logits = tf.nn.log_softmax(outputs["value"]).numpy()
            won = (positions["result"] == position.WIN).astype(float)
            won[positions["result"] >= position.DRAW] = 0.5
            crossed = -(won * logits[:, 0] + (1 - won) * logits[:, 1])
            weights = positions["weight"].astype(np.float64)
            mean = (weights * crossed)[rows].sum() / weights[rows].sum()
            expected += mean * (0.7 if "policy" in heads else 1)
        assert losses[source] == pytest.approx(expected, rel=1e-4)


def test_nothing_is_lost_or_counted_twice_by_a_crash(config, capsys):
    whole = Trainer(replace(config, run="whole"))
    whole.run()
    with pytest.raises(MemoryError):
        Trainer(replace(config, run="crashed"), [Crash(38)]).run()
    path = state_path(config.runs / "crashed")
    assert read(path)["step"] == 32
    path.write_text("{}")  # as if the crash had come between checkpoint and state file
    resumed = Trainer(replace(config, run="crashed", resume=True))
    assert read(path)["step"] == 32
    resumed.run()
    one, other = read(state_path(config.runs / "whole")), read(path)
    assert one == other
    assert one["step"] == 42
    for ours, theirs in zip(whole.average.values, resumed.average.values, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    sources = one["sources"]
    assert set(sources) == {"first", "second", "part"}
    drawn = sum(s["pulls"] * s["positions"] / s["games"] for s in sources.values())
    assert drawn == pytest.approx(42 * 32)
    for entry in sources.values():
        assert 0 < entry["seen"] <= entry["games"]
        assert entry["coverage"] == entry["seen"] / entry["games"]
        assert entry["loss"] > 0
    assert sum(entry["chunks"] for entry in sources.values()) == 14


def test_a_run_goes_on_when_its_sources_have_changed(config, games_dir, tmp_path, capsys):
    file = tmp_path / "growing.usi"
    lines = (games_dir / "part-00001.usi").read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:50]))
    source = (config.source[0], f"second={file}")
    config = replace(config, source=source, steps=10, deterministic=False)
    before = Trainer(config)
    before.run()
    split = {source.name: source.split for source in before.indices["train"].sources}
    file.write_text("".join(lines))
    capsys.readouterr()
    trainer = Trainer(replace(config, resume=True, steps=14))
    assert {s.name: s.split for s in trainer.indices["train"].sources} == split
    text = capsys.readouterr().err
    assert "source second: grew from" in text
    assert "each source begins anew, with games not yet seen" in text
    report = trainer.run()
    drawn = sum(s["pulls"] * s["positions"] / s["games"] for s in report["sources"].values())
    assert drawn == pytest.approx(14 * 32, rel=0.05)  # the mean length of the games has changed
    with pytest.raises(GinkgoError, match="the data has changed since the checkpoint"):
        Trainer(replace(config, resume=True, steps=16, mix="proportional", data=()))


def test_verbs_end_to_end(games_dir, tmp_path, monkeypatch, capsys):
    """`ginkgo train` with weights, its curves and its table, then `ginkgo coverage`."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    one, two, _ = sorted(games_dir.iterdir())
    # What is written of a name is the name, whatever it means to a table or a picture.
    small, big = "[/b]/$x_", "_a :car: $y"
    report = tmp_path / "report.json"
    options = [
        *("--source", f"{small}={one}:1", "--source", f"{big}={two}:3", "--mix", "weights"),
        *("--network", "b1c8", "--steps", "16", "--batch-size", "32", "--pool", "512"),
        *("--val-positions", "100", "--test-positions", "100", "--mix-chunk", "1"),
        *("--eval-every", "16"),
        *("--runs", str(tmp_path), "--run", "mixed", "--report", str(report)),
    ]
    assert train(options) == 0
    out = capsys.readouterr().out
    assert "Sources" in out
    assert small in out
    assert big in out
    figures = json.loads(report.read_text())["sources"]
    assert [figures[name]["chunks"] for name in (small, big)] == [4, 12]
    events = EventAccumulator(str(tmp_path / "mixed" / "logs"), size_guidance={"tensors": 0})
    events.Reload()
    tags = set(events.Tags()["tensors"])
    curves = ("pulls", "coverage", "bonus", "penalty", "loss")
    assert tags >= {f"mix_{curve}/{name}" for curve in curves for name in (small, big)}
    assert show([str(tmp_path / "mixed")]) == 0
    text = capsys.readouterr().out
    assert "after step 16, --mix weights" in text
    assert f"{figures[big]['seen']}" in text
    assert big in text
    assert (tmp_path / "mixed" / "coverage.png").read_bytes()[:4] == b"\x89PNG"
    place = tmp_path / "other.png"
    state = tmp_path / "mixed" / "mixed.state.json"
    assert show([str(state), "--plot", str(place), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["sources"][big]["coverage"] == figures[big]["coverage"]
    assert place.exists()


def test_coverage_names_mistakes(tmp_path):
    with pytest.raises(GinkgoError, match="no such run"):
        show([str(tmp_path / "none")])
    with pytest.raises(GinkgoError, match="no state file"):
        show([str(tmp_path)])
    for text in ("", "{}", '{"format": 3}', '{"format": "ginkgo-sources1", "step": 1}', "[]"):
        (tmp_path / "x.state.json").write_text(text)
        with pytest.raises(GinkgoError, match=r"x\.state\.json: (not a state|format 3)"):
            show([str(tmp_path)])


def test_sources_are_parsed(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/of")
    [(_, source)] = sources_by_name(TrainConfig((), source=("x=~/kifu:2",))).items()
    assert (source.paths, source.weight) == ((Path("/home/of/kifu"),), 2)
    (tmp_path / "a:2").touch()
    config = TrainConfig(
        (), source=("x=a/b:1.5", "x=c", "y=d", "z=e:f", f"w={tmp_path}/a:2", "v=k=l:1e1")
    )
    found = sources_by_name(config)
    assert found["x"].paths == (Path("a/b"), Path("c"))
    assert found["x"].weight == 1.5
    assert (found["y"].weight, found["z"].paths) == (None, (Path("e:f"),))
    assert (found["w"].paths, found["w"].weight) == ((tmp_path / "a:2",), None)
    assert (found["v"].paths, found["v"].weight) == ((Path("k=l"),), 10)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"source": ("x",)}, "--source x: expected NAME=PATH or NAME=PATH:WEIGHT"),
        ({"source": ("=x",)}, "--source =x: expected NAME=PATH or NAME=PATH:WEIGHT"),
        ({"source": ("x=a:0",)}, "--source x=a:0: expected a weight above 0"),
        ({"source": ("x=a:-1",)}, "--source x=a:-1: expected a weight above 0"),
        ({"source": ("x=a:nan",)}, "--source x=a:nan: expected a weight above 0"),
        ({"source": ("x=a:1e999",)}, "--source x=a:1e999: expected a weight above 0"),
        ({"source": ("x=a:1.2.3",)}, "a:1.2.3: no such file or directory"),
        ({"source": ("x=-",)}, "-: no such file or directory"),
        ({"source": ("x\ny=a",)}, r"--source 'x\ny=a': expected a name that can be printed"),
        ({"source": (" x=a",)}, "--source ' x=a': expected a name that can be printed"),
        ({"source": ("\udcff=a",)}, r"--source '\udcff=a': expected a name that can be printed"),
        ({"source": ("x=a:1", "x=b:2")}, "--source x=b:2: x has the weight 1 already"),
        ({"source": ("x=a:1",)}, "--mix proportional: the weight of x needs --mix weights"),
        ({"source": ("x=a:1",), "mix": "ucb"}, "--mix ucb: the weight of x needs --mix weights"),
        ({"source": ("x=nowhere",)}, "nowhere: no such file or directory"),
        ({"mix": "ucb", "coverage": False}, "--mix ucb --no-coverage: the choice is made by"),
        ({"mix_chunk": 0}, "--mix-chunk 0: expected at least 1"),
        ({"exploration": -1.0}, "--exploration -1: expected at least 0"),
    ],
    ids=str,
)
def test_mistakes(fields, expected):
    with pytest.raises(GinkgoError) as error:
        check(TrainConfig((), **fields))
    assert str(error.value).startswith(expected)
