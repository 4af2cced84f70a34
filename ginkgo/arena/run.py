"""The course of a match.

In: a `MatchConfig`. Out: games in the match's folder, the result on standard output.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from ginkgo import __version__
from ginkgo.arena.batched import play_models, tree_bytes
from ginkgo.arena.config import MatchConfig, games_together
from ginkgo.arena.engines import play_engines
from ginkgo.arena.folder import RESULT, MatchFolder
from ginkgo.arena.openings import Openings
from ginkgo.arena.players import (
    Limits,
    Player,
    as_process,
    fingerprint,
    limited,
    parse_player,
    samples,
)
from ginkgo.arena.referee import Pairing, Played, Rules
from ginkgo.arena.statistics import Sprt
from ginkgo.arena.tally import Tally
from ginkgo.arena.view import View, rows
from ginkgo.errors import GinkgoError
from ginkgo.records.files import check_writable, write_text

#: Bytes of an engine's name in that of its folder.
_NAME_BYTES = 60
_TIMES = ("main", "byoyomi", "increment", "movetime")


def run_match(config: MatchConfig) -> int:
    """Play until the number of games or the test's verdict.

    Args:
        config: checked.

    Returns:
        the exit status: 0, or where the match was broken off 130 (Ctrl-C) or 143 (SIGTERM).

    Raises:
        GinkgoError: a user's mistake.
    """
    if config.json:
        check_writable(config.json)
    players = _players(config)
    openings = Openings(config.openings, config.opening_plies, config.seed, config.max_ply)
    rules = Rules(config.max_ply, config.adjudicate, config.declare)
    sprt = None
    if config.sprt is not None:
        sprt = Sprt(*config.sprt, config.alpha, config.beta, config.elo_model)
    path = config.out or Path("matches") / _folder_name(config)
    tally = Tally(sprt)
    interrupts: list[int] = []
    with MatchFolder(path, _settings(config, players, openings), config.kifu) as folder:
        names = folder.names
        for played in folder.games:
            if played.number < config.games:
                tally.add(played)
        with View(tally, names, config.games) as view:
            _hint(config, openings, view, len(folder.games))
            try:
                games = _games(config, players, openings, rules, folder, tally)
                with _interruptible(interrupts), contextlib.closing(games):
                    for played in games:
                        folder.add(played)
                        tally.add(played)
                        view.update()
                        if interrupts:
                            raise KeyboardInterrupt
                        if tally.verdict != "undecided":
                            break
            except KeyboardInterrupt:
                interrupts.append(signal.SIGINT)
            except MemoryError:
                raise GinkgoError(
                    "no memory for the trees of all games; give fewer nodes or less --concurrency"
                ) from None
        result = {"a": names[0], "b": names[1], **tally.result()}
        text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
        write_text(folder.path / RESULT, text)
        if config.json:
            write_text(config.json, text)
    shown = rows(result, names, config.games)
    width = max(len(title) for title, _ in shown)
    print("\n".join(f"{title:<{width}}  {value}" for title, value in shown))
    if not interrupts:
        return 0
    print(f"\nbroken off; the same command goes on with {path}", flush=True)
    return 128 + interrupts[0]


@contextlib.contextmanager
def _interruptible(interrupts: list[int]) -> Iterator[None]:
    """Keeps the interrupts, each raising as Ctrl-C does.

    An exception that is raised inside a destructor or a callback of the interpreter is printed and
    gone; the list keeps that it was. SIGTERM (`timeout`, a shutdown) must not end this process
    before those of the engines.
    """

    def note(number: int, _frame: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {
        number: signal.signal(number, note)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _games(
    config: MatchConfig,
    players: dict[str, Player],
    openings: Openings,
    rules: Rules,
    folder: MatchFolder,
    tally: Tally,
) -> Generator[Played, None, None]:
    """The games that are still to be played, as they end."""
    done = {played.number for played in folder.games}
    missing = (number for number in range(config.games) if number not in done)
    if tally.verdict != "undecided" or sum(one < config.games for one in done) == config.games:
        return
    pairings = (Pairing(number, openings[number // 2]) for number in missing)
    if not any(player.process for player in players.values()):
        size = sum(tree_bytes(player, rules) for player in players.values())
        yield from play_models(pairings, players, rules, games_together(config, size))
    else:
        together = games_together(config, 0)
        yield from play_engines(pairings, players, rules, together, config.patience, config.margin)


def _players(config: MatchConfig) -> dict[str, Player]:
    """Both players, with their limits."""
    limits = Limits(nodes=config.nodes, **_times(config.time))
    parsed = {side: limited(parse_player(text), limits) for side, text in
              (("a", config.a), ("b", config.b))}  # fmt: skip
    if all(player.batchable for player in parsed.values()):
        return parsed
    return {side: as_process(player) for side, player in parsed.items()}


def _times(text: str) -> dict[str, int]:
    """The times of `--time`."""
    found: dict[str, int] = {}
    for item in text.split(",") if text else ():
        name, _, value = item.partition("=")
        # Ten digits of milliseconds are four months, more than a wait can last.
        if name.strip() not in _TIMES or not (value.strip().isdecimal() and len(value) < 10):
            raise GinkgoError(
                f"--time {text}: expected milliseconds as {'=…, '.join(_TIMES)}=…, "
                "separated by commas"
            )
        found[name.strip()] = int(value)
    return found


def _names(config: MatchConfig) -> tuple[str, str]:
    """What the players are called; two that are the same are told apart."""
    if config.a != config.b:
        return config.a, config.b
    return f"{config.a} (A)", f"{config.b} (B)"


def _folder_name(config: MatchConfig) -> str:
    """A folder's name out of those of the engines."""
    parts = []
    for text in (config.a, config.b):
        name = re.sub(r"^usi:", "", text)
        name = re.sub(r"\S*/(?=[^/\s:]+)", "", name)
        name = re.sub(r"[^\w.=-]+", "-", name).strip("-")
        # A folder's name has 255 bytes at most.
        parts.append(name.encode()[:_NAME_BYTES].decode(errors="ignore"))
    return "_".join(parts) if parts[0] != parts[1] else f"{parts[0]}_itself"


def _settings(
    config: MatchConfig, players: dict[str, Player], openings: Openings
) -> dict[str, Any]:
    """What decides the games and the verdict, for the match's folder."""
    entries = []
    for name, text, player in zip(
        _names(config), (config.a, config.b), players.values(), strict=True
    ):
        limits = {key: value for key, value in vars(player.limits).items() if value}
        entries.append(
            {
                "name": name,
                "engine": text,
                "limits": limits,
                "in_process": not player.process,
                "fingerprint": fingerprint(player),
                "samples": samples(player),
            }
        )
    return {
        "ginkgo": __version__,
        "players": entries,
        "games": config.games,
        "openings": openings.mark,
        "max_ply": config.max_ply,
        "adjudicate": config.adjudicate,
        "declare": config.declare,
        "patience": config.patience,
        "margin": config.margin,
        "seed": config.seed,
        "sprt": config.sprt,
        "alpha": config.alpha,
        "beta": config.beta,
        "elo_model": config.elo_model,
    }


def _hint(config: MatchConfig, openings: Openings, view: View, played: int) -> None:
    """What the user should know before the match begins."""
    if played:
        view.say(f"going on after {played:,} games")
    pairs = config.games // 2
    if openings.count is not None and openings.count < pairs:
        view.say(
            f"{openings.name} has {openings.count:,} openings for {pairs:,} pairs: they will be "
            "repeated, and so will games of engines that always play alike"
        )
