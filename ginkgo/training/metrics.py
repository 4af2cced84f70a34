"""How good predictions are: numbers from arrays, nothing else.

In: held-out positions as `POSITION` and, for each, the predicted probability that the mover wins
(`win`), or logits of moves and the labels played. Out: plain floats by name, ready for TensorBoard
and JSON.

Conventions, the same everywhere: results and probabilities are the mover's. Positions of games
without a result are left out. A draw is a target of one half in log loss, Brier score and
calibration, and is left out of accuracy. A prediction of exactly one half is half right. A NaN
among the predictions makes the figures NaN instead of flattering them.

Intervals resample whole games: the hundred positions of a game share one result, so intervals that
count positions would be several times too narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ginkgo.features.position import DRAW, NO_RESULT, WIN

#: First ply of each bucket of `by_ply`; the last bucket has no end.
PLY_BUCKETS = (0, 30, 60, 90, 120)
#: Bins of predicted probability, equally wide, in the calibration error and its plot.
BINS = 20
#: What figures of the value prediction are called where those of the moves stand beside them.
FULL_NAMES = {
    "accuracy": "value_accuracy",
    "log_loss": "value_log_loss",
    "brier": "value_brier",
    "calibration_error": "value_calibration_error",
}
# Log loss stays finite where a float32 softmax has saturated.
_SMALLEST = 1e-7

Floats = NDArray[np.float64]


def targets(positions: NDArray) -> Floats:
    """(n,) what a perfect predictor would say: 1 won, 0 lost, 1/2 drawn, NaN without result."""
    result = positions["result"]
    won = np.where(result == DRAW, 0.5, (result == WIN).astype(np.float64))
    return np.where(result == NO_RESULT, np.nan, won)


def log_losses(target: Floats, win: ArrayLike) -> Floats:
    """(n,) cross-entropy of the two-way softmax [wins, loses] in nats, soft targets allowed."""
    win = np.clip(np.asarray(win, np.float64), _SMALLEST, 1 - _SMALLEST)
    return -(target * np.log(win) + (1 - target) * np.log1p(-win))


def hits(target: Floats, win: ArrayLike) -> Floats:
    """(n,) 1 where the winner is foretold, 1/2 where the prediction is one half, else 0."""
    win = np.asarray(win, np.float64)
    right = np.where(win == 0.5, 0.5, ((win > 0.5) == (target > 0.5)).astype(np.float64))
    return np.where(np.isnan(win), np.nan, right)


def value_metrics(
    positions: NDArray, win: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, float]:
    """The figures of a value prediction.

    Args:
        positions: (n,) `POSITION`.
        win: (n,) probability that the mover wins.
        weights: (n,) or None for equal ones. `positions["weight"]` weighs as training does.

    Returns:
        `accuracy`; `log_loss` in nats (a coin: 0.693); `brier`, the mean squared error (a coin:
        0.25 without draws); `calibration_error`, expected over `BINS` bins; `positions` and
        `games` counted. Figures of nothing are NaN.
    """
    win, weight = _checked(positions, win, weights)
    target = targets(positions)
    kept = ~np.isnan(target)
    target, win, weight, result = target[kept], win[kept], weight[kept], positions["result"][kept]
    decided = result != DRAW
    bins = _calibration(target, win, weight, BINS)
    return {
        "accuracy": _mean(hits(target, win)[decided], weight[decided]),
        "log_loss": _mean(log_losses(target, win), weight),
        "brier": _mean((win - target) ** 2, weight),
        "calibration_error": float("nan") if np.isnan(win).any() else bins.error,
        "positions": int(kept.sum()),
        "games": len(np.unique(game_keys(positions[kept]))),
    }


def by_source(
    positions: NDArray,
    win: ArrayLike,
    names: Sequence[str] | Mapping[int, str] | None = None,
    weights: ArrayLike | None = None,
) -> dict[str, dict[str, float]]:
    """`value_metrics` of each source that occurs, by name (`names[number]`) or else by number."""
    win, weight = _checked(positions, win, weights)
    figures = {}
    for number in np.unique(positions["source"]).tolist():
        here = positions["source"] == number
        name = str(number) if names is None else names[number]
        figures[name] = value_metrics(positions[here], win[here], weight[here])
    return figures


def ply_buckets() -> list[str]:
    """Names of the buckets of `by_ply`.

    >>> ply_buckets()
    ['0-29', '30-59', '60-89', '90-119', '120+']
    """
    ends = PLY_BUCKETS[1:]
    closed = [f"{first}-{end - 1}" for first, end in zip(PLY_BUCKETS, ends, strict=False)]
    return [*closed, f"{PLY_BUCKETS[-1]}+"]


def by_ply(
    positions: NDArray, win: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, dict[str, float]]:
    """`value_metrics` of each bucket of plies since the game's start; empty ones are left out."""
    win, weight = _checked(positions, win, weights)
    bucket = np.searchsorted(PLY_BUCKETS, positions["ply"], side="right") - 1
    figures = {}
    for number, name in enumerate(ply_buckets()):
        here = bucket == number
        if here.any():
            figures[name] = value_metrics(positions[here], win[here], weight[here])
    return figures


def shares_by_ply(positions: NDArray, hit: ArrayLike) -> dict[str, dict[str, float]]:
    """Share of hits (`accuracy`) and number (`positions`) by bucket of plies; empty ones left out.

    Args:
        hit: (n,) booleans.
    """
    hit = np.asarray(hit, np.float64)
    bucket = np.searchsorted(PLY_BUCKETS, positions["ply"], side="right") - 1
    figures = {}
    for number, name in enumerate(ply_buckets()):
        here = bucket == number
        if here.any():
            figures[name] = {"accuracy": float(hit[here].mean()), "positions": int(here.sum())}
    return figures


# --- calibration ------------------------------------------------------------------------------


class Calibration(NamedTuple):
    """What was predicted and what came true, by bin of predicted probability."""

    predicted: Floats
    """(bins,) mean prediction, NaN in empty bins."""
    won: Floats
    """(bins,) share of games won, a draw as half, NaN in empty bins."""
    counts: Floats
    """(bins,) positions, or their weight."""

    @property
    def error(self) -> float:
        """Expected calibration error: mean of |predicted - won|, weighted by counts.

        Naeini, Cooper, Hauskrecht, «Obtaining well calibrated probabilities using Bayesian
        binning», AAAI 2015, for the predicted probability of one class.
        """
        filled = self.counts > 0
        return _mean(np.abs(self.predicted - self.won)[filled], self.counts[filled])


def calibration(
    positions: NDArray, win: ArrayLike, bins: int = BINS, weights: ArrayLike | None = None
) -> Calibration:
    """Predictions against results in equally wide bins of [0, 1].

    Args:
        positions: (n,) `POSITION`; those without result and NaN predictions are left out.
        win: (n,) probability that the mover wins.
        bins: how many.
        weights: (n,) or None for equal ones.
    """
    win, weight = _checked(positions, win, weights)
    target = targets(positions)
    kept = ~np.isnan(target)
    return _calibration(target[kept], win[kept], weight[kept], bins)


def _calibration(target: Floats, win: Floats, weight: Floats, bins: int) -> Calibration:
    known = ~np.isnan(win)
    target, win, weight = target[known], win[known], weight[known]
    index = np.clip((win * bins).astype(np.int64), 0, bins - 1)
    counts = np.bincount(index, weight, bins).astype(np.float64)
    per_position = _ratio(np.ones(bins), counts)
    predicted = np.bincount(index, weight * win, bins) * per_position
    won = np.bincount(index, weight * target, bins) * per_position
    return Calibration(predicted, won, counts)


def best_scale(target: Floats, margins: ArrayLike, weights: ArrayLike) -> float:
    """The factor s for which sigmoid(s · margin) has the lowest log loss.

    The inverse of the temperature of Guo, Pleiss, Sun and Weinberger, «On calibration of modern
    neural networks» (2017), section 4.2. The loss is convex in s; s is sought in [1/4, 4].

    Args:
        target: (n,) of `targets`, NaN left out.
        margins: (n,) logits of winning.
        weights: (n,).

    Returns:
        s; 1 where no position counts.
    """
    weight = np.where(np.isnan(target), 0.0, np.asarray(weights, np.float64))
    target, margins = np.nan_to_num(target), np.asarray(margins, np.float64)
    if not weight.sum() > 0 or not np.isfinite(margins).all():
        return 1.0
    low, high = 0.25, 4.0
    for _ in range(40):  # the slope of the loss tells on which side the minimum is
        middle = (low * high) ** 0.5
        slope = weight @ (margins * (1 / (1 + np.exp(-middle * margins)) - target))
        low, high = (low, middle) if slope > 0 else (middle, high)
    return (low * high) ** 0.5


# --- comparing two predictors -----------------------------------------------------------------


class Interval(NamedTuple):
    """A difference and the interval that it lies in with the stated confidence."""

    difference: float
    low: float
    high: float


def paired_bootstrap(
    positions: NDArray,
    win_a: ArrayLike,
    win_b: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """By how much predictor A differs from B on the same positions, A - B.

    Games are drawn with replacement and both predictors are judged on the same draw (percentile
    bootstrap by clusters: Efron and Tibshirani, «An introduction to the bootstrap», 1993, ch. 13;
    Davison and Hinkley, 1997, §3.8).

    Args:
        positions: (n,) `POSITION`; a game is a pair (source, game).
        win_a, win_b: (n,) probability that the mover wins.
        weights: (n,) or None for equal ones.
        resamples: draws. seed: of the draws; the same seed gives the same intervals.

    Returns:
        `accuracy` (positive: A is better) and `log_loss` (negative: A is better). The ends are
        NaN where fewer than two games have a result, for then nothing can be resampled.
    """
    win_a, weight = _checked(positions, win_a, weights)
    win_b, _ = _checked(positions, win_b, None)
    target = targets(positions)
    kept = ~np.isnan(target)
    positions, target, weight = positions[kept], target[kept], weight[kept]
    win_a, win_b = win_a[kept], win_b[kept]
    decided = weight * (positions["result"] != DRAW)
    columns = [
        decided * (hits(target, win_a) - hits(target, win_b)),
        decided,
        weight * (log_losses(target, win_a) - log_losses(target, win_b)),
        weight,
    ]
    games, game = np.unique(game_keys(positions), return_inverse=True)
    sums = np.stack([np.bincount(game, column, len(games)) for column in columns], axis=1)

    rng = np.random.default_rng(seed)
    drawn = np.full((resamples, 4), np.nan)
    if len(games) > 1:
        # A draw is a row of counts; some rows at a time, so that memory stays small.
        rows = max(1, 4_000_000 // len(games))
        chances = np.full(len(games), 1 / len(games))
        for start in range(0, resamples, rows):
            size = min(rows, resamples - start)
            drawn[start : start + size] = rng.multinomial(len(games), chances, size) @ sums
    tails = [50 * (1 - confidence), 50 * (1 + confidence)]
    intervals = {}
    for name, above, below in (("accuracy", 0, 1), ("log_loss", 2, 3)):
        difference = _ratio(sums[:, above].sum(), sums[:, below].sum())
        differences = _ratio(drawn[:, above], drawn[:, below])
        # A draw of nothing but drawn games has no accuracy; a NaN prediction leaves none at all.
        known = differences[~np.isnan(differences)]
        low, high = np.percentile(known, tails) if len(known) else (np.nan, np.nan)
        intervals[name] = Interval(float(difference), float(low), float(high))
    return intervals


def game_keys(positions: NDArray) -> NDArray[np.int64]:
    """(n,) one number for each pair of source and game."""
    return positions["source"].astype(np.int64) << 32 | positions["game"].astype(np.int64)


# --- moves ------------------------------------------------------------------------------------


def move_scores(logits: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.int32], Floats]:
    """How well each played move was foretold.

    Args:
        logits: (n, labels) before the softmax; -inf rules a move out.
        labels: (n,) the move played.

    Returns:
        (n,) rank of the played move, 0 the best; (n,) cross-entropy in nats.

    >>> move_scores([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]], [1, 0])[0].tolist()
    [0, 1]
    """
    logits = np.asarray(logits, np.float32)
    labels = np.asarray(labels, np.int64)
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"logits {logits.shape} do not fit labels {labels.shape}")
    if not len(labels):
        return np.zeros(0, np.int32), np.zeros(0)
    played = np.take_along_axis(logits, labels[:, None], axis=1)
    # Among equals the lower label ranks first, as argmax has it: else a net that says the
    # same of every move would score 1. A NaN ranks above everything for the same reason.
    before = np.arange(logits.shape[1]) < labels[:, None]
    rank = (~(logits <= played)).sum(axis=1) + ((logits == played) & before).sum(axis=1)
    highest = logits.max(axis=1, keepdims=True)
    total = np.exp(logits - highest).sum(axis=1, dtype=np.float64)
    return rank.astype(np.int32), np.log(total) + (highest - played)[:, 0]


def policy_metrics(
    rank: NDArray, loss: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, float]:
    """The figures of a move prediction: `top1`, `top5` (shares), `cross_entropy` (nats).

    Args:
        rank, loss: (n,) of `move_scores`. weights: (n,) or None for equal ones.
    """
    loss = np.asarray(loss, np.float64)
    weight = np.ones(len(loss)) if weights is None else np.asarray(weights, np.float64)
    if not rank.shape == loss.shape == weight.shape:
        raise ValueError(f"rank {rank.shape}, loss {loss.shape}, weights {weight.shape} differ")
    return {
        "top1": _mean((rank < 1).astype(np.float64), weight),
        "top5": _mean((rank < 5).astype(np.float64), weight),
        "cross_entropy": _mean(loss, weight),
    }


# --- helpers ----------------------------------------------------------------------------------


def _checked(
    positions: NDArray, win: ArrayLike, weights: ArrayLike | None
) -> tuple[Floats, Floats]:
    """Predictions and weights as (n,) float64; anything of another shape is a mistake."""
    win = np.asarray(win, np.float64)
    weight = np.ones(len(positions)) if weights is None else np.asarray(weights, np.float64)
    for name, array in (("win", win), ("weights", weight)):
        # An (n, 1) array would broadcast to (n, n) and give figures of nonsense.
        if array.shape != (len(positions),):
            raise ValueError(f"{name} has shape {array.shape}, expected ({len(positions)},)")
    return win, weight


def _ratio(above: ArrayLike, below: ArrayLike) -> Floats:
    """above / below, NaN where below is 0."""
    above, below = np.asarray(above, np.float64), np.asarray(below, np.float64)
    return np.divide(above, below, out=np.full(below.shape, np.nan), where=below > 0)


def _mean(values: Floats, weight: Floats) -> float:
    return float(_ratio(values @ weight, weight.sum()))
