"""Evaluation of a run on held-out games, beside its baselines.

In: the run's model (its averaged weights) and held-out blocks. Out: figures, plots, and the
weights that were best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.models import Network, build_network
from ginkgo.pipeline.index import Index
from ginkgo.pipeline.load import load_block, load_sample
from ginkgo.pipeline.parse import Block, ParseOptions, complete
from ginkgo.training import metrics, plots
from ginkgo.training.baselines import Baselines, score_scale
from ginkgo.training.boards import Opinion, boards_image, opinion
from ginkgo.training.config import TrainConfig
from ginkgo.training.monitor import plain
from ginkgo.training.recipe import WeightAverage
from ginkgo.training.step import Inference, channels_of, win_probability

#: Validation games of a source from which on it has a say in the scale of the win rates.
CALIBRATED_GAMES = 100
#: Positions of the training games on which the baselines are fitted.
BASELINE_POSITIONS = 200_000


@dataclass
class Answers:
    """What a model says of positions; None where it lacks the head."""

    win: NDArray[np.float64] | None = None
    """(n,) probability that the mover wins."""
    rank: NDArray[np.int32] | None = None
    """(n,) place of the played move among all labels, 0 the best."""
    loss: NDArray[np.float64] | None = None
    """(n,) cross-entropy of the played move in nats."""

    def of(self, rows: NDArray[np.bool_]) -> Answers:
        """Those of some positions."""
        kept = {k: None if v is None else v[rows] for k, v in vars(self).items()}
        return Answers(**kept)


def answers_of(
    inference: Inference, block: Block, done: Callable[[int], None] = lambda _positions: None
) -> Answers:
    """Ask a model about every position of a block.

    Args:
        done: told after each batch how many positions it had.
    """
    answers, size = Answers(), len(block.positions)
    for part, outputs in inference.batches(block):
        if "value" in outputs:
            if answers.win is None:
                answers.win = np.zeros(size)
            answers.win[part] = win_probability(outputs["value"])
        if "policy" in outputs:
            if answers.rank is None or answers.loss is None:
                answers.rank, answers.loss = np.zeros(size, np.int32), np.zeros(size)
            played = block.positions["move"][part]
            answers.rank[part], answers.loss[part] = metrics.move_scores(outputs["policy"], played)
        done(part.stop - part.start)
    return answers


def figures_of(
    positions: NDArray, answers: Answers, baselines: Baselines, interval: bool = True
) -> dict[str, Any]:
    """How good answers are, beside the baselines; shares, and losses in nats.

    Returns:
        value: `accuracy`, `log_loss`, `brier`, `calibration_error`, `majority_*`, `material_*`, and
        `over_material`, the paired difference with its 95 % interval over games. Moves:
        `policy_top1`, `policy_top5`, `policy_cross_entropy`, `frequent_move_*` (the label played
        most often), `piece_move_top1` (told which piece type moved, its most frequent label).
        `games`, `positions`.
    """
    figures: dict[str, Any] = {}
    if answers.win is not None:
        figures |= metrics.value_metrics(positions, answers.win)
        for name, baseline in (("majority", baselines.majority), ("material", baselines.material)):
            other = metrics.value_metrics(positions, baseline.predict(positions))
            figures[f"{name}_accuracy"] = other["accuracy"]
            figures[f"{name}_log_loss"] = other["log_loss"]
    if answers.rank is not None and answers.loss is not None:
        moves = metrics.policy_metrics(answers.rank, answers.loss)
        figures |= {f"policy_{name}": value for name, value in moves.items()}
        for name, value in metrics.policy_metrics(*baselines.frequent(positions)).items():
            figures[f"frequent_move_{name}"] = value
        hit = baselines.piece_hits(positions)
        figures["piece_move_top1"] = float(hit.mean()) if len(hit) else float("nan")
    figures["games"] = len(np.unique(metrics.game_keys(positions)))
    figures["positions"] = len(positions)
    if interval and answers.win is not None and figures["games"] > 1:
        bootstrap = metrics.paired_bootstrap(
            positions, answers.win, baselines.material.predict(positions), seed=0
        )
        figures["over_material"] = {name: list(value) for name, value in bootstrap.items()}
    return figures


def report_of(
    positions: NDArray, answers: Answers, baselines: Baselines, names: Sequence[str]
) -> dict[str, Any]:
    """`figures_of` of everything (`heldout`), by source (`by_source`) and by ply (`by_ply`).

    Args:
        names: of the sources by number.
    """
    report: dict[str, Any] = {
        "heldout": figures_of(positions, answers, baselines),
        "by_source": {},
        "by_ply": {},
    }
    for number in np.unique(positions["source"]).tolist():
        rows = positions["source"] == number
        figures = figures_of(positions[rows], answers.of(rows), baselines)
        report["by_source"][names[number]] = figures
    bounds = [*metrics.PLY_BUCKETS, 1 << 16]
    for name, low, high in zip(metrics.ply_buckets(), bounds, bounds[1:], strict=False):
        rows = (positions["ply"] >= low) & (positions["ply"] < high)
        if rows.any():
            figures = figures_of(positions[rows], answers.of(rows), baselines, interval=False)
            report["by_ply"][name] = figures
    return report


class Evaluation:
    """Validates during a run, tests at its end.

    `model` holds the averaged weights. It computes in float32 whatever the training does, so that
    it plays and is exported everywhere.
    """

    def __init__(
        self,
        config: TrainConfig,
        parse: ParseOptions,
        indices: dict[str, Index],
        network: Network,
        training_model: keras.Model,
        average: WeightAverage | None,
    ) -> None:
        self._config, self._indices = config, indices
        self._training_model, self._average = training_model, average
        self.model = build_network(network, channels_of(config.features), config.heads)
        self.inference = Inference(self.model, config.features)
        # Held-out figures are over all positions, equally weighted, whatever the training keeps.
        self._parse = replace(parse, keep=0, keep_from=(), ply_weight=False, policies=False)
        self.val = load_block(indices["val"], self._parse, config.val_positions)
        sample = load_sample(indices["train"], self._parse, BASELINE_POSITIONS)
        if not len(self.val.positions) or not len(sample.positions):
            raise GinkgoError("no held-out positions: give --val, or more games")
        self.baselines = Baselines.fitted(sample.positions)
        #: Centipawns; see `baselines.score_scale`.
        self.score_scale = score_scale(sample.positions)
        self.names = indices["val"].names
        self.best: list[np.ndarray] | None = None
        self.best_loss, self.best_step, self.since_best = float("inf"), 0, 0
        self.value_scale = 1.0
        self._last: dict[str, tuple[Block, Answers]] = {}
        self._judge_baselines()

    # --- state for checkpoints ----------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, beside the best weights."""
        return {
            "best_loss": self.best_loss,
            "best_step": self.best_step,
            "since_best": self.since_best,
        }

    def restore(self, state: dict[str, Any], best: list[np.ndarray] | None) -> None:
        """The inverse of `state`."""
        self.best_loss, self.best_step = state["best_loss"], state["best_step"]
        self.since_best, self.best = state["since_best"], best

    # --- figures ------------------------------------------------------------------------------

    def _averaged_weights(self) -> list[np.ndarray]:
        if self._average is not None:
            return [value.numpy() for value in self._average.values]
        return [np.asarray(weight, np.float32) for weight in self._training_model.weights]

    def _judge_baselines(self) -> None:
        """Figures of the baselines on the validation games; print what there is to beat."""
        positions = self.val.positions
        self._val_baselines = {
            name: metrics.value_metrics(positions, baseline.predict(positions))
            for name, baseline in (
                ("majority", self.baselines.majority),
                ("material", self.baselines.material),
            )
        }
        self._val_moves = metrics.policy_metrics(*self.baselines.frequent(positions))
        self._val_piece_moves = float(self.baselines.piece_hits(positions).mean())
        if "value" in self._config.heads:
            if (
                self._config.best_by == "value"
                and not np.isfinite(metrics.targets(positions)).any()
            ):
                raise GinkgoError("--best-by value: no validation game has a result")
            parts = [
                f"{name} accuracy {figures['accuracy']:.4f} log loss {figures['log_loss']:.4f}"
                for name, figures in self._val_baselines.items()
            ]
            plain("to beat on validation games: " + "; ".join(parts))

    def validate(self, step: int) -> dict[str, Any]:
        """Evaluate the averaged weights on the validation games; remember the best ones.

        Returns:
            logs for TensorBoard by name, and `summary`, a line for people.
        """
        weights = self._averaged_weights()
        self.model.set_weights(weights)
        answers = answers_of(self.inference, self.val)
        self._last["val"] = (self.val, answers)
        logs: dict[str, Any] = {}
        parts, losses = [], {}
        if answers.win is not None:
            figures = metrics.value_metrics(self.val.positions, answers.win)
            material = self._val_baselines["material"]
            majority = self._val_baselines["majority"]
            if figures["positions"]:  # without results nothing can be said of it
                losses["value"] = figures["log_loss"]
            for name in ("accuracy", "log_loss", "brier"):
                logs[f"val/value_{name}"] = figures[name]
                logs[f"val_baseline/material_{name}"] = material[name]
                logs[f"val_baseline/majority_{name}"] = majority[name]
            parts.append(
                f"held-out win accuracy {figures['accuracy']:.4f} (material "
                f"{material['accuracy']:.4f}), log loss {figures['log_loss']:.4f} "
                f"({material['log_loss']:.4f}), Brier {figures['brier']:.4f}"
            )
        if answers.rank is not None and answers.loss is not None:
            moves = metrics.policy_metrics(answers.rank, answers.loss)
            losses["policy"] = moves["cross_entropy"]
            for name, value in moves.items():
                logs[f"val/policy_{name}"] = value
                logs[f"val_baseline/frequent_move_{name}"] = self._val_moves[name]
            logs["val_baseline/piece_move_top1"] = self._val_piece_moves
            parts.append(
                f"held-out moves top-1 {moves['top1']:.4f} (of the piece "
                f"{self._val_piece_moves:.4f}) top-5 {moves['top5']:.4f} "
                f"cross-entropy {moves['cross_entropy']:.4f}"
            )
        loss = losses.get(self._config.best_by, sum(losses.values()) if losses else math.inf)
        if loss < self.best_loss:
            self.best_loss, self.best_step, self.since_best = loss, step, 0
            self.best = weights
            parts.append("best so far")
        else:
            self.since_best += 1
        logs["summary"] = "; ".join(parts)
        return logs

    def use_best(self) -> None:
        """Put the best weights into `model`, and make its win rates as sure as they should be."""
        self.model.set_weights(self.best if self.best is not None else self._averaged_weights())
        self.value_scale = 1.0
        if self._config.calibrate and "value" in self._config.heads:
            self.value_scale = self._fitted_scale()
            layer = self.model.get_layer("value")
            layer.set_weights([self.value_scale * weight for weight in layer.get_weights()])

    def _fitted_scale(self) -> float:
        """The factor that the validation games want for the logits of winning.

        Sources of `CALIBRATED_GAMES` games and more count alike, whatever their size, and the
        others not; where no source is so large, every position counts.
        """
        positions, win = self.val.positions, answers_of(self.inference, self.val).win
        if win is None:
            return 1.0
        weights = np.zeros(len(positions))
        for number in np.unique(positions["source"]).tolist():
            rows = positions["source"] == number
            if len(np.unique(positions["game"][rows])) >= CALIBRATED_GAMES:
                weights[rows] = 1 / rows.sum()
        if not weights.any():
            weights[:] = 1
        win = np.clip(win, 1e-7, 1 - 1e-7)
        margins = np.log(win) - np.log1p(-win)
        return metrics.best_scale(metrics.targets(positions), margins, weights)

    def test(self) -> dict[str, Any]:
        """Figures of `model` on the test games, over all, by source and by ply.

        `heldout_split` is `val` where there are no test games: their figures flatter the model,
        which was chosen by them.
        """
        names, split = self._indices["test"].names, "test"
        block = load_block(self._indices["test"], self._parse, self._config.test_positions)
        if not len(block.positions):
            plain("no test games: the figures are of the validation games")
            block, names, split = self.val, self.names, "val"
        answers = answers_of(self.inference, block)
        self._last["test"] = (block, answers)
        report = report_of(block.positions, answers, self.baselines, names)
        return report | {
            "best_step": self.best_step,
            "heldout_split": split,
            "value_scale": self.value_scale,
        }

    # --- pictures -----------------------------------------------------------------------------

    def boards(self) -> dict[str, NDArray[np.uint8]]:
        """Boards of the last validation: the same few positions each time, and the worst ones."""
        if "val" not in self._last:
            return {}
        block, answers = self._last["val"]
        worst = answers.loss
        if answers.win is not None:
            worst = metrics.log_losses(metrics.targets(block.positions), answers.win)
        if worst is None:
            return {}
        wrong = _distinct_games(block.positions, np.argsort(-np.nan_to_num(worst), kind="stable"))
        fixed = [_nearest_ply(block.positions, ply) for ply in (15, 34, 51, 70, 87, 106)]
        images = {}
        for title, rows in (("the same positions", fixed), ("worst predictions", wrong[:6])):
            image = boards_image(block.positions[rows], self._opinions(block, rows), title)
            images[f"val_boards/{title.replace(' ', '_')}"] = image
        return images

    def _opinions(self, block: Block, rows: list[int]) -> list[Opinion]:
        positions = block.positions[rows]
        some = complete(Block(positions, block.keys[rows]), self._parse)
        said: list[Opinion] = []
        for part, outputs in self.inference.batches(some):
            wins = win_probability(outputs["value"]) if "value" in outputs else None
            for row, position in enumerate(positions[part]):
                win = None if wins is None else float(wins[row])
                logits = outputs["policy"][row] if "policy" in outputs else None
                said.append(opinion(position, win, logits))
        return said

    def plots(self, split: str = "val") -> dict[str, NDArray[np.uint8]]:
        """Calibration and accuracy by ply of the last evaluation, as (h, w, 4 or 3) images."""
        if split not in self._last:
            return {}
        block, answers = self._last[split]
        positions = block.positions
        images = {}
        if answers.rank is not None:
            hits = {
                "model": answers.rank == 0,
                "of the piece": self.baselines.piece_hits(positions),
            }
            hits["most frequent"] = self.baselines.frequent(positions)[0] == 0
            shares = {name: metrics.shares_by_ply(positions, hit) for name, hit in hits.items()}
            images[f"{split}_plots/moves_by_ply"] = plots.by_ply_plot(
                shares, "Moves foretold (top-1) by ply", coin=False
            )
        if answers.win is None:
            return images
        predictions = {
            "model": answers.win,
            "material": self.baselines.material.predict(positions),
            "majority": self.baselines.majority.predict(positions),
        }
        return images | {
            f"{split}_plots/calibration": plots.calibration_plot(
                {
                    name: metrics.calibration(positions, predictions[name])
                    for name in ("model", "material")
                }
            ),
            f"{split}_plots/accuracy_by_ply": plots.by_ply_plot(
                {name: metrics.by_ply(positions, win) for name, win in predictions.items()}
            ),
        }


def _distinct_games(positions: NDArray, rows: NDArray[np.int64]) -> list[int]:
    """The first of these rows of each game, in their order."""
    _, first = np.unique(metrics.game_keys(positions[rows]), return_index=True)
    return rows[np.sort(first)].tolist()


def _nearest_ply(positions: NDArray, ply: int) -> int:
    """The first row whose ply is nearest to the given one."""
    return int(np.abs(positions["ply"].astype(np.int64) - ply).argmin())
