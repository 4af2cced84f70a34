"""How well the pool shuffles: positions that meet no other of their game in a batch.

Measured on the batches of the loader itself, beside `ginkgo.pipeline.shuffle.share_without_mate`,
for a pool that is a small part of an epoch (`steady`) and for one that holds all of it (`full`).

Games differ in length, and short and long ones do not average out under an exponential, so the
formula is stated twice: with the average number of positions per game, and for each position
with that of its own game.

`exact` goes further for the steady pool: with q = batch / pool, a position leaves after k batches
with probability q (1-q)^(k-1), and so does each of its L - 1 mates, which makes the share

    sum over k of  p_k (1 - p_k)^(L-1),   p_k = q (1-q)^(k-1).

For the full pool each mate is in the batch with probability (batch - 1) / (N - 1).
"""

from __future__ import annotations

import argparse
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray

from ginkgo.pipeline import Index, Loader, LoaderConfig, ParseOptions, build_index
from ginkgo.pipeline.shuffle import measured_share_without_mate, share_without_mate

#: Pools' worth of positions that leave before a steady pool has forgotten how it was filled.
_FORGOTTEN = 3


def exact_share(
    batch: int, per_game: NDArray[np.int64], pool: float, epoch: int
) -> NDArray[np.float64]:
    """Expected share without a mate for positions of games with so many positions each."""
    mates = np.asarray(per_game, np.float64) - 1
    if epoch <= pool:
        return (1 - (batch - 1) / max(1, epoch - 1)) ** mates
    q = batch / pool
    # Until all but one in a million have left.
    leaves = q * (1 - q) ** np.arange(int(14 / q) + 1)
    return (leaves * (1 - leaves) ** mates[:, None]).sum(axis=1)


def measure(
    index: Index, config: LoaderConfig, positions: int, full: bool
) -> dict[str, float | int]:
    """Runs a loader and looks at its batches.

    A steady pool is looked at after its first pools and before the first epoch runs dry, when
    the next epoch takes up a part of it.

    Args:
        positions: at least so many, where the epoch has as many.
        full: whether the pool holds the epoch.
    """
    keep = config.parse.keep
    per_game = min(index.positions_per_game, keep) if keep else index.positions_per_game
    epoch = round(index.games * per_game)
    skip, last = 0, 1 << 62
    if not full:
        skip = _FORGOTTEN * config.pool // config.batch_size
        last = (epoch - config.pool) // config.batch_size
    if last <= skip:
        raise SystemExit(
            f"{epoch:,} positions an epoch are too few for a steady pool of {config.pool:,}"
        )
    shares: list[float] = []
    fills: list[int] = []
    kept: list[NDArray] = []
    with Loader(index, config, say=common.say) as loader:
        for batch in loader:
            loader.acknowledge(batch.number)
            if batch.number <= skip:
                continue
            shares.append(measured_share_without_mate(batch.positions))
            fills.append(batch.pool_fill + len(batch.positions))
            total = batch.positions["total"].astype(np.int64)
            kept.append(np.minimum(total, keep) if keep else total)
            if batch.number == last or len(shares) * config.batch_size >= positions:
                break
    # By number of positions of a game: how many positions are of such games.
    lengths, counts = np.unique(np.concatenate(kept), return_counts=True)

    def average(share: NDArray) -> float:
        return float((share * counts).sum() / counts.sum())

    mean_fill = float(np.mean(fills))
    expected = share_without_mate(config.batch_size, per_game, config.pool, epoch)
    each = [share_without_mate(config.batch_size, int(n), config.pool, epoch) for n in lengths]
    expected_per_game = average(np.array(each))
    exact = average(exact_share(config.batch_size, lengths, epoch if full else mean_fill, epoch))
    measured = float(np.mean(shares))

    def ratio(share: float) -> float:
        return (1 - measured) / (1 - share) if share < 1 else float("nan")

    return {
        "batch": config.batch_size,
        "per_game": per_game,
        "keep": keep,
        "pool": config.pool,
        "epoch": epoch,
        "expected": expected,
        "expected_per_game": expected_per_game,
        "exact": exact,
        "measured": measured,
        "measured_error": float(np.std(shares) / np.sqrt(len(shares))),
        "ratio_of_shares_with_mate": ratio(expected),
        "ratio_per_game": ratio(expected_per_game),
        "ratio_exact": ratio(exact),
        "mean_fill": mean_fill,
        "batches": len(shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    parser.add_argument("--pool", type=int, default=1 << 16, help="of the steady pool")
    parser.add_argument("--batches", type=int, nargs="+", default=[4096, 256], help="batch sizes")
    parser.add_argument("--keep", type=int, nargs="+", default=[0, 8], help="positions per game")
    parser.add_argument("--copies", type=int, default=15, help="of the data, for the steady pool")
    parser.add_argument("--positions", type=int, default=200_000, help="looked at, at least")
    parser.add_argument("--workers", type=int, default=common.cores())
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)
    results: dict[str, list[dict[str, Any]]] = {"steady": [], "full": []}
    with (
        common.records(options.data, options.games) as once,
        common.records(once, copies=options.copies) as many,
    ):
        indexes = {"steady": build_index(many, "all"), "full": build_index(once, "all")}
        for kind, index in indexes.items():
            for keep in options.keep:
                for batch in options.batches:
                    config = LoaderConfig(
                        batch_size=batch,
                        pool=options.pool if kind == "steady" else max(batch, index.positions),
                        workers=options.workers,
                        seed=1,
                        parse=ParseOptions(keep=keep),
                    )
                    full = kind == "full"
                    results[kind].append(measure(index, config, options.positions, full))
    head = ("pool", "batch", "kept", "formula", "per game", "exact", "measured", "±")
    head += ("with mate: measured ÷ formula", "÷ per game", "÷ exact")
    columns = ("expected", "expected_per_game", "exact", "measured", "measured_error")
    columns += ("ratio_of_shares_with_mate", "ratio_per_game", "ratio_exact")
    rows = [
        (kind, one["batch"], f"{one['per_game']:.1f}", *(f"{one[name]:.4f}" for name in columns))
        for kind, ones in results.items()
        for one in ones
    ]
    common.table(head, rows)
    common.finish({**results, "machine": machine})


if __name__ == "__main__":
    main()
