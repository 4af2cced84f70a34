"""Monte Carlo tree search over one or several games.

In: positions (`Line`), a `SearchConfig`, a `Queue` with an evaluator. Out: visits, values, proved
wins, the best moves with their lines.

A `Search` is one game's tree. `gather` chooses leaves and puts them in the queue, `apply` grows
the tree by what the evaluator said; `run` drives any number of searches so that they share
batches. With one thread and one seed everything is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ginkgo.search import kernels
from ginkgo.search.config import SearchConfig
from ginkgo.search.forced import forced_moves, pruned_visits
from ginkgo.search.gumbel import SequentialHalving, improved_policy
from ginkgo.search.kernels import BY_RULE, EXPANDED, MAX_DEPTH
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line
from ginkgo.search.tree import Tree

#: Simulations for each leaf that is in flight in one game; with fewer the virtual loss of the
#: others would spoil small searches.
_SIMULATIONS_PER_LEAF = 16


@dataclass(frozen=True)
class Candidate:
    """A move at the root, with what the search found of it."""

    move: int
    usi_line: list[int] = field(repr=False)
    """The expected continuation, cshogi moves, this one first."""
    visits: int
    prior: float
    value: float
    """Win rate of the side that makes it, in [0, 1]; NaN without a visit."""
    proof: int
    """Plies to mate, > 0 for the side that makes it, < 0 against it; 0: nothing proved.
    Above `BY_RULE`: won or lost by a rule other than mate."""


class Search:
    """One game's tree and the position at its root."""

    def __init__(self, config: SearchConfig, line: Line | None = None) -> None:
        self.config = config
        self.tree = Tree(config.nodes, config.batch)
        self.rng = np.random.default_rng(config.seed)
        self.line = line or Line()
        self.tests = config.mate_in_one + 2 * config.declaration
        self._leaves = np.zeros(config.batch, np.int32)
        self._steps = np.zeros((config.batch, 2), np.int32)
        self._moves = np.zeros(config.batch * MAX_DEPTH, np.int32)
        self._forced = np.full(config.batch, -1, np.int32)
        self._found, self._slice, self._offset = 0, slice(0, 0), 0
        self._halving: SequentialHalving | None = None
        self.simulations = 0
        """Since `begin`."""
        self.evaluations = 0
        """Leaves that were visited since `begin`, ended ones left out."""
        self._plant()

    # --- position -----------------------------------------------------------------------------

    def _plant(self) -> None:
        self.tree.plant(self.line.ply)
        self._past_keys = np.array(self.line.keys[:-1], np.uint64)
        self._past_checks = np.array(self.line.checks[:-1], np.int8)

    def forget(self) -> None:
        """Begin with an empty tree, whatever state this one was left in."""
        self._found = 0
        self._plant()

    def set_line(self, line: Line) -> bool:
        """Search another position; where the tree knows it, its part below it is kept.

        Returns:
            whether anything could be kept.
        """
        known = len(self.line.moves)
        follows = (
            line.start == self.line.start
            and len(line.moves) >= known
            and line.usi[:known] == self.line.usi
        )
        node = 0 if follows else -1
        for move in line.moves[known:]:
            if node >= 0:
                node = self.tree.child_by_move(node, move)
        self.line = line
        usable = node >= 0 and self.tree.nodes.state[node] == EXPANDED
        if not usable:
            self._plant()
            return False
        if node:
            self.tree.move_root(node)
            self._past_keys = np.array(line.keys[:-1], np.uint64)
            self._past_checks = np.array(line.checks[:-1], np.int8)
        return True

    def play(self, move: int) -> None:
        """Make a move on the line and keep the tree below it."""
        node = self.tree.child_by_move(0, move)
        self.line.push(move)
        if node >= 0 and self.tree.nodes.state[node] == EXPANDED:
            self.tree.move_root(node)
            self._past_keys = np.array(self.line.keys[:-1], np.uint64)
            self._past_checks = np.array(self.line.checks[:-1], np.int8)
        else:
            self._plant()

    # --- searching ----------------------------------------------------------------------------

    def begin(self, simulations: int = 0, config: SearchConfig | None = None) -> None:
        """Start counting; `simulations` is the budget of the Gumbel root search.

        Args:
            config: from now on, the same but for what does not shape the tree's memory. Where it
                differs the tree begins anew: its values hold by the rules before.
        """
        if config is not None and config != self.config:
            self._plant()
            self.config = config
            self.tests = config.mate_in_one + 2 * config.declaration
        self.simulations = self.evaluations = 0
        self._halving = None
        self._budget = simulations
        self._prepared = False
        self._forced.fill(-1)
        counters = self.tree.counters
        counters[kernels.PROVED] = counters[kernels.DEPTH_SUM] = counters[kernels.DEEPEST] = 0
        counters[kernels.FULL] = counters[kernels.COLLISIONS] = 0

    def _prepare_root(self) -> None:
        """Once a search, when the root has its edges: noise, or the Gumbel numbers."""
        self._prepared = True
        nodes, edges, config = self.tree.nodes, self.tree.edges, self.config
        here = self.tree.edges_of(0)
        count = here.stop - here.start
        if nodes.proof[0] or not count:
            return
        if config.gumbel and self._budget:
            kernels.open_all(nodes)
            self._halving = SequentialHalving(
                self._root_logits(), config.gumbel, self._budget, self.rng, config.gumbel_scale,
                config.gumbel_later,
            )  # fmt: skip
        elif config.noise:
            drawn = self.rng.dirichlet(np.full(count, config.noise_alpha))
            mixed = (1 - config.noise) * edges.prior[here] + config.noise * drawn
            kernels.set_priors(nodes, edges, mixed.astype(np.float32))

    def gather(self, queue: Queue, limit: int) -> int:
        """Choose at most `limit` leaves (and at most `config.batch`) and queue them.

        Returns:
            simulations under way or finished: leaves, and visits of positions already decided.
        """
        tree, config = self.tree, self.config
        self._slice = slice(len(queue), len(queue))
        self._offset = queue.moves
        if tree.nodes.state[0] == kernels.PENDING:
            self._leaves[0] = 0
            self._found = 1
            queue.collect(self.line.board, [(0, 0)], (), self.tests)
            self._slice = slice(self._slice.start, len(queue))
            return 1
        if not self._prepared:
            self._prepare_root()
        limit = min(limit, config.batch)
        if self._halving is not None:
            wanted = self._halving.request(self._root_visits(), self._root_values(), limit)
            limit = len(wanted)
            self._forced[:limit] = wanted
        elif config.forced_playouts:
            owing = forced_moves(
                self._root_visits(), self._root_priors(), config.forced_playouts, limit
            )
            self._forced[: len(owing)], self._forced[len(owing) :] = owing, -1
        proved = int(tree.counters[kernels.PROVED])
        self._found = found = int(
            kernels.select(
                tree.nodes,
                tree.edges,
                tree.counters,
                limit,
                config.c_init,
                config.c_base,
                config.fpu,
                config.fpu_root,
                self._forced,
                self._leaves,
                self._steps,
                self._moves,
            )
        )
        ended = int(tree.counters[kernels.PROVED]) - proved
        if found:
            steps = self._steps[:found]
            moves = self._moves[: int(steps[:, 1].sum())].tolist()
            queue.collect(self.line.board, steps.tolist(), moves, self.tests)
            self._slice = slice(self._slice.start, len(queue))
        self.simulations += ended
        return found + ended

    def apply(self, queue: Queue) -> None:
        """Grow the tree by the evaluated leaves."""
        if not self._found:
            return
        tree, config, part = self.tree, self.config, self._slice
        kernels.expand(
            tree.nodes,
            tree.edges,
            tree.counters,
            self._leaves,
            self._found,
            queue.counts[part],
            self._offset,
            queue.flat_moves,
            queue.logits,
            queue.values[part],
            queue.keys[part],
            queue.checks[part],
            queue.kinds[part],
            self._past_keys,
            self._past_checks,
            config.max_ply,
            config.draw_value,
            config.policy_temperature,
        )
        self.simulations += self._found
        self.evaluations += self._found
        self._found = 0

    def drop(self) -> None:
        """Take back the leaves that were gathered and will not be evaluated."""
        tree = self.tree
        if tree.nodes.state[0] != kernels.PENDING:
            kernels.forget(tree.nodes, tree.edges, tree.counters, self._leaves, self._found)
        self._found = 0

    @property
    def decided(self) -> bool:
        """Whether searching on can change nothing: the root is proved, or the tree is full."""
        ended = self.tree.nodes.state[0] == kernels.ENDED
        return bool(ended or self.tree.nodes.proof[0] != 0 or self.tree.full)

    # --- results ------------------------------------------------------------------------------

    def _root_visits(self) -> NDArray[np.int32]:
        return self.tree.edges.visits[self.tree.edges_of(0)]

    def _root_priors(self) -> NDArray[np.float64]:
        return self.tree.edges.prior[self.tree.edges_of(0)].astype(np.float64)

    def _root_values(self) -> NDArray[np.float64]:
        """Mean value of each root move, NaN where it was not visited."""
        here = self.tree.edges_of(0)
        visits = self.tree.edges.visits[here]
        return np.where(
            visits > 0, self.tree.edges.total[here] / np.maximum(visits, 1), np.nan
        ).astype(np.float64)

    def _root_logits(self) -> NDArray[np.float64]:
        """The network's logits of the root's moves but for a constant, out of the priors."""
        return np.log(np.maximum(self._root_priors(), 1e-30)) * self.config.policy_temperature

    @property
    def value(self) -> float:
        """Win rate of the side to move at the root."""
        proof = int(self.tree.nodes.proof[0])
        if proof:
            return 1.0 if proof > 0 else 0.0
        return float(self.tree.nodes.total[0] / max(1, self.tree.nodes.visits[0]))

    def value_under(self, policy: NDArray[np.float64]) -> float:
        """Win rate of the side to move if it plays by a policy.

        Where many moves are tried with equal visits (Gumbel, forced playouts) `value` is the mean
        over good and bad ones; this is what the position is worth.

        Args:
            policy: (m,) probabilities of the root's moves, as `policy` gives them.
        """
        values, seen = self._root_values(), self._root_visits() > 0
        total = float(policy[seen].sum())
        if self.tree.nodes.proof[0] or not total:
            return self.value
        return float(policy[seen] @ values[seen] / total)

    @property
    def mean_depth(self) -> float:
        """Mean depth of the leaves since `begin`, in plies."""
        return float(self.tree.counters[kernels.DEPTH_SUM] / max(1, self.evaluations))

    @property
    def deepest(self) -> int:
        """Depth of the deepest leaf since `begin`."""
        return int(self.tree.counters[kernels.DEEPEST])

    def candidates(self, most: int = 0) -> list[Candidate]:
        """The moves at the root, best first.

        Proved wins come first, the quickest before; then the most visited; then proved losses,
        the longest before. After a Gumbel search its winner stands before the other unproved.

        Args:
            most: how many; 0: all.
        """
        edges, here = self.tree.edges, self.tree.edges_of(0)
        proof, visits = edges.proof[here].astype(np.int64), edges.visits[here]
        values = self._root_values()
        rank = np.where(proof > 0, 1e9 - proof, np.where(proof < 0, -1e9 - proof, visits))
        if self._halving is not None:
            best = self._halving.best(visits, np.where(proof < 0, 0, values))
            if proof[best] == 0:
                rank[best] = 1e8
        order = np.lexsort((-edges.prior[here], -np.nan_to_num(values, nan=-1.0), -rank))
        return [
            Candidate(
                int(edges.move[here.start + index]),
                self._continuation(here.start + index),
                int(visits[index]),
                float(edges.prior[here.start + index]),
                float(values[index]),
                _plies(int(proof[index])),
            )
            for index in order[: most or len(order)].tolist()
        ]

    def _continuation(self, edge: int) -> list[int]:
        """The moves that follow an edge of the root, best play on both sides."""
        nodes, edges = self.tree.nodes, self.tree.edges
        line = [int(edges.move[edge])]
        while (node := int(edges.child[edge])) >= 0 and nodes.width[node]:
            here = self.tree.edges_of(node)
            proof = edges.proof[here].astype(np.int64)
            visits = edges.visits[here]
            rank = np.where(proof > 0, 1e9 - proof, np.where(proof < 0, -1e9 - proof, visits))
            edge = here.start + int(rank.argmax())
            if not edges.visits[edge] and not edges.proof[edge]:
                break
            line.append(int(edges.move[edge]))
        return line

    def best_move(self, temperature: float = 0.0) -> int:
        """The move to play; 0 where there is none.

        Args:
            temperature: 0: the best; else a move drawn with probability proportional to its
                visits to the power 1 / temperature, unless a win is proved.
        """
        # The lines of play of all moves would take longer than the rest.
        found = self.candidates(1 if temperature <= 0 else 0)
        if not found:
            return 0
        open_moves = [one for one in found if one.proof >= 0 and one.visits]
        if temperature <= 0 or found[0].proof > 0 or not open_moves:
            return found[0].move
        weight = np.array([one.visits for one in open_moves], np.float64)
        weight = (weight / weight.max()) ** (1 / temperature)
        return open_moves[int(self.rng.choice(len(weight), p=weight / weight.sum()))].move

    def policy(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """What the search learned, as a target for training.

        Returns:
            (m,) the root's moves, and (m,) probabilities: shares of visits, less those that were
            forced, or the improved policy of the Gumbel search. A proved win takes all, a proved
            loss none (unless all moves lose). Priors, where that leaves nothing visited.
        """
        edges, here = self.tree.edges, self.tree.edges_of(0)
        proof, visits = edges.proof[here], edges.visits[here].astype(np.float64)
        lost = (proof < 0) & ~(proof < 0).all()
        # Before the forced visits are taken off: they are measured by the best move that is left.
        open_visits = np.where(lost, 0, visits)
        if (proof > 0).any():
            weight = (proof == proof[proof > 0].min()).astype(np.float64)
        elif self._halving is not None:
            weight = improved_policy(
                self._root_logits(),
                visits,
                self._root_values(),
                float(self.tree.nodes.value[0]),
            )
        elif self.config.forced_playouts:
            config = self.config
            scale = np.log((1 + visits.sum() + config.c_base) / config.c_base) + config.c_init
            weight = pruned_visits(
                open_visits, self._root_values(), self._root_priors(), scale, config.forced_playouts
            )
        else:
            weight = open_visits
        weight = np.where(lost, 0, weight)
        if not weight.any():
            weight = np.where(lost, 0, np.maximum(self._root_priors(), 1e-30))
        return edges.move[here].copy(), weight / weight.sum()


def _plies(proof: int) -> int:
    """Plies to mate out of a proof: 2 is a mate in one, -1 stands mated."""
    if proof > 0:
        return proof - 1
    return proof + 1 if proof < 0 else 0


def mate_only(plies: int) -> bool:
    """Whether a proved distance is by mate alone, not by a declaration or a repetition."""
    return plies != 0 and abs(plies) < BY_RULE


def leaves_at_once(simulations: int) -> int:
    """How many leaves of one search to evaluate together where so few simulations are all it has.

    The leaves of a batch are chosen without knowing one another's values, so a search of 32
    simulations in two batches of 16 hardly is one.
    """
    return max(1, simulations // _SIMULATIONS_PER_LEAF)


def run(
    searches: Sequence[Search],
    queue: Queue,
    simulations: int,
    stop: Callable[[], bool] | None = None,
    at_once: int = 1 << 30,
) -> None:
    """Search each position until it has so many simulations, or is decided.

    Args:
        searches: share the queue's batches; each has had its `begin`.
        stop: asked between batches; True ends the search.
        at_once: leaves of one search in a batch, at most.
    """
    active = [search for search in searches if not search.decided]
    while active:
        queue.clear()
        moved = [
            search.gather(queue, max(1, min(at_once, simulations - search.simulations)))
            for search in active
        ]
        if len(queue):
            queue.evaluate()
            for search in active:
                search.apply(queue)
        if stop is not None and stop():
            return
        active = [
            search
            for search, any_moved in zip(active, moved, strict=True)
            if any_moved and search.simulations < simulations and not search.decided
        ]
