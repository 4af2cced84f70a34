"""The arrays of one search tree, with a bound on their size.

In: how many nodes, or bytes, a tree may take. Out: `Tree`, whose arrays the kernels work on.
"""

from __future__ import annotations

import numpy as np

from ginkgo.search import kernels
from ginkgo.search.kernels import EDGE_BYTES, MAX_MOVES, NODE_BYTES, Edges, Nodes

#: Edges that are reserved for a node; middle-game positions have about eighty moves, those with
#: full hands more, those in check few.
EDGES_PER_NODE = 100
#: Edges are numbered in 31 bits; some are kept for leaves in flight.
MOST_NODES = (2**31 - 2**20) // EDGES_PER_NODE
#: Bytes that a node takes with its edges.
BYTES_PER_NODE = NODE_BYTES + EDGES_PER_NODE * EDGE_BYTES


class Tree:
    """One game's tree. Memory that the tree has not grown into yet costs nothing."""

    def __init__(self, capacity: int, batch: int) -> None:
        """
        Args:
            capacity: nodes at most; never exceeded.
            batch: leaves at most that are in flight together.
        """
        self.capacity = max(2, capacity)
        edges = self.capacity * EDGES_PER_NODE + (batch + 1) * MAX_MOVES
        n, e = self.capacity, edges
        self.nodes = Nodes(
            parent=np.empty(n, np.int32),
            edge=np.empty(n, np.int32),
            first=np.empty(n, np.int32),
            width=np.empty(n, np.int16),
            opened=np.empty(n, np.int16),
            ply=np.empty(n, np.int16),
            state=np.empty(n, np.int8),
            check=np.empty(n, np.int8),
            proof=np.empty(n, np.int16),
            visits=np.empty(n, np.int32),
            value=np.empty(n, np.float32),
            mass=np.empty(n, np.float32),
            total=np.empty(n, np.float64),
            key=np.empty(n, np.uint64),
        )
        self.edges = Edges(
            move=np.empty(e, np.int32),
            prior=np.empty(e, np.float32),
            visits=np.empty(e, np.int32),
            total=np.empty(e, np.float32),
            child=np.empty(e, np.int32),
            proof=np.empty(e, np.int16),
        )
        self.counters = np.zeros(kernels.COUNTERS, np.int64)

    def plant(self, ply: int) -> None:
        """Begin again with a root that is not evaluated yet.

        Args:
            ply: moves made before it since the start of the game.
        """
        kernels.plant(self.nodes, self.edges, self.counters, ply)

    @property
    def size(self) -> int:
        """Nodes in use."""
        return int(self.counters[kernels.NODES])

    @property
    def fullness(self) -> float:
        """Share of the memory in use, in [0, 1]."""
        edges = self.counters[kernels.EDGES] / len(self.edges.move)
        return float(max(self.size / self.capacity, edges))

    @property
    def full(self) -> bool:
        """Whether the last selection had to stop for want of room."""
        return bool(self.counters[kernels.FULL])

    def edges_of(self, node: int) -> slice:
        """Where the edges of a node lie."""
        first = int(self.nodes.first[node])
        return slice(first, first + int(self.nodes.width[node]))

    def child_by_move(self, node: int, move: int) -> int:
        """The node that a move leads to, -1 where the tree has not been there."""
        here = self.edges_of(node)
        for place in np.flatnonzero((self.edges.move[here] & 0x7FFF) == move & 0x7FFF):
            return int(self.edges.child[here.start + place])
        return -1

    def move_root(self, node: int) -> None:
        """Make a node the root and free what does not hang below it."""
        kernels.move_root(self.nodes, self.edges, self.counters, node)


def nodes_in(megabytes: float) -> int:
    """Nodes that a tree may have to stay within so many MiB; no more than can be numbered."""
    return max(2, min(MOST_NODES, int(megabytes * 2**20 / BYTES_PER_NODE)))
