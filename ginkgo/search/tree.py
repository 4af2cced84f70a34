"""The arrays of one search tree, with a bound on their size.

In: how many nodes, or bytes, a tree may take. Out: `Tree`, whose arrays the kernels work on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ginkgo.search import kernels
from ginkgo.search.kernels import MAX_MOVES

#: Bytes that the processor fetches at once.
CACHE_LINE = 64
#: A node. A step of a descent reads most of it, so all of it lies in one cache line.
NODE = np.dtype(
    [
        ("parent", np.int32),
        ("edge", np.int32),
        ("first", np.int32),
        ("width", np.int16),
        ("opened", np.int16),
        ("ply", np.int16),
        ("state", np.int8),
        ("check", np.int8),
        ("proof", np.int16),
        ("visits", np.int32),
        ("value", np.float32),
        ("mass", np.float32),
        ("total", np.float64),
        ("key", np.uint64),
        ("unused", np.uint64),
    ],
    align=True,
)
#: What belongs to an edge that was visited. Moves and priors are looked through for all edges of a
#: node, and so stand close together in arrays of their own.
EDGE = np.dtype(
    [("visits", np.int32), ("total", np.float32), ("child", np.int32), ("proof", np.int16)],
    align=True,
)
#: Edges that are reserved for a node; middle-game positions have about eighty moves, those with
#: full hands more, those in check few.
EDGES_PER_NODE = 100
#: Edges are numbered in 31 bits; some are kept for leaves in flight.
MOST_NODES = (2**31 - 2**20) // EDGES_PER_NODE
#: Bytes that a node takes with its edges.
BYTES_PER_NODE = NODE.itemsize + EDGES_PER_NODE * (4 + 4 + EDGE.itemsize)


def _side_by_side(count: int, record: np.dtype) -> NDArray:
    """(count,) records, none of which lies across the border of a cache line."""
    block = np.empty(count * record.itemsize + CACHE_LINE, np.uint8)
    start = -block.ctypes.data % CACHE_LINE
    return block[start : start + count * record.itemsize].view(record)


class Nodes(NamedTuple):
    """(capacity,) each."""

    parent: NDArray[np.int32]  # -1 at the root
    edge: NDArray[np.int32]  # that leads here
    first: NDArray[np.int32]  # of its edges
    width: NDArray[np.int16]  # of its edges
    opened: NDArray[np.int16]  # edges visited so far: always the first ones
    ply: NDArray[np.int16]  # moves made since the game's start
    state: NDArray[np.int8]
    check: NDArray[np.int8]  # whether the side to move is in check
    proof: NDArray[np.int16]
    visits: NDArray[np.int32]  # its own evaluation and those below, in flight included
    value: NDArray[np.float32]  # its own evaluation
    mass: NDArray[np.float32]  # sum of the priors of the opened edges
    total: NDArray[np.float64]  # sum of all values, of the side to move here
    key: NDArray[np.uint64]


class Edges(NamedTuple):
    """(capacity,) each."""

    move: NDArray[np.int32]
    prior: NDArray[np.float32]
    visits: NDArray[np.int32]
    total: NDArray[np.float32]  # sum of values of the side that makes the move
    child: NDArray[np.int32]  # -1 until visited
    proof: NDArray[np.int16]


class Tree:
    """One game's tree. Memory that the tree has not grown into yet costs nothing."""

    def __init__(self, capacity: int, batch: int) -> None:
        """Reserve the memory; the tree is empty.

        Args:
            capacity: nodes at most; never exceeded.
            batch: leaves at most that are in flight together.
        """
        self.capacity = max(2, capacity)
        edges = self.capacity * EDGES_PER_NODE + (batch + 1) * MAX_MOVES
        nodes, visited = _side_by_side(self.capacity, NODE), _side_by_side(edges, EDGE)
        self.nodes = Nodes(**{name: nodes[name] for name in Nodes._fields})
        self.edges = Edges(
            move=np.empty(edges, np.int32),
            prior=np.empty(edges, np.float32),
            **{name: visited[name] for name in EDGE.names or ()},
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
