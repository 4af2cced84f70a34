"""How much of several sources is seen: a simulation of the choice, and what noting it costs.

The simulation draws 200,000 documents, one at a time, from sources of 512,000, 67,395, 88,000 and
1,400 documents, each read in order from front to back and then again. Rewards are normal around a
mean for each source (standard deviation 0.1, cut to [0, 1]), known at once. The chooser is UCB1 of
`ginkgo.pipeline.mixing` with c = 0.5: by reward alone (the baseline), with the bonus for coverage,
and with the penalty for epochs as well. What is counted is distinct documents.

How much the bonus does depends on the rewards, so there are several vectors of means. In
`fading` the reward of a source falls as it is gone through again: mean / (1 + whole epochs).

`--train` adds the training loop with the reports by source on and off, in turns in one process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np

from ginkgo.pipeline.coverage import Progress
from ginkgo.pipeline.mixing import Bandit

SIZES = (512_000, 67_395, 88_000, 1_400)
#: Mean rewards by source, in the order of `SIZES`.
VECTORS = {
    "all alike": (0.5, 0.5, 0.5, 0.5),
    "smallest a little better": (0.5, 0.5, 0.5, 0.6),
    "smallest much better": (0.3, 0.3, 0.3, 0.9),
    "two small ones better": (0.4, 0.5, 0.4, 0.55),
    "middle one much better": (0.3, 0.8, 0.3, 0.3),
    "largest better": (0.6, 0.5, 0.5, 0.5),
    "fading": (0.5, 0.5, 0.5, 0.6),
}
MODES = ("reward", "bonus", "bonus and penalty")
_DEVIATION = 0.1


def simulate(
    sizes: tuple[int, ...],
    means: tuple[float, ...],
    mode: str,
    pulls: int,
    exploration: float,
    seed: int,
    fading: bool = False,
) -> dict[str, Any]:
    """Draw documents; how many distinct ones of each source there were.

    Args:
        mode: one of `MODES`. fading: rewards fall with each epoch.
    """
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, _DEVIATION, pulls)
    bandit, everything = Bandit.new(len(sizes)), range(len(sizes))
    for number in range(pulls):
        factors = [1.0] * len(sizes)
        if mode != "reward":
            seen = tuple(map(min, bandit.draws, sizes))
            progress = Progress(sizes, seen, bandit.draws)
            factors = [progress.bonus(source) for source in everything]
            if mode == "bonus and penalty":
                factors = [factors[source] * progress.penalty(source) for source in everything]
        source = bandit.choose(factors, exploration, everything)
        mean = means[source]
        if fading:
            mean /= 1 + bandit.draws[source] // sizes[source]
        reward = min(1.0, max(0.0, mean + noise[number]))
        bandit = bandit.drawn(source).rewarded_with(source, reward)
    seen = [min(drawn, size) for drawn, size in zip(bandit.draws, sizes, strict=True)]
    return {
        "draws": list(bandit.draws),
        "distinct": sum(seen),
        "coverage": sum(seen) / sum(sizes),
        "by_source": [count / size for count, size in zip(seen, sizes, strict=True)],
    }


def simulations(pulls: int, scale: float, exploration: float, seed: int) -> dict[str, Any]:
    """All vectors in all modes."""
    sizes = tuple(max(1, round(size * scale)) for size in SIZES)
    found: dict[str, Any] = {}
    rows = []
    for name, means in VECTORS.items():
        found[name] = {
            mode: simulate(sizes, means, mode, pulls, exploration, seed, name == "fading")
            for mode in MODES
        }
        counts = [found[name][mode]["distinct"] for mode in MODES]
        rows.append([f"{name} {means}", *counts, counts[1] / counts[0], counts[2] / counts[0]])
        common.say(f"{name}: {', '.join(map(str, counts))} distinct")
    common.table(["rewards", *MODES, "bonus ÷ reward", "both ÷ reward"], rows)
    rows = [
        [f"{name}, {mode}", *(f"{share:.1%}" for share in found[name][mode]["by_source"])]
        for name in VECTORS
        for mode in MODES
    ]
    common.table(["coverage", *map(str, sizes)], rows)
    return {"sizes": list(sizes), "pulls": pulls, "exploration": exploration, "vectors": found}


def overhead(options: argparse.Namespace, data: list[str]) -> dict[str, Any]:
    """Positions per second of the training loop with reports by source and without, in turns."""
    import os

    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    from ginkgo.training.config import TrainConfig
    from ginkgo.training.trainer import Trainer

    speeds: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="ginkgo-bench-") as scratch:
        for turn in range(options.turns):
            for coverage in (True, False) if turn % 2 else (False, True):
                config = TrainConfig(
                    data=tuple(map(Path, data)),
                    run=f"{turn}-{coverage}",
                    runs=Path(scratch),
                    network=options.network,
                    heads=("policy", "value"),
                    batch_size=options.batch_size,
                    steps=options.steps,
                    eval_every=options.steps,
                    pool=options.pool,
                    val_positions=200,
                    test_positions=200,
                    calibrate=False,
                    coverage=coverage,
                )
                begin = time.perf_counter()
                report = Trainer(config).run()
                speeds[coverage].append(report["positions_per_second"])
                common.say(
                    f"reports {'on' if coverage else 'off'}: {speeds[coverage][-1]:,.0f} "
                    f"positions/s, {time.perf_counter() - begin:.0f} s in all"
                )
    pairs = [on / off for on, off in zip(speeds[True], speeds[False], strict=True)]
    result = {
        "with_reports_per_second": statistics.median(speeds[True]),
        "without_reports_per_second": statistics.median(speeds[False]),
        "ratio": statistics.median(pairs),
        "ratios": pairs,
    }
    common.table(
        ["training loop", "positions/s"],
        [
            ["reports by source", result["with_reports_per_second"]],
            ["none", result["without_reports_per_second"]],
            ["ratio", result["ratio"]],
        ],
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    common.add_data_options(parser)
    parser.add_argument("--pulls", type=int, default=200_000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes of the sources")
    parser.add_argument("--exploration", type=float, default=0.5, help="the constant c")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="measure the training loop too")
    parser.add_argument("--network", default="b5c64")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--pool", type=int, default=1 << 17)
    parser.add_argument("--steps", type=int, default=150, help="of the training loop, each turn")
    parser.add_argument("--turns", type=int, default=4)
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)
    result = simulations(options.pulls, options.scale, options.exploration, options.seed)
    if options.train:
        with common.records(options.data, options.games) as data:
            result |= overhead(options, data)
    common.finish({**result, "machine": machine})


if __name__ == "__main__":
    main()
