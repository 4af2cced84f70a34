"""Positions per second of the real training loop, against the same network on constant data.

The bare loop runs the same compiled update on planes that are there already: no reading, no
shuffling, no planes, no curves, no progress. It is timed before and after the real loop, since the
speed of a machine wanders. Beside them, where PyTorch is installed, the same network there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")


def timed(step: Callable[[], Any], batch_size: int, seconds: float, warmup: int = 3) -> float:
    """Positions per second of calling `step`, which must wait for its result."""
    for _ in range(warmup):
        step()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        step()
        count += 1
    return count * batch_size / (time.perf_counter() - start)


def bare_step(trainer: Any, positions: np.ndarray) -> Callable[[], Any]:
    """The trainer's update on constant planes."""
    import tensorflow as tf

    from ginkgo.training.step import TARGETS, TrainStep, planes_of

    if trainer.config.features != "dlshogi119":
        raise SystemExit("only dlshogi119")
    batch = {
        name: tf.constant(np.ascontiguousarray(positions[name])) for name in positions.dtype.names
    }
    planes = planes_of(batch, trainer.config.features)
    batch = {name: batch[name] for name in TARGETS}
    step = TrainStep(trainer.model, trainer.optimizer, trainer.average, trainer.config)
    rate, number = tf.constant(1e-3), tf.constant(1.0)
    return lambda: step.update(planes, batch, rate, number)["loss"].numpy()


def torch_step(
    network: Any, heads: tuple[str, ...], batch_size: int, precision: str
) -> Callable[[], Any] | None:
    """The same network, channels last, in PyTorch; None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    from torch import nn

    class Block(nn.Module):
        def __init__(self, filters: int, act: type) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(filters, filters, 3, padding=1, bias=False),
                nn.BatchNorm2d(filters),
                act(),
                nn.Conv2d(filters, filters, 3, padding=1, bias=False),
                nn.BatchNorm2d(filters),
            )
            self.act = act()

        def forward(self, x):
            return self.act(x + self.body(x))

    act = {"relu": nn.ReLU, "silu": nn.SiLU}[network.activation]
    filters = network.filters
    trunk = nn.Sequential(
        nn.Conv2d(119, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        act(),
        *[Block(filters, act) for _ in range(network.blocks)],
    )
    policy = nn.Sequential(nn.Conv2d(filters, 27, 1), nn.Flatten())
    value = nn.Sequential(
        nn.Conv2d(filters, 27, 1, bias=False), nn.BatchNorm2d(27), act(), nn.Flatten(),
        nn.Linear(27 * 81, 256), act(), nn.Linear(256, 2),
    )  # fmt: skip
    parts = {"policy": policy, "value": value}
    model = nn.ModuleList([trunk, *[parts[head] for head in heads]])
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    planes = torch.rand(batch_size, 119, 9, 9).to(memory_format=torch.channels_last)
    sizes = {"policy": 2187, "value": 2}
    labels = [torch.randint(0, sizes[head], (batch_size,)) for head in heads]

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            x = model[0](planes)
            losses = [
                nn.functional.cross_entropy(part(x).float(), label)
                for part, label in zip(list(model)[1:], labels, strict=True)
            ]
        loss = torch.stack(losses).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss.item()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    parser.add_argument("--network", default="b5c64")
    parser.add_argument("--activation", default="relu")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pool", type=int, default=1 << 16)
    parser.add_argument("--xla", action="store_true", help="compile the network's step with it")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each bare loop")
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)

    from ginkgo.training.config import TrainConfig
    from ginkgo.training.trainer import Trainer

    with (
        common.records(options.data, options.games) as paths,
        tempfile.TemporaryDirectory(prefix="ginkgo-bench-") as scratch,
    ):
        config = TrainConfig(
            data=tuple(Path(path) for path in paths),
            run="speed",
            runs=Path(scratch),
            heads=("policy", "value"),
            network=options.network,
            activation=options.activation,
            batch_size=options.batch_size,
            steps=options.steps,
            pool=options.pool,
            xla=options.xla,
            eval_every=options.steps,
            val_positions=500,
            test_positions=500,
        )
        trainer = Trainer(config)
        positions = trainer.evaluation.val.positions
        rows = np.arange(options.batch_size) % len(positions)
        step = bare_step(trainer, positions[rows])
        bare = [timed(step, options.batch_size, options.seconds / 2)]
        report = trainer.run()
        bare.append(timed(step, options.batch_size, options.seconds / 2))
    fit, alone = report["positions_per_second"], float(np.mean(bare))
    other = torch_step(trainer.network, config.heads, options.batch_size, report["precision"])
    torch = timed(other, options.batch_size, options.seconds / 2) if other else None
    rows_shown = [("real loop", fit), ("bare loop before", bare[0]), ("bare loop after", bare[1])]
    if torch:
        rows_shown.append(("PyTorch, bare", torch))
    common.table(("", "positions/s"), [*rows_shown, ("real / bare", f"{fit / alone:.3f}")])
    common.finish(
        {
            "fit_positions_per_second": fit,
            "bare_positions_per_second": alone,
            "bare_before_and_after": bare,
            "ratio": fit / alone,
            "torch_positions_per_second": torch,
            "wait_fraction": report["wait_fraction"],
            "network": options.network,
            "activation": options.activation,
            "batch_size": options.batch_size,
            "xla": options.xla,
            "precision": report["precision"],
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
