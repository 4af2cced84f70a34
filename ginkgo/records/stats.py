"""`ginkgo stats`: what is in records or games.

In: SFEN records and kifu of every format. Out: a table by source (games, positions, results,
endings, plies, ratings, duplicates), an audit of the winners, and with `--plot` a picture.

The audit sets the stated winner against the last position: whoever is mated there has lost, a
declared win must satisfy the 27-point rule, and whoever resigned was to move.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from ginkgo.errors import GinkgoError
from ginkgo.records.game import ENDINGS, WINNERS


@dataclass(frozen=True)
class StatsConfig:
    """Count games, positions, results and duplicates, and audit the winners."""

    records: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH […]")]
    """Records or games: files, archives, directories or globs; - is standard input."""

    plot: str = ""
    """Draw the figures into this PNG file too."""
    json: bool = False
    """JSON instead of tables."""


@dataclass
class Counted:
    """What was counted of a source."""

    games: int = 0
    positions: int = 0
    refused: int = 0
    winners: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    plies: list[int] = field(default_factory=list)
    """By game."""
    ratings: list[float] = field(default_factory=list)
    """By game and side, where known."""
    audit: Counter[str] = field(default_factory=Counter)
    """`confirmed`, `contradicted`, `undecided` (the last position tells nothing)."""
    contradicted: list[str] = field(default_factory=list)
    """The first games whose last position contradicts their winner."""
    game_keys: array = field(default_factory=lambda: array("Q"))
    position_keys: array = field(default_factory=lambda: array("Q"))

    @property
    def duplicate_games(self) -> int:
        """Games that were there before."""
        return _repeated(self.game_keys)

    @property
    def duplicate_positions(self) -> int:
        """Positions that were there before."""
        return _repeated(self.position_keys)


def _repeated(keys: array) -> int:
    """How many of the keys were there before."""
    import numpy as np

    return len(keys) - len(np.unique(np.frombuffer(keys, np.uint64))) if keys else 0


@dataclass
class _Whole:
    """A game as far as it is there."""

    name: str
    winner: str
    end: str
    total: int
    sfens: list[str]
    moves: list[str]
    rates: list[float]

    @property
    def complete(self) -> bool:
        """Whether its last position is there."""
        return bool(self.sfens) and len(self.moves) == self.total


_SHOWN = 20


def count(paths: Sequence[str]) -> dict[str, Counted]:
    """Counts by source.

    Raises:
        GinkgoError: a path does not exist, or holds nothing of these kinds.
    """
    from ginkgo.records.sources import find_sources

    found: dict[str, Counted] = {}
    for source in find_sources(paths):
        counted = found.setdefault(source.name, Counted())
        for file in source.files:
            for game in _games(str(file)):
                if game is None:
                    counted.refused += 1
                else:
                    _take(counted, game)
    return found


def _games(path: str) -> Iterator[_Whole | None]:
    """The games of a file; None: one that cannot be used."""
    from ginkgo.records.sources import RECORD_SUFFIXES, suffix_of

    yield from _recorded(path) if suffix_of(path) in RECORD_SUFFIXES else _kifu(path)


def _kifu(path: str) -> Iterator[_Whole | None]:
    from ginkgo.records.files import shown
    from ginkgo.records.game import Refusal
    from ginkgo.records.replay import replay
    from ginkgo.records.sources import read_games

    for line, game in read_games(path):
        if isinstance(game, Refusal) or not game.moves:
            yield None
            continue
        try:
            sfens = replay(game)
        except GinkgoError:
            yield None
            continue
        rates = [rate for rate in (game.rate_b, game.rate_w) if rate is not None]
        name = game.game or f"{shown(path)}:{line}"
        yield _Whole(name, game.winner, game.end, game.total, sfens, list(game.moves), rates)


def _recorded(path: str) -> Iterator[_Whole | None]:
    """Games from records: they go on while name, total and winner stay and the ply grows."""
    from ginkgo.records.files import shown
    from ginkgo.records.game import Refusal
    from ginkgo.records.sfenx import parse_record
    from ginkgo.records.sources import read_lines

    game: _Whole | None = None
    last_ply = 0
    for line, data in read_lines(path):
        try:
            if isinstance(data, Refusal):
                raise GinkgoError(data.reason)
            record = parse_record(data.decode())
            ply = int(record.sfen.rsplit(" ", 1)[1])
        except (GinkgoError, UnicodeDecodeError, ValueError, IndexError):
            yield None
            continue
        name = record.game or f"{shown(path)}:{line}"
        same = game is not None and (record.total, record.winner) == (game.total, game.winner)
        if game is None or not same or ply <= last_ply or (record.game and name != game.name):
            if game is not None:
                yield game
            end = record.end if record.end in ENDINGS else "unknown"
            game = _Whole(name, record.winner, end, record.total, [], [], [])
        game.sfens.append(record.sfen)
        game.moves.append(record.move)
        if record.rate is not None and len(game.rates) < 2:
            game.rates.append(record.rate)
        last_ply = ply
    if game is not None:
        yield game


def _take(counted: Counted, game: _Whole) -> None:
    from ginkgo.records.game import game_hash

    counted.games += 1
    counted.positions += len(game.sfens)
    counted.winners[game.winner] += 1
    counted.endings[game.end or "unknown"] += 1
    counted.plies.append(game.total)
    counted.ratings += game.rates
    counted.game_keys.append(game_hash(game.sfens[0], game.moves))
    counted.position_keys.extend(map(_position_key, game.sfens))
    verdict = _audit(game)
    counted.audit[verdict] += 1
    if verdict == "contradicted" and len(counted.contradicted) < _SHOWN:
        counted.contradicted.append(f"{game.name}: {game.winner} by {game.end or 'unknown'}")


def _position_key(sfen: str) -> int:
    text = sfen.rsplit(" ", 1)[0].encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _audit(game: _Whole) -> str:
    """What the last position says of the stated winner."""
    import cshogi

    from ginkgo.records.replay import set_up, walk

    if not game.complete or game.winner == "-":
        return "undecided"
    board = cshogi.Board()
    try:
        set_up(board, game.sfens[-1])
        if walk(board, game.moves[-1:]) != 1:
            return "contradicted"
    except GinkgoError:
        return "contradicted"
    mover = "w" if board.turn == cshogi.WHITE else "b"
    other = "b" if mover == "w" else "w"
    if not len(list(board.legal_moves)):
        return "confirmed" if game.winner == other else "contradicted"
    if game.end == "kachi":
        right = game.winner == mover and board.is_nyugyoku()
        return "confirmed" if right else "contradicted"
    if game.end in ("toryo", "time_up", "tsumi"):
        # `tsumi` on a board where there are moves left is as wrong as the other winner.
        wrong = game.winner != other or game.end == "tsumi"
        return "contradicted" if wrong else "undecided"
    return "undecided"


# --- what is told of it -----------------------------------------------------------------------


def as_dict(counted: Counted) -> dict[str, Any]:
    """The figures of a source for JSON."""
    return {
        "games": counted.games,
        "positions": counted.positions,
        "refused": counted.refused,
        "winners": {winner: counted.winners[winner] for winner in WINNERS},
        "endings": dict(counted.endings.most_common()),
        "plies": _spread(counted.plies),
        "ratings": _spread(counted.ratings),
        "duplicate_games": counted.duplicate_games,
        "duplicate_positions": counted.duplicate_positions,
        "audit": {key: counted.audit[key] for key in ("confirmed", "contradicted", "undecided")},
        "contradicted": counted.contradicted,
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Least, quartiles and greatest."""
    if not values:
        return None
    ordered = sorted(values)
    names = ("min", "quarter", "median", "three_quarters", "max")
    return {name: ordered[round(part * (len(ordered) - 1) / 4)] for part, name in enumerate(names)}


def together(found: dict[str, Counted]) -> Counted:
    """All sources as one; duplicates across them count."""
    total = Counted()
    for counted in found.values():
        total.games += counted.games
        total.positions += counted.positions
        total.refused += counted.refused
        total.winners += counted.winners
        total.endings += counted.endings
        total.audit += counted.audit
        total.plies += counted.plies
        total.ratings += counted.ratings
        total.contradicted += counted.contradicted
        total.game_keys += counted.game_keys
        total.position_keys += counted.position_keys
    return total


def print_tables(found: dict[str, Counted]) -> None:
    """The figures on the terminal."""
    from rich.console import Console
    from rich.table import Table

    rows = {**found, **({"all": together(found)} if len(found) > 1 else {})}
    table = Table("source")
    heads = ("games", "positions", "black", "white", "draw", "none", "plies", "rating", "refused")
    for head in heads:
        table.add_column(head, justify="right")
    audit = Table("source")
    for head in ("same games", "same positions", "confirmed", "contradicted", "undecided"):
        audit.add_column(head, justify="right")
    for name, counted in rows.items():
        plies, ratings = _spread(counted.plies), _spread(counted.ratings)
        winners = [f"{counted.winners[winner]:,}" for winner in WINNERS]
        table.add_row(
            *(name, f"{counted.games:,}", f"{counted.positions:,}", *winners),
            *(f"{plies['median']:.0f}" if plies else "–",),
            *(f"{ratings['median']:.0f}" if ratings else "–", f"{counted.refused:,}"),
        )
        verdicts = [counted.audit[key] for key in ("confirmed", "contradicted", "undecided")]
        numbers = [counted.duplicate_games, counted.duplicate_positions, *verdicts]
        audit.add_row(name, *(f"{number:,}" for number in numbers))
    endings = Table("ending")
    endings.add_column("games", justify="right")
    everything = together(found)
    for end, number in everything.endings.most_common():
        endings.add_row(end, f"{number:,}")
    # Where nobody looks at it a line may be long.
    console = Console(width=None if sys.stdout.isatty() else 120)
    for one in (table, endings, audit):
        console.print(one)
    for line in everything.contradicted[:_SHOWN]:
        console.print(f"winner contradicted: {line}", markup=False, highlight=False)


def plot(found: dict[str, Counted], path: str) -> None:
    """Plies, endings, results and ratings as one PNG file.

    Raises:
        GinkgoError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ginkgo.records.files import atomic_write

    total = together(found)
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    (plies, results), (endings, ratings) = figure.subplots(2, 2)
    plies.hist(total.plies, bins=40, color="#0072B2")
    plies.set(title=f"{total.games:,} games, {total.positions:,} positions", xlabel="plies")
    names = {"b": "black", "w": "white", "d": "draw", "-": "none"}
    results.bar(list(names.values()), [total.winners[winner] for winner in names], color="#009E73")
    results.set(title="winner")
    common = total.endings.most_common(10)[::-1]
    endings.barh([end for end, _ in common], [number for _, number in common], color="#D55E00")
    endings.set(title="ending", xlabel="games")
    if total.ratings:
        ratings.hist(total.ratings, bins=40, color="#CC79A7")
    else:
        ratings.text(0.5, 0.5, "no ratings", ha="center", transform=ratings.transAxes)
    ratings.set(title="ratings")
    with atomic_write(path) as stream:
        FigureCanvasAgg(figure).print_png(stream)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, count, print.

    Returns:
        the exit status: 0; 1 where nothing could be read.

    Raises:
        GinkgoError: a path does not exist, or the picture cannot be written.
    """
    config = tyro.cli(
        StatsConfig, prog="ginkgo stats", args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    if not config.records:
        raise GinkgoError("nothing given: expected files, directories, globs or -")
    if config.plot:
        from ginkgo.records.files import check_writable

        check_writable(config.plot)
    found = count(config.records)
    if config.json:
        figures = {name: as_dict(counted) for name, counted in found.items()}
        whole = as_dict(together(found))
        print(json.dumps({"sources": figures, **whole}, ensure_ascii=False, indent=1))
    else:
        print_tables(found)
    if config.plot:
        plot(found, config.plot)
    if any(counted.games for counted in found.values()):
        return 0
    print("error: no game could be used; ginkgo inspect says why", file=sys.stderr)
    return 1
