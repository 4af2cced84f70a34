"""What a model has to beat: predictors that know next to nothing, shown beside every evaluation.

In: training positions to fit, held-out positions to predict. Out: for `Majority` and `Material`
the probability that the mover wins, for `FrequentMoves` logits of moves; each as a small
dictionary too, so that a model directory can keep it.

An accuracy of .6 means little until it stands beside what counting the pieces gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ginkgo.features.labels import LABELS, moved_pieces
from ginkgo.features.position import OPPONENT
from ginkgo.training.metrics import move_scores, targets, value_metrics

Floats = NDArray[np.float64]

#: Piece types on the board that are counted, all but the king: P L N S B R G +P +L +N +S +B +R.
BOARD_TYPES = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14)
#: Conventional values by board type, then by hand piece P L N S B R G. In pawns.
BOARD_VALUES = (1, 3, 4, 5, 8, 10, 6, 7, 6, 6, 6, 10, 12)
HAND_VALUES = (1, 3, 4, 5, 8, 10, 6)
_COUNTS = len(BOARD_VALUES) + len(HAND_VALUES)
_VALUES = np.array(BOARD_VALUES + HAND_VALUES, np.float64)

# Rows of the design matrix that exist at a time: few enough to stay in the cache.
_CHUNK = 8192


def count_differences(positions: NDArray) -> NDArray[np.int8]:
    """(n, 20) own minus opponent's pieces: 13 types on the board, then 7 in hand."""
    counts = np.empty((len(positions), _COUNTS), np.int8)
    for chunk in _chunks(len(positions)):
        board = positions["board"][chunk]
        for column, piece in enumerate(BOARD_TYPES):
            own = (board == piece).sum(axis=1, dtype=np.int8)
            counts[chunk, column] = own - (board == piece + OPPONENT).sum(axis=1, dtype=np.int8)
        hand = positions["hand"][chunk].astype(np.int8)
        counts[chunk, len(BOARD_TYPES) :] = hand[:, 0] - hand[:, 1]
    return counts


def material(positions: NDArray) -> Floats:
    """(n,) the conventional material score, own minus opponent's, in pawns, hands included."""
    return _score(count_differences(positions))


def sign_accuracy(positions: NDArray, weights: ArrayLike | None = None) -> float:
    """Accuracy of «the side that is ahead in material wins»; an equal count is half right."""
    ahead = 0.5 + 0.5 * np.sign(material(positions))
    return value_metrics(positions, ahead, weights)["accuracy"]


class Majority:
    """Says the same of every position: how often movers won in the training data."""

    def __init__(self, win: float = 0.5) -> None:
        self.win = win

    def fit(self, positions: NDArray, weights: ArrayLike | None = None) -> Self:
        """Count the results, a draw as half; those without a result are left out."""
        target = targets(positions)
        weight = _known_weights(target, weights)
        total = weight.sum()
        self.win = float(weight @ np.nan_to_num(target) / total) if total > 0 else 0.5
        return self

    def predict(self, positions: NDArray) -> Floats:
        """(n,) probability that the mover wins."""
        return np.full(len(positions), self.win)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-able dictionary."""
        return {"kind": "majority", "win": self.win}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(saved["win"])


class Material:
    """A logistic regression on the pieces, the ply and the colour.

    Features, with t = ply / 100 (at most 2) and m the conventional score / 10: 1, colour, t; m,
    m·t, m·t²; the 20 differences of `count_differences` and the same times t. The conventional
    score carries what few games can teach; the single pieces are free to depart from it where
    the data are many, and are penalised so that they do not before. Over 6,000 games this has
    a lower held-out log loss than the score alone, over 500 nearly the same.

    The penalties are in units of positions. The positions of a game share one result; of the eight
    or so that are taken of each, they are worth some 40 games for the score and 250 for the single
    pieces.
    """

    PENALTY = np.array([1.0] + [300.0] * 5 + [2000.0] * (2 * _COUNTS))

    def __init__(self, coefficients: ArrayLike | None = None) -> None:
        """Args: coefficients: (46,) of a fit, or None for «one half everywhere»."""
        size = len(self.PENALTY)
        given = np.zeros(size) if coefficients is None else np.asarray(coefficients, np.float64)
        if given.shape != (size,):
            raise ValueError(f"expected {size} coefficients, not {given.shape}")
        self.coefficients = given

    def fit(self, positions: NDArray, weights: ArrayLike | None = None) -> Self:
        """Fit to results, a draw as half; deterministic. Some seconds for half a million positions.

        Args:
            positions: (n,) `POSITION`; those without a result are left out.
            weights: (n,) or None for equal ones.
        """
        target = targets(positions)
        weight = _known_weights(target, weights)
        kept = weight > 0
        positions, target, weight = positions[kept], target[kept], weight[kept]
        counts = count_differences(positions)

        def rows(chunk: slice) -> tuple[Floats, Floats, Floats]:
            return _design(positions[chunk], counts[chunk]), target[chunk], weight[chunk]

        self.coefficients = _fit_logistic(rows, len(positions), self.PENALTY)
        return self

    def predict(self, positions: NDArray) -> Floats:
        """(n,) probability that the mover wins."""
        win = np.empty(len(positions))
        for chunk in _chunks(len(positions)):
            part = positions[chunk]
            design = _design(part, count_differences(part))
            win[chunk] = _sigmoid(np.einsum("nk,k->n", design, self.coefficients))
        return win

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-able dictionary."""
        return {"kind": "material", "coefficients": self.coefficients.tolist()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(saved["coefficients"])


class FrequentMoves:
    """Knows how often each label was played in the training data, and nothing of the position."""

    def __init__(self, logits: ArrayLike | None = None) -> None:
        """Args: logits: (2187,) of a fit, or None for «all alike»."""
        given = np.zeros(LABELS) if logits is None else np.asarray(logits, np.float64)
        if given.shape != (LABELS,):
            raise ValueError(f"expected {LABELS} logits, not {given.shape}")
        self.logits = given

    def fit(self, positions: NDArray) -> Self:
        """Count the moves; one more of each, so that none is impossible (Laplace)."""
        counts = np.bincount(positions["move"], minlength=LABELS)
        self.logits = np.log((counts + 1.0) / (counts.sum() + LABELS))
        return self

    def predict(self, positions: NDArray) -> NDArray:
        """(n, 2187) logits, a read-only view of one row."""
        return np.broadcast_to(self.logits, (len(positions), LABELS))

    def scores(self) -> tuple[NDArray[np.int32], Floats]:
        """By label its rank and its cross-entropy, as `metrics.move_scores` has them.

        The same of every position, so no (n, 2187) array has to be made of it.
        """
        return move_scores(np.broadcast_to(self.logits, (LABELS, LABELS)), np.arange(LABELS))

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-able dictionary."""
        return {"kind": "frequent_moves", "logits": self.logits.tolist()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(saved["logits"])


class PieceMoves:
    """Told which piece type moved, names the label that this type played most often."""

    def __init__(self, labels: ArrayLike | None = None) -> None:
        """Args: labels: (15,) by piece type, or None for «label 0»."""
        given = np.zeros(15, np.int64) if labels is None else np.asarray(labels, np.int64)
        if given.shape != (15,):
            raise ValueError(f"expected 15 labels, not {given.shape}")
        self.labels = given

    def fit(self, positions: NDArray) -> Self:
        """Count the moves of each piece type."""
        pieces = moved_pieces(positions["board"], positions["move"]).astype(np.int64)
        counts = np.bincount(pieces * LABELS + positions["move"], minlength=15 * LABELS)
        self.labels = counts.reshape(15, LABELS).argmax(axis=1)
        return self

    def predict(self, positions: NDArray) -> NDArray[np.int64]:
        """(n,) labels; looks at the move played to see which piece it was."""
        return self.labels[moved_pieces(positions["board"], positions["move"])]

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-able dictionary."""
        return {"kind": "piece_moves", "labels": self.labels.tolist()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(saved["labels"])


@dataclass(frozen=True)
class Baselines:
    """All of them, fitted on the same positions and kept together."""

    majority: Majority
    material: Material
    moves: FrequentMoves
    pieces: PieceMoves

    @classmethod
    def fitted(cls, positions: NDArray) -> Self:
        """Fit all of them on training positions."""
        return cls(
            Majority().fit(positions),
            Material().fit(positions),
            FrequentMoves().fit(positions),
            PieceMoves().fit(positions),
        )

    def frequent(self, positions: NDArray) -> tuple[NDArray[np.int32], Floats]:
        """(n,) rank and (n,) cross-entropy that `moves` gives to the moves played."""
        rank, loss = self.moves.scores()
        return rank[positions["move"]], loss[positions["move"]]

    def piece_hits(self, positions: NDArray) -> NDArray[np.bool_]:
        """(n,) whether `pieces` names the move played."""
        return self.pieces.predict(positions) == positions["move"]

    def to_dict(self) -> dict[str, Any]:
        """As a JSON-able dictionary."""
        return {name: baseline.to_dict() for name, baseline in vars(self).items()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(
            Majority.from_dict(saved["majority"]),
            Material.from_dict(saved["material"]),
            FrequentMoves.from_dict(saved["moves"]),
            PieceMoves.from_dict(saved["pieces"]),
        )


def score_scale(positions: NDArray) -> float:
    """Centipawns s for which the win rate of a search score is best put as 1 / (1 + exp(-score/s)).

    Args:
        positions: (n,) `POSITION`; those without score or result are left out.

    Returns:
        the scale; NaN where there are no scores or they say nothing of the results.
    """
    target, score = targets(positions), positions["score"].astype(np.float64)
    known = np.isfinite(score) & ~np.isnan(target)
    # A lost king's score is no number of pawns.
    features = np.clip(score[known, None], -3000, 3000) / 600
    slope = logistic_fit(features, target[known], penalty=1.0)[0] if known.any() else 0.0
    return 600 / slope if slope > 0.05 else float("nan")


# --- logistic regression ----------------------------------------------------------------------


def logistic_fit(
    features: ArrayLike,
    target: ArrayLike,
    penalty: ArrayLike = 1.0,
    weights: ArrayLike | None = None,
) -> Floats:
    """Coefficients that minimise weighted log loss + ½ Σ penalty·coefficient².

    Args:
        features: (n, k), with a column of ones if an intercept is wanted.
        target: (n,) in [0, 1], soft ones allowed.
        penalty: (k,) or one number, above 0: then even separable data have one finite answer.
        weights: (n,) or None for equal ones.

    Returns:
        (k,) coefficients.
    """
    features, target = np.asarray(features, np.float64), np.asarray(target, np.float64)
    weight = np.ones(len(target)) if weights is None else np.asarray(weights, np.float64)
    ridge = np.broadcast_to(np.asarray(penalty, np.float64), features.shape[1:])

    def rows(chunk: slice) -> tuple[Floats, Floats, Floats]:
        return features[chunk], target[chunk], weight[chunk]

    return _fit_logistic(rows, len(target), ridge)


def _fit_logistic(
    rows: Callable[[slice], tuple[Floats, Floats, Floats]], n: int, penalty: Floats
) -> Floats:
    """Newton's method (iteratively reweighted least squares) over chunks of rows.

    Hastie, Tibshirani, Friedman, «The elements of statistical learning», 2009, §4.4.1; with the
    step halved while it does not descend, as a full step can overshoot where data separate.
    """
    if not (penalty > 0).all():
        raise ValueError("penalties must be above 0")

    def evaluate(coefficients: Floats) -> tuple[float, Floats, Floats]:
        loss = 0.5 * float(penalty @ coefficients**2)
        gradient, curvature = penalty * coefficients, np.diag(penalty)
        for chunk in _chunks(n):
            x, target, weight = (_stacked(array) for array in rows(chunk))
            score = x @ coefficients
            win = _sigmoid(score)
            loss += float((weight * (np.logaddexp(0, score) - target * score)).sum())
            slope, bend = weight * (win - target), weight * win * (1 - win)
            gradient = gradient + (slope[:, None] @ x).sum(axis=(0, 1))
            curvature = curvature + ((x * bend[:, :, None]).transpose(0, 2, 1) @ x).sum(axis=0)
        return loss, gradient, curvature

    coefficients = np.zeros(len(penalty))
    loss, gradient, curvature = evaluate(coefficients)
    for _ in range(100):
        step = np.linalg.solve(curvature, gradient)
        # Newton's decrement: twice what the quadratic model promises to gain. Relative to the
        # loss, whose sums over the rows carry rounding errors of that order.
        if gradient @ step <= 1e-13 * (1 + loss):
            break
        for halvings in range(40):
            trial = coefficients - step / 2**halvings
            values = evaluate(trial)
            if values[0] <= loss:
                break
        else:
            break
        coefficients, (loss, gradient, curvature) = trial, values
    return coefficients


def _stacked(rows: Floats) -> Floats:
    """(n, …) as (blocks, 64, …), zeros at the end: rows of weight 0 count for nothing.

    Products of such small blocks stay below the size where BLAS starts threads. On cores that
    others use too, its spinning threads made the fit six times slower than one thread; and
    without them the sums come out the same on any number of cores.
    """
    blank = -len(rows) % 64
    padded = np.concatenate([rows, np.zeros((blank, *rows.shape[1:]))]) if blank else rows
    return padded.reshape(-1, 64, *rows.shape[1:])


def _design(positions: NDArray, counts: NDArray[np.int8]) -> Floats:
    """(n, 46) features of `Material`."""
    # Few games go on past ply 200: a parabola in t must not be carried far beyond.
    t = np.minimum(positions["ply"] / 100.0, 2.0)
    score = _score(counts) / 10
    plain = [np.ones(len(t)), positions["color"].astype(np.float64), t]
    columns = np.stack([*plain, score, score * t, score * t * t], axis=1)
    return np.concatenate([columns, counts, counts * t[:, None]], axis=1)


def _score(counts: NDArray[np.int8]) -> Floats:
    """(n,) the conventional score of (n, 20) differences."""
    return np.einsum("nk,k->n", counts, _VALUES)


def _known_weights(target: Floats, weights: ArrayLike | None) -> Floats:
    """(n,) weights with 0 where there is no result."""
    weight = np.ones(len(target)) if weights is None else np.asarray(weights, np.float64)
    if weight.shape != target.shape:
        raise ValueError(f"weights have shape {weight.shape}, expected {target.shape}")
    return np.where(np.isnan(target), 0.0, weight)


def _sigmoid(score: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * score))


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, n, _CHUNK))
