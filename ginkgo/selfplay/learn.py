"""The trainer as a step of the loop, in a process of its own.

In: a `Lesson`. Out: a model directory with an exported file to play with, and `lesson.json`: what
the model was like before and after. Only here is TensorFlow loaded, and it goes with the process.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ginkgo.errors import GinkgoError
from ginkgo.models.directory import BASELINES, CONFIG, GAMES, WEIGHTS, load_config
from ginkgo.records.files import write_text

if TYPE_CHECKING:
    from ginkgo.training.config import TrainConfig

RESULT = "lesson.json"
#: The file of a model directory that plays, by evaluator.
EXPORTED = {"onnx": "model.onnx", "int8": "model-int8.onnx", "keras": WEIGHTS}
#: Held-out positions on which a model is compared with the one before it.
_COMPARED = 4096
#: Positions that set the scales of int8, and on which an exported file is compared.
_CALIBRATION, _EXPORTED = 1024, 128
#: Times the target by which the policy may change before training ends early.
_STOP = 4.0


@dataclass(frozen=True)
class Lesson:
    """What a generation is to learn."""

    config: TrainConfig
    name: str
    """Of the model."""
    export: str
    """`onnx`, `int8`, or `keras` for none."""
    kl_target: float = 0.0
    """Change of the policy (KL of old and new, in nats) above four times of which training ends
    early; 0: any."""


@dataclass(frozen=True)
class FirstModel:
    """Generation 0: random weights, or a copy of another model."""

    directory: Path
    name: str
    network: str
    export: str
    seed: int
    origin: Path | None = None


def start(lesson: Lesson | FirstModel) -> multiprocessing.process.BaseProcess:
    """Begin; `finish` waits for the end."""
    process = multiprocessing.get_context("spawn").Process(
        target=_main, args=(lesson,), name="ginkgo-learner"
    )
    process.start()
    return process


def finish(process: multiprocessing.process.BaseProcess) -> None:
    """Wait for the end.

    Raises:
        GinkgoError: it has failed; it has said why.
    """
    try:
        process.join()
    except BaseException:
        process.join(30)  # Ctrl-C has reached it too: it keeps a checkpoint
        if process.is_alive():
            process.kill()
        raise
    if process.exitcode == 130:
        raise KeyboardInterrupt
    if process.exitcode:
        raise GinkgoError(f"training has ended with status {process.exitcode}; see above")


def _main(lesson: Lesson | FirstModel) -> None:
    from ginkgo.errors import run_main
    from ginkgo.selfplay.worker import end_with_parent

    end_with_parent()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    # Old and new model are each traced a few times, which TensorFlow takes for a mistake.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    run_main(lambda: learn(lesson) if isinstance(lesson, Lesson) else make_first(lesson))


# --- generation 0 -----------------------------------------------------------------------------


def make_first(first: FirstModel) -> None:
    """Write generation 0.

    Raises:
        GinkgoError: the model to start from cannot be used.
    """
    if first.origin is not None:
        from ginkgo.models.directory import find_model

        source = find_model(first.origin)
        for name in (WEIGHTS, BASELINES, GAMES):
            _copy(source / name, first.directory / name)
        config = load_config(source)
        if set(config["heads"]) != {"policy", "value"} or config["view"] != "before":
            raise GinkgoError(f"{first.origin}: expected a model with policy and value")
        exported = EXPORTED[first.export]
        if (source / exported).is_file():
            _copy(source / exported, first.directory / exported)
        else:
            _export(first.directory, first.export, config, None)
        write_text(first.directory / CONFIG, json.dumps(config, indent=2) + "\n")
        return
    import keras

    import ginkgo
    from ginkgo.features.labels import LABEL_SCHEME
    from ginkgo.models import NONE_SEEN, build_network, parse_network, save_model
    from ginkgo.training.config import DEFAULT_ACTIVATION
    from ginkgo.training.step import channels_of

    keras.utils.set_random_seed(first.seed)
    network, features = parse_network(first.network, DEFAULT_ACTIVATION), "dlshogi119"
    model = build_network(network, channels_of(features), ("policy", "value"))
    config = {
        "name": first.name,
        "ginkgo": ginkgo.__version__,
        "network": network.name,
        "activation": network.activation,
        "features": features,
        "labels": LABEL_SCHEME,
        "heads": ["policy", "value"],
        "view": "before",
        "trained_on": {"sources": {}, "samples": 0},
        "metrics": {},
    }
    scratch = first.directory.with_name(f".{first.directory.name}.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    save_model(scratch, model, config, {}, NONE_SEEN)
    _export(scratch, first.export, config, None)
    shutil.rmtree(first.directory, ignore_errors=True)
    scratch.rename(first.directory)


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        shutil.copyfile(source, temporary)
        os.replace(temporary, target)


def _export(directory: Path, kind: str, config: dict[str, Any], data: Path | None) -> None:
    """Write the file that is played with.

    Args:
        data: games whose positions set the scales of int8; None: random positions.
    """
    from ginkgo.models import export

    if kind == "keras":
        return
    features = config["features"]
    if data is None:
        planes = random_planes(features, _CALIBRATION + _EXPORTED)
    else:
        planes = export.real_planes([data], features, _CALIBRATION + _EXPORTED)
    known, compared = planes[:-_EXPORTED], planes[-_EXPORTED:]
    if not len(known):
        known = compared
    quantize = "int8" if kind == "int8" else ""
    export.export(directory, directory / EXPORTED[kind], "onnx", known, compared, quantize)


def random_planes(features: str, count: int) -> Any:
    """Planes (n, c, 9, 9) of positions that random moves have led to."""
    import random

    import cshogi
    import numpy as np

    from ginkgo.features.encoding import encoding
    from ginkgo.features.position import position_from_sfen

    rng, board = random.Random(0), cshogi.Board()
    found: list[np.ndarray] = []
    while len(found) < count:
        moves = list(board.legal_moves)
        if not moves or board.move_number > 200:
            board.reset()
            continue
        board.push(rng.choice(moves))
        found.append(position_from_sfen(board.sfen()))
    positions = np.concatenate(found)
    return encoding(features).on_host(positions).astype(np.float32)


# --- later generations ------------------------------------------------------------------------


def learn(lesson: Lesson) -> int:
    """Train, export, and say what has changed.

    Returns:
        the exit status: 0, or 130 after Ctrl-C.

    Raises:
        GinkgoError: the data or the model cannot be used.
    """
    from ginkgo.selfplay.compare import Comparison, Watch
    from ginkgo.training.trainer import Interrupted, Trainer

    config = lesson.config
    assert config.init is not None
    watch = Watch(_STOP * lesson.kl_target)
    directory = config.runs / config.run
    if not (directory / RESULT).is_file():
        try:
            trainer = Trainer(config, [watch])
            watch.begin(trainer, config.init, _COMPARED)
            report = trainer.run()
        except Interrupted:
            return 130
        comparison: Comparison = watch.compare()
        result = {
            **comparison.as_dict(),
            "steps": report["steps"],
            "stopped_early": report["steps"] < config.steps,
            "positions_per_second": report["positions_per_second"],
            "heldout": {
                name: value
                for name, value in report["heldout"].items()
                if isinstance(value, int | float) and value == value
            },
        }
        described = {**load_config(directory), "name": lesson.name}
        write_text(directory / CONFIG, json.dumps(described, indent=2) + "\n")
        write_text(directory / RESULT, json.dumps(result, indent=1) + "\n")
    _export(directory, lesson.export, load_config(directory), config.val[0])
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    return 0
