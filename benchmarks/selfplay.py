"""Self-play: positions per second, and how much of its time the evaluator works.

One process on each core plays games to their end, many at once. In the same run, on the same cores,
the bare evaluator answers batches of the size that self-play had, and each process plays one game
at a time. `evaluator_busy` is what self-play's evaluators answered over what bare ones answer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from dataclasses import replace
from typing import Any

import common


def _bare(evaluator: Any, size: int, seconds: float) -> tuple[int, float]:
    """Positions that an evaluator answers, and the seconds it took."""
    import cshogi
    import numpy as np

    from ginkgo.search.evaluators import Batch

    rng, board = np.random.default_rng(0), cshogi.Board()
    keys, white, counts, moves = [], [], [], []
    while len(keys) < size:
        legal = list(board.legal_moves)
        if not legal or board.move_number > 120:
            board.reset()
            continue
        evaluator.note(len(keys), board)
        keys.append(board.zobrist_hash())
        white.append(board.turn)
        counts.append(len(legal))
        moves += legal
        board.push(int(rng.choice(legal)))
    batch = Batch(
        np.array(keys, np.uint64), np.array(white, np.uint8), np.array(counts, np.int32),
        np.array(moves, np.int32),
    )  # fmt: skip
    evaluator.evaluate(batch)
    start, answered = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        evaluator.evaluate(batch)
        answered += size
    return answered, time.perf_counter() - start


def _process(barrier: Any, results: Any, config: Any, first: int, step: int, one: int,
             seconds: float) -> None:  # fmt: skip
    """All phases in one process; it waits for the others before each."""
    from ginkgo.search.evaluators import make_evaluator
    from ginkgo.selfplay.worker import play_here

    def games(played: Any, numbers: range) -> tuple[int, Any, float]:
        from ginkgo.selfplay.counting import Used

        barrier.wait()
        start, plies, used = time.perf_counter(), 0, Used()
        for found in play_here(played, 1, numbers, 0.0):
            if isinstance(found, Used):
                used += found
            else:
                plies += found.plies
        return plies, used, time.perf_counter() - start

    games(replace(config, max_ply=8, concurrent=2), range(2))  # loads what is compiled
    plies, used, wall = games(config, range(first, config.games, step))
    evaluator = make_evaluator(config.model, config.evaluator, threads=1)
    size = max(1, round(used.mean_batch))
    barrier.wait()
    answered, bare_s = _bare(evaluator, size, seconds)
    alone = games(replace(config, concurrent=1), range(10**6 + first, 10**6 + step * one, step))
    results.put(
        {
            "positions": plies / wall,
            "evaluated": used.evaluated / wall,
            "batch": used.mean_batch,
            "in_evaluator": used.seconds / wall,
            "bare": answered / bare_s,
            "alone": alone[1].evaluated / alone[2],
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pretrained", help="model directory or file")
    parser.add_argument("--evaluator", default="int8", choices=["auto", "onnx", "int8", "keras"])
    parser.add_argument("--games", type=int, default=128, help="in all processes together")
    parser.add_argument("--single", type=int, default=1, help="games one at a time, each process")
    parser.add_argument("--concurrent", type=int, default=64, help="games at once, each process")
    parser.add_argument("--playouts", type=int, default=64)
    parser.add_argument("--cheap-playouts", type=int, default=16)
    parser.add_argument("--gumbel", type=int, default=0)
    parser.add_argument("--max-ply", type=int, default=160)
    parser.add_argument("--processes", type=int, default=0, help="0: one a core")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the bare evaluator")
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)

    from ginkgo.selfplay.config import SelfplayConfig

    processes = options.processes or common.cores()
    config = SelfplayConfig(
        model=options.model,
        evaluator=options.evaluator,
        games=options.games,
        concurrent=options.concurrent,
        playouts=options.playouts,
        cheap_playouts=options.cheap_playouts,
        gumbel=options.gumbel,
        max_ply=options.max_ply,
        resign=0.0,
    )
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    started = [
        context.Process(
            target=_process,
            args=(barrier, results, config, first, processes, options.single, options.seconds),
        )
        for first in range(processes)
    ]
    for process in started:
        process.start()
    found = [results.get() for _ in started]
    for process in started:
        process.join()
    total = {name: sum(one[name] for one in found) for name in found[0]}
    figures = {
        "positions_per_second": total["positions"],
        "evaluator_busy": total["evaluated"] / total["bare"],
        "mean_batch": total["batch"] / processes,
        "ratio_to_single_game": total["evaluated"] / total["alone"],
    }
    common.table(
        ("", "evaluated/s"),
        [
            ("many games at once", total["evaluated"]),
            ("one game at a time", total["alone"]),
            ("the bare evaluator, same batch", total["bare"]),
        ],
    )
    common.say(f"share of the time in the evaluator {total['in_evaluator'] / processes:.1%}")
    common.finish(
        {
            **figures,
            "evaluated_per_second": total["evaluated"],
            "bare_per_second": total["bare"],
            "processes": processes,
            "model": options.model,
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
