"""The replay window and the loop: use counts, going on after a kill, the verb from end to end."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import ginkgo.selfplay.loop as loop_module
from ginkgo.errors import GinkgoError
from ginkgo.features.labels import LABEL_SCHEME
from ginkgo.fleet.reinforce import main
from ginkgo.pipeline import Loader, LoaderConfig, ParseOptions
from ginkgo.records import files as record_files
from ginkgo.records.kifu.selfplay import load_arrays
from ginkgo.search.evaluators import HashEvaluator
from ginkgo.selfplay import learn
from ginkgo.selfplay.audit import audit
from ginkgo.selfplay.config import SelfplayConfig
from ginkgo.selfplay.gate import Difference, difference_of
from ginkgo.selfplay.loop import Loop, rate_factor
from ginkgo.selfplay.reinforce import ReinforceConfig, check_loop, play_config
from ginkgo.selfplay.run import play_run
from ginkgo.selfplay.store import alone, figures_of, run_folder, run_folders
from ginkgo.selfplay.window import Uses, WindowOptions, make_plan, window_size
from ginkgo.training.heldout import find_data

SMALL = SelfplayConfig(
    model="hash", playouts=6, cheap_playouts=3, full_share=0.5, max_ply=40, games=24,
    concurrent=24, processes=1,
)  # fmt: skip


def quiet(_text: str) -> None:
    pass


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Five runs of one folder."""
    folder = tmp_path_factory.mktemp("window")
    found = []
    for number in range(1, 6):
        run = run_folder(folder, number)
        play_run(replace(SMALL, out=folder), run, say=quiet)
        found.append(run)
    return found


# --- the window -------------------------------------------------------------------------------


def test_the_window_grows_more_slowly_than_the_data():
    sizes = [window_size(total, 1000) for total in range(0, 100_000, 500)]
    assert sizes[:3] == [0, 500, 1000]
    steps = np.diff(sizes[2:])
    assert (steps > 0).all()
    assert (np.diff(steps) < 0).all()
    assert steps[0] == pytest.approx(0.4 * 500, rel=0.1)
    assert window_size(64_000, 1000) / window_size(32_000, 1000) < 2**0.65 * 1.05


@pytest.mark.parametrize(("reuse", "steps"), [(4, 0), (2, 7), (8, 0)])
def test_no_position_is_used_more_often_than_allowed(runs, tmp_path, reuse, steps):
    """The counts of the plans are those of what the loader hands out, and stay under the cap."""
    options = WindowOptions(500, reuse, 32, steps)
    uses, samples = Uses(), 0
    for number in range(1, len(runs) + 1):
        folder, before = tmp_path / f"data_{number}", uses
        plan = make_plan(runs[:number], before, options, folder, (0, number))
        uses = plan.uses
        assert plan.samples % 32 == 0
        assert not steps or plan.samples <= steps * 32
        samples += plan.samples
        for run, counts in uses.counts.items():
            new = counts - before.counts.get(run, np.zeros_like(counts))
            assert set(new.tolist()) <= {0, 1}
            paths = (folder / "train" / f"run_{run:03d}").glob("*.npz")
            assert sum(int(load_arrays(path)[1]["full"].sum()) for path in paths) == new.sum()
        index = find_data([folder / "train"], [folder / "val"], (), 0.0)["train"]
        parse = ParseOptions(policies=True)
        config = LoaderConfig(32, plan.samples, workers=0, epochs=1, parse=parse, coverage=True)
        with Loader(index, config) as loader:
            keys = np.concatenate([batch.keys for batch in loader])
            loader.acknowledge(plan.samples // 32)
            assert loader.seen().progress.seen == tuple(one.games for one in index.sources)
        assert len(np.unique(keys)) == len(keys) == plan.samples
    assert uses.most <= reuse
    assert sum(int(counts.sum()) for counts in uses.counts.values()) == samples == uses.samples
    assert uses.samples <= reuse * uses.recorded
    assert uses.tokens >= 0


def test_a_plan_is_the_same_when_made_again(runs, tmp_path):
    options = WindowOptions(300, 4, 32, 0)
    first = make_plan(runs[:2], Uses(), options, tmp_path / "a", (1, 2))
    second = make_plan(runs[:2], Uses(), options, tmp_path / "b", (1, 2))
    for run in (1, 2):
        assert (first.uses.counts[run] == second.uses.counts[run]).all()
    path = tmp_path / "uses.npz"
    first.uses.save(path)
    again = Uses.load(path)
    assert vars(again).keys() == vars(first.uses).keys()
    assert (again.tokens, again.samples) == (first.uses.tokens, first.uses.samples)


def test_held_out_games_are_never_trained_on(runs, tmp_path):
    make_plan(runs, Uses(), WindowOptions(10**6, 4, 32, 0), tmp_path / "data", (0,))
    indices = find_data([tmp_path / "data" / "train"], [tmp_path / "data" / "val"], (), 0.0)
    train, val = indices["train"].hashes, indices["val"].hashes
    assert len(val)
    assert not np.isin(train, val).any()
    assert len(val) + len(train) <= 5 * SMALL.games
    assert not (train % np.uint64(10_000) < 500).any()


def test_too_few_positions_are_an_error(runs, tmp_path):
    with pytest.raises(GinkgoError, match="too few for a batch of 100000"):
        make_plan(runs[:1], Uses(), WindowOptions(500, 4, 100_000, 0), tmp_path / "data", (0,))


# --- options ----------------------------------------------------------------------------------


def test_the_curriculum_changes_playouts_and_plies():
    config = ReinforceConfig(
        playouts=32, cheap_playouts=8, max_ply=100, curriculum=("50:64", "100:128:200")
    )
    found = [play_config(config, Path("m"), step) for step in (0, 49, 50, 100)]
    assert [(one.playouts, one.cheap_playouts, one.max_ply) for one in found] == [
        (32, 8, 100), (32, 8, 100), (64, 16, 100), (128, 32, 200),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"reuse": 9}, "--reuse 9: expected at most 8"),
        ({"gate": "often"}, "--gate often: expected sprt, match, every-N or none"),
        ({"curriculum": ("5",)}, "--curriculum 5: expected STEP:PLAYOUTS"),
        ({"run": "a/b"}, "expected a plain name"),
        ({"elo_games": 3}, "--elo-games 3: expected an even number"),
        ({"root_share": 1.0}, "--root-share 1.0: expected 0 to less than 1"),
        ({"games": 0}, "--games 0: expected at least 1"),
        ({"playouts": 0}, "--playouts 0: expected at least 1"),
    ],
)
def test_mistakes_are_named(change, text):
    with pytest.raises(GinkgoError, match=text):
        check_loop(replace(ReinforceConfig(), **change))


def test_the_learning_rate_follows_the_change_of_the_policy():
    line = {"rate_factor": 1.5, "kl": 0.03}
    assert rate_factor(line, 0.0) == 1.5
    assert rate_factor(line, 0.02) == 1.5
    assert rate_factor(line, 0.01) == 1.0
    assert rate_factor(line, 0.1) == 2.25
    assert rate_factor({"rate_factor": 1.0, "kl": None}, 0.1) == 1.0


def test_a_match_won_throughout_has_a_finite_elo():
    result = {"pentanomial": [0, 0, 0, 0, 20], "games": 40, "wins": 40, "draws": 0}
    shown = difference_of(result)
    assert 400 < shown.elo < 1200
    assert shown.low < shown.elo <= shown.high
    assert shown.score == 1.0


def test_a_match_is_played_as_the_curriculum_has_it(tmp_path, monkeypatch):
    config = ReinforceConfig(playouts=32, max_ply=100, curriculum=("50:64:200",), elo_games=2)
    seen = []

    def run_match(match):
        seen.append((match.nodes, match.max_ply))
        result = {"pentanomial": [0, 0, 1, 0, 0], "games": 2, "wins": 1, "draws": 0}
        match.json.parent.mkdir(parents=True, exist_ok=True)
        match.json.write_text(json.dumps(result))

    monkeypatch.setattr("ginkgo.arena.run.run_match", run_match)
    monkeypatch.setattr("ginkgo.arena.config.checked", lambda match: match)
    for step in (0, 50):
        play = play_config(config, tmp_path, step)
        match = partial(loop_module.gate.play_match, config)
        loop_module.gate.judge(config, tmp_path, tmp_path, play, tmp_path / str(step), 1, 1, match)
    assert seen == [(32, 100), (64, 200)]


# --- the loop, with stand-ins for network, training and matches -----------------------------------


REAL_JUDGE = loop_module.gate.judge


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


def config_of(folder: Path) -> ReinforceConfig:
    return ReinforceConfig(
        run="r", runs=folder, network="b1c8", generations=2, games=20, playouts=4,
        cheap_playouts=2, full_share=0.5, max_ply=30, processes=1, concurrent=20, file_games=10,
        batch_size=16, window=200, elo_games=2,
    )  # fmt: skip


def stand_in(lesson):
    """What `learn.start` leaves on disk, without a network."""
    first = isinstance(lesson, learn.FirstModel)
    folder = lesson.directory if first else lesson.config.runs / lesson.config.run
    network = {"network": "b1c8", "activation": "silu", "features": "dlshogi119"}
    described = {**network, "labels": LABEL_SCHEME, "heads": ["policy", "value"], "view": "before"}
    # In the order of the real thing: what is looked for comes last.
    if first:
        record_files.write_text(folder / "model.onnx", "")
    else:
        assert lesson.config.data[0].is_dir()
    record_files.write_text(folder / "config.json", json.dumps(described))
    if not first:
        figures = {"steps": lesson.config.steps, "kl": 0.1, "surprise": None}
        record_files.write_text(folder / learn.RESULT, json.dumps(figures))
        record_files.write_text(folder / "model.onnx", "")


@pytest.fixture
def stand_ins(monkeypatch):
    monkeypatch.setattr(learn, "start", stand_in)
    monkeypatch.setattr(learn, "finish", lambda _process: None)
    monkeypatch.setattr(
        "ginkgo.search.evaluators.make_evaluator", lambda *_args, **_more: HashEvaluator()
    )
    monkeypatch.setattr(
        loop_module.gate,
        "judge",
        lambda *_args: (True, Difference(10.0, -5.0, 25.0, 2, 0.6)),
    )


@pytest.fixture
def no_report(monkeypatch):
    """Pictures take longer than the rest."""
    monkeypatch.setattr(loop_module.report, "complete", lambda *_args: None)


def essence(folder: Path) -> list[dict]:
    """The lines of a run without what differs from time to time."""
    lines = [json.loads(line) for line in (folder / "r" / "generations.jsonl").open()]
    for line in lines:
        line["model"] = Path(line["model"]).name
        for name in list(line):
            if name.endswith("seconds") or name == "ended":
                del line[name]
    return lines


def test_the_loop_goes_on_wherever_it_was_killed(tmp_path, stand_ins, no_report, monkeypatch):
    """Killed before and after each file gets its name, restarted each time."""
    Loop(config_of(tmp_path / "whole")).run()
    expected = essence(tmp_path / "whole")
    assert [line["generation"] for line in expected] == [0, 1, 2]
    real, rng, left, after = record_files.os.replace, random.Random(2), 0, False

    def replace_or_die(source, target):
        nonlocal left
        left -= 1
        if left or after:
            real(source, target)
        if not left:
            raise Killed

    monkeypatch.setattr(record_files.os, "replace", replace_or_die)
    kills = 0
    while kills < 200:
        left, after = rng.randrange(1, 22), rng.random() < 0.5
        try:
            Loop(config_of(tmp_path / "killed")).run()
            break
        except Killed:
            kills += 1
    assert 3 < kills < 200
    assert essence(tmp_path / "killed") == expected
    runs = [run.look() for run in run_folders(tmp_path / "killed" / "r")]
    assert [len(run.stored) for run in runs] == [20, 20]
    assert audit(runs).faults == []


def test_lessons_leave_the_win_rates_as_they_were_learned(tmp_path, stand_ins, no_report):
    """Scaled on a few held-out games, generation after generation, they would run away."""
    lessons = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn, "start", lambda lesson: lessons.append(lesson) or stand_in(lesson))
        Loop(replace(config_of(tmp_path), generations=1)).run()
    assert [one.config.calibrate for one in lessons[1:]] == [False]


def test_lost_use_counts_are_not_taken_for_none(tmp_path, stand_ins, no_report):
    Loop(replace(config_of(tmp_path), generations=1)).run()
    counts = tmp_path / "r" / "window" / "00001.npz"
    whole = counts.read_bytes()
    counts.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GinkgoError, match=r"00001\.npz: cannot be read"):
        Loop(config_of(tmp_path)).run()
    counts.unlink()
    with pytest.raises(GinkgoError, match=r"00001\.npz: cannot be read"):
        Loop(config_of(tmp_path)).run()


def test_a_run_keeps_its_options_and_is_worked_on_by_one(tmp_path, stand_ins):
    loop = Loop(replace(config_of(tmp_path), generations=1))
    loop.run()
    with pytest.raises(GinkgoError, match="--network: the run began with b1c8, not b2c16"):
        Loop(replace(config_of(tmp_path), network="b2c16")).run()
    with alone(loop.folder), pytest.raises(GinkgoError, match="another process works on this run"):
        Loop(config_of(tmp_path)).run()
    report = tmp_path / "r" / "report"
    assert (report / "00001.md").read_text().startswith("# Generation 1")
    assert {path.name for path in report.iterdir()} == {
        "00001.md", "00001.png", "00001-game.png",
    }  # fmt: skip


def test_games_may_be_played_while_the_model_is_trained(tmp_path, stand_ins, no_report):
    Loop(replace(config_of(tmp_path), side_by_side=True)).run()
    lines = essence(tmp_path)
    assert [line["played_by"] for line in lines[1:]] == [0, 0]
    assert [run.number for run in run_folders(tmp_path / "r")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("gate", "accepted"), [("every-100", [True, False, True]), ("none", [True] * 3)]
)
def test_the_gate_decides_who_plays(tmp_path, stand_ins, no_report, monkeypatch, gate, accepted):
    config = replace(config_of(tmp_path), gate=gate, elo_games=0, generations=2)
    monkeypatch.setattr(loop_module.gate, "judge", REAL_JUDGE)
    steps = iter([60, 60])

    def learned(lesson):
        stand_in(lesson)
        if not isinstance(lesson, learn.FirstModel):
            path = lesson.config.runs / lesson.config.run / learn.RESULT
            path.write_text(json.dumps({"steps": next(steps), "kl": None}))

    monkeypatch.setattr(learn, "start", learned)
    Loop(config).run()
    lines = essence(tmp_path)
    assert [line["accepted"] for line in lines] == accepted
    assert lines[2]["played_by"] == (0 if gate.startswith("every") else 1)


def scalars(path: Path) -> dict[str, float]:
    """What TensorBoard's own reader finds in a file of events; it checks the checksums."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader, found = PyRecordReader_New(str(path)), {}
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:
            return found
        event = Event.FromString(reader.record())
        found |= {value.tag: value.simple_value for value in event.summary.value}


def test_curves_can_be_read_by_tensorboard(tmp_path, stand_ins, monkeypatch):
    monkeypatch.setattr(loop_module.report, "_curves_png", lambda _lines: b"")
    monkeypatch.setattr(loop_module.report, "_game_png", lambda *_args: None)
    Loop(replace(config_of(tmp_path), generations=1)).run()
    files = sorted((tmp_path / "r" / "logs").glob("events.out.tfevents.*"))
    assert [scalars(path)["reinforce/elo"] for path in files] == [0, 10]


def test_random_weights_do_not_resign(tmp_path, stand_ins, no_report):
    config = replace(config_of(tmp_path), generations=1, resign=0.9, never_resign=0.0)
    Loop(config).run()
    (run,) = run_folders(tmp_path / "r")
    assert run.look().options["resign_threshold"] == 0.0
    figures = figures_of(run, 0.9)
    assert figures["resigned"] == 0.0
    assert figures["resign_judged"] > 0  # all of its games tell when to resign


def test_the_threshold_at_most_doubles(tmp_path, stand_ins, no_report, monkeypatch):
    monkeypatch.setattr("ginkgo.selfplay.run.calibrated", lambda *_args: 0.3)
    Loop(replace(config_of(tmp_path), generations=4, resign=0.05)).run()
    found = [run.look().options["resign_threshold"] for run in run_folders(tmp_path / "r")]
    assert found == [0.05, 0.1, 0.2, 0.3]


def test_the_disk_budget_lets_old_games_go(tmp_path, stand_ins, no_report):
    config = replace(config_of(tmp_path), generations=5, window=60, reuse=2, disk=1e-6)
    left = [
        tmp_path / "r" / name for name in ("training_data/.gone-run_001", "models/m/.gone-logs")
    ]
    for path in left:  # as a kill in mid-removal leaves them
        path.mkdir(parents=True)
    Loop(config).run()
    assert not any(path.exists() for path in left)
    runs = run_folders(tmp_path / "r")
    assert runs[-1].number == 5
    assert len(runs) < 5
    assert list((tmp_path / "r" / "window").glob("data_*")) == []


# --- the verb ---------------------------------------------------------------------------------


def test_the_learner_is_a_process_that_says_how_it_ended(tmp_path, capfd):
    first = learn.FirstModel(tmp_path / "m", "m", "b1c8", "onnx", 0, origin=tmp_path / "none")
    with pytest.raises(GinkgoError, match="training has ended with status 1"):
        learn.finish(learn.start(first))
    assert "none" in capfd.readouterr().err


def learn_here(lesson):
    """`learn.start` in this process: to start TensorFlow anew takes longer than to learn."""
    if isinstance(lesson, learn.FirstModel):
        learn.make_first(lesson)
    else:
        assert learn.learn(lesson) == 0


def test_ginkgo_reinforce(tmp_path, monkeypatch, no_report):
    """From random weights, with a real network, training and matches."""
    monkeypatch.setattr(learn, "start", learn_here)
    monkeypatch.setattr(learn, "finish", lambda _process: None)
    for pictures in ("boards", "plots"):  # test_training looks at them
        monkeypatch.setattr(f"ginkgo.training.evaluation.Evaluation.{pictures}", lambda *_args: {})
    command = (
        "--run tiny --network b1c8 --generations 1 --games 16 --playouts 4 --cheap-playouts 2 "
        "--gumbel 2 --full-share 0.5 --max-ply 24 --processes 1 --batch-size 32 --window 200 "
        "--elo-games 2 --gate match --gate-games 2 --gate-elo -1000 --kl-target 0.01"
    )
    arguments = [*command.split(), "--runs", str(tmp_path)]
    assert main(arguments) == 0
    folder = tmp_path / "tiny"
    lines = [json.loads(line) for line in (folder / "generations.jsonl").open()]
    assert [line["generation"] for line in lines] == [0, 1]
    last = lines[-1]
    assert last["accepted"]
    assert 0 < last["samples"] == 32 * last["steps"]
    assert 1 <= last["max_use"] <= 4
    assert last["games"] == 16
    assert last["elo_low"] < last["elo"] < last["elo_high"]
    assert last["kl"] > 0
    assert last["surprise"] > 0
    assert (Path(last["model"]) / "model.onnx").is_file()
    assert audit(run_folders(folder)).faults == []
    assert main(arguments) == 0  # nothing is left to do
    again = [json.loads(line) for line in (folder / "generations.jsonl").open()]
    assert again == lines
