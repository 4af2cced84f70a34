"""The configuration of a training run: one dataclass, from which the command line is made.

`check` refuses what cannot work. Nothing here imports TensorFlow, so that a mistake is answered
at once.
"""

from __future__ import annotations

import difflib
import glob
import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.records.game import ENDINGS

DEFAULT_NETWORK, DEFAULT_ACTIVATION = "b5c64", "silu"
#: Activation functions by their Keras names.
ACTIVATIONS = (
    *("relu", "silu", "gelu", "elu", "selu", "leaky_relu", "tanh", "mish", "hard_silu"),
    *("swish", "softplus"),
)


@dataclass(frozen=True)
class TrainConfig:
    """Train a network on SFEN records or game files."""

    data: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Records or games: files, directories or globs. A folder `train` made by `ginkgo convert`
    is used whole, its neighbours `val` and `test` with it; other files are split by game."""

    source: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A source of games under a name of its own, NAME=PATH or NAME=PATH:WEIGHT, instead of or
    beside the data above, whose sources are named after their files. May be given again; the same
    name again adds to it."""
    mix: Literal["proportional", "weights", "ucb"] = "proportional"
    """Which source comes next: all in proportion to their sizes; by their weights; or by what they
    teach, how much of them has been seen and how often (docs/MIXING.md)."""
    mix_chunk: int = 4
    """Batches in a row from one source, where --mix chooses."""
    exploration: float = 1.0
    """How much --mix ucb tries sources of which it knows little (the constant c of UCB1)."""
    coverage: bool = True
    """Keep count of the games that have been trained on and of the loss, by source."""

    run: str = "run"
    """Name of the run; model, checkpoints and logs go to RUNS/NAME."""
    runs: Path = Path("runs")
    """Where runs are kept."""
    heads: tuple[Literal["policy", "value"], ...] = ("value",)
    """What the network learns: win prediction, moves, or both on one trunk."""
    network: str = ""
    """Blocks and filters, `se` at the end for squeeze-and-excitation; empty: that of --init, else
    b5c64."""
    activation: str = ""
    """Activation function by its Keras name; empty: that of --init, else silu."""
    features: Literal["dlshogi119", "ginkgo148"] = "dlshogi119"
    """Input planes."""
    init: Path | None = None
    """Start from the weights of this model directory: its trunk, and the heads that both have."""
    view: Literal["before", "after"] = "before"
    """The position before the recorded move, or after it in the mover's view."""

    epochs: int = 0
    """Passes over the training data; 0: as many as --steps need, or 3."""
    steps: int = 0
    """Training steps in all; 0: as many as --epochs have."""
    batch_size: int = 1024
    """Positions per step, over all devices and machines."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or SGD with Nesterov momentum .9."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    """After the warm-up: cosine to a hundredth, steps of a tenth at 50, 75 and 90 %, or level."""
    warmup: float = 0.02
    """Share of the steps in which the learning rate rises from zero."""
    weight_decay: float = 1e-4
    """Decoupled weight decay on kernels (not on biases, scales and offsets)."""
    clip: float = 5.0
    """Global norm at which gradients are clipped; 0: never."""
    ema: float = 0.999
    """Decay of the weight average that is evaluated and kept as the model; 0: no average."""
    mirror: bool = True
    """Mirror half of each batch left to right; positions of ginkgo148 are never mirrored."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    value_weight: float = 1.0
    """Weight of the value loss where both heads are trained."""
    score_share: float = 0.0
    """Share of the search score in the value target, where records carry one; the score becomes a
    win rate through a scale fitted to the results."""
    root_share: float = 0.0
    """Share of the root value (the win rate that a search found) in the value target, where
    records carry one, as those of self-play do."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the network; auto: bfloat16 where the device gains from it."""
    distribute: Literal["", "mirrored", "multiworker"] = ""
    """Train on all GPUs of this machine (mirrored), or on several machines, as the environment
    variable TF_CONFIG names them (multiworker)."""
    xla: bool = False
    """Compile the network's step with XLA; worth trying on a long run."""
    deterministic: bool = False
    """Same seed, same weights, bit for bit (slower)."""
    seed: int = 0
    """Seed of the weights and of the order of the data."""

    keep: int = 0
    """Positions per game, drawn anew each epoch; 0: all."""
    keep_from: tuple[str, ...] = ()
    """The same for single sources, as NAME=POSITIONS; a source is named after its file."""
    min_ply: int = 1
    """First ply that is used."""
    side: Literal["", "b", "w"] = ""
    """Only positions where Black (b) or White (w) moves."""
    endings: tuple[str, ...] = ()
    """Only games that ended so (toryo, tsumi, …)."""
    min_rating: float = 0.0
    """Only positions whose mover is rated at least this."""
    ply_weight: bool | None = None
    """Weight sqrt(ply/total) on the value target; by default on with ginkgo148."""
    pool: int = 1 << 20
    """Positions in the shuffle pool, of each machine."""
    min_fill: int = 0
    """Positions in the pool before the first step; 0: a full pool."""
    workers: int = 0
    """Reader processes; 0: one per core but one, at most 8."""
    strict: bool = False
    """An unusable line ends the run instead of being counted."""

    val: tuple[Path, ...] = ()
    """Validation data in place of the split's."""
    test: tuple[Path, ...] = ()
    """Test data in place of the split's."""
    val_fraction: float = 0.05
    """Share of the games in validation and in test, where files are split here."""
    val_positions: int = 20_000
    """Positions per evaluation during the run, about; at least one of each game."""
    test_positions: int = 200_000
    """Positions in the evaluation at the end, about; at least one of each game."""
    eval_every: int = 0
    """Steps between evaluations; 0: twenty in the run."""
    calibrate: bool = True
    """At the end scale the logits of the win prediction so that the validation games, each larger
    source alike, are foretold neither too surely nor too timidly."""
    best_by: Literal["sum", "value", "policy"] = "sum"
    """Held-out loss by which the best weights are chosen: of both heads, or of one."""
    patience: int = 0
    """End after so many evaluations without a better held-out loss; 0: never."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0: at each evaluation."""
    histograms: bool = False
    """Histograms of all weights in TensorBoard at each evaluation."""
    resume: bool = False
    """Go on from the last checkpoint of the run, inside the epoch where it stopped."""
    report: Path | None = None
    """Write the final figures to this JSON file."""


# --- what cannot work -------------------------------------------------------------------------

_AT_LEAST = {
    **dict.fromkeys(("epochs", "steps", "keep", "workers", "eval_every", "patience"), 0),
    **dict.fromkeys(("checkpoint_every", "weight_decay", "clip", "min_rating", "exploration"), 0),
    **dict.fromkeys(("min_ply", "val_positions", "test_positions", "mix_chunk"), 1),
    # Batch normalisation needs two.
    "batch_size": 2,
}
_ABOVE_ZERO = ("learning_rate", "value_weight")
_SHARES = ("warmup", "ema", "label_smoothing", "score_share", "root_share")
# Seeds as NumPy and TensorFlow take them; above .45 validation and test leave no games to train on.
_RANGES = {"seed": (0, 2**32 - 1), "val_fraction": (0, 0.45)}


def check(config: TrainConfig) -> None:
    """Refuse values that cannot work, as far as they show without the data.

    Raises:
        GinkgoError: the option as typed, and what was expected.
    """
    _check_numbers(config)
    _check_choices(config)
    _check_places(config)


def _check_numbers(config: TrainConfig) -> None:
    for name, value in vars(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            _refuse(name, value, "expected a finite number")
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value < least:
            _refuse(name, value, f"expected at least {least}")
    for name in _ABOVE_ZERO:
        value = getattr(config, name)
        if value <= 0:
            _refuse(name, value, "expected more than 0")
    for name in _SHARES:
        value = getattr(config, name)
        if not 0 <= value < 1:
            _refuse(name, value, "expected at least 0 and less than 1")
    for name, (low, high) in _RANGES.items():
        value = getattr(config, name)
        if not low <= value <= high:
            _refuse(name, value, f"expected {low} to {high}")
    if config.pool < config.batch_size:
        _refuse("pool", config.pool, f"expected at least --batch-size {config.batch_size}")
    if not 0 <= config.min_fill <= config.pool:
        _refuse("min_fill", config.min_fill, f"expected 0 to --pool {config.pool}")
    if config.epochs and config.steps:
        raise GinkgoError(f"--epochs {config.epochs} --steps {config.steps}: give one of them")


def kept_by_name(config: TrainConfig) -> dict[str, int]:
    """`--keep-from` as numbers by source.

    Raises:
        GinkgoError: not of the form NAME=POSITIONS.
    """
    found = {}
    for text in config.keep_from:
        name, equals, number = text.rpartition("=")
        if not (equals and name and number.isascii() and number.isdigit()):
            _refuse("keep_from", text, "expected NAME=POSITIONS, such as floodgate=16")
        found[name] = int(number)
    return found


@dataclass(frozen=True)
class NamedSource:
    """A source that the user has named."""

    paths: tuple[Path, ...]
    weight: float | None = None
    """None: not given."""


def sources_by_name(config: TrainConfig) -> dict[str, NamedSource]:
    """`--source` by name.

    Raises:
        GinkgoError: not of the form NAME=PATH or NAME=PATH:WEIGHT, a name that cannot be printed,
            a weight that is not above 0, or two weights for a name.
    """
    found: dict[str, NamedSource] = {}
    for text in config.source:
        name, _, place = text.partition("=")
        if not name or not place:
            _refuse("source", text, "expected NAME=PATH or NAME=PATH:WEIGHT")
        if not name.isprintable() or name != name.strip():
            raise GinkgoError(
                f"--source {text!r}: expected a name that can be printed, no blanks around it"
            )
        place = os.path.expanduser(place)  # not every shell does it after an equals sign
        path, _, last = place.rpartition(":")
        weight = _number(last) if path and not os.path.exists(place) else None
        if weight is not None:
            place = path
            if not 0 < weight < math.inf:
                _refuse("source", text, "expected a weight above 0")
        before = found.get(name, NamedSource(()))
        if weight is not None and before.weight not in (None, weight):
            _refuse("source", text, f"{name} has the weight {before.weight:g} already")
        kept = before.weight if weight is None else weight
        found[name] = NamedSource((*before.paths, Path(place)), kept)
    return found


def _number(text: str) -> float | None:
    """What a text says, if that is a number."""
    try:
        return float(text)
    except ValueError:
        return None


def _check_mix(config: TrainConfig) -> None:
    named = sources_by_name(config)
    if config.mix != "weights":
        for name, source in named.items():
            if source.weight is not None:
                _refuse("mix", config.mix, f"the weight of {name} needs --mix weights")
    if config.mix == "ucb" and not config.coverage:
        raise GinkgoError("--mix ucb --no-coverage: the choice is made by coverage")


def _check_choices(config: TrainConfig) -> None:
    kept_by_name(config)
    _check_mix(config)
    if config.xla and config.distribute:
        raise GinkgoError(f"--xla --distribute {config.distribute}: give one of them")
    heads = " ".join(config.heads)
    if not heads:
        raise GinkgoError("--heads: expected some of policy value")
    if len(set(config.heads)) < len(config.heads):
        raise GinkgoError(f"--heads {heads}: expected each head once")
    if config.best_by not in ("sum", *config.heads):
        _refuse("best_by", config.best_by, f"expected sum or a head that is trained ({heads})")
    if config.view == "after" and "policy" in config.heads:
        _refuse("view", "after", "the policy head would see its move played; expected before")
    if config.activation and config.activation not in ACTIVATIONS:
        _refuse("activation", config.activation, _near(config.activation, ACTIVATIONS))
    for word in config.endings:
        if word not in ENDINGS:
            blanks = set(word.split(",")) <= set(ENDINGS)
            hint = "expected blanks between endings" if blanks else _near(word, ENDINGS)
            _refuse("endings", word, hint)


def _check_places(config: TrainConfig) -> None:
    named = [path for source in sources_by_name(config).values() for path in source.paths]
    if not config.data and not named:
        raise GinkgoError("no data given: expected files, directories or globs, or --source")
    for path in (*config.data, *named, *config.val, *config.test):
        if not glob.has_magic(str(path)) and not path.exists():
            raise GinkgoError(f"{path}: no such file or directory")
    if not config.run or config.run.startswith(".") or set(config.run) & {"/", "\\"}:
        _refuse("run", config.run, "expected a plain name; its folder is made in --runs")
    directory = config.runs / config.run
    for name, path in (("runs", config.runs), ("run", directory)):
        place = _nearest(path)
        if not os.path.isdir(place):
            _refuse(name, getattr(config, name), f"{place} exists and is not a directory")
        if not os.access(place, os.W_OK | os.X_OK):
            _refuse(name, getattr(config, name), f"{place}: no permission to write")
    if config.report is not None:
        folder = config.report.parent
        if os.path.isdir(config.report):
            _refuse("report", config.report, "is a directory; expected a file")
        # The run's own directory will be made.
        if not os.path.isdir(folder) and folder not in (config.runs, directory):
            _refuse("report", config.report, f"no directory {folder}")
        if not os.access(_nearest(folder), os.W_OK | os.X_OK):
            _refuse("report", config.report, f"{folder}: no permission to write")


def _nearest(path: Path) -> Path:
    """The path, or what exists of it."""
    return next((place for place in (path, *path.parents) if os.path.lexists(place)), Path())


def _near(word: str, words: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, words)
    return f"did you mean {' or '.join(near)}?" if near else f"expected one of {' '.join(words)}"


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    raise GinkgoError(f"--{name.replace('_', '-')} {shlex.quote(text)}: {expected}")
