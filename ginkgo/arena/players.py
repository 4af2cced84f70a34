"""Who plays: engines as the command line names them.

In: `pretrained:nodes=400`, `runs/first`, `usi:/usr/bin/engine --flag:nodes=3000,Skill Level=20`.
Out: `Player`, what it is, its options and its limits for a move.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ginkgo.errors import GinkgoError
from ginkgo.models.directory import CONFIG, INT8, ONNX, WEIGHTS, find_model, load_config
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import HASH, UNIFORM
from ginkgo.usi.options import BY_NAME

_USI = "usi:"
#: Where options begin: a colon, then `name=`.
_OPTIONS = re.compile(r":(?=[A-Za-z_][^:=,]*=)")
#: Limits of engines that name none, and for which the match has none.
_NODES, _BYOYOMI = 400, 1000
#: MiB for tree and evaluated positions of a model that plays as a process.
_HASH_MIB = "256"
#: What a seed alone draws moves with, and until which ply.
_TEMPERATURE, _PLIES = 1.0, 30


@dataclass(frozen=True)
class Limits:
    """What an engine may spend; times in milliseconds."""

    nodes: int = 0
    depth: int = 0
    movetime: int = 0
    main: int = 0
    """On the clock for the whole game."""
    byoyomi: int = 0
    """For each move when the main time is used up."""
    increment: int = 0
    """Added after each move."""

    def __bool__(self) -> bool:
        return any(dataclasses.astuple(self))

    @property
    def timed(self) -> bool:
        """Whether a clock runs."""
        return bool(self.main or self.byoyomi or self.increment)

    def go(self, black: int, white: int) -> str:
        """The rest of a `go` command.

        Args:
            black, white: milliseconds on their clocks.
        """
        words = []
        if self.timed:
            words += [f"btime {black} wtime {white}"]
            # Some engines give up at a word that they do not need.
            if self.increment:
                words += [f"binc {self.increment} winc {self.increment}"]
            else:
                words += [f"byoyomi {self.byoyomi}"]
        for name in ("movetime", "nodes", "depth"):
            if getattr(self, name):
                words += [f"{name} {getattr(self, name)}"]
        return " ".join(words)


_LIMITS = tuple(one.name for one in dataclasses.fields(Limits))


@dataclass(frozen=True)
class Randomness:
    """How a model draws its moves."""

    seed: int = 0
    """With the number of the game it decides everything that is drawn."""
    temperature: float = 0.0
    """Moves are drawn in proportion to their visits to the power of 1 / temperature; 0: the most
    visited is played."""
    temperature_plies: int = _PLIES
    """Plies from the start of the game in which moves are drawn."""


@dataclass(frozen=True)
class Player:
    """An engine with its options."""

    text: str
    """As the user wrote it: its name."""
    model: str
    """Model by name; empty: a USI engine."""
    command: tuple[str, ...]
    """Program and arguments where it plays as a process."""
    limits: Limits
    search: dict[str, Any] = field(default_factory=dict)
    """Of a model: fields of `SearchConfig` that differ from the defaults."""
    randomness: Randomness = field(default_factory=Randomness)
    backend: str = "auto"
    threads: int = 1
    options: dict[str, str] = field(default_factory=dict)
    """Of the process, sent by `setoption`."""
    process: bool = False
    """It plays as a process; else in this one."""

    @property
    def batchable(self) -> bool:
        """Whether it can play in this process, together with other games."""
        counted = Limits(nodes=self.limits.nodes)
        return bool(self.model and not self.options and self.limits == counted)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int, "float": float, "str": str, "bool": _truth,
}  # fmt: skip
#: Fields of `SearchConfig` that a match settles itself.
_SETTLED = ("nodes", "max_ply", "seed")
_SEARCH = {one.name: one.type for one in dataclasses.fields(SearchConfig)
           if one.name not in _SETTLED}  # fmt: skip
_RANDOM = {one.name: one.type for one in dataclasses.fields(Randomness)}
_OTHER = {"backend": "str", "threads": "int"}


def parse_player(text: str) -> Player:
    """An engine from its text.

    Raises:
        GinkgoError: an option that it does not have, or a value that means nothing.

    >>> parse_player("pretrained:nodes=400").limits.nodes
    400
    >>> parse_player("usi:/bin/sh engine.sh --fast:byoyomi=1000,Skill Level=2").options
    {'Skill Level': '2'}
    """
    # It goes into kifu, JSON and tables.
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in text):
        raise GinkgoError(f"engine {text!a}: expected UTF-8 without control characters")
    engine = text[len(_USI) :] if text.startswith(_USI) else text
    parts = _OPTIONS.split(engine, maxsplit=1)
    pairs: dict[str, str] = {}
    for item in parts[1].split(",") if len(parts) > 1 else ():
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise GinkgoError(f"engine {text}: {item!r}; expected NAME=VALUE")
        pairs[name.strip()] = value.strip()
    limits = Limits(
        **{name: _read(text, name, "int", pairs.pop(name)) for name in _LIMITS if name in pairs}
    )
    if text.startswith(_USI):
        try:
            command = tuple(shlex.split(parts[0]))
        except ValueError as error:
            raise GinkgoError(f"engine {text}: {error} in its command") from None
        if not command:
            raise GinkgoError(f"engine {text}: expected a command after {_USI}")
        return Player(text, "", command, limits, options=pairs)
    if not parts[0].strip():
        raise GinkgoError(f"engine {text!r}: expected a model, or {_USI} and a command")
    return _model(text, parts[0], limits, pairs)


def _read(text: str, name: str, kind: Any, value: str) -> Any:
    try:
        found = _READERS[str(kind)](value)
    except ValueError:
        raise GinkgoError(f"engine {text}: {name}={value}; expected {_WORDS[kind]}") from None
    if not isinstance(found, str) and not 0 <= found < 1e9:
        raise GinkgoError(f"engine {text}: {name}={value}; expected a number of 0 or more")
    return found


_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}


def _model(text: str, model: str, limits: Limits, pairs: dict[str, str]) -> Player:
    search: dict[str, Any] = {}
    random: dict[str, Any] = {}
    other: dict[str, Any] = {}
    options: dict[str, str] = {}
    for name, value in pairs.items():
        for kinds, found in ((_SEARCH, search), (_RANDOM, random), (_OTHER, other)):
            if name in kinds:
                found[name] = _read(text, name, kinds[name], value)
                break
        else:
            option = BY_NAME.get(name.lower())
            if option is None:
                known = [*_LIMITS, *_SEARCH, *_RANDOM, *_OTHER, *(o.name for o in BY_NAME.values())]
                near = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]}?" if near else "docs/ARENA.md lists the options"
                raise GinkgoError(f"engine {text}: no option {name!r}: {hint}")
            option.parse(value)
            options[option.name] = value
    _check_search(text, search, limits)
    chance = random.get("temperature") or search.get("noise") or search.get("gumbel")
    if "seed" in random and not chance:
        # A seed that changes nothing is not what anybody means.
        random["temperature"] = _TEMPERATURE
    command = (sys.executable, "-m", "ginkgo", "usi", "--model", model)
    return Player(text, model, command, limits, search, Randomness(**random), **other,
                  options=options)  # fmt: skip


def _check_search(text: str, search: dict[str, Any], limits: Limits) -> None:
    for name in ("noise", "draw_value", "fpu", "fpu_root"):
        if not 0 <= search.get(name, 0) <= 1:
            raise GinkgoError(f"engine {text}: {name}={search[name]}; expected 0 to 1")
    for name in ("batch", "policy_temperature", "noise_alpha", "c_base"):
        if not search.get(name, 1) > 0:
            raise GinkgoError(f"engine {text}: {name}={search[name]}; expected more than 0")


def limited(player: Player, limits: Limits) -> Player:
    """The player with limits for its moves.

    Args:
        limits: of the match, for players that name none.
    """
    if player.limits:
        return player
    fallback = Limits(nodes=_NODES) if player.model else Limits(byoyomi=_BYOYOMI)
    return dataclasses.replace(player, limits=limits or fallback)


def as_process(player: Player) -> Player:
    """The player as a program that speaks USI.

    Raises:
        GinkgoError: its program is not there, or a model's option has no meaning in a process.
    """
    if player.model:
        return dataclasses.replace(player, options=_process_options(player), process=True)
    if shutil.which(player.command[0]) is None:
        raise GinkgoError(f"engine {player.text}: no program {player.command[0]}")
    return dataclasses.replace(player, process=True)


def _process_options(player: Player) -> dict[str, str]:
    """A model's options as those of `ginkgo usi`."""
    options: dict[str, str] = {"USI_Hash": _HASH_MIB}
    if player.limits.nodes and not player.limits.timed:
        options["RootMateSearch"] = "0"  # so that nodes are all that it has
    for name, value in player.search.items():
        match name:
            case "batch":
                options["BatchSize"] = str(value)
            case "policy_temperature":
                options["PolicyTemperature"] = str(round(100 * value))
            case "draw_value":
                for side in ("Black", "White"):
                    options[f"DrawValue{side}"] = str(round(1000 * value))
            case "declaration":
                options["EnteringKingRule"] = "CSARule27" if value else "NoEnteringKing"
            case _:
                _no_process(player, name)
    if player.randomness.seed or player.randomness.temperature:
        _no_process(player, "seed" if player.randomness.seed else "temperature")
    options["Evaluator"], options["Threads"] = player.backend, str(player.threads)
    options |= player.options
    for name, value in options.items():
        # What `ginkgo usi` does not understand it passes over.
        try:
            BY_NAME[name.lower()].parse(value)
        except GinkgoError as error:
            raise GinkgoError(f"engine {player.text}: {error}") from None
    return options


def _no_process(player: Player, name: str) -> None:
    raise GinkgoError(
        f"engine {player.text}: {name} works between models with nodes only; in this match the "
        "model plays as a USI process"
    )


def fingerprint(player: Player) -> str:
    """What tells a model from another one of the same name: a hash of its files.

    Raises:
        GinkgoError: there is no such model.
    """
    if not player.model or player.model in (UNIFORM, HASH):
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for path in _files(player.model):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(model: str) -> list[Path]:
    if "+" in model and not Path(model).exists():
        return [path for name in model.split("+") for path in _files(name)]
    if Path(model).suffix == ".onnx":
        if not Path(model).is_file():
            raise GinkgoError(f"{model}: no such file")
        return [Path(model)]
    directory = find_model(model)
    names = (CONFIG, INT8, ONNX, WEIGHTS)
    return [directory / name for name in names if (directory / name).is_file()]


def samples(player: Player) -> int | None:
    """Training samples of a model, as far as it says."""
    if not player.model or player.model in (UNIFORM, HASH):
        return None
    try:
        trained = load_config(player.model).get("trained_on")
    except GinkgoError:
        return None
    found = trained.get("samples") if isinstance(trained, dict) else None
    return found if isinstance(found, int) else None
