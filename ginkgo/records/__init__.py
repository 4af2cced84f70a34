"""Games and positions on disk: read, check, convert, write.

In: kifu files (game lines, CSA). Out: `Game` objects, SFEN records (`.sfenx`), and the split of
games into train, validation and test.

This room imports no other room.
"""

from ginkgo.records.game import (
    ENDINGS,
    MAX_PLIES,
    SPLITS,
    STARTPOS,
    WINNERS,
    Game,
    Refusal,
    game_hash,
)
from ginkgo.records.gameline import format_game_line, parse_game_line
from ginkgo.records.sfenx import Record, format_record, parse_record

__all__ = [
    "ENDINGS",
    "MAX_PLIES",
    "SPLITS",
    "STARTPOS",
    "WINNERS",
    "Game",
    "Record",
    "Refusal",
    "format_game_line",
    "format_record",
    "game_hash",
    "parse_game_line",
    "parse_record",
]
