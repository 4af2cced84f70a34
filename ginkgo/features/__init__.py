"""A position as numbers, a move as a label, their inverses and the mirror.

In: SFEN text and moves. Out: arrays of `POSITION` (what workers hand over and the shuffle pool
holds), input planes by name (`dlshogi119`, `ginkgo148`), labels `dlshogi2187`.

Each encoding of planes is one file with everything about it side by side. Nothing here imports
TensorFlow before the planes are asked for on a device.
"""

from ginkgo.features.labels import LABEL_SCHEME, LABELS, labels_from_moves, usi_from_label
from ginkgo.features.position import (
    DRAW,
    LOSS,
    NO_RESULT,
    POSITION,
    WIN,
    mirror,
    position_from_sfen,
    sfen_from_position,
)

__all__ = [
    "DRAW",
    "LABELS",
    "LABEL_SCHEME",
    "LOSS",
    "NO_RESULT",
    "POSITION",
    "WIN",
    "labels_from_moves",
    "mirror",
    "position_from_sfen",
    "sfen_from_position",
    "usi_from_label",
]
