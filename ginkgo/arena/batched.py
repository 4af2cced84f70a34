"""Games between models, all in this process, evaluated together.

In: pairings, two players. Out: the games as they end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ginkgo.arena.config import cores
from ginkgo.arena.players import Player
from ginkgo.arena.referee import MATE, Pairing, Played, Referee, Rules
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import make_evaluator
from ginkgo.search.many import Play, Want, play_many
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.search import Search, leaves_at_once
from ginkgo.search.tree import BYTES_PER_NODE
from ginkgo.usi.thinker import centipawns

#: Nodes of a tree, in searches of a move; what is kept from the moves before may take a third.
_SEARCHES_PER_TREE = 3
#: Games of a group, below which another group costs more than it gains.
_GROUP = 8
#: Gathering leaves holds the interpreter's lock: more cores than these would wait for it.
_MOST_GROUPS = 8


def play_models(
    pairings: Iterator[Pairing], players: dict[str, Player], rules: Rules, together: int
) -> Iterator[Played]:
    """Play games between models.

    Args:
        pairings: begun in this order.
        players: by `a` and `b`; `batchable`, with nodes as their limit.
        together: games under way.

    Raises:
        GinkgoError: a model cannot be played.
    """
    queues, networks = make_queues(players, together)
    games = (model_game(pairing, players, networks, rules) for pairing in pairings)
    return play_many(games, queues, together)


def make_queues(
    players: dict[str, Player], together: int
) -> tuple[list[list[Queue]], dict[str, int]]:
    """Queues for `play_many`, and which of them each player uses.

    Players with the same network share its batches and what is remembered of positions. There is a
    group of queues for each core, where there are games enough.

    Raises:
        GinkgoError: a model cannot be played.
    """
    named = {
        side: (player.model, player.backend, player.threads) for side, player in players.items()
    }
    distinct = list(dict.fromkeys(named.values()))
    queues = [[Queue(make_evaluator(*network)) for network in distinct]]
    waits = any(queue.evaluator.note is not None for queue in queues[0])
    # A thread of the network keeps a core busy; its gathering takes a few percent of one.
    groups = min(cores(), _MOST_GROUPS, together // _GROUP) if waits else 1
    for _ in range(1, groups):
        queues.append([Queue(make_evaluator(*network)) for network in distinct])
    return queues, {side: distinct.index(network) for side, network in named.items()}


def search_config(player: Player, rules: Rules) -> SearchConfig:
    """The search of a player whose limit is nodes."""
    nodes = player.limits.nodes
    settings = {"batch": min(16, leaves_at_once(nodes)), **player.search}
    room = _SEARCHES_PER_TREE * nodes + settings["batch"] + 64
    return SearchConfig(**settings, nodes=room, max_ply=rules.max_ply)


def tree_bytes(player: Player, rules: Rules) -> int:
    """Memory that the tree of a player may take in each game."""
    return search_config(player, rules).nodes * BYTES_PER_NODE


class _Seat:
    """A player in one game: its tree, and what it draws moves with."""

    def __init__(self, player: Player, network: int, pairing: Pairing, rules: Rules) -> None:
        self.player, self.network = player, network
        opening = pairing.opening
        self.search = Search(search_config(player, rules), Line(opening.start, opening.moves))
        self.search.rng = np.random.default_rng([player.randomness.seed, pairing.number])

    def begin(self) -> Want:
        """Begin to search the position on the board."""
        search, nodes = self.search, self.player.limits.nodes
        # Sequential halving reckons with visits of its own; and a tree must have room.
        if search.config.gumbel or search.tree.fullness * _SEARCHES_PER_TREE > 1:
            search.forget()
        search.begin(nodes)
        return Want(search, nodes, self.network)

    def choose(self) -> int:
        """The move to play."""
        chance = self.player.randomness
        drawn = self.search.line.ply < chance.temperature_plies
        return self.search.best_move(chance.temperature if drawn else 0.0)

    @property
    def score(self) -> int:
        """Centipawns, of the side to move."""
        proof = int(self.search.tree.nodes.proof[0])
        if proof:
            return MATE if proof > 0 else -MATE
        return centipawns(self.search.value)


def model_game(
    pairing: Pairing, players: dict[str, Player], networks: dict[str, int], rules: Rules
) -> Play[Played]:
    """One game, as `play_many` wants it.

    Args:
        networks: number of each player's queue.
    """
    referee = Referee(pairing, rules)
    seats = {
        engine: _Seat(player, networks[engine], pairing, rules)
        for engine, player in players.items()
    }
    while not referee.over:
        seat = seats[referee.mover]
        if seat.search.config.declaration and referee.line.can_declare():
            referee.answer("win")
            break
        yield seat.begin()
        move = seat.choose()
        score = seat.score
        # Both trees follow the game; the line of each search has a board of its own.
        for one in seats.values():
            one.search.play(move)
        referee.answer(seat.search.line.usi[-1], score)
    return referee.played()
