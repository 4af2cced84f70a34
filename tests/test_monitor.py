"""What TensorBoard is told of a run."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata

from ginkgo.models import parse_network
from ginkgo.training import dashboard
from ginkgo.training.config import TrainConfig
from ginkgo.training.monitor import ScalarLog
from ginkgo.training.trainer import Trainer


def read(logs) -> EventAccumulator:
    return EventAccumulator(str(logs), size_guidance={"tensors": 0}).Reload()


def charts_of(events: EventAccumulator) -> dict[str, dict[str, list[str]]]:
    """By category and title of a chart the patterns of its curves."""
    (event,) = events.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    return {
        category.title: {chart.title: list(chart.multiline.tag) for chart in category.chart}
        for category in layout.category
    }


def compared(events: EventAccumulator) -> tuple[dict, list[str], dict]:
    """Types of the options that runs are compared by, figures, and the options of this run."""
    found = events.PluginTagToContent("hparams")
    told = metadata.parse_experiment_plugin_data(found[metadata.EXPERIMENT_TAG])
    start = metadata.parse_session_start_info_plugin_data(found[metadata.SESSION_START_INFO_TAG])
    values = {
        name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()
    }
    types = {info.name: info.type for info in told.hparam_infos}
    return types, [info.name.tag for info in told.metric_infos], values


def test_curves_plots_and_charts_of_a_run(config):
    heads = ("policy", "value")
    Trainer(replace(config, heads=heads, histograms=True)).run()
    events = read(config.runs / "tiny" / "logs")
    tags = set(events.Tags()["tensors"])
    assert tags >= {
        *("train/loss", "train/value_accuracy", "train/gradient_norm", "train/learning_rate"),
        *("val/value_accuracy", "val/value_brier", "val/value_log_loss"),
        *("val_baseline/material_accuracy", "val_baseline/majority_accuracy"),
        *("input/wait_fraction", "input/positions_per_second", "input/pool_fill"),
        *("input/dropped_lines", "input/epoch"),
        *("val_plots/calibration", "val_plots/accuracy_by_ply", "test_plots/calibration"),
        *("val/policy_top1", "val_baseline/frequent_move_top1", "val_baseline/piece_move_top1"),
        *("val_plots/moves_by_ply", "weights/stem/kernel"),
        *("val_boards/the_same_positions", "val_boards/worst_predictions"),
        "run/config",
    }
    assert len(events.Tensors("train/value_accuracy")) == 12
    charts = charts_of(events)
    assert list(charts) == ["learning", "input", "sources"]
    for category in charts.values():
        for curves in category.values():
            for curve in curves:
                assert any(re.match(curve, tag) for tag in tags), curve
    types, figures, values = compared(events)
    assert set(figures) <= tags
    assert {"val/value_accuracy", "val/policy_top1", "input/wait_fraction"} <= set(figures)
    assert types.keys() == values.keys()
    assert (values["network"], values["heads"], values["steps"]) == ("b1c8", "policy value", 12)


@pytest.mark.parametrize(("head", "other"), [("value", "policy"), ("policy", "value")])
def test_charts_are_of_the_heads_that_are_trained(head, other, tmp_path):
    config = TrainConfig(data=(), heads=(head,), coverage=False)
    network = parse_network("b1c16")
    run = SimpleNamespace(config=config, step=0, steps=4, network=network, precision="float32")
    log = ScalarLog(tmp_path, run, 10)
    log.on_train_begin()
    log.on_train_end()
    charts = charts_of(read(tmp_path))
    assert list(charts) == ["learning", "input"]
    _, figures, _ = compared(read(tmp_path))
    shown = [curve for chart in charts["learning"].values() for curve in chart]
    for names in (figures, shown):
        assert any(head in name for name in names)
        assert not any(other in name for name in names)


def test_sources_that_are_chosen_have_charts_of_the_choice():
    plain, chosen = (
        {chart.title for category in dashboard.layout(config).category for chart in category.chart}
        for config in (TrainConfig(data=()), TrainConfig(data=(), mix="ucb"))
    )
    assert "reward" in chosen - plain


def test_each_option_has_the_same_type_in_all_runs():
    """TensorBoard has one type for a column."""
    plain = dashboard.hyperparameters(TrainConfig(data=()))
    other = dashboard.hyperparameters(
        TrainConfig(data=(), ply_weight=True, init="x", heads=("policy",), min_rating=3000)
    )
    assert plain.keys() == other.keys()
    assert "runs" not in plain
    for name in plain:
        number = isinstance(plain[name], int | float)
        assert type(plain[name]) is type(other[name]) or number, name
