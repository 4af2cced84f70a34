"""A model as a file that plays without Keras: ONNX, SavedModel or LiteRT, in float or int8.

In: a model directory and real positions. Out: a file, compared with the Keras model on those
positions when it is made.

The ONNX file of a `dlshogi119` model has the names, shapes and layout that dlshogi and FukauraOu
load: `input1` (n, 62, 9, 9), `input2` (n, 57, 9, 9), `output_policy` (n, 2187) logits,
`output_value` (n, 1), the win rate. Other planes come in as one `input` (n, planes, 9, 9). All
formats have the same inputs and outputs.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

from ginkgo.errors import GinkgoError
from ginkgo.features.encoding import Encoding, encoding, split_planes
from ginkgo.features.labels import CLASSES
from ginkgo.models.directory import PRETRAINED, find_model, load_config, load_model

#: What an exported file is called in its directory by default, by format.
SUFFIX = {"onnx": ".onnx", "savedmodel": ".savedmodel", "litert": ".tflite"}
#: A format of numbers that old dlshogi builds read too.
OPSET = 17


Planes = NDArray[np.float32]
Runner = Callable[[Planes], dict[str, NDArray]]
"""Planes (n, c, 9, 9) to `output_policy`, `output_value`."""


@dataclass(frozen=True)
class ExportConfig:
    """Write a model as a file that plays without Keras."""

    model: Annotated[Path, tyro.conf.Positional]
    """Model directory, or the word `pretrained`."""
    to: Literal["onnx", "savedmodel", "litert"] = "onnx"
    """Format. The ONNX file of a dlshogi119 model runs in dlshogi and FukauraOu as well."""
    quantize: Literal["", "int8"] = ""
    """int8: smaller and faster on processors, a few best moves in a hundred differ."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """File to write; by default in the model directory."""
    positions: tuple[Path, ...] = ()
    """Records or games whose positions set the scales of int8 and are compared; by default the
    bundled sample."""
    calibration: int = 4096
    """Positions that set the scales of int8."""
    compared: int = 1000
    """Positions on which the file is compared with the Keras model."""
    seed: int = 0
    """Of the choice of positions."""
    json: bool = False
    """Print one JSON object."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, export, print how far the file agrees with the model.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = tyro.cli(ExportConfig, prog="ginkgo export", args=argv)
    for name in ("calibration", "compared"):
        if getattr(config, name) < 1:
            raise GinkgoError(f"--{name} {getattr(config, name)}: expected at least 1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    directory = find_model(config.model)
    described = load_config(directory)
    features, view = described["features"], described["view"]
    name = f"model-{config.quantize}" if config.quantize else "model"
    path = config.out or directory / (name + SUFFIX[config.to])
    if str(config.model) == PRETRAINED and config.out is None and path.exists():
        raise GinkgoError(f"{path.name} of {PRETRAINED} comes with ginkgo; give --out for another")
    sources = config.positions or (_sample(),)
    known = real_planes(sources, features, config.calibration, "train", config.seed, view)
    unknown = real_planes(sources, features, config.compared, "test", config.seed, view)
    found = export(directory, path, config.to, known, unknown, config.quantize)
    result = {"path": str(path), "format": config.to, "quantize": config.quantize, **asdict(found)}
    if config.json:
        print(json.dumps({k: None if v != v else v for k, v in result.items()}))
        return 0
    print(f"{path}: {config.to}{' ' if config.quantize else ''}{config.quantize}")
    print(
        f"on {found.positions:,} positions: same best move {found.top1_agreement:.1%}, "
        f"largest difference of a logit or win rate {found.max_difference:.2g}, "
        f"mean difference of the win rate {found.value_difference:.2g}"
    )
    return 0


def _sample() -> Path:
    """The bundled games, where the repository is at hand."""
    sample = Path(__file__).parents[2] / "data" / "sample"
    if not sample.is_dir():
        raise GinkgoError("no bundled games here: give --positions RECORDS")
    return sample


def real_planes(
    paths: Sequence[Path],
    features: str,
    count: int,
    split: str = "all",
    seed: int = 0,
    view: str = "before",
) -> Planes:
    """Planes (n, c, 9, 9) of at most `count` positions, drawn from as many games as possible.

    Args:
        split: `train`, `val`, `test` or `all`; where there are too few games to split, all.

    Raises:
        GinkgoError: no usable position at the paths.
    """
    from ginkgo.pipeline.load import load_block
    from ginkgo.pipeline.parse import ParseOptions
    from ginkgo.pipeline.scan import build_index

    index = build_index(paths, split)
    if not index.games:
        index = build_index(paths, "all")
    block = load_block(index, ParseOptions(features=features, view=view), 2 * count, seed)
    if not len(block.positions):
        raise GinkgoError(f"{', '.join(map(str, paths))}: no usable position")
    rows = np.random.default_rng(seed).permutation(len(block.positions))[:count]
    chosen = block.positions[rows]
    return encoding(features).on_host(chosen).astype(np.float32)


@dataclass(frozen=True)
class Comparison:
    """An exported model against the Keras model on the same positions."""

    positions: int
    top1_agreement: float
    """Share of positions with the same best label; NaN without a policy head."""
    max_difference: float
    """Largest difference of a policy logit or a win rate."""
    value_difference: float
    """Mean difference of the win rate; NaN without a value head."""


def export(
    directory: str | Path,
    path: str | Path,
    to: str,
    known: Planes,
    unknown: Planes,
    quantize: str = "",
) -> Comparison:
    """Write an exported model.

    Args:
        directory: of the model. path: of the file (a folder for `savedmodel`), replaced at the
            end if it is there.
        to: `onnx`, `savedmodel` or `litert`. quantize: `int8` or empty.
        known: (n, c, 9, 9) of real positions that set the scales of int8.
        unknown: (m, c, 9, 9) of real positions on which the answers are compared.

    Raises:
        GinkgoError: the format cannot be made of this model, or a package is missing.
    """
    if quantize and to == "savedmodel":
        raise GinkgoError("--quantize int8: a SavedModel stays in float; expected onnx or litert")
    path = Path(path)
    _check_replaceable(path, to)
    model, config = load_model(directory)
    planes = encoding(config["features"])
    module = _as_module(model, planes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            temporary = Path(folder) / "exported"
            _WRITERS[to](module, temporary, quantize, planes.split(known))
            comparison = compare(runner_of(temporary, to), _keras_runner(module, planes), unknown)
            if path.is_dir():
                os.rename(path, Path(folder) / "before")  # goes with the folder
            os.replace(temporary, path)
    except OSError as error:
        raise GinkgoError(f"{path}: cannot write: {error}") from error
    return comparison


def _check_replaceable(path: Path, to: str) -> None:
    """An export replaces an earlier export, and nothing else."""
    if to == "savedmodel":
        if path.exists() and not (path / "saved_model.pb").is_file():
            raise GinkgoError(f"{path}: exists and is no SavedModel; give another --out")
    elif path.is_dir():
        raise GinkgoError(f"{path}: is a directory; expected the name of a file")


def compare(exported: Runner, reference: Runner, planes: Planes, batch: int = 64) -> Comparison:
    """How far two runners agree."""
    same, largest, value = 0, 0.0, 0.0
    for low in range(0, len(planes), batch):
        part = planes[low : low + batch]
        ours, theirs = exported(part), reference(part)
        for name, wanted in theirs.items():
            difference = np.abs(ours[name] - wanted)
            largest = float(np.maximum(largest, difference.max()))  # a NaN stays one
            if name == "output_policy":
                same += int((ours[name].argmax(1) == wanted.argmax(1)).sum())
            else:
                value += float(difference.sum())
    names, count = reference(planes[:1]), len(planes)
    return Comparison(
        count,
        same / count if "output_policy" in names else float("nan"),
        largest,
        value / count if "output_value" in names else float("nan"),
    )


def _as_module(model: Any, encoded: Encoding) -> Any:
    """A module whose `function` takes channels-first planes and gives what engines expect."""
    import tensorflow as tf

    signature = [
        tf.TensorSpec((None, channels, 9, 9), tf.float32, name=name)
        for name, channels in encoded.inputs.items()
    ]

    @tf.autograph.experimental.do_not_convert
    def function(*parts: Any) -> dict[str, Any]:
        planes = tf.transpose(tf.concat(parts, 1), [0, 2, 3, 1])
        outputs = model(planes, training=False)
        named = {}
        if "policy" in outputs:
            named["output_policy"] = outputs["policy"]
        if "value" in outputs:
            win, loss = outputs["value"][:, :1], outputs["value"][:, 1:]
            named["output_value"] = tf.sigmoid(win - loss)
        return named

    module = tf.Module()
    module.function = tf.function(function, input_signature=signature)
    module.weights = [weight.value for weight in model.weights]
    return module


def _keras_runner(module: Any, encoded: Encoding) -> Runner:
    import tensorflow as tf

    def run(planes: Planes) -> dict[str, NDArray]:
        parts = [tf.constant(part) for part in encoded.split(planes).values()]
        return {name: value.numpy() for name, value in module.function(*parts).items()}

    return run


# --- formats ----------------------------------------------------------------------------------


def _write_savedmodel(module: Any, path: Path, _quantize: str, _known: dict) -> None:
    import tensorflow as tf

    tf.saved_model.save(module, str(path), signatures=module.function.get_concrete_function())


def _write_onnx(module: Any, path: Path, quantize: str, known: dict[str, Planes]) -> None:
    with _needs("onnx", "onnxruntime", "tf2onnx"):
        import onnx
        import onnxruntime  # noqa: F401  (needed below)
        import tf2onnx

    with _quiet():
        proto, _ = tf2onnx.convert.from_function(
            module.function, input_signature=module.function.input_signature, opset=OPSET
        )
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    # The converter writes opsets that the graph does not use.
    used = {node.domain for node in proto.graph.node}
    kept = [entry for entry in proto.opset_import if entry.domain in used]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)
    onnx.checker.check_model(proto)
    onnx.save(proto, path)
    if quantize:
        _quantize_onnx(path, known)


def _quantize_onnx(path: Path, known: dict[str, Planes]) -> None:
    """Weights and activations of the trunk to int8; the heads, a twentieth of the work, stay float.

    Static, one scale per output channel, ranges from real positions (Nagel et al., "A white paper
    on neural network quantization", 2021, sections 2.4 and 3.2). Weights use seven bits: without
    VNNI the processor adds pairs of products in 16 bits, which eight would overflow.
    """
    import onnx
    from onnxruntime.quantization import (
        CalibrationDataReader,
        CalibrationMethod,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            count = len(next(iter(known.values())))
            self._batches = iter(
                [{k: v[low : low + 64] for k, v in known.items()} for low in range(0, count, 64)]
            )

        def get_next(self) -> dict[str, Planes] | None:
            return next(self._batches, None)

    prepared = path.with_name("prepared.onnx")
    with _quiet():
        quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(path),
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            # The mean of the batches' ranges: a single far value would make all steps coarse.
            extra_options={"CalibMovingAverage": True},
            nodes_to_exclude=head_nodes(onnx.load(prepared)),
        )
    prepared.unlink()


def head_nodes(proto: Any) -> list[str]:
    """Names of the nodes from the heads' 1×1 convolutions on."""
    shapes = {weight.name: list(weight.dims) for weight in proto.graph.initializer}
    reached: set[str] = set()
    names = []
    for node in proto.graph.node:  # in topological order
        starts = node.op_type == "Conv" and (
            shapes.get(node.input[1], [0])[0] == CLASSES and shapes[node.input[1]][2:] == [1, 1]
        )
        if starts or reached & set(node.input):
            reached |= set(node.output)
            names.append(node.name)
    return names


def _write_litert(module: Any, path: Path, quantize: str, known: dict[str, Planes]) -> None:
    import tensorflow as tf

    concrete = module.function.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)
    if quantize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]

        def batches() -> Iterator[dict[str, Planes]]:
            for row in range(len(next(iter(known.values())))):
                yield {name: part[row : row + 1] for name, part in known.items()}

        converter.representative_dataset = batches
    with _quiet():
        path.write_bytes(converter.convert())


_WRITERS = {"onnx": _write_onnx, "savedmodel": _write_savedmodel, "litert": _write_litert}


def runner_of(path: str | Path, to: str) -> Runner:
    """An exported file as a function of planes (n, c, 9, 9)."""
    path = Path(path)
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path.read_bytes())
        names = [output.name for output in session.get_outputs()]
        inputs = {one.name: one.shape[1] for one in session.get_inputs()}
        return lambda planes: dict(
            zip(names, session.run(names, split_planes(planes, inputs)), strict=True)
        )
    if to == "savedmodel":
        import tensorflow as tf

        module = tf.saved_model.load(str(path))
        served = module.signatures["serving_default"]
        specs = served.structured_input_signature[1]
        sizes = {name: specs[name].shape[1] for name in sorted(specs)}
        return lambda planes: {
            name: value.numpy()
            for name, value in served(
                **{k: tf.constant(v) for k, v in split_planes(planes, sizes).items()}
            ).items()
        }
    return _litert_runner(path)


def _litert_runner(path: Path) -> Runner:
    import tensorflow as tf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it will move to a package of its own
        interpreter = tf.lite.Interpreter(model_content=path.read_bytes())
    signature = interpreter.get_signature_list()["serving_default"]
    runner = interpreter.get_signature_runner("serving_default")
    details = runner.get_input_details()
    sizes = {name: int(details[name]["shape"][1]) for name in sorted(signature["inputs"])}
    return lambda planes: runner(**split_planes(planes, sizes))


@contextlib.contextmanager
def _needs(*packages: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise GinkgoError(f"this needs the packages {' '.join(packages)}: {error}") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The converters print much that a user cannot act on."""
    logging.getLogger("tf2onnx").setLevel(logging.ERROR)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        root.setLevel(level)
