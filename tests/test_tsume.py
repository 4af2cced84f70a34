"""Mate problems without the attacker's king."""

from __future__ import annotations

import cshogi
import pytest
import shogi

from ginkgo.errors import GinkgoError
from ginkgo.usi.mate import MateProcess, is_mating_line, run_dfpn, search_mate
from ginkgo.usi.tsume import is_problem_line, problem_of, walled

#: 1. 5c3c 3a2a 2. G*2b.
MATE_IN_3 = "3p2k2/9/3S+R4/9/9/9/9/9/9 b GP 1"
#: The same for White.
TURNED = "9/9/9/9/9/9/4+rs3/9/2K2P3 w gp 1"
ESCAPES = "4k4/9/4P4/9/9/9/9/9/9 b S 1"
#: In every corner stands a piece that the king would have to share it with.
NO_ROOM = "l2pk3l/9/4P4/9/9/9/9/9/L7L b G 1"


@pytest.mark.parametrize("sfen", [MATE_IN_3, TURNED])
def test_a_problem_is_solved_as_it_stands(sfen):
    found = search_mate(sfen, 100_000)
    assert len(found.moves) == 3
    assert is_problem_line(sfen, found.moves)
    board = shogi.Board(sfen)
    for usi in found.moves:
        board.push_usi(usi)
    assert board.is_checkmate()
    assert not is_problem_line(sfen, found.moves[:1])
    assert not is_problem_line(sfen, ["G*9i", *found.moves[1:]])
    assert not is_problem_line(sfen, ["nonsense"])


def test_no_mate_and_not_enough_time():
    assert search_mate(ESCAPES, 100_000).refuted
    found = search_mate(MATE_IN_3, 1)
    assert not found.refuted
    assert not found.unable


@pytest.mark.parametrize(
    "sfen",
    [
        NO_ROOM,
        "9/9/9/9/4k4/9/9/9/9 w G 1",
        "4k4/9/4P4/9/9/9/9/9/4K4 b G 1",
        "9/9/9/9/9/9/9/9/9 b - 1",
    ],
)
def test_what_is_no_problem_of_this_kind(sfen):
    assert walled(sfen) == []


def test_only_a_board_with_one_king_goes_this_way():
    assert search_mate(NO_ROOM, 1000).unable
    assert search_mate("9/9/9/9/4k4/9/9/9/9 w G 1", 1000).unable


@pytest.mark.parametrize("sfen", [MATE_IN_3, TURNED, ESCAPES])
def test_the_added_king_is_out_of_reach(sfen):
    boards = walled(sfen)
    assert len(boards) == 2
    for text in boards:
        board = cshogi.Board(text)
        assert not board.is_check()
        given = shogi.Board(sfen)
        king = next(sq for sq in range(81) if board.piece_type(sq) == cshogi.KING and
                    (board.piece(sq) >= 16) == (board.turn == cshogi.WHITE))  # fmt: skip
        file, rank = divmod(king, 9)
        for other in range(81):
            x, y = divmod(other, 9)
            if max(abs(x - file), abs(y - rank)) == 1:
                assert board.piece_type(other) == cshogi.GOLD
        # What was there stays there.
        for usi in map(cshogi.move_to_usi, board.legal_moves):
            if usi[1] == "*" or shogi.Move.from_usi(usi) in given.legal_moves:
                continue
            assert board.piece_type(9 * (int(usi[0]) - 1) + ord(usi[1]) - 97) in (
                cshogi.GOLD,
                cshogi.KING,
            )
        found = run_dfpn(text, 10_000, 0)
        assert bool(found.moves) == (sfen != ESCAPES)
        assert not found.moves or is_problem_line(sfen, found.moves)
        assert not is_mating_line(sfen, found.moves)


def test_positions_of_the_protocol():
    assert problem_of(f"sfen {MATE_IN_3}").split()[:3] == MATE_IN_3.split()[:3]
    after = problem_of(f"sfen {MATE_IN_3} moves 5c3c 3a2a")
    assert search_mate(after, 1000).moves == ("G*2b",)
    for other in ("startpos", "startpos moves 7g7f", "", "sfen", "nonsense"):
        assert problem_of(other) == ""
    assert problem_of("sfen 4k4/9/4P4/9/9/9/9/9/4K4 b G 1") == ""
    for wrong in (
        f"sfen {MATE_IN_3} moves 5c3c 5c3c",
        f"sfen {MATE_IN_3} moves 0000",
        "sfen 4k4/9/9 b - 1",
        "sfen 4k3/9/9/9/9/9/9/9/9 b - 1",
    ):
        with pytest.raises(GinkgoError):
            problem_of(wrong)


def test_the_process_solves_them_too():
    process = MateProcess()
    process.start(MATE_IN_3, 10_000)
    found = process.poll(600)
    assert found is not None
    assert is_problem_line(MATE_IN_3, found.moves)
    process.start(NO_ROOM, 10_000)
    found = process.poll(600)
    assert found is not None
    assert found.unable
    process.close()
