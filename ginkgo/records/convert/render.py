"""What is written of a game, in each format.

In: a `Game` and the options. Out: bytes, and the number of positions in them; or a `Refusal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ginkgo.errors import GinkgoError
from ginkgo.records.convert.config import GAME_FORMATS, ConvertConfig
from ginkgo.records.game import MAX_PLIES, Game, Refusal
from ginkgo.records.gameline import format_game_line
from ginkgo.records.replay import IllegalMove, canonical_start, played, replay
from ginkgo.records.sfenx import Record, format_record


class Rendered(NamedTuple):
    """What is written of a game."""

    data: bytes
    positions: int


def render(
    game: Game, config: ConvertConfig, file: str = "", line: int = 0
) -> Rendered | Refusal | None:
    """What is to be written of a game; None: the filters leave nothing.

    Args:
        file, line: for naming the game where it is refused.
    """
    packed = _replayed(game, file, line)
    if isinstance(packed, Refusal):
        return packed
    if config.min_rating and game.rate_b is None and game.rate_w is None:
        return Refusal(file, line, "no ratings, and a minimum is asked for", "no ratings")
    if config.endings and game.end not in config.endings:
        return None
    if config.to == "sfenx":
        data = game_records(game, packed, config)
        return Rendered(data, data.count(b"\n")) if data else None
    if config.to in GAME_FORMATS:
        return Rendered(_whole_game(game, config.to), game.total)
    return _packed(game, config)


def _whole_game(game: Game, to: str) -> bytes:
    if to == "usi":
        return (format_game_line(game) + "\n").encode()
    from ginkgo.records.kifu.write import write_csa, write_ki2, write_kif

    writers = {"csa": write_csa, "kif": write_kif, "ki2": write_ki2}
    return writers[to](game).encode()


def _replayed(game: Game, file: str, line: int) -> Sequence[int] | Refusal:
    """The moves of a game that can be used, as cshogi packs them."""
    if not game.moves:
        return Refusal(file, line, "no moves", "no moves")
    if game.total > MAX_PLIES:
        reason = f"{game.total} plies, at most {MAX_PLIES} are kept"
        return Refusal(file, line, reason, "too long")
    try:
        return played(game)
    except IllegalMove as error:
        return Refusal(file, line, str(error), "illegal move")
    except GinkgoError as error:
        return Refusal(file, line, str(error), "bad start position")


def game_records(game: Game, packed: Sequence[int], config: ConvertConfig) -> bytes:
    """The record lines of a game, as the filters leave them.

    Of games that tell full from cheap searches only the positions of the full ones are there. A
    game whose SFENs do not begin at ply 1 (a diagram) gets the key `start`, the ply of its
    first position, so that plies can be counted from the start of the game. Where plies may be
    left out, the key `whole` keeps the hash of the game that they are of.

    Args:
        packed: its moves, see `replay.played`.
    """
    from ginkgo.records.positions import write_records, write_sfens

    start = canonical_start(game)
    _, first, _, first_ply = start.split(" ")
    # The sides take turns.
    sides = (first, "w" if first == "b" else "b")
    rates = {"b": game.rate_b, "w": game.rate_w}
    other = {} if first_ply == "1" else {"start": first_ply}
    if config.min_ply > 1 or config.side or config.min_rating or not all(game.full):
        other["whole"] = f"{game.hash:016x}"
    texts = {rate: _tail(game, rate, other) for rate in set(rates.values())}
    tails = [texts[rates[side]] if _wanted(config, side, rates[side]) else None for side in sides]
    begin = max(0, config.min_ply - 1)
    if not (game.scores or game.policies or game.root_values or game.full):
        even, odd = (None if tail is None else f"{tail}\n".encode() for tail in tails)
        return write_records(start, packed, game.total, (even, odd), begin)
    sfens, total = write_sfens(start, packed), game.total
    lines = []
    for index in range(begin, total):
        tail = tails[index & 1]
        if tail is not None and (not game.full or game.full[index]):
            tail += _searched(game, index)
            lines.append(f"{sfens[index]},{total},{game.moves[index]}{tail}\n")
    return "".join(lines).encode()


def _wanted(config: ConvertConfig, side: str, rate: float | None) -> bool:
    """Whether the positions of a side pass."""
    if config.side and side != config.side:
        return False
    return not config.min_rating or (rate is not None and rate >= config.min_rating)


def _tail(game: Game, rate: float | None, other: dict[str, str]) -> str:
    """What follows the move in all lines of one side, as `format_record` writes it."""
    record = Record("", game.total, "", game.winner, game.game, game.end, rate, other=other)
    return format_record(record).removeprefix(f",{game.total},")


def _searched(game: Game, index: int) -> str:
    """The keys that tell what a search found at a move, as `format_record` writes them."""
    score = game.scores[index] if game.scores else None
    policy = game.policies[index] if game.policies else None
    text = "" if score is None else f",score={score}"
    if policy:
        text += ",policy=" + "|".join(f"{move}:{visits}" for move, visits in policy.items())
    value = game.root_values[index] if game.root_values else None
    return text if value is None else f"{text},root={value:.4g}"


def _packed(game: Game, config: ConvertConfig) -> Rendered | None:
    from ginkgo.records.kifu.write import pack_positions

    sfens = replay(game)
    indices = []
    for index in range(max(0, config.min_ply - 1), game.total):
        side = sfens[index].split(" ", 2)[1]
        if _wanted(config, side, game.rate_b if side == "b" else game.rate_w):
            indices.append(index)
    if not indices or game.winner == "-":
        return None
    return Rendered(pack_positions(game, config.to, sfens, indices), len(indices))
