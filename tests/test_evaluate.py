"""`ginkgo evaluate`: the figures of a run again, and never on games that were trained on."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from ginkgo.cli import run
from ginkgo.errors import GinkgoError
from ginkgo.models import load_games
from ginkgo.pipeline.scan import Scan, build_index
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.training.config import TrainConfig
from ginkgo.training.evaluate import EvaluateConfig, choose_games, evaluate
from ginkgo.training.trainer import Trainer


@pytest.fixture(scope="module")
def trained(games_dir, tmp_path_factory):
    """A tiny model of both heads, and the figures at the end of its run."""
    runs = tmp_path_factory.mktemp("runs")
    config = TrainConfig(
        data=(games_dir,), run="tiny", runs=runs, heads=("policy", "value"), network="b1c8",
        batch_size=64, steps=4, pool=2048, val_positions=300, val_fraction=0.2,
    )  # fmt: skip
    return runs / "tiny", Trainer(config).run()


@pytest.fixture
def config(trained, games_dir) -> EvaluateConfig:
    return EvaluateConfig(model=trained[0], data=(games_dir,), val_fraction=0.2)


def test_it_gives_the_figures_of_the_run_again(trained, config, capsys):
    directory, report = trained
    assert (
        run(["evaluate", str(directory), str(config.data[0]), "--val-fraction", "0.2", "--json"])
        == 0
    )
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    heldout = report["heldout"]
    for name in ("policy_top1", "policy_top5", "policy_cross_entropy", "material_accuracy",
                 "material_log_loss", "positions", "games", "piece_move_top1"):  # fmt: skip
        assert printed[name] == pytest.approx(heldout[name], rel=1e-5), name
    for name in ("accuracy", "log_loss", "brier"):
        assert printed[f"value_{name}"] == pytest.approx(heldout[name], rel=1e-5)
    assert set(printed["by_source"]) == set(report["by_source"])
    assert set(printed["by_ply"]) == set(report["by_ply"])
    (source,) = printed["by_source"].values()
    assert source["value_accuracy"] == printed["value_accuracy"]


def test_games_trained_on_are_left_out_under_any_name(trained, config, games_dir, tmp_path):
    trained_on = load_games(trained[0]).all
    assert len(load_games(trained[0]).val)
    assert len(trained_on) > len(load_games(trained[0]).train)
    (file,) = games_dir.glob("*.gz")
    renamed = tmp_path / "renamed.usi"
    renamed.write_bytes(gzip.decompress(file.read_bytes()))
    for split in ("auto", "all", "train"):
        options = replace(config, data=(renamed,), split=split)
        indices, dropped = choose_games(Scan([renamed], fraction=0.2), options, trained_on)
        hashes = np.concatenate([index.hashes for index in indices])
        assert not np.isin(hashes, trained_on).any()
        assert bool(dropped) == (split != "auto")
    indices, dropped = choose_games(
        Scan([renamed], fraction=0.2), replace(config, split="all", seen=True), trained_on
    )
    assert np.isin(trained_on, indices[0].hashes).sum() > 40
    assert dropped == 0


def test_games_trained_on_are_left_out_after_a_conversion_that_dropped_plies(
    games_dir, config, tmp_path
):
    for name, options in (
        ("late", {"min_ply": 30}), ("side", {"side": "w"}), ("merged", {"merge_duplicates": True})
    ):  # fmt: skip
        convert(
            ConvertConfig((str(games_dir),), str(tmp_path / name), workers=1, val_fraction=0.2,
                          **options)
        )  # fmt: skip
        here = (tmp_path / name / "train",)
        trained_on = np.concatenate([build_index(here, part).known for part in ("train", "val")])
        indices, _ = choose_games(Scan(config.data, fraction=0.2), config, trained_on)
        hashes = np.concatenate([index.hashes for index in indices])
        assert len(hashes)
        assert not np.isin(hashes, trained_on).any()
        # Of the conversion itself the test games are judged.
        indices, _ = choose_games(Scan(here), replace(config, data=here), trained_on)
        test = build_index(here, "test").hashes
        assert {*np.concatenate([one.hashes for one in indices]).tolist()} == {*test.tolist()}
        assert sum(one.games for one in indices) == len(test)


def test_validation_games_are_evaluated_only_on_request(trained, config):
    seen = load_games(trained[0])
    scan = Scan(config.data, fraction=0.2)
    assert np.isin(scan.view("val").hashes, seen.val).all()
    with pytest.raises(GinkgoError, match="the model has seen"):
        evaluate(replace(config, split="train"))
    report = evaluate(replace(config, split="val"))
    assert report["heldout"]["games"] == len(seen.val)


def test_all_games_of_new_data_are_used(trained, config, games_dir, tmp_path):
    (file,) = games_dir.glob("*.gz")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    new = tmp_path / "new.usi"
    # Games cut short are other games.
    cut = [line.split("\t")[0].rsplit(" ", 3)[0] + "\twinner=b" for line in lines[:30]]
    new.write_text("\n".join(cut) + "\n")
    report = evaluate(replace(config, data=(new, file)))
    assert report["by_source"]["new"]["games"] == 30
    test_games = Scan([file], fraction=0.2).view("test", load_games(trained[0]).all).games
    assert report["heldout"]["games"] == 30 + test_games
    some = evaluate(replace(config, data=(new,), positions=100))
    assert 30 <= some["positions"] <= 120


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"features": "ginkgo148"}, "features dlshogi119, but ginkgo148 was asked for"),
        ({"labels": "nshogi"}, "labels dlshogi2187, but nshogi was asked for"),
        ({"min_ply": 500}, "no usable position"),
    ],
)
def test_refusals_are_one_line(config, options, line):
    with pytest.raises(GinkgoError, match=line) as caught:
        evaluate(replace(config, **options))
    assert "\n" not in str(caught.value)


def test_no_model_is_one_line(config, tmp_path):
    with pytest.raises(GinkgoError, match="no model directory"):
        evaluate(replace(config, model=tmp_path))
