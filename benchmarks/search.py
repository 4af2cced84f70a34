"""Simulations per second of the search: the tree alone, and with a network.

Ten middle-game positions of `--data`, each searched from an empty tree, on one core. With
`uniform` and `hash` the evaluator costs next to nothing: what is left is tree, board and move
generation. `ratio_to_naive` sets the search with `hash` against a plain one that follows the same
rules with an object for each node, one leaf at a time. With a network `playouts_per_second` is
set against what its evaluator answers at the same batch size in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
from pathlib import Path
from typing import Any

import common


def positions(paths: list[Path], count: int) -> list[str]:
    """Rests of `position` commands, plies 40 to 67, each of another game."""
    from ginkgo.records.files import find_files, open_binary
    from ginkgo.records.game import Game
    from ginkgo.records.sources import game_from_line

    found: list[str] = []
    for path in find_files(paths, (".usi",)):
        with open_binary(path) as stream:
            for number, text in enumerate(itertools.islice(stream, 10 * count), 1):
                game = game_from_line(path, number, text)
                ply = 40 + 3 * (len(found) % 10)
                if isinstance(game, Game) and game.total > ply + 10:
                    found.append(f"sfen {game.start} moves {' '.join(game.moves[:ply])}")
                if len(found) == count:
                    return found
    return found


# --- the plain search, frozen -----------------------------------------------------------------


class NaiveNode:
    """A position with its moves, as a first version of a search would keep it."""

    def __init__(self, moves: list[int], priors: list[float]) -> None:
        self.moves, self.priors = moves, priors
        self.children: list[NaiveNode | None] = [None] * len(moves)
        self.visits = [0] * len(moves)
        self.totals = [0.0] * len(moves)
        self.ended: float | None = None


class NaiveSearch:
    """PUCT in plain Python, one leaf at a time, with the same tests at the leaves."""

    def __init__(self, board: Any, history: list[int], evaluator: Any) -> None:
        self.board, self.evaluator, self.history = board, evaluator, list(history)
        self.root, _ = self.leaf()

    def leaf(self) -> tuple[NaiveNode, float]:
        import numpy as np

        from ginkgo.search.evaluators import Batch

        board = self.board
        key = board.zobrist_hash()
        moves = list(board.legal_moves)
        found = self.evaluator.evaluate(
            Batch(
                np.array([key], np.uint64),
                np.array([board.turn], np.uint8),
                np.array([len(moves)], np.int32),
                np.array(moves, np.int32),
            )
        )
        weights = [math.exp(logit / 1.4) for logit in found.logits.tolist()]
        total = sum(weights)
        node = NaiveNode(moves, [weight / total for weight in weights])
        value = float(found.values[0])
        if not moves:
            value = node.ended = 0.0
        elif self.history.count(key) >= 3:
            value = node.ended = 0.5
        elif (not board.is_check() and board.mate_move_in_1ply()) or board.is_nyugyoku():
            value = node.ended = 1.0
        return node, value

    def simulate(self) -> int:
        """One simulation; its depth."""
        node, path = self.root, []
        while True:
            parent_visits = sum(node.visits) + 1
            c = math.log((1 + parent_visits + 28288) / 28288) + 1.44
            mass = sum(
                prior for prior, n in zip(node.priors, node.visits, strict=True) if n
            )  # fmt: skip
            unvisited = max(0.0, (sum(node.totals) + 0.5) / parent_visits - 0.27 * mass**0.5)
            best, best_score = 0, -math.inf
            for index, prior in enumerate(node.priors):
                n = node.visits[index]
                q = node.totals[index] / n if n else unvisited
                score = q + c * prior * math.sqrt(parent_visits) / (1 + n)
                if score > best_score:
                    best, best_score = index, score
            path.append((node, best))
            self.history.append(self.board.zobrist_hash())
            self.board.push(node.moves[best])
            child = node.children[best]
            if child is None:
                node.children[best], value = self.leaf()
                break
            node = child
            if node.ended is not None:
                value = node.ended
                break
        for node, index in reversed(path):
            value = 1 - value
            node.visits[index] += 1
            node.totals[index] += value
            self.board.pop()
            self.history.pop()
        return len(path)


# --- measuring --------------------------------------------------------------------------------


class Timed:
    """An evaluator that adds up how long it takes."""

    def __init__(self, evaluator: Any) -> None:
        self.name, self.note, self._evaluator = evaluator.name, evaluator.note, evaluator
        self.seconds = 0.0

    def evaluate(self, batch: Any) -> Any:
        start = time.perf_counter()
        found = self._evaluator.evaluate(batch)
        self.seconds += time.perf_counter() - start
        return found


def measure(name: str, lines: list[str], simulations: int, batch: int) -> dict[str, float]:
    """All positions searched by an evaluator; the clock and the core's own time."""
    from ginkgo.search import Queue, Search, SearchConfig, line_of, make_evaluator, run

    evaluator = Timed(make_evaluator(name))
    config = SearchConfig(batch=batch, nodes=2 * simulations + 1000)
    warm = Search(config, line_of(lines[0]))
    warm.begin()
    run([warm], Queue(evaluator), 200)
    evaluator.seconds = 0.0
    wall = cpu = 0.0
    done = depth = evaluated = hits = 0
    for text in lines:
        search, queue = Search(config, line_of(text)), Queue(evaluator)
        search.begin()
        start, cpu_start = time.perf_counter(), time.process_time()
        run([search], queue, simulations)
        wall += time.perf_counter() - start
        cpu += time.process_time() - cpu_start
        done += search.simulations
        depth += search.mean_depth * search.evaluations
        evaluated += search.evaluations
        hits += queue.hits
    return {
        "per_second": done / wall,
        "per_cpu_second": done / cpu,
        "mean_leaf_depth": depth / max(1, evaluated),
        "outside": 1 - evaluator.seconds / wall,
        "cache_hits": hits / max(1, evaluated),
    }


def measure_naive(lines: list[str], simulations: int) -> dict[str, float]:
    from ginkgo.search import line_of, make_evaluator

    evaluator, wall, cpu, depth = make_evaluator("hash"), 0.0, 0.0, 0
    for text in lines:
        line = line_of(text)
        search = NaiveSearch(line.board, line.keys[:-1], evaluator)
        start, cpu_start = time.perf_counter(), time.process_time()
        depth += sum(search.simulate() for _ in range(simulations))
        wall += time.perf_counter() - start
        cpu += time.process_time() - cpu_start
    done = simulations * len(lines)
    return {
        "per_second": done / wall,
        "per_cpu_second": done / cpu,
        "mean_leaf_depth": depth / done,
    }


def bare_rate(name: str, lines: list[str], batch: int, seconds: float) -> float:
    """Positions per second of the evaluator alone on planes that are there already."""
    from ginkgo.search import line_of, make_evaluator

    evaluator = make_evaluator(name)
    for place in range(batch):
        evaluator.note(place, line_of(lines[place % len(lines)]).board)  # type: ignore[misc]
    parts = evaluator._planes.planes(batch)  # type: ignore[attr-defined]
    run = evaluator._run  # type: ignore[attr-defined]
    for _ in range(10):
        run(parts)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        run(parts)
        count += batch
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pretrained", help="model directory or ONNX file")
    parser.add_argument("--positions", type=int, default=10)
    parser.add_argument("--simulations", type=int, default=20000, help="of each, without a net")
    parser.add_argument("--playouts", type=int, default=2000, help="of each, with the net")
    parser.add_argument("--naive", type=int, default=500, help="of each, of the plain search")
    parser.add_argument("--batch-size", type=int, default=16, help="with the net")
    parser.add_argument("--hash-batch-size", type=int, default=64, help="without a net")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the bare evaluator")
    parser.add_argument("--data", nargs="+", type=Path, default=[common.SAMPLE], metavar="PATH")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    machine = common.machine()
    common.print_machine(machine)
    lines = positions(options.data, options.positions)
    size = options.hash_batch_size
    found = {
        "hash": measure("hash", lines, options.simulations, size),
        "uniform": measure("uniform", lines, options.simulations, size),
        "naive (hash)": measure_naive(lines, options.naive),
    }
    bare = [bare_rate(options.model, lines, options.batch_size, options.seconds / 2)]
    net = measure(options.model, lines, options.playouts, options.batch_size)
    bare.append(bare_rate(options.model, lines, options.batch_size, options.seconds / 2))
    rate = sum(bare) / 2
    common.table(
        ("", "simulations/s", "per second of the core", "mean leaf depth"),
        [
            (name, one["per_second"], one["per_cpu_second"], one["mean_leaf_depth"])
            for name, one in {**found, options.model: net}.items()
        ],
    )
    common.say(f"bare evaluator at batch {options.batch_size}: {rate:,.0f} positions/s")
    common.finish(
        {
            "simulations_per_second": found["hash"]["per_second"],
            "simulations_per_cpu_second": found["hash"]["per_cpu_second"],
            "uniform_per_second": found["uniform"]["per_second"],
            "naive_per_second": found["naive (hash)"]["per_second"],
            "mean_leaf_depth": found["hash"]["mean_leaf_depth"],
            "ratio_to_naive": found["hash"]["per_cpu_second"]
            / found["naive (hash)"]["per_cpu_second"],
            "playouts_per_second": net["per_second"],
            "bare_evaluator_per_second": rate,
            "ratio_to_bare": net["per_second"] / rate,
            "outside_evaluator_fraction": net["outside"],
            "cache_hits": net["cache_hits"],
            "positions": len(lines),
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
