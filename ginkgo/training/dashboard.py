"""What TensorBoard shows of a run beside its curves: charts put together, and runs compared.

In: the options of a run. Out: two summaries: a layout for the page *Custom scalars*, where
what belongs together is in one chart, and the options as hyperparameters, with the figures by which
the page *HParams* compares runs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalar
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import summary as hparams

from ginkgo.training.config import TrainConfig

#: Charts about what is learned, by head: title, and the curves in it.
_LEARNING: dict[str, dict[str, tuple[str, ...]]] = {
    "value": {
        "who wins: share right": (
            *("train/value_accuracy", "val/value_accuracy", "test/value_accuracy"),
            *("val_baseline/material_accuracy", "val_baseline/majority_accuracy"),
        ),
        "who wins: log loss": (
            *("train/value_loss", "val/value_log_loss", "test/value_log_loss"),
            *("val_baseline/material_log_loss", "val_baseline/majority_log_loss"),
        ),
    },
    "policy": {
        "moves: first choice right": (
            *("train/policy_accuracy", "val/policy_top1", "test/policy_top1"),
            *("val_baseline/piece_move_top1", "val_baseline/frequent_move_top1"),
        ),
        "moves: cross-entropy": (
            *("train/policy_loss", "val/policy_cross_entropy", "test/policy_cross_entropy"),
            "val_baseline/frequent_move_cross_entropy",
        ),
    },
}
_INPUT = {
    "share of the time spent waiting": ("input/wait_fraction",),
    "positions in the shuffle pool": ("input/pool_fill",),
    "positions a second": ("input/positions_per_second",),
}
#: Charts by source: every curve whose name begins so.
_SOURCES = {
    "share of the games seen": "mix_coverage/",
    "loss": "mix_loss/",
}
#: The same where sources are chosen by what they teach.
_CHOSEN = {
    "reward": "mix_reward/",
    "bonus for games not seen": "mix_bonus/",
    "penalty for epochs gone through": "mix_penalty/",
}
#: Figures by which runs are compared, by head.
_FIGURES = {
    "value": ("val/value_accuracy", "val/value_log_loss", "test/value_accuracy"),
    "policy": ("val/policy_top1", "val/policy_cross_entropy", "test/policy_top1"),
}
_SPEED = ("input/positions_per_second", "input/wait_fraction")
#: Options that are shown first: TensorBoard shows five unless it is told otherwise.
_FIRST = ("network", "heads", "batch_size", "learning_rate", "steps")
#: Options that change neither what is learned nor how fast.
_ASIDE = (
    *("run", "runs", "resume", "report", "histograms", "eval_every", "checkpoint_every"),
    *("val_positions", "test_positions", "strict", "epochs"),
)


def layout(config: TrainConfig) -> layout_pb2.Layout:
    """Charts of what is learned, of the input, and of the sources, in this order.

    TensorBoard shows those of all runs together, equal ones once.
    """
    learning = {
        title: tags
        for head, charts in _LEARNING.items()
        if head in config.heads
        for title, tags in charts.items()
    }
    categories = [_category("learning", learning), _category("input", _INPUT)]
    if config.coverage:
        starts = _SOURCES | (_CHOSEN if config.mix == "ucb" else {})
        found = {title: (start,) for title, start in starts.items()}
        categories.append(_category("sources", found))
    return layout_pb2.Layout(category=categories)


def _category(name: str, charts: Mapping[str, Sequence[str]]) -> layout_pb2.Category:
    """Charts by title with their curves: whole tags, or beginnings that end with a slash."""
    return layout_pb2.Category(
        title=name,
        chart=[
            layout_pb2.Chart(
                title=title,
                multiline=layout_pb2.MultilineChartContent(
                    tag=[f"^{re.escape(tag)}{'' if tag.endswith('/') else '$'}" for tag in tags]
                ),
            )
            for title, tags in charts.items()
        ],
    )


def hyperparameters(config: TrainConfig, **settled: Any) -> dict[str, bool | float | str]:
    """The options of a run by which it may differ from another, as TensorBoard takes them.

    Args:
        settled: what the run made of options that say "choose".

    >>> found = hyperparameters(TrainConfig(data=()), network="b5c64", steps=1000)
    >>> found["network"], found["steps"], found["heads"], found["mirror"]
    ('b5c64', 1000, 'value', True)
    """
    values = {**{field.name: getattr(config, field.name) for field in dataclasses.fields(config)},
              **settled}  # fmt: skip
    found: dict[str, bool | float | str] = {}
    for name, value in values.items():
        if name in _ASIDE:
            continue
        if isinstance(value, tuple):
            value = " ".join(map(str, value))
        elif value is None:
            value = ""
        found[name] = str(value) if _type(name) == api_pb2.DATA_TYPE_STRING else value
    return found


def write(config: TrainConfig, step: int, **settled: Any) -> None:
    """Write layout, hyperparameters and the figures to compare to the default writer.

    Args:
        settled: as for `hyperparameters`.
    """
    values = hyperparameters(config, **settled)
    infos = [
        api_pb2.HParamInfo(name=name, type=_type(name), differs=name in _FIRST) for name in values
    ]
    tags = [tag for head in _FIGURES if head in config.heads for tag in _FIGURES[head]]
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in (*tags, *_SPEED)]
    for summary in (
        custom_scalar.pb(layout(config)),
        hparams.experiment_pb(infos, metrics),
        hparams.session_start_pb(values),
    ):
        tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step)


def _type(name: str) -> Any:
    """The type of an option in the columns of all runs, whatever a run has there."""
    kind = str(TrainConfig.__dataclass_fields__[name].type)
    if kind == "bool":
        return api_pb2.DATA_TYPE_BOOL
    return api_pb2.DATA_TYPE_FLOAT64 if kind in ("int", "float") else api_pb2.DATA_TYPE_STRING
