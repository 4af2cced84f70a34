"""The command line: `ginkgo <verb> …`.

In: the arguments of the process. Out: the exit status of the verb.

A verb's module is imported only when the verb runs, so that `ginkgo --help` comes at once and no
verb waits for a library that it does not use.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

from ginkgo import __version__
from ginkgo.errors import run_main

#: Verb: module with `main(argv) -> int | None`, and what it does.
VERBS = {
    "analyze": ("ginkgo.play.analyze", "write games with evaluations and win-rate graphs"),
    "contribute": ("ginkgo.fleet.contribute", "play for a server and upload the games"),
    "convert": ("ginkgo.records.convert", "turn kifu into SFEN records, split by game"),
    "evaluate": ("ginkgo.training.evaluate", "judge a model on games it has not seen"),
    "export": ("ginkgo.models.export", "write a model as ONNX, SavedModel or LiteRT"),
    "inspect": ("ginkgo.records.inspect", "say what was understood of each kifu"),
    "match": ("ginkgo.arena.match", "play two engines against each other, with Elo and SPRT"),
    "play": ("ginkgo.play.server", "play against a network in the browser"),
    "rate": ("ginkgo.arena.rate", "rate all engines of several matches"),
    "reinforce": ("ginkgo.fleet.reinforce", "get stronger by self-play"),
    "selfplay": ("ginkgo.selfplay.cli", "let a model play against itself and store the games"),
    "serve": ("ginkgo.fleet.serve", "collect the games of many machines, hand out models"),
    "stats": ("ginkgo.records.stats", "count games and positions, and audit the winners"),
    "train": ("ginkgo.training.cli", "train a network on records or games"),
    "usi": ("ginkgo.usi.engine", "play through the USI protocol, in any shogi GUI"),
}


def usage() -> str:
    """The text of `ginkgo --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items())
    return (
        "usage: ginkgo <verb> [options]\n\n"
        f"Train shogi networks.\n\nverbs:\n{verbs}\n\n"
        "ginkgo <verb> --help   the options of a verb\n"
        "ginkgo --version       the version"
    )


def run(argv: Sequence[str] | None = None) -> int | None:
    """Run a verb.

    Args:
        argv: arguments without the program's name; those of the process by default.

    Returns:
        the exit status; 2 where there is no such verb.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        print(usage(), file=sys.stderr)
        return 2
    verb, *rest = arguments
    if verb in ("-h", "--help", "help"):
        print(usage())
        return 0
    if verb in ("-V", "--version"):
        print(f"ginkgo {__version__}")
        return 0
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {' '.join(VERBS)}"
        print(f"error: no verb {verb!r}: {hint}", file=sys.stderr)
        return 2
    return importlib.import_module(VERBS[verb][0]).main(rest)


def main() -> None:
    """The program `ginkgo`: `run`, with its exit status and one clear line for a mistake."""
    run_main(run)
