"""The arithmetic of `HashEvaluator`, compiled.

In: keys and moves of positions. Out: numbers that look random and are always the same.
"""

from __future__ import annotations

import math

import numpy as np

from ginkgo.compiled import compiled, inner


@inner
def _mixed(word):  # type: ignore[no-untyped-def]
    """A 64-bit hash as splitmix64 ends: every bit depends on every other."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def hash_evaluation(  # type: ignore[no-untyped-def]
    keys, counts, moves, seed, sharpness, logits, values
):
    """The answers of `HashEvaluator`, into `logits` and `values`."""
    unit = 1.0 / (1 << 53)
    at = 0
    for row in range(len(counts)):
        word = _mixed(np.uint64(keys[row]) + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15))
        values[row] = 0.4 + 0.2 * (unit * np.float64(word >> np.uint64(11)))
        for place in range(at, at + counts[row]):
            bits = _mixed(word ^ np.uint64(moves[place] & 0x7FFF)) >> np.uint64(11)
            logits[place] = -sharpness * math.log(unit * (np.float64(bits) + 0.5))
        at += counts[row]
