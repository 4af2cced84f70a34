"""Games per minute between models, batched across games against one game at a time.

The network of `--model` plays itself with `--playouts` simulations a move: first `--games` whole
games, then `--moves` moves each from places in them that are drawn evenly, so that a game at a time
and many at a time are measured on the same mixture of openings and endgames. Moves are counted for
`--seconds` each, after a warm-up; one game at a time is measured before and after the batched ones.
Games per minute follow by the mean length of the whole games. *Per core* means per second of CPU
time of the process; with `--cores 1` both share one core, with all of them a game at a time leaves
the others idle.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

import common
import numpy as np


class Moves:
    """Counts the moves of games that run in `play_many`."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, game: Any, most: int) -> Any:
        """The first moves of a game, counted: each search is one move."""
        for want in itertools.islice(game, most):
            self.count += 1
            yield want


def games_of(text: str, places: Any, together: int, most: int, max_ply: int, moves: Any) -> Any:
    """A few moves from each place, without end, so many places at a time."""
    from ginkgo.arena.batched import make_queues, model_game
    from ginkgo.arena.players import parse_player
    from ginkgo.arena.referee import Pairing, Rules
    from ginkgo.search import play_many

    players = {"a": parse_player(text), "b": parse_player(text)}
    queues, networks = make_queues(players, together)
    rules = Rules(max_ply)
    games = (
        moves.of(model_game(Pairing(number, place), players, networks, rules), most)
        for number, place in enumerate(itertools.cycle(places))
    )
    return play_many(games, queues, together)


def measure(
    text: str, places: Any, together: int, moves: int, max_ply: int, warm_up: float, seconds: float
) -> dict[str, float]:
    """Moves per second, of the clock and of a core."""
    counted = Moves()
    begun: list[float] = []
    figures: dict[str, float] = {}

    class Done(Exception):
        pass

    class Watched(Moves):
        """Looks at the clock at each move."""

        def of(self, game: Any, most: int) -> Any:
            for want in counted.of(game, most):
                now = time.perf_counter()
                if not begun:
                    begun[:] = [now, 0.0, 0.0]
                elif not begun[1] and now - begun[0] >= warm_up:
                    begun[1:] = [now, time.process_time()]
                    counted.count = 0
                elif begun[1] and now - begun[1] >= seconds:
                    figures["per_second"] = counted.count / (now - begun[1])
                    figures["per_cpu_second"] = counted.count / (time.process_time() - begun[2])
                    raise Done
                yield want

    try:
        for _ in games_of(text, places, together, moves, max_ply, Watched()):
            pass
    except Done:
        pass
    return figures


def whole_games(text: str, openings: Any, together: int, max_ply: int, games: int) -> list[Any]:
    """The games of a match."""
    from ginkgo.arena.batched import play_models
    from ginkgo.arena.players import parse_player
    from ginkgo.arena.referee import Pairing, Rules

    players = {"a": parse_player(text), "b": parse_player(text)}
    pairings = (Pairing(number, openings[number // 2]) for number in range(games))
    return list(play_models(pairings, players, Rules(max_ply), together))


def places_in(games: Sequence[Any], count: int) -> list[Any]:
    """Positions of games as openings, drawn evenly from all their searched plies."""
    from ginkgo.arena.openings import Opening

    rng = np.random.default_rng(0)
    plies = np.array([one.plies - one.opening for one in games])
    chosen = rng.choice(len(games), count, p=plies / plies.sum())
    return [
        Opening(one.start, tuple(one.moves[: one.opening + int(rng.integers(plies[number]))]))
        for number, one in ((number, games[number]) for number in chosen)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pretrained")
    parser.add_argument(
        "--backends", nargs="+", default=["int8"], choices=("int8", "onnx", "keras")
    )
    parser.add_argument("--playouts", type=int, default=64)
    parser.add_argument("--together", type=int, default=128, help="games at a time")
    parser.add_argument("--games", type=int, default=64, help="whole games to draw places from")
    parser.add_argument("--moves", type=int, default=12, help="from each place")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--max-ply", type=int, default=320)
    parser.add_argument("--cores", type=int, default=0, help="pin to so many cores; 0: all")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    machine = common.machine()
    common.print_machine(machine)

    from ginkgo.arena.openings import Openings

    rest = (options.moves, options.max_ply, options.warm_up, options.seconds)
    # Every backend plays the same games, but for rounding.
    first = f"{options.model}:nodes={options.playouts},backend={options.backends[0]}"
    openings = Openings(None, 0, 0)
    games = whole_games(first, openings, options.together, options.max_ply, options.games)
    plies = sum(one.plies - one.opening for one in games) / len(games)
    places = places_in(games, 4096)
    figures: dict[str, dict[str, float]] = {}
    for backend in options.backends:
        text = f"{options.model}:nodes={options.playouts},backend={backend}"
        alone = [measure(text, places, 1, *rest)]
        batched = measure(text, places, options.together, *rest)
        alone.append(measure(text, places, 1, *rest))
        single = {key: (alone[0][key] + alone[1][key]) / 2 for key in batched}
        figures[backend] = {
            "games_per_minute": 60 * batched["per_second"] / plies,
            "games_per_minute_single": 60 * single["per_second"] / plies,
            "games_per_cpu_minute": 60 * batched["per_cpu_second"] / plies,
            "games_per_cpu_minute_single": 60 * single["per_cpu_second"] / plies,
            "ratio": batched["per_second"] / single["per_second"],
            "ratio_per_core": batched["per_cpu_second"] / single["per_cpu_second"],
            "single_drift": alone[1]["per_cpu_second"] / alone[0]["per_cpu_second"],
            "playouts_per_second": options.playouts * batched["per_second"],
            "mean_plies": plies,
        }
    keys = ("games_per_minute", "games_per_minute_single", "ratio", "ratio_per_core")
    common.table(
        ("", "games/min batched", "one at a time", "ratio", "ratio per core"),
        [(name, *(one[key] for key in keys)) for name, one in figures.items()],
    )
    common.finish(
        {
            **figures[options.backends[0]],
            "by_backend": figures,
            "playouts": options.playouts,
            "together": options.together,
            "machine": machine,
        }
    )


if __name__ == "__main__":
    main()
