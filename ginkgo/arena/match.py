"""`ginkgo match`: two engines, many games, one answer.

In: the options. Out: the match's folder, the table, and with `--json` the figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from ginkgo.arena.config import MatchConfig, checked


def main(argv: Sequence[str] | None = None) -> int:
    """Play the match, or go on with it.

    Returns:
        the exit status: 0 at its end, 130 after Ctrl-C, 143 after SIGTERM.

    Raises:
        GinkgoError: a user's mistake.
    """
    import tyro

    config = checked(tyro.cli(MatchConfig, prog="ginkgo match", args=argv))
    from ginkgo.arena.run import run_match

    return run_match(config)
