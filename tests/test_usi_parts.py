"""Parts of the engine alone: the clock, the search for mates, the book."""

from __future__ import annotations

import cshogi
import pytest

from ginkgo.errors import GinkgoError
from ginkgo.search.rules import Line
from ginkgo.usi.book import Book, read_book
from ginkgo.usi.clock import FOREVER, budget, parse_go
from ginkgo.usi.mate import MateProcess, is_mating_line, search_mate

MATE_IN_3 = "3p2k2/9/3S+R4/9/9/9/9/9/5K3 b GP 1"

# --- clock ------------------------------------------------------------------------------------


def test_budget_never_exceeds_the_clock():
    for text in (
        "btime 600000 wtime 600000", "btime 600000 wtime 600000 byoyomi 10000",
        "btime 0 wtime 0 byoyomi 200", "btime 30 wtime 30", "btime 1 wtime 1 byoyomi 0",
        "btime 300000 wtime 300000 binc 5000 winc 5000", "btime 0 wtime 0 binc 1000 winc 1000",
        "btime 500 wtime 500 binc 100 winc 100", "btime 900 wtime 900 byoyomi 1000",
    ):  # fmt: skip
        go = parse_go(text.split())
        for ply in (0, 1, 30, 90, 300):
            found = budget(go, ply % 2 == 1, ply, 50, 50)
            there = (go.btime or go.binc) + go.byoyomi
            assert 0 < found.minimum <= found.optimum <= found.maximum
            assert found.maximum <= max(1, there - min(100, 0.3 * there)) + 1e-9


def test_a_whole_game_fits_the_clock():
    """Sudden death: something is always left, and most of it gets used."""
    for thinking, moves in (("optimum", 200), ("maximum", 80)):
        left = 300_000.0
        for ply in range(0, 2 * moves, 2):
            go = parse_go(f"btime {int(left)} wtime 1000".split())
            left -= getattr(budget(go, False, ply, 50, 50), thinking) + 50
            assert left > 0
        assert left < 60_000


def test_byoyomi_is_used_up_and_the_colour_counts():
    go = parse_go(["btime", "0", "wtime", "100000", "byoyomi", "3000"])
    assert budget(go, False, 40, 50, 50).optimum == 2900
    assert budget(go, True, 40, 50, 50).optimum > 2900
    assert budget(parse_go(["infinite"]), False, 0, 50, 50).maximum == FOREVER
    assert budget(parse_go(["movetime", "500"]), False, 0, 50, 50).maximum == 400
    assert budget(parse_go(["nodes", "500"]), False, 0, 50, 50).maximum == FOREVER


def test_opening_is_played_faster_than_the_middle_game():
    go = parse_go(["btime", "600000", "wtime", "600000"])
    optima = [budget(go, False, ply, 50, 50).optimum for ply in (0, 10, 20, 60)]
    assert optima == sorted(optima)


# --- mate search ------------------------------------------------------------------------------


def test_mate_search_and_its_process():
    found = search_mate(MATE_IN_3, 10000)
    assert is_mating_line(MATE_IN_3, found.moves)
    assert search_mate(Line().board.sfen(), 10000).refuted
    assert not search_mate(MATE_IN_3, 1).refuted
    process = MateProcess()
    process.start(MATE_IN_3, 10000)
    first = process.poll(30)
    assert first is not None
    assert is_mating_line(MATE_IN_3, first.moves)
    # Ended in mid-search and started again.
    hard = "l3k3l/4g4/p1n1p1npp/2p3p2/3P1P3/2P3P2/P1N1P1N1P/4G4/L3K3L b RBGSPrbgs4p 90"
    process.start(hard, 10**9)
    process.start(MATE_IN_3, 10000)
    again = process.poll(30)
    assert again is not None
    assert again.moves == first.moves
    process.close()


def test_lines_that_are_no_mate():
    assert not is_mating_line(MATE_IN_3, ["5c3c"])
    assert not is_mating_line(MATE_IN_3, ["6c6b", "3a2a", "G*2b"])
    assert not is_mating_line(MATE_IN_3, ["5c3c", "3a2a", "G*2c"])
    assert not is_mating_line(MATE_IN_3, [])
    assert not is_mating_line(MATE_IN_3, ["9a9b"])


# --- book -------------------------------------------------------------------------------------

BOOK = "#YANEURAOU-DB2016 1.00\n"
START = Line().board.sfen()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: expected #YANEURAOU"),
        ("sfen x\n", ":1: expected #YANEURAOU"),
        (f"{BOOK}7g7f none 0 0 0\n", ":2: expected a line that begins with sfen, not '7g7f"),
        (f"{BOOK}# a\n\n7g7f\nsfen {START}\n", ":4: expected a line that begins with sfen"),
    ],
)
def test_files_that_are_no_books(text, message, tmp_path):
    with pytest.raises(GinkgoError, match=message):
        Book(text.encode())
    path = tmp_path / "book.db"
    path.write_text(text)
    with pytest.raises(GinkgoError, match=message):
        read_book(path)


def test_a_malformed_move_is_told_when_it_is_asked_for():
    book = Book(f"{BOOK}sfen {START}\n7g7f none x 0 0\n".encode())
    with pytest.raises(GinkgoError, match=":3: expected MOVE REPLY"):
        book.moves(START)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_book_lines_may_be_short_and_plies_differ(line_end):
    text = f"{BOOK}// x\nsfen {START}\n7g7f\n\n# y\n2g2f none 5\nsfen a b c 1\n1a1b\n"
    text += f"sfen {START.replace(' 1', ' 9')}\n3g3f none 3 1 1"
    book = Book(b"\xef\xbb\xbf" + text.replace("\n", line_end).encode())
    assert len(book) == 3
    moves = [move.move for move in book.moves(START.replace(" 1", " 37"))]
    assert moves == ["2g2f", "3g3f", "7g7f"]
    assert book.moves("a b c")[0].move == "1a1b"
    assert book.choose("4k4/9/9/9/9/9/9/9/4K4 b - 1") is None
    assert len(Book()) == 0
    assert Book().choose(START) is None
    assert cshogi.Board(START).sfen() == START
