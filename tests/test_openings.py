"""Openings of matches: those of a file, and those that are made."""

from __future__ import annotations

import itertools

import cshogi
import pytest

from ginkgo.arena.openings import (
    Opening,
    Openings,
    _is_quiet,
    made_openings,
    read_openings,
)
from ginkgo.errors import GinkgoError
from ginkgo.records.game import STARTPOS
from ginkgo.search.rules import Line


def test_openings_of_a_file(tmp_path):
    path = tmp_path / "openings.usi"
    sfen = "lnsgkgsnl/1r5b1/ppppppppp/9/9/2P6/PP1PPPPPP/1B5R1/LNSGKGSNL w - 2"
    path.write_text(
        "# comment\n"
        "startpos moves 7g7f 3c3d 2g2f\twinner=b\n"
        f"position sfen {sfen} moves 8c8d\n"
        f"{sfen}\n"
        "startpos moves 7g7f\n"  # the same position as the line before
        "startpos moves 2g2f 3c3d 7g7f\n"  # as the first
        "\n"
    )
    found = read_openings(path, 0, 0)
    assert found == [
        Opening(moves=("7g7f", "3c3d", "2g2f")), Opening(sfen, ("8c8d",)), Opening(sfen)
    ]  # fmt: skip
    assert read_openings(path, 1, 0)[0] == Opening(moves=("7g7f",))
    assert sorted(read_openings(path, 0, 9), key=str) == sorted(found, key=str)
    several = Openings(path, 0, 0)
    assert several[4] == several[1]
    assert several.mark != Openings(path, 1, 0).mark


@pytest.mark.parametrize(
    "line", ["startpos moves 7g7e", "hello", "sfen 9/9 b - 1", "startpos 7g7f"]
)
def test_openings_that_are_none(line, tmp_path):
    path = tmp_path / "openings.usi"
    path.write_text(f"startpos\n{line}\n")
    with pytest.raises(GinkgoError, match=r"openings\.usi:2: "):
        read_openings(path, 0, 0)


def test_made_openings():
    found = list(itertools.islice(made_openings(8, 5), 12))
    assert found == list(itertools.islice(made_openings(8, 5), 12))
    assert found != list(itertools.islice(made_openings(8, 6), 12))
    lines = [Line(one.start, one.moves) for one in found]
    assert len({line.board.sfen() for line in lines}) == 12
    for line in lines:
        assert (line.ply, line.checks[-1], line.ending()) == (8, False, None)
    with pytest.raises(GinkgoError, match="no more than 30 openings"):
        list(made_openings(1, 0))


@pytest.mark.parametrize(
    ("sfen", "quiet"),
    [
        (STARTPOS, True),
        ("4k4/9/4r4/9/4P4/9/9/9/4K4 b P 1", False),  # a rook ahead
        ("4k4/9/9/4r4/9/4L4/9/9/4KR3 b - 1", False),  # Black takes the rook
        ("4k4/9/9/4r4/9/4L4/9/9/4KR3 w L 1", False),  # White is to move, but Black threatens to
    ],
)
def test_quiet_positions(sfen, quiet):
    board = cshogi.Board(sfen)
    assert _is_quiet(board) == quiet
    assert board.sfen() == sfen
