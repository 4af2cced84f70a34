"""How a search is done: exploration, the size of its tree, chance at the root."""

from __future__ import annotations

from dataclasses import dataclass

from ginkgo.records import MAX_PLIES


@dataclass(frozen=True)
class SearchConfig:
    """How to search."""

    c_init: float = 1.44
    """PUCT's factor of exploration, c = log((1 + N + c_base) / c_base) + c_init."""
    c_base: float = 28288.0
    """Visits at which exploration begins to grow."""
    fpu: float = 0.27
    """First-play urgency: an unvisited move counts as the mean of its node, less this times the
    square root of the prior mass visited already."""
    fpu_root: float = 0.0
    """The same at the root."""
    policy_temperature: float = 1.4
    """Of the softmax that makes priors; above 1 flatter than the network says."""
    batch: int = 16
    """Leaves of one game that are evaluated together."""
    nodes: int = 100_000
    """Nodes of the tree at most (about 2.6 kB each); then the search stops."""
    max_ply: int = MAX_PLIES
    """Moves after which a game is drawn; 0: never."""
    draw_value: float = 0.5
    """What a draw is worth to the side to move at the root."""
    mate_in_one: bool = True
    """Look for a mate in one at each leaf."""
    declaration: bool = True
    """Count a position in which the 27-point rule may be declared as won."""
    noise: float = 0.0
    """Share of Dirichlet noise in the root's priors, for self-play."""
    noise_alpha: float = 0.15
    """Of the Dirichlet noise; small: few moves get much."""
    forced_playouts: float = 0.0
    """Visits that a move of the root gets at least, as a factor under a square root: see `forced`;
    0: none. `policy` takes them back."""
    gumbel: int = 0
    """Moves that the Gumbel root search considers; 0: PUCT at the root as elsewhere."""
    gumbel_scale: float = 1.0
    """Factor of the Gumbel numbers; 0: no chance at all."""
    gumbel_later: float = 1.0
    """What is left of them once the moves to consider are drawn: see `SequentialHalving`."""
    seed: int = 0
    """Of noise, Gumbel numbers and moves drawn at random."""
