"""Shared fixtures: a few hundred of the bundled games, as game lines and as records."""

import gzip
import os
from pathlib import Path

import pytest

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

SAMPLE = Path(__file__).parents[1] / "data" / "sample" / "engine-games.usi.gz"


@pytest.fixture(scope="session")
def sample_lines() -> list[str]:
    with gzip.open(SAMPLE, "rt") as stream:
        return [next(stream).rstrip("\n") for _ in range(240)]


@pytest.fixture(scope="session")
def games_dir(tmp_path_factory, sample_lines) -> Path:
    """Three files of 80 game lines, one of them compressed."""
    folder = tmp_path_factory.mktemp("games")
    for number in range(3):
        text = "\n".join(sample_lines[80 * number : 80 * number + 80]) + "\n"
        if number == 2:
            (folder / f"part-{number:05d}.usi.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"part-{number:05d}.usi").write_text(text)
    return folder


@pytest.fixture(scope="session")
def records_dir(tmp_path_factory, sample_lines) -> Path:
    """The same games as records, not split, in three files, one compressed."""
    from ginkgo.records import format_record, parse_game_line
    from ginkgo.records.replay import replay
    from ginkgo.records.sfenx import Record

    folder = tmp_path_factory.mktemp("records")
    for number in range(3):
        lines = []
        for line in sample_lines[80 * number : 80 * number + 80]:
            game = parse_game_line(line)
            for sfen, move in zip(replay(game), game.moves, strict=True):
                record = Record(sfen, game.total, move, game.winner, game=game.game, end=game.end)
                lines.append(format_record(record))
        text = "\n".join(lines) + "\n"
        if number == 2:
            (folder / f"part-{number:05d}.sfenx.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"part-{number:05d}.sfenx").write_text(text)
    return folder
