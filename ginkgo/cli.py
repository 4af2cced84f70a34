"""The command line: `ginkgo <verb> …`.

In: the arguments of the process. Out: the exit status of the verb.

A verb's module is imported only when the verb runs, so that `ginkgo --help` comes at once and no
verb waits for a library that it does not use.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ginkgo import __version__
from ginkgo.errors import run_main


class Verb(NamedTuple):
    """What a verb is made of; nothing of it is imported before it is needed."""

    module: str
    """Has `main(argv) -> int | None`."""
    options: str
    """`module:class` of its configuration."""
    text: str
    """What it does."""

    def load_options(self) -> type:
        """The dataclass of its options."""
        module, _, name = self.options.partition(":")
        return getattr(importlib.import_module(module), name)


def _verb(module: str, name: str, text: str, options: str = "") -> Verb:
    return Verb(module, f"{options or module}:{name}", text)


VERBS = {
    "analyze": _verb(
        "ginkgo.play.analyze",
        "AnalyzeConfig",
        "write games with evaluations and win-rate graphs",
    ),
    "contribute": _verb(
        "ginkgo.fleet.contribute", "ContributeConfig", "play for a server and upload the games"
    ),
    "convert": _verb(
        "ginkgo.records.convert", "ConvertConfig", "turn kifu into SFEN records, split by game"
    ),
    "coverage": _verb(
        "ginkgo.training.coverage",
        "CoverageConfig",
        "show how much of its sources a run has seen",
    ),
    "doctor": _verb("ginkgo.doctor", "DoctorConfig", "say what this machine can do"),
    "evaluate": _verb(
        "ginkgo.training.evaluate", "EvaluateConfig", "judge a model on games it has not seen"
    ),
    "export": _verb(
        "ginkgo.models.export", "ExportConfig", "write a model as ONNX, SavedModel or LiteRT"
    ),
    "inspect": _verb(
        "ginkgo.records.inspect", "InspectConfig", "say what was understood of each kifu"
    ),
    "match": _verb(
        "ginkgo.arena.match",
        "MatchConfig",
        "play two engines against each other, with Elo and SPRT",
        options="ginkgo.arena.config",
    ),
    "play": _verb("ginkgo.play.server", "PlayConfig", "play against a network in the browser"),
    "rate": _verb("ginkgo.arena.rate", "RateConfig", "rate all engines of several matches"),
    "reinforce": _verb("ginkgo.fleet.reinforce", "ServedConfig", "get stronger by self-play"),
    "selfplay": _verb(
        "ginkgo.selfplay.cli",
        "SelfplayConfig",
        "let a model play against itself and store the games",
        options="ginkgo.selfplay.config",
    ),
    "serve": _verb(
        "ginkgo.fleet.serve",
        "ServeConfig",
        "collect the games of many machines, hand out models",
        options="ginkgo.fleet.config",
    ),
    "stats": _verb(
        "ginkgo.records.stats",
        "StatsConfig",
        "count games and positions, and audit the winners",
    ),
    "train": _verb(
        "ginkgo.training.cli",
        "TrainConfig",
        "train a network on records or games",
        options="ginkgo.training.config",
    ),
    "usi": _verb(
        "ginkgo.usi.engine", "UsiConfig", "play through the USI protocol, in any shogi GUI"
    ),
}


#: Options without a verb.
OPTIONS = ("--help", "--version", "--completion")


def _docs() -> str:
    """Where the documentation is: in the repository, where that is at hand."""
    folder = Path(__file__).parents[1] / "docs"
    return f"{folder / 'index.md'}" if folder.is_dir() else "docs/ in the repository of ginkgo"


def usage() -> str:
    """The text of `ginkgo --help`."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {text}" for verb, (_, _, text) in VERBS.items())
    return (
        "usage: ginkgo <verb> [options]\n\n"
        f"Train shogi networks.\n\nverbs:\n{verbs}\n\n"
        "ginkgo <verb> --help        the options of a verb, and examples\n"
        "ginkgo --completion SHELL   a script that completes verbs and options in bash, zsh,\n"
        "                            fish or tcsh: source <(ginkgo --completion bash)\n"
        "ginkgo --version            the version\n\n"
        f"What each does at length: {_docs()}"
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
    if verb == "--completion":
        return _complete(rest)
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, [*VERBS, *OPTIONS], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {' '.join(VERBS)}"
        kind = "option" if verb.startswith("-") else "verb"
        print(f"error: no {kind} {verb!r}: {hint}", file=sys.stderr)
        return 2
    module = importlib.import_module(VERBS[verb].module)
    if verb == "usi" and not rest:  # as GUIs start it: tyro would take as long as all the rest
        return module.main(rest)
    return _with_help(verb, module, rest)


def _with_help(verb: str, module: ModuleType, rest: list[str]) -> int | None:
    """Run a verb that was given options; mistakes in them in one line, examples below its help."""
    from ginkgo import options

    try:
        with options.one_line(verb, VERBS[verb].load_options()):
            return module.main(rest)
    except SystemExit as end:
        if not end.code and {"-h", "--help"} & set(rest):
            from ginkgo.examples import shown

            print(shown(verb))
        raise


def _complete(rest: list[str]) -> int:
    """Print the script that completes in a shell."""
    from ginkgo import options

    if len(rest) != 1 or rest[0] not in options.SHELLS:
        given = " ".join(rest) or "(nothing)"
        print(f"error: --completion {given}: expected {' '.join(options.SHELLS)}", file=sys.stderr)
        return 2
    verbs = {}
    for name, verb in VERBS.items():
        with contextlib.suppress(ModuleNotFoundError):  # what does not run here is not completed
            verbs[name] = verb.load_options(), verb.text
    print(options.completion(rest[0], verbs))
    return 0


def main() -> None:
    """The program `ginkgo`: `run`, with its exit status and one clear line for a mistake."""
    run_main(run)
