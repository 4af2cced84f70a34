"""The tree's arithmetic over arrays, compiled: choose leaves, grow them, back values up.

In: the arrays of one tree (`Nodes` and `Edges` of `tree`, counters). Out: the same, changed in
place.

A node is a position that was reached, an edge a legal move of it; the edges of a node lie side by
side. Values are win rates in [0, 1] of the side to move and are turned round (1 - v) at every step
up. Formulas: PUCT of Silver et al., "A general reinforcement learning algorithm that masters
chess, shogi, and Go through self-play" (2018), supplement; virtual loss of Segal, "On the
scalability of parallel UCT" (2010); proved values of Winands, Björnsson and Saito, "Monte-Carlo
tree search solver" (2008).

`proof` of a node or an edge: 0 unknown; n > 0, who moves there wins, by mate in n - 1 plies;
n < 0, loses so. Where a rule other than mate has a part in it (declaration, perpetual check), n is
above `BY_RULE`, so that a plain mate is preferred and only a plain mate is announced as one.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float64, int64

from ginkgo.compiled import compiled, inner

#: States of a node: chosen but not evaluated yet, with edges, ended by mate or by a rule.
PENDING, EXPANDED, ENDED = 0, 1, 2
#: What the position of a leaf showed: nothing, a mate in one (its only edge), a won declaration.
PLAIN, MATE_IN_ONE, DECLARATION = 0, 1, 2
#: Added to the distance of a proof that is not by mate alone.
BY_RULE = 1000
#: Plies of a descent at most; a longer one is given up.
MAX_DEPTH = 256
#: Counters: nodes and edges in use, descents given up, simulations ended in proved nodes, sum of
#: the depths of the leaves, deepest leaf, descents that met a leaf still in flight.
NODES, EDGES, FULL, PROVED, DEPTH_SUM, DEEPEST, COLLISIONS, COUNTERS = 0, 1, 2, 3, 4, 5, 6, 7
#: Legal moves of a position at most.
MAX_MOVES = 593


@inner
def _best_edge(nodes, edges, node, c_init, c_base, fpu):  # type: ignore[no-untyped-def]
    """Index within the node of the edge with the largest Q + U; -1 where all are proved lost.

    The unvisited edges share one Q (first-play urgency: the node's own mean less
    fpu · sqrt(prior mass visited)), so that among them only the one with the largest prior
    counts: it stands at `opened`, behind those visited so far.
    """
    visits = nodes.visits[node]
    scale = (math.log((1.0 + visits + c_base) / c_base) + c_init) * math.sqrt(visits)
    unvisited = nodes.total[node] / visits - fpu * math.sqrt(nodes.mass[node])
    if unvisited < 0.0:
        unvisited = 0.0
    first = nodes.first[node]
    opened = nodes.opened[node]
    # Slices, so that the loop need not ask at each step whether an index is negative.
    end = first + opened
    visited, totals = edges.visits[first:end], edges.total[first:end]
    priors, proofs = edges.prior[first:end], edges.proof[first:end]
    scale32, unvisited32 = np.float32(scale), np.float32(unvisited)
    best, best_score = -1, np.float32(-1e30)
    for index in range(opened):
        n = np.float32(visited[index])
        q = totals[index] / n if n > 0 else unvisited32
        score = q + scale32 * priors[index] / (np.float32(1.0) + n)
        if score > best_score and proofs[index] >= 0:
            best, best_score = index, score
    if opened < nodes.width[node]:
        score = unvisited32 + scale32 * edges.prior[end]
        if score > best_score:
            best = opened
    return best


@inner
def _bring_forward(edges, start, end):  # type: ignore[no-untyped-def]
    """Put the edge with the largest prior of [start, end) at `start`; none has been visited."""
    best = start
    for edge in range(start + 1, end):
        if edges.prior[edge] > edges.prior[best]:
            best = edge
    if best != start:
        move, prior = edges.move[start], edges.prior[start]
        edges.move[start], edges.prior[start] = edges.move[best], edges.prior[best]
        edges.move[best], edges.prior[best] = move, prior


@inner
def _open(nodes, edges, node, index):  # type: ignore[no-untyped-def]
    """Count the edge at `opened` among the visited ones, and find the next behind it."""
    if index == nodes.opened[node]:
        first = nodes.first[node]
        nodes.opened[node] += 1
        nodes.mass[node] += edges.prior[first + index]
        if index + 2 < nodes.width[node]:
            _bring_forward(edges, first + index + 1, first + nodes.width[node])


@inner
def _retreat(nodes, edges, node):  # type: ignore[no-untyped-def]
    """Take back the visits of a descent that ended at `node` and will not be evaluated."""
    while node >= 0:
        nodes.visits[node] -= 1
        if nodes.edge[node] >= 0:
            edges.visits[nodes.edge[node]] -= 1
        node = nodes.parent[node]


@inner
def _back_up(nodes, edges, node, value):  # type: ignore[no-untyped-def]
    """Add a value of the side to move at `node` there and at all nodes above."""
    nodes.total[node] += value
    while nodes.parent[node] >= 0:
        value = 1.0 - value
        edges.total[nodes.edge[node]] += value
        node = nodes.parent[node]
        nodes.total[node] += value


@inner
def prove(nodes, edges, node, proof):  # type: ignore[no-untyped-def]
    """Note that a node is won or lost, and what follows from it above."""
    nodes.proof[node] = proof
    while nodes.parent[node] >= 0:
        edge = nodes.edge[node]
        proof = nodes.proof[node]
        edges.proof[edge] = -(proof + 1) if proof > 0 else 1 - proof
        node = nodes.parent[node]
        first, count = nodes.first[node], nodes.width[node]
        best, worst = 0, 0
        for index in range(count - 1, -1, -1):
            known = edges.proof[first + index]
            if known > 0:
                if best == 0 or known < best:
                    best = known
            elif known == 0:
                worst = 1
            elif worst <= 0 and known < worst:
                worst = known
        if best == 0 and worst == 1:
            return
        found = best if best > 0 else worst
        if found == nodes.proof[node]:
            return
        nodes.proof[node] = found


@compiled
def select(  # type: ignore[no-untyped-def]
    nodes, edges, counters, limit, c_init, c_base, fpu, fpu_root, forced, leaves, steps, moves
):
    """Choose leaves for evaluation by PUCT with virtual loss (visits in flight count as lost).

    Args:
        limit: leaves and finished simulations together, at most.
        forced: (limit,) index within the root of the edge to take first, -1: by PUCT. Each is
            tried once: where it meets a leaf that is in flight, the next has its turn.
        leaves: (limit,) out: nodes to evaluate.
        steps: (limit, 2) out: how many moves to take back since the leaf before, and how many
            to make then.
        moves: (limit * MAX_DEPTH,) out: the moves to make, one leaf after the other.

    Returns:
        number of leaves; simulations that ended in proved or ended nodes are backed up already
        and counted in `counters[PROVED]`.
    """
    path, before = np.empty(MAX_DEPTH, np.int32), np.empty(MAX_DEPTH, np.int32)
    length_before = 0
    found, ended, collisions, used = 0, 0, 0, 0
    counters[FULL] = 0
    all_forced = forced[limit - 1] >= 0
    while found + ended < limit and (all_forced or collisions <= limit // 4):
        turn = found + ended + collisions
        if nodes.proof[0] != 0 or (all_forced and turn >= limit):
            break
        if (
            counters[NODES] >= len(nodes.parent)
            or counters[EDGES] + (found + 1) * MAX_MOVES > len(edges.move)
        ):  # fmt: skip
            counters[FULL] = 1
            break
        node, depth = int64(0), 0
        nodes.visits[0] += 1
        leaf = -1
        while True:
            if depth == 0 and turn < limit and forced[turn] >= 0:
                index = forced[turn]
            else:
                urgency = fpu_root if depth == 0 else fpu
                index = _best_edge(nodes, edges, node, c_init, c_base, urgency)
            if index < 0 or depth == MAX_DEPTH:
                break
            _open(nodes, edges, node, index)
            edge = nodes.first[node] + index
            edges.visits[edge] += 1
            path[depth] = edge
            depth += 1
            child = edges.child[edge]
            if child < 0:
                leaf = counters[NODES]
                counters[NODES] += 1
                edges.child[edge] = leaf
                _new_node(nodes, leaf, node, edge)
                node = leaf
                break
            node = int64(child)
            nodes.visits[node] += 1
            if nodes.state[node] != EXPANDED or nodes.proof[node] != 0:
                break
        if leaf >= 0:
            same = 0
            while same < depth and same < length_before and path[same] == before[same]:
                same += 1
            leaves[found] = leaf
            steps[found, 0] = length_before - same
            steps[found, 1] = depth - same
            for place in range(same, depth):
                moves[used] = edges.move[path[place]]
                used += 1
            path, before = before, path
            length_before = depth
            counters[DEPTH_SUM] += depth
            if depth > counters[DEEPEST]:
                counters[DEEPEST] = depth
            found += 1
        elif nodes.proof[node] != 0:
            _back_up(nodes, edges, node, 1.0 if nodes.proof[node] > 0 else 0.0)
            ended += 1
        elif nodes.state[node] == ENDED:
            _back_up(nodes, edges, node, float64(nodes.value[node]))
            ended += 1
        else:
            _retreat(nodes, edges, node)
            collisions += 1
    counters[PROVED] += ended
    counters[COLLISIONS] += collisions
    return found


@inner
def _new_node(nodes, node, parent, edge):  # type: ignore[no-untyped-def]
    nodes.parent[node] = parent
    nodes.edge[node] = edge
    nodes.first[node] = 0
    nodes.width[node] = 0
    nodes.opened[node] = 0
    nodes.ply[node] = nodes.ply[parent] + 1 if parent >= 0 else 0
    nodes.state[node] = PENDING
    nodes.check[node] = 0
    nodes.proof[node] = 0
    nodes.visits[node] = 1
    nodes.value[node] = 0.0
    nodes.mass[node] = 0.0
    nodes.total[node] = 0.0
    nodes.key[node] = 0


@compiled
def plant(nodes, edges, counters, ply):  # type: ignore[no-untyped-def]
    """Empty the tree but for a root that waits for its evaluation."""
    counters[:] = 0
    counters[NODES] = 1
    _new_node(nodes, int64(0), int64(-1), int64(-1))
    nodes.ply[0] = ply


@inner
def repetition(nodes, node, key, check, past_keys, past_checks):  # type: ignore[no-untyped-def]
    """Whether a node is the fourth occurrence of its position.

    Args:
        node: its parents are looked at, then the positions before the root, latest first.
        past_keys, past_checks: (p,) of the positions before the root, in the order of play.

    Returns:
        0 no; 1 draw; 2 the side to move wins, since the other has given check all the time; 3 it
        loses, having done so itself.
    """
    given_by_other, given_by_mover = check != 0, True
    seen, place, steps = 0, len(past_keys), 0
    node = nodes.parent[node]
    while True:
        if node >= 0:
            at, in_check = nodes.key[node], nodes.check[node] != 0
            node = nodes.parent[node]
        else:
            place -= 1
            if place < 0:
                return 0
            at, in_check = past_keys[place], past_checks[place] != 0
        steps += 1
        if steps % 2 == 1:
            given_by_mover = given_by_mover and in_check
            continue
        if at == key:
            seen += 1
            if seen == 3:
                if given_by_other:
                    return 2
                return 3 if given_by_mover else 1
        given_by_other = given_by_other and in_check


@compiled
def expand(  # type: ignore[no-untyped-def]
    nodes, edges, counters, leaves, number, counts, offset, moves, logits, values, keys, checks,
    kinds, past_keys, past_checks, max_ply, draw_value, temperature
):  # fmt: skip
    """Give evaluated leaves their edges and back their values up.

    Args:
        leaves: nodes, in the order of `select`; number: of them.
        counts, values, keys, checks, kinds: (number,) legal moves, win rates, position keys,
            whether in check, PLAIN, MATE_IN_ONE (the only move is the mate) or DECLARATION.
        moves, logits: flat, those of the first leaf start at `offset`.
        max_ply: moves after which the game is drawn; 0: never.
        draw_value: of a draw for the side to move at the root, in [0, 1].
        temperature: of the softmax of the logits.
    """
    for row in range(number):
        node, count, start = int64(leaves[row]), counts[row], offset
        offset += count
        nodes.key[node] = keys[row]
        nodes.check[node] = checks[row]
        nodes.first[node] = counters[EDGES]
        same_side = (nodes.ply[node] - nodes.ply[0]) % 2 == 0
        draw = draw_value if same_side else 1.0 - draw_value
        left = max_ply - nodes.ply[node] if max_ply > 0 else 1 << 20
        again = 0
        if node != 0:
            again = repetition(nodes, node, keys[row], checks[row], past_keys, past_checks)
        proof, drawn = 0, False
        if kinds[row] == PLAIN and count == 0:
            proof = -1
        elif again == 1:
            drawn = True
        elif again == 2:
            proof = BY_RULE + 1
        elif again == 3:
            proof = -BY_RULE - 1
        elif left <= 0 and node != 0:
            drawn = True
        elif kinds[row] == MATE_IN_ONE:
            proof = 2
        elif kinds[row] == DECLARATION:
            proof = BY_RULE + 1
        if proof == 0 and not drawn:
            nodes.state[node] = EXPANDED
            _add_edges(nodes, edges, counters, node, count, moves, logits, start, temperature)
            value = float64(values[row])
        else:
            nodes.state[node] = ENDED
            if proof == 2:
                _add_edges(nodes, edges, counters, node, count, moves, logits, start, temperature)
                edges.proof[nodes.first[node]] = 2
            value = draw if drawn else (1.0 if proof > 0 else 0.0)
        nodes.value[node] = value
        _back_up(nodes, edges, node, value)
        if proof != 0:
            prove(nodes, edges, node, proof)


@inner
def _add_edges(  # type: ignore[no-untyped-def]
    nodes, edges, counters, node, count, moves, logits, start, temperature
):
    first = counters[EDGES]
    counters[EDGES] = first + count
    nodes.width[node] = count
    largest = np.float32(-1e30)
    for index in range(count):
        largest = max(largest, logits[start + index])
    inverse = np.float32(1.0 / temperature)
    total = np.float32(0.0)
    for index in range(count):
        edge = first + index
        prior = math.exp((logits[start + index] - largest) * inverse)
        edges.move[edge] = moves[start + index]
        edges.prior[edge] = prior
        total += prior
        edges.visits[edge] = 0
        edges.total[edge] = 0.0
        edges.child[edge] = -1
        edges.proof[edge] = 0
    share = np.float32(1.0) / total
    for edge in range(first, first + count):
        edges.prior[edge] *= share
    _bring_forward(edges, first, first + count)


@compiled
def forget(nodes, edges, counters, leaves, number):  # type: ignore[no-untyped-def]
    """Take leaves back that will not be evaluated; they must be the newest nodes."""
    for row in range(number - 1, -1, -1):
        node = int64(leaves[row])
        if node != 0:
            edges.child[nodes.edge[node]] = -1
            counters[NODES] -= 1
            _retreat(nodes, edges, node)


@compiled
def set_priors(nodes, edges, priors):  # type: ignore[no-untyped-def]
    """Give the root other priors (with noise), keeping the order that `_best_edge` relies on."""
    first, count, opened = nodes.first[0], nodes.width[0], nodes.opened[0]
    mass = 0.0
    for index in range(count):
        edges.prior[first + index] = priors[index]
        if index < opened:
            mass += priors[index]
    nodes.mass[0] = mass
    if opened + 1 < count:
        _bring_forward(edges, first + opened, first + count)


@compiled
def open_all(nodes):  # type: ignore[no-untyped-def]
    """Let every edge of the root be looked at, in an order that stays as it is."""
    nodes.opened[0] = nodes.width[0]
    nodes.mass[0] = 1.0


@compiled
def move_root(nodes, edges, counters, root):  # type: ignore[no-untyped-def]
    """Make `root` node 0 and drop all that does not hang below it.

    Children and their edges always lie behind their parents', so that one pass slides what is
    kept toward the front.
    """
    total = counters[NODES]
    place = np.full(total, -1, np.int32)
    kept, kept_edges = 0, 0
    for node in range(root, total):
        if node != root and (nodes.parent[node] < 0 or place[nodes.parent[node]] < 0):
            continue
        new = kept
        kept += 1
        place[node] = new
        if node == root:
            parent, edge = -1, -1
        else:
            parent = place[nodes.parent[node]]
            # The parent has moved already; the edge keeps its place within it.
            edge = nodes.edge[node]
        first, count = nodes.first[node], nodes.width[node]
        nodes.parent[new] = parent
        nodes.edge[new] = edge
        nodes.first[new] = kept_edges
        nodes.width[new] = count
        nodes.opened[new] = nodes.opened[node]
        nodes.ply[new] = nodes.ply[node]
        nodes.state[new] = nodes.state[node]
        nodes.check[new] = nodes.check[node]
        nodes.proof[new] = nodes.proof[node]
        nodes.visits[new] = nodes.visits[node]
        nodes.value[new] = nodes.value[node]
        nodes.mass[new] = nodes.mass[node]
        nodes.total[new] = nodes.total[node]
        nodes.key[new] = nodes.key[node]
        for index in range(count):
            old_edge, new_edge = first + index, kept_edges + index
            edges.move[new_edge] = edges.move[old_edge]
            edges.prior[new_edge] = edges.prior[old_edge]
            edges.visits[new_edge] = edges.visits[old_edge]
            edges.total[new_edge] = edges.total[old_edge]
            child = edges.child[old_edge]
            edges.child[new_edge] = child
            edges.proof[new_edge] = edges.proof[old_edge]
            if child >= 0:
                # Read when the child, which lies behind, has its turn.
                nodes.edge[child] = new_edge
        kept_edges += count
    for edge in range(kept_edges):
        if edges.child[edge] >= 0:
            edges.child[edge] = place[edges.child[edge]]
    counters[:] = 0
    counters[NODES] = kept
    counters[EDGES] = kept_edges
