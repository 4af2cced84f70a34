"""Evaluators: what a network (or a stand-in for one) says of positions.

In: positions and their legal moves (`Batch`). Out: policy logits of those moves and the win rate
of the side to move (`Evaluation`). `make_evaluator` makes one from the name of a model:

- a model directory (its int8 ONNX file, its ONNX file or its Keras model, as is there),
- an ONNX file in dlshogi's format, whoever made it,
- `VALUE+POLICY`, two of these, each of which may lack the other's head,
- `uniform`, all moves alike and every position even,
- `hash`, fixed pseudo-random values and sharp priors, for tests and benchmarks of the search.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import cshogi
import numpy as np
from cshogi.dlshogi import make_input_features
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.encoding import ENCODINGS, Encoding, encoding
from ginkgo.features.labels import LABELS, labels_from_moves, rotate_moves
from ginkgo.features.position import POSITION, orient
from ginkgo.models.directory import INT8, ONNX, WEIGHTS, find_model, load_config

#: Names that are no models.
UNIFORM, HASH = "uniform", "hash"
#: Which file of a model directory to take: the first that is there, or the one named.
BACKENDS = ("auto", "onnx", "int8", "keras")


class Batch(NamedTuple):
    """n positions that wait for an evaluation."""

    keys: NDArray[np.uint64]
    """(n,) hash of each position, side to move and hands included."""
    white: NDArray[np.uint8]
    """(n,) whether White is to move."""
    counts: NDArray[np.int32]
    """(n,) legal moves of each."""
    moves: NDArray[np.int32]
    """(sum of counts,) cshogi moves, those of the first position first."""


class Evaluation(NamedTuple):
    """What an evaluator says of a batch."""

    logits: NDArray[np.float32]
    """(sum of counts,) policy logits of the legal moves."""
    values: NDArray[np.float32]
    """(n,) win rate of the side to move, in [0, 1]."""


Note = Callable[[int, cshogi.Board], None]


class Evaluator(Protocol):
    """Positions in, policy logits and win rate out."""

    name: str

    @property
    def note(self) -> Note | None:
        """Called with the place in the batch while the board shows that position.

        So the evaluator keeps what it needs of it; None: it needs only what is in `Batch`.
        """
        ...

    def evaluate(self, batch: Batch) -> Evaluation:
        """Evaluate the positions that were noted at places 0, 1, … n - 1."""
        ...


# --- labels of legal moves --------------------------------------------------------------------


def _label_table() -> NDArray[np.int16]:
    """(65536,) label by the low fifteen bits of a move and, above them, whether White moves."""
    moves = np.arange(1 << 16, dtype=np.int32)
    to, origin = moves & 0x7F, moves >> 7 & 0x7F
    possible = (to < 81) & (origin < 88)
    turned = rotate_moves(moves & 0x7FFF, (moves >> 15).astype(np.uint8))
    table = np.zeros(1 << 16, np.int16)
    table[possible] = labels_from_moves(turned[possible]).astype(np.int16)
    table[(table < 0) | (table >= LABELS)] = 0  # moves that no piece can make
    return table


_LABEL = _label_table()


def labels_of(batch: Batch) -> NDArray[np.int16]:
    """(sum of counts,) the label of each legal move, in its mover's view."""
    white = np.repeat(batch.white.astype(np.int32) << 15, batch.counts)
    return _LABEL[batch.moves & 0x7FFF | white]


def _logits_of(batch: Batch, policy: NDArray[np.floating]) -> NDArray[np.float32]:
    """(sum of counts,) the logits of the legal moves out of (n, 2187)."""
    rows = np.repeat(np.arange(len(batch.counts)), batch.counts)
    return policy[rows, labels_of(batch)].astype(np.float32, copy=False)


# --- stand-ins --------------------------------------------------------------------------------


class UniformEvaluator:
    """All moves alike, every position even."""

    name = UNIFORM
    note = None

    def evaluate(self, batch: Batch) -> Evaluation:
        """Zeros, and one half."""
        n = len(batch.counts)
        return Evaluation(np.zeros(len(batch.moves), np.float32), np.full(n, 0.5, np.float32))


class HashEvaluator:
    """Values and priors made of the position's hash: always the same, sharp, and without sense.

    A logit is `sharpness` times an exponentially distributed number, so that the priors have a
    heavy tail and the search goes deep; values lie between 0.4 and 0.6.
    """

    name = HASH
    note = None

    def __init__(self, sharpness: float = 2.3, seed: int = 0) -> None:
        self._sharpness, self._seed = sharpness, seed

    def evaluate(self, batch: Batch) -> Evaluation:
        """What the hashes of the positions say."""
        from ginkgo.search.hashing import hash_evaluation

        logits = np.empty(len(batch.moves), np.float32)
        values = np.empty(len(batch.counts), np.float32)
        hash_evaluation(
            batch.keys, batch.counts, batch.moves, self._seed, self._sharpness, logits, values
        )
        return Evaluation(logits, values)


# --- networks ---------------------------------------------------------------------------------


class _Planes119:
    """Planes `dlshogi119` of noted positions, in the two inputs that dlshogi's nets take.

    cshogi makes them of its own board, without the detour by `POSITION`.
    """

    def __init__(self) -> None:
        self._grow(16)

    def _grow(self, capacity: int) -> None:
        self.parts = (
            np.zeros((capacity, 62, 9, 9), np.float32),
            np.zeros((capacity, 57, 9, 9), np.float32),
        )
        self._first, self._second = list(self.parts[0]), list(self.parts[1])

    def note(self, place: int, board: cshogi.Board) -> None:
        if place >= len(self._first):
            noted = self.parts
            self._grow(2 * place)
            for part, before in zip(self.parts, noted, strict=True):
                part[: len(before)] = before
        make_input_features(board, self._first[place], self._second[place])

    def planes(self, n: int) -> tuple[NDArray[np.float32], ...]:
        return tuple(part[:n] for part in self.parts)


class _Planes:
    """Planes of noted positions in any encoding, through `POSITION`."""

    def __init__(self, encoded: Encoding) -> None:
        self._encoded = encoded
        self._noted: list[tuple[list[int], tuple[list[int], list[int]], int]] = []

    def note(self, place: int, board: cshogi.Board) -> None:
        del self._noted[place:]
        self._noted.append((board.pieces, board.pieces_in_hand, board.turn))

    def planes(self, n: int) -> tuple[NDArray[np.float32], ...]:
        positions = np.zeros(n, POSITION)
        pieces, hands, turns = zip(*self._noted[:n], strict=True)
        positions["color"] = turns
        # cshogi counts P L N S G B R, `POSITION` P L N S B R G.
        held = np.array(hands, np.uint8)[:, :, [0, 1, 2, 3, 5, 6, 4]]
        positions["board"], positions["hand"] = orient(
            np.array(pieces, np.uint8), held, positions["color"]
        )
        planes = self._encoded.on_host(positions).astype(np.float32, copy=False)
        return tuple(self._encoded.split(planes).values())


class _Network:
    """What the networks share: planes in, `policy` (n, 2187) and `value` (n,) by name out."""

    def __init__(self, name: str, features: str, heads: Sequence[str]) -> None:
        self.name = name
        self.heads = tuple(heads)
        self._planes: _Planes119 | _Planes = (
            _Planes119() if features == "dlshogi119" else _Planes(encoding(features))
        )
        self.note = self._planes.note

    def _run(self, parts: tuple[NDArray[np.float32], ...]) -> dict[str, NDArray[np.floating]]:
        raise NotImplementedError

    def evaluate(self, batch: Batch) -> Evaluation:
        n = len(batch.counts)
        found = self._run(self._planes.planes(n))
        if "policy" in found:
            logits = _logits_of(batch, found["policy"])
        else:
            logits = np.zeros(len(batch.moves), np.float32)
        if "value" in found:
            values = found["value"].reshape(n).astype(np.float32, copy=False)
        else:
            values = np.full(n, 0.5, np.float32)
        if not (np.isfinite(values).all() and np.isfinite(logits).all()):
            raise GinkgoError(f"{self.name}: the network's answer is not a finite number")
        return Evaluation(logits, np.clip(values, 0, 1))


class OnnxEvaluator(_Network):
    """An ONNX file in dlshogi's format (or of ginkgo's own planes) through ONNX Runtime."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Spinning threads take the core from the search between two batches.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        providers = [
            provider
            for provider in ("CUDAExecutionProvider", "CPUExecutionProvider")
            if provider in onnxruntime.get_available_providers()
        ]
        try:
            self._session = onnxruntime.InferenceSession(
                path.read_bytes(), options, providers=providers
            )
        except OSError as error:
            raise GinkgoError(f"{path}: cannot read: {error.strerror}") from None
        except Exception as error:  # the runtime's errors have no common class
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise GinkgoError(f"{path}: no ONNX model: {line}") from None
        inputs, features = self._inputs(path)
        self._names = [one.name for one in inputs]
        self._types = [np.float16 if "float16" in one.type else np.float32 for one in inputs]
        self._outputs = self._find_outputs(path)
        super().__init__(path.name, features, list(self._outputs))

    def _inputs(self, path: Path) -> tuple[list[Any], str]:
        """The session's inputs in the order of the planes, and the planes' name."""
        inputs = self._session.get_inputs()
        by_planes = {one.shape[1]: one for one in inputs if len(one.shape) == 4}
        for name in ENCODINGS:
            wanted = encoding(name).inputs.values()
            if by_planes.keys() == set(wanted):
                return [by_planes[planes] for planes in wanted], name
        shapes = ", ".join(f"{one.name} {one.shape}" for one in inputs)
        raise GinkgoError(
            f"{path}: inputs are {shapes}; expected dlshogi's, (n, 62, 9, 9) and (n, 57, 9, 9)"
        )

    def _find_outputs(self, path: Path) -> dict[str, str]:
        """Names of the outputs by head."""
        found = {}
        for one in self._session.get_outputs():
            size = one.shape[-1] if one.shape else None
            if size == LABELS or "policy" in one.name:
                found["policy"] = one.name
            elif size == 1 or "value" in one.name:
                found["value"] = one.name
        if not found:
            raise GinkgoError(f"{path}: expected an output of {LABELS} logits or one win rate")
        return found

    def _run(self, parts: tuple[NDArray[np.float32], ...]) -> dict[str, NDArray[np.floating]]:
        feed = {
            name: part.astype(kind, copy=False)
            for name, kind, part in zip(self._names, self._types, parts, strict=True)
        }
        outputs = self._session.run(list(self._outputs.values()), feed)
        return dict(zip(self._outputs, outputs, strict=True))


class KerasEvaluator(_Network):
    """A Keras model. Importing TensorFlow takes seconds and half a gigabyte."""

    def __init__(self, directory: Path, threads: int = 0) -> None:
        import os

        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import tensorflow as tf

        from ginkgo.models.directory import load_model

        if threads:
            # Only before TensorFlow has begun to work, else it keeps what it has.
            with contextlib.suppress(RuntimeError):
                tf.config.threading.set_intra_op_parallelism_threads(threads)
        self._model, config = load_model(directory)
        super().__init__(directory.name, config["features"], config["heads"])

    def _run(self, parts: tuple[NDArray[np.float32], ...]) -> dict[str, NDArray[np.floating]]:
        planes = np.concatenate(parts, 1) if len(parts) > 1 else parts[0]
        n = len(planes)
        # The model is compiled anew for each size of batch: keep to powers of two.
        size = 1 << max(0, n - 1).bit_length()
        padded = np.zeros((size, 9, 9, planes.shape[1]), np.float32)
        padded[:n] = planes.transpose(0, 2, 3, 1)
        outputs = self._model.predict_on_batch(padded)
        found: dict[str, NDArray[np.floating]] = {}
        if "policy" in outputs:
            found["policy"] = np.asarray(outputs["policy"], np.float32)[:n]
        if "value" in outputs:
            pair = np.asarray(outputs["value"], np.float64)[:n]
            found["value"] = 1 / (1 + np.exp(pair[:, 1] - pair[:, 0]))
        return found


class PairEvaluator:
    """Two networks as one: the value of the one, the policy of the other."""

    def __init__(self, value: _Network, policy: _Network) -> None:
        self._value, self._policy = value, policy
        self.name = f"{value.name}+{policy.name}"

    def note(self, place: int, board: cshogi.Board) -> None:
        """Both keep what they need."""
        self._value.note(place, board)
        self._policy.note(place, board)

    def evaluate(self, batch: Batch) -> Evaluation:
        """The moves of one, the win rate of the other."""
        return Evaluation(self._policy.evaluate(batch).logits, self._value.evaluate(batch).values)


# --- by name ----------------------------------------------------------------------------------


def make_evaluator(model: str, backend: str = "auto", threads: int = 1) -> Evaluator:
    """The evaluator that a name stands for (see the module).

    Args:
        model: a model directory, `pretrained`, an ONNX file, `VALUE+POLICY`, `uniform`, `hash`.
        backend: one of `BACKENDS`, what to run a model directory with.
        threads: of the network.

    Raises:
        GinkgoError: there is no such model, or it cannot be played.
    """
    if backend not in BACKENDS:
        raise GinkgoError(f"evaluator {backend!r}: expected one of {', '.join(BACKENDS)}")
    if model == UNIFORM:
        return UniformEvaluator()
    if model == HASH:
        return HashEvaluator()
    if "+" in model and not Path(model).exists():
        names = model.split("+")
        if len(names) != 2:
            raise GinkgoError(f"{model}: expected VALUE+POLICY, two models")
        first, second = (_network(name, backend, threads) for name in names)
        if "value" in first.heads and "policy" in second.heads:
            return PairEvaluator(first, second)
        if "policy" in first.heads and "value" in second.heads:
            return PairEvaluator(second, first)
        raise GinkgoError(f"{model}: expected a model with a value and one with a policy")
    return _network(model, backend, threads)


def _network(model: str, backend: str, threads: int) -> _Network:
    path = Path(model)
    if path.suffix == ".onnx":
        if not path.is_file():
            raise GinkgoError(f"{model}: no such file")
        return OnnxEvaluator(path, threads)
    directory = find_model(model)
    config = load_config(directory)
    if config["view"] != "before":
        raise GinkgoError(
            f"{model}: trained on the position after a move (view {config['view']!r}); "
            "only a model of the position before it can be searched with"
        )
    files = {"int8": directory / INT8, "onnx": directory / ONNX, "keras": directory / WEIGHTS}
    wanted = list(files) if backend == "auto" else [backend]
    for kind in wanted:
        if files[kind].is_file():
            network: _Network = (
                KerasEvaluator(directory, threads)
                if kind == "keras"
                else OnnxEvaluator(files[kind], threads)
            )
            network.name = f"{directory.name}/{files[kind].name}"
            return network
    hint = {"onnx": f"ginkgo export {model}", "int8": f"ginkgo export {model} --quantize int8"}
    raise GinkgoError(
        f"{directory}: no {files[wanted[-1]].name} in it"
        + (f"; make it with `{hint[backend]}`" if backend in hint else "")
    )
