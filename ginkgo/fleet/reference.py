"""Does a worker's evaluator say what the trainer's does?

In: an evaluator. Out: its answers on known positions, to be compared with those that came with the
model. A wrong driver or a damaged file would else fill the data with nonsense.
"""

from __future__ import annotations

from typing import Any

import cshogi
import numpy as np

from ginkgo.errors import GinkgoError
from ginkgo.records.game import STARTPOS
from ginkgo.search.evaluators import Evaluator
from ginkgo.search.queue import Queue

#: Openings, a middle game, an endgame with pieces in hand, and White to move.
POSITIONS = (
    STARTPOS,
    "lnsgkgsnl/1r5b1/pppppp1pp/6p2/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL b - 3",
    "ln1g3nl/1r2gks2/p1pppp1pp/1p4p2/9/2PP5/PPS1PPPPP/2GR1S3/LN2KG1NL w Bb 24",
    "4k4/2+P6/4p4/9/4P4/9/4p4/6+p2/4K4 b RBGSNLrbgsnl 1",
    "8k/9/7GP/9/9/9/9/9/K8 b G2r2b2g4s4n4l17p 1",
    "l3k3l/1r2g1g2/p1npsp1pp/2p3p2/1p2S4/2PP1PP2/PP1G4P/1S2G2R1/LN1K4L w BNPbsnp 60",
)
#: Differences that another processor may bring, int8 most of all.
TOLERANCE = 0.1


def answers(evaluator: Evaluator) -> list[dict[str, Any]]:
    """Win rate and the probability of the likeliest move at each of the positions.

    Returns:
        for each `value` (side to move), `move` (USI) and `probability`.
    """
    queue, board, found = Queue(evaluator, 0), cshogi.Board(), []
    for sfen in POSITIONS:
        board.set_sfen(sfen)
        queue.clear()
        queue.collect(board, [(0, 0)], [], 0)
        queue.evaluate()
        weights = np.exp(queue.logits - queue.logits.max())
        best = int(weights.argmax())
        found.append(
            {
                "value": round(float(queue.values[0]), 4),
                "move": cshogi.move_to_usi(int(queue.flat_moves[best])),
                "probability": round(float(weights[best] / weights.sum()), 4),
            }
        )
    return found


def compare(own: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Refuse an evaluator whose answers are not those of the trainer.

    Raises:
        GinkgoError: the answers differ by more than another processor explains.
    """
    for number, (mine, theirs) in enumerate(zip(own, wanted, strict=True)):
        for name in ("value", "probability"):
            if not abs(mine[name] - theirs[name]) <= TOLERANCE:
                raise GinkgoError(
                    f"the evaluator says {name} {mine[name]:.3f} of known position {number}, the "
                    f"trainer's says {theirs[name]:.3f}: this machine does not compute the model "
                    "rightly"
                )
