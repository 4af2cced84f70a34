"""Leaves of one or several searches that wait for one call of an evaluator.

In: boards and the moves that lead to leaves. Out: for all leaves together, legal moves, logits,
win rates, and what the position itself shows (mate in one, a declaration).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.search.evaluators import Batch, Evaluator
from ginkgo.search.kernels import DECLARATION, MATE_IN_ONE, PLAIN

#: Evaluated positions that are remembered by default, about 0.6 kB each.
CACHED = 65536


class Queue:
    """Collects leaves, has them evaluated at once, and remembers evaluated positions."""

    def __init__(self, evaluator: Evaluator, cached: int = CACHED) -> None:
        """Begin with nothing remembered.

        Args:
            evaluator: of all searches that share the queue.
            cached: positions to remember; the oldest go first. An evaluator that asks for no
                board (`note` is None) is faster than the memory and goes without.
        """
        self.evaluator = evaluator
        self.evaluated, self.hits = 0, 0
        """Positions that the evaluator has answered, and the cache."""
        self._cached = cached if evaluator.note is not None else 0
        self._cache: dict[int, tuple[float, NDArray[np.float32]]] = {}
        # The oldest key first. A dictionary knows the order too, but looks for its first key longer
        # and longer as keys are taken from its front.
        self._order: deque[int] = deque()
        self.clear()

    def clear(self) -> None:
        """Begin the next batch."""
        self._keys: list[int] = []
        self._counts: list[int] = []
        self._moves: list[int] = []
        self._checks: list[bool] = []
        self._white: list[int] = []
        self._kinds: list[int] = []
        self._wanted: list[int] = []  # leaves for the evaluator
        self._known: list[tuple[int, tuple[float, NDArray[np.float32]]]] = []  # from the cache

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def moves(self) -> int:
        """Legal moves collected so far."""
        return len(self._moves)

    def collect(
        self, board: cshogi.Board, steps: Sequence[Sequence[int]], moves: Sequence[int], tests: int
    ) -> None:
        """Visit the leaves of one search.

        Args:
            board: at the root; comes back there.
            steps: for each leaf, how many moves to take back and how many to make then.
            moves: the moves to make, one leaf after the other.
            tests: 1: look for a mate in one; 2: for a won declaration; 3: both.
        """
        push, pop, key_of, is_check = board.push, board.pop, board.zobrist_hash, board.is_check
        mate_of, declared = board.mate_move_in_1ply, board.is_nyugyoku
        all_moves = self._moves
        note = self.evaluator.note
        cache, known, wanted = self._cache, self._known, self._wanted
        at, depth, white_root = 0, 0, board.turn
        for back, forth in steps:
            for _ in range(back):
                pop()
            for move in moves[at : at + forth]:
                push(move)
            at += forth
            depth += forth - back
            key, check, kind = key_of(), is_check(), PLAIN
            if check:
                before = len(all_moves)
                all_moves += board.legal_moves
                count = len(all_moves) - before
            else:
                mate = mate_of() if tests & 1 else 0
                if mate:
                    kind, count = MATE_IN_ONE, 1
                    all_moves.append(mate)
                elif tests & 2 and declared():
                    kind, count = DECLARATION, 0
                else:
                    before = len(all_moves)
                    all_moves += board.legal_moves
                    count = len(all_moves) - before
            if kind == PLAIN and count and note is not None:
                place = len(self._keys)
                hit = cache.get(key)
                if hit is not None and len(hit[1]) == count:
                    known.append((place, hit))
                else:
                    note(len(wanted), board)
                    wanted.append(place)
            self._keys.append(key)
            self._checks.append(check)
            self._kinds.append(kind)
            self._counts.append(count)
            self._white.append(white_root ^ depth & 1)
        for _ in range(depth):
            pop()

    def evaluate(self) -> None:
        """Have all collected leaves evaluated; their arrays are attributes of the queue then."""
        self.keys = np.array(self._keys, np.uint64)
        self.counts = np.array(self._counts, np.int32)
        self.flat_moves = np.array(self._moves, np.int32)
        self.checks = np.array(self._checks, np.int8)
        self.kinds = np.array(self._kinds, np.int8)
        white = np.array(self._white, np.uint8)
        if self.evaluator.note is None:
            batch = Batch(self.keys, white, self.counts, self.flat_moves)
            self.logits, self.values = self.evaluator.evaluate(batch)
            self.evaluated += len(self._keys)
            return
        self.logits = np.zeros(len(self._moves), np.float32)
        self.values = np.zeros(len(self._keys), np.float32)
        ends = np.cumsum(self.counts)
        for place, (value, logits) in self._known:
            self.values[place] = value
            self.logits[ends[place] - len(logits) : ends[place]] = logits
        self.hits += len(self._known)
        if not self._wanted:
            return
        wanted = np.array(self._wanted)
        chosen = np.zeros(len(self._keys), bool)
        chosen[wanted] = True
        flat = np.repeat(chosen, self.counts)
        batch = Batch(
            self.keys[wanted], white[wanted], self.counts[wanted], self.flat_moves[flat]
        )  # fmt: skip
        found = self.evaluator.evaluate(batch)
        self.logits[flat] = found.logits
        self.values[wanted] = found.values
        self.evaluated += len(wanted)
        if self._cached:
            self._remember(batch, found.logits, found.values)

    def _remember(
        self, batch: Batch, logits: NDArray[np.float32], values: NDArray[np.float32]
    ) -> None:
        cache, at = self._cache, 0
        for key, count, value in zip(
            batch.keys.tolist(), batch.counts.tolist(), values.tolist(), strict=True
        ):
            if key not in cache:
                self._order.append(key)
            cache[key] = value, logits[at : at + count].copy()
            at += count
        while len(cache) > self._cached:
            del cache[self._order.popleft()]
