"""`ginkgo rate`: a rating list over matches.

In: folders of matches. Out: a Markdown table, with `--png` a picture over training samples, with
`--json` the figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ginkgo.errors import GinkgoError

if TYPE_CHECKING:
    from ginkgo.arena.rating import Rating


@dataclass(frozen=True)
class RateConfig:
    """Rate the engines of several matches on one scale."""

    matches: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folders of matches, or folders that hold such folders."""

    anchor: str = ""
    """The engine whose rating is fixed, by its name in the matches; by default the USI engine
    with the most games, or without one the engine with the most games."""
    anchor_elo: float = 0.0
    """The anchor's rating."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=("-o",), metavar="FILE")] = None
    """Write the table to this Markdown file as well."""
    png: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Draw the ratings over training samples."""
    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the ratings to this JSON file."""


@dataclass
class Entrant:
    """A player of the matches."""

    name: str
    engine: str
    fingerprint: str
    samples: int | None


@dataclass
class Results:
    """What was found in the folders."""

    entrants: dict[str, Entrant] = field(default_factory=dict)
    """By name."""
    points: dict[tuple[str, str], float] = field(default_factory=dict)
    """Of the first player against the second."""
    games: dict[str, int] = field(default_factory=dict)
    """By name."""


def find_matches(paths: Sequence[Path]) -> list[Path]:
    """All folders of matches at `paths`.

    Raises:
        GinkgoError: a path does not exist or holds no match.
    """
    from ginkgo.arena.folder import CONFIG, GAMES

    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise GinkgoError(f"{path}: no such folder")
        inside = sorted(
            file.parent for file in path.rglob(GAMES) if (file.parent / CONFIG).exists()
        )
        if not inside:
            raise GinkgoError(f"{path}: no match in it (no {GAMES} beside a {CONFIG})")
        found.update(dict.fromkeys(folder.resolve() for folder in inside))
    return list(found)


def collect(folders: Sequence[Path]) -> Results:
    """The results of matches. Models of the same name but other files are different players.

    Raises:
        GinkgoError: a folder is damaged, or there is no game between different players.
    """
    from ginkgo.arena.folder import read_games, read_settings

    results = Results()
    for folder in folders:
        players = [_entrant(results, one) for one in read_settings(folder)["players"]]
        if players[0] == players[1]:
            continue
        first, second = players
        for played in read_games(folder):
            for pair, score in (
                ((first, second), played.score),
                ((second, first), 1 - played.score),
            ):
                results.points[pair] = results.points.get(pair, 0.0) + score
            for name in players:
                results.games[name] = results.games.get(name, 0) + 1
    if not results.points:
        raise GinkgoError("no games between different engines in these matches")
    return results


def _entrant(results: Results, found: dict[str, Any]) -> str:
    """The name of a player, which it gets when it is first met."""
    engine, fingerprint = str(found["engine"]), str(found.get("fingerprint") or "")
    for limit, value in (found.get("limits") or {}).items():
        if f"{limit}=" not in engine:  # it came from the match
            engine += f" {limit}={value}"
    for one in results.entrants.values():
        if (one.engine, one.fingerprint) == (engine, fingerprint):
            return one.name
    name = engine if engine not in results.entrants else f"{engine} #{fingerprint[:6] or 0}"
    results.entrants[name] = Entrant(name, engine, fingerprint, found.get("samples"))
    return name


def choose_anchor(results: Results) -> str:
    """The USI engine with the most games, or without one the player with the most."""
    names = sorted(results.games)
    outside = [name for name in names if name.startswith("usi:")]
    return max(outside or names, key=lambda name: results.games[name])


def markdown(ratings: Sequence[Rating], anchor: str, samples: dict[str, int | None]) -> str:
    """The rating list as a table."""
    lines = ["| | engine | Elo | 95 % | games | points | samples |", "|-|-|-|-|-|-|-|"]
    for place, one in enumerate(ratings, 1):
        interval = "anchor" if one.name == anchor else f"{one.low:+.0f} … {one.high:+.0f}"
        trained = samples.get(one.name)
        lines.append(
            f"| {place} | {one.name.replace('|', '/')} | {one.elo:+.0f} | {interval} | "
            f"{one.games:,} | {one.score / one.games:.1%} | {f'{trained:,}' if trained else ''} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Rate.

    Raises:
        GinkgoError: a user's mistake.
    """
    config = tyro.cli(RateConfig, prog="ginkgo rate", args=argv)
    from ginkgo.arena.rating import rate
    from ginkgo.records.files import check_writable, write_text

    if not math.isfinite(config.anchor_elo):
        raise GinkgoError(f"--anchor-elo {config.anchor_elo}: expected a number")
    if not config.matches:
        raise GinkgoError("no matches given: expected folders")
    for path in (config.out, config.png, config.json):
        if path is not None:
            check_writable(path)
    results = collect(find_matches(config.matches))
    anchor = config.anchor or choose_anchor(results)
    ratings = rate(results.points, anchor, config.anchor_elo)
    samples = {name: one.samples for name, one in results.entrants.items()}
    table = markdown(ratings, anchor, samples)
    print(table, end="")
    if config.out is not None:
        write_text(config.out, table)
    if config.json is not None:
        found = [{**asdict(one), "samples": samples.get(one.name)} for one in ratings]
        text = json.dumps({"anchor": anchor, "ratings": found}, indent=1, ensure_ascii=False)
        write_text(config.json, text + "\n")
    if config.png is not None:
        from ginkgo.arena.picture import draw_ratings

        draw_ratings(config.png, ratings, samples)
    return 0
