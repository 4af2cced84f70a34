"""A model against the one that it was trained from, on held-out positions of self-play.

In: two models. Out: how far the policy has moved, how far it was from what the searches found, and
how much of the results the values explain, before and after.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ginkgo.models import load_model
from ginkgo.pipeline.load import load_block
from ginkgo.pipeline.parse import Block
from ginkgo.training.metrics import targets
from ginkgo.training.step import Inference, win_probability

#: Steps between two looks at how far the policy has moved.
EVERY = 20


@dataclass(frozen=True)
class Comparison:
    """Before and after."""

    kl: float
    """KL of the old policy and the new one, in nats, mean over positions."""
    surprise: float
    """KL of the searches' visits and the old policy: what the searches found out."""
    surprise_after: float
    explained_variance: float
    """1 - Var(result - value) / Var(result), of the old model."""
    explained_variance_after: float

    def as_dict(self) -> dict[str, float | None]:
        """Without what is not a number."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


class Watch(keras.callbacks.Callback):
    """Compares the model with the one at the start; ends training where the policy moves too far.

    Args:
        limit: KL, in nats; 0: none.
    """

    def __init__(self, limit: float) -> None:
        super().__init__()
        self._limit = limit

    def begin(self, trainer: Any, start: Path, positions: int) -> None:
        """Note what the model at the start says.

        Args:
            trainer: `Trainer`. start: directory of that model. positions: to compare on.
        """
        self._trainer = trainer
        parse = replace(trainer.parse, keep=0, keep_from=())
        block = load_block(trainer.indices["val"], parse)
        rows = np.random.default_rng(0).permutation(len(block.positions))[:positions]
        self._block = block.take(rows)
        model, config = load_model(start)
        self._features = config["features"]
        self._policy, self._value = self._answers(Inference(model, self._features))

    def _answers(self, inference: Inference) -> tuple[NDArray, NDArray]:
        """(n, 2187) log probabilities, (n,) win rates."""
        logits, wins = [], []
        for _, outputs in inference.batches(self._block):
            logits.append(log_softmax(outputs["policy"]))
            wins.append(win_probability(outputs["value"]))
        return np.concatenate(logits), np.concatenate(wins)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Look now and then how far the policy has moved; too far ends the training."""
        if self._limit and batch % EVERY == 0:
            policy, _ = self._answers(self._now)
            if divergence(self._policy, policy) > self._limit:
                self._trainer.model.stop_training = True

    @cached_property
    def _now(self) -> Inference:
        """Of the model that is being trained; made once, for tracing it takes seconds."""
        return Inference(self._trainer.model, self._features)

    def compare(self) -> Comparison:
        """The model at the start with the best one, which the evaluation has at the end."""
        policy, value = self._answers(self._trainer.evaluation.inference)
        result = targets(self._block.positions)
        return Comparison(
            divergence(self._policy, policy),
            surprise(self._block, self._policy),
            surprise(self._block, policy),
            explained_variance(result, self._value),
            explained_variance(result, value),
        )


def log_softmax(logits: NDArray) -> NDArray[np.float64]:
    """(n, m) log probabilities."""
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def divergence(old: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    """KL(old || new) in nats, mean over rows of log probabilities (n, m)."""
    return float((np.exp(old) * (old - new)).sum(axis=1).mean())


def surprise(block: Block, policy: NDArray[np.float64]) -> float:
    """KL of the visits and a policy, in nats, mean over the positions with visits; NaN: none.

    Args:
        policy: (n, 2187) log probabilities.
    """
    target = block.ragged["policy"]
    share = target.values["probability"].astype(np.float64)
    rows = np.repeat(np.arange(len(target)), target.lengths)
    total = np.bincount(rows, share, len(target))
    share = share / np.maximum(total[rows], 1e-12)
    seen = share > 0
    said = policy[rows[seen], target.values["label"][seen]]
    gains = np.bincount(rows[seen], share[seen] * (np.log(share[seen]) - said), len(target))
    return float(gains[total > 0].mean()) if (total > 0).any() else float("nan")


def explained_variance(result: NDArray[np.float64], value: NDArray[np.float64]) -> float:
    """1 - Var(result - value) / Var(result); NaN where all results are the same.

    >>> explained_variance(np.array([1.0, 0.0]), np.array([0.75, 0.25]))
    0.75
    """
    known = ~np.isnan(result)
    spread = float(result[known].var()) if known.any() else 0.0
    if not spread:
        return float("nan")
    return 1 - float((result[known] - value[known]).var()) / spread
