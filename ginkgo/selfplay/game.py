"""One game of self-play in progress.

In: options, the game's number, a start position. Out: the searches that it needs, one by one; at
the end a `PlayedGame`. All that is random in a game comes of its number and the run's seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.arena.openings import Opening, read_openings
from ginkgo.records.kifu.selfplay import GUMBEL_VISITS, PlayedGame
from ginkgo.search.config import SearchConfig
from ginkgo.search.many import Play, Want
from ginkgo.search.rules import Line
from ginkgo.search.search import Search
from ginkgo.selfplay.config import PlayOptions

#: A lower temperature is greedy.
_COLD = 0.05
_NO_POLICY = (np.zeros(0, np.uint16), np.zeros(0, np.uint16))


def temperature_at(ply: int, options: PlayOptions) -> float:
    """The temperature of a move: 1, then halving, then 0.

    Args:
        ply: moves made in the game before it.

    >>> [temperature_at(ply, PlayOptions()) for ply in (0, 29, 40, 50, 100)]
    [1.0, 1.0, 0.5, 0.25, 0.0]
    """
    past = max(0, ply - options.temperature_plies)
    temperature = 0.5 ** (past / options.temperature_halflife)
    return temperature if temperature >= _COLD else 0.0


def load_openings(path: Path | None) -> list[Opening]:
    """The openings of a file; without one the usual start position.

    Raises:
        GinkgoError: the file cannot be read, a line is no opening, or there is none.
    """
    return [Opening()] if path is None else read_openings(path, plies=0, seed=0)


def play_game(
    number: int,
    options: PlayOptions,
    openings: Sequence[Opening],
    threshold: float,
    seed: tuple[int, ...],
) -> Play[PlayedGame]:
    """One game, as `play_many` wants it.

    Args:
        number: of the game in its run.
        options: how to play.
        openings: of `load_openings`.
        threshold: win rate below which a side resigns.
        seed: of the run; no two runs have the same.
    """
    game = _Game(number, options, openings, threshold, seed)
    while not game.ended:
        yield game.begin()
        game.move()
    return game.played


class _Game:
    """A game in progress."""

    def __init__(
        self,
        number: int,
        options: PlayOptions,
        openings: Sequence[Opening],
        threshold: float,
        seed: tuple[int, ...],
    ) -> None:
        self.options = options
        self.rng = np.random.default_rng([*seed, number])
        opening = openings[int(self.rng.integers(len(openings)))]
        self.line = Line(opening.start)
        may_resign = bool(self.rng.random() >= options.never_resign) and threshold > 0
        self.played = PlayedGame(number, opening.start, "d", "max_moves", may_resign, 0)
        self._threshold = threshold if may_resign else 0.0
        self.ended = False
        # A diagram may start late: `max_ply` counts the moves of this game.
        self.max_ply = self.line.first_ply + options.max_ply
        self._full, self._cheap = search_configs(options, self.max_ply)
        self._open(opening.moves)
        self.search = Search(self._full, self.line)
        self.search.rng = self.rng

    def _open(self, opening: Sequence[str]) -> None:
        """The opening's moves, then some at random."""
        for usi in opening:
            self._push(self.line.move_of(usi))
        wanted = int(self.rng.integers(self.options.random_plies + 1))
        for _ in range(wanted):
            if self._has_ended():
                return
            moves = list(self.line.board.legal_moves)
            self._push(int(moves[int(self.rng.integers(len(moves)))]))
        self.played.random_plies = wanted
        self._has_ended()

    # --- searching ----------------------------------------------------------------------------

    def begin(self) -> Want:
        """Start the search of the next move, a full or a cheap one."""
        options = self.options
        self.is_full = bool(self.rng.random() < options.full_share)
        self._temperature = temperature_at(self.line.ply - self.line.first_ply, options)
        config = self._full if self.is_full else self._cheap
        playouts = options.playouts if self.is_full else options.cheap_playouts
        if config.gumbel:
            config = _scaled(config, self._temperature, self.is_full)
        # A new tree each time: forced visits, noise and the Gumbel numbers are of one move. What
        # the last search evaluated is in the queue's memory.
        self.search.forget()
        self.search.begin(playouts, config)
        # The root's own evaluation is no playout.
        return Want(self.search, playouts + 1)

    def move(self) -> None:
        """Resign, or make the move that the search has found."""
        search = self.search
        moves, shares = search.policy()
        value = search.value_under(shares)
        if value < self._threshold:
            self._end("w" if self._mover == "b" else "b", "toryo")
            return
        move = self._choose(moves, shares)
        target = as_visits(moves, shares, search) if self.is_full else _NO_POLICY
        self._record(move, self.is_full, max(0, search.simulations - 1), value, target)
        search.play(move)  # on the line, which is the game's own
        self._has_ended()

    def _choose(self, moves: NDArray[np.int32], shares: NDArray[np.float64]) -> int:
        """The move to play: the Gumbel search's own, or one drawn by the visits."""
        search, temperature = self.search, self._temperature
        if search.config.gumbel or temperature <= 0 or search.tree.nodes.proof[0]:
            return search.candidates(1)[0].move
        weight = (shares / shares.max()) ** (1 / temperature)
        return int(moves[int(self.rng.choice(len(weight), p=weight / weight.sum()))])

    # --- the game -----------------------------------------------------------------------------

    @property
    def _mover(self) -> str:
        return "w" if self.line.white else "b"

    def _push(self, move: int) -> None:
        """A move without a search."""
        self._record(move)
        self.line.push(move)

    def _record(
        self,
        move: int,
        full: bool = False,
        playouts: int = 0,
        value: float = np.nan,
        policy: tuple[NDArray[np.uint16], NDArray[np.uint16]] = _NO_POLICY,
    ) -> None:
        game = self.played
        game.moves.append(cshogi.move16(move))
        game.full.append(full)
        game.playouts.append(playouts)
        game.root_values.append(value)
        game.policies.append(policy)

    def _end(self, winner: str, end: str) -> None:
        self.played.winner, self.played.end = winner, end
        self.ended = True

    def _has_ended(self) -> bool:
        """End the game where the rules do: mate, repetition, too many plies, declaration."""
        found = self.line.ending(self.max_ply)
        if found is None and self.line.can_declare():
            found = self._mover, "kachi"
        if found is not None:
            self._end(*found)
        return self.ended


@lru_cache
def search_configs(options: PlayOptions, max_ply: int) -> tuple[SearchConfig, SearchConfig]:
    """Of full and of cheap searches."""
    largest = max(options.playouts, options.cheap_playouts)
    gumbel = options.gumbel
    full = SearchConfig(
        batch=options.batch,
        policy_temperature=options.policy_temperature,
        max_ply=max_ply,
        # Where hands are full a position has several times as many moves as a node is given room.
        nodes=4 * largest + options.batch + 64,
        gumbel=gumbel,
        noise=0.0 if gumbel else options.noise,
        noise_alpha=options.noise_alpha,
        forced_playouts=0.0 if gumbel else options.forced_playouts,
    )
    few = min(gumbel, max(2, options.cheap_playouts // 2))
    return full, replace(full, gumbel=few, noise=0.0, forced_playouts=0.0)


@lru_cache
def _scaled(config: SearchConfig, temperature: float, is_full: bool) -> SearchConfig:
    """The configuration with Gumbel numbers scaled by the temperature.

    A full search always considers moves by chance, for what is never looked at the policy never
    learns; but late in a game chance has no part in what is played, for results that it decides
    teach nothing.
    """
    if is_full:
        return replace(config, gumbel_later=temperature)
    return replace(config, gumbel_scale=temperature)


def as_visits(
    moves: NDArray[np.int32], shares: NDArray[np.float64], search: Search
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """A policy target as the file keeps it: moves of 16 bits and visits, those without left out."""
    total = GUMBEL_VISITS if search.config.gumbel else max(1, search.simulations - 1)
    visits = apportioned(shares, min(total, 65535))
    seen = visits > 0
    return (moves[seen] & 0xFFFF).astype(np.uint16), visits[seen].astype(np.uint16)


def apportioned(shares: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Whole visits in proportion to shares, by largest remainders (Hamilton's method).

    Args:
        shares: (m,) not negative, not all zero.

    Returns:
        (m,) that sum to `total`, each less than one away from its exact part.

    >>> apportioned(np.array([0.5, 0.3, 0.2]), 8).tolist()
    [4, 2, 2]
    """
    exact = shares / shares.sum() * total
    visits = np.floor(exact).astype(np.int64)
    most_left = np.argsort(visits - exact, kind="stable")
    visits[most_left[: total - int(visits.sum())]] += 1
    return visits
