"""The configuration of a training run: one dataclass, from which the command line is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class TrainConfig:
    """Train a network on SFEN records or game files."""

    data: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Records or games: files, directories or globs. A folder `train` made by `ginkgo convert`
    is used whole, its neighbours `val` and `test` with it; other files are split by game."""

    run: str = "run"
    """Name of the run; model, checkpoints and logs go to RUNS/NAME."""
    runs: Path = Path("runs")
    """Where runs are kept."""
    heads: tuple[Literal["policy", "value"], ...] = ("value",)
    """What the network learns: win prediction, moves, or both on one trunk."""
    network: str = "b5c64"
    """Blocks and filters, `se` at the end for squeeze-and-excitation."""
    activation: str = "silu"
    """Activation function by its Keras name."""
    features: Literal["dlshogi119", "ginkgo148"] = "dlshogi119"
    """Input planes."""
    view: Literal["before", "after"] = "before"
    """The position before the recorded move, or after it in the mover's view."""

    epochs: int = 0
    """Passes over the training data; 0: as many as the steps need."""
    steps: int = 0
    """Training steps in all; 0: as many as the epochs have."""
    batch_size: int = 1024
    """Positions per step."""
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
    """Mirror half of each batch left to right."""
    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""
    value_weight: float = 1.0
    """Weight of the value loss where both heads are trained."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of the network; auto: bfloat16 where the device gains from it."""
    deterministic: bool = False
    """Same seed, same weights, bit for bit (slower)."""
    seed: int = 0
    """Seed of the weights and of the order of the data."""

    keep: int = 0
    """Positions per game, drawn anew each epoch; 0: all."""
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
    """Positions in the shuffle pool."""
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
    """Positions per evaluation during the run, at most."""
    test_positions: int = 200_000
    """Positions in the evaluation at the end, at most."""
    eval_every: int = 0
    """Steps between evaluations; 0: twenty in the run."""
    best_by: Literal["sum", "value", "policy"] = "sum"
    """Held-out loss by which the best weights are chosen: of both heads, or of one."""
    patience: int = 0
    """End after so many evaluations without a better held-out loss; 0: never."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0: at each evaluation."""
    resume: bool = False
    """Go on from the last checkpoint of the run, inside the epoch where it stopped."""
    report: Path | None = None
    """Write the final figures to this JSON file."""
