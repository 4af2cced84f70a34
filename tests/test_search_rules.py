"""The rules in the search and in `Line`: repetition, declaration, limits, legal moves."""

from __future__ import annotations

import random

import cshogi
import pytest
import shogi

from ginkgo.errors import GinkgoError
from ginkgo.search.config import SearchConfig
from ginkgo.search.evaluators import UniformEvaluator
from ginkgo.search.kernels import BY_RULE, ENDED, EXPANDED
from ginkgo.search.queue import Queue
from ginkgo.search.rules import Line, line_of
from ginkgo.search.search import Search, run


def searched(line: Line, simulations: int = 400, **config) -> Search:
    search = Search(SearchConfig(nodes=4000, **config), line)
    search.begin()
    run([search], Queue(UniformEvaluator()), simulations)
    return search


def child(search: Search, usi: str) -> int:
    node = search.tree.child_by_move(0, search.line.board.move_from_usi(usi))
    assert node > 0, usi
    return node


# --- repetition -------------------------------------------------------------------------------

ROOKS = ["2h3h", "8b7b", "3h2h", "7b8b"]
#: A dragon that checks a bare king for ever; Black to move, not checking yet.
CHASE = "4k4/8+R/9/9/9/9/9/9/4K4 b - 1"
CHECKS = ["1b1a", "5a5b", "1a1b", "5b5a"]


def test_fourth_occurrence_is_a_draw():
    line = Line(moves=ROOKS * 3)
    assert line.repetition() == "draw"
    assert line.ending() == ("d", "sennichite")
    assert Line(moves=ROOKS * 2).ending() is None
    assert Line(moves=ROOKS * 3 + ["7g7f"]).ending() is None


@pytest.mark.parametrize("draw", [0.5, 0.2])
def test_search_sees_the_fourth_occurrence(draw):
    search = searched(Line(moves=(ROOKS * 3)[:-1]), draw_value=draw)
    node = child(search, "7b8b")
    assert search.tree.nodes.state[node] == ENDED
    # Value of the side to move there, who is not the one at the root.
    assert search.tree.nodes.value[node] == pytest.approx(1 - draw)
    assert search.tree.nodes.proof[node] == 0
    other = child(search, "3c3d")
    assert search.tree.nodes.state[other] == EXPANDED


def test_perpetual_check_loses_for_the_checker():
    # The position that returns is one with the checking side to move ...
    line = Line(CHASE, CHECKS * 3)
    assert line.repetition() == "loss"
    assert line.ending() == ("w", "perpetual")
    # ... or, begun a move later, one with the checked side to move.
    line = Line("4k3+R/9/9/9/9/9/9/9/4K4 w - 2", (CHECKS[1:] + CHECKS[:1]) * 3)
    assert line.repetition() == "win"
    assert line.ending() == ("w", "perpetual")


def _turned(moves: list[str]) -> list[str]:
    """The same moves of the other side, the board turned round."""
    files, ranks = str.maketrans("123456789", "987654321"), str.maketrans("abcdefghi", "ihgfedcba")
    return [move.translate(files).translate(ranks) for move in moves]


TURNED = "4k4/9/9/9/9/9/9/+r8/4K4 w - 1"


@pytest.mark.parametrize(("start", "cycle"), [(CHASE, CHECKS), (TURNED, _turned(CHECKS))])
def test_search_sees_perpetual_check_by_either_side(start, cycle):
    # The checked king's last step completes it: it wins by it.
    search = searched(Line(start, (cycle * 3)[:-1]))
    node = child(search, cycle[-1])
    assert search.tree.nodes.proof[node] == -BY_RULE - 1
    assert search.tree.nodes.proof[0] == BY_RULE + 2
    assert cshogi.move_to_usi(search.best_move()) == cycle[-1]
    # With the checker to move one step earlier, this check is proved to lose, and avoided.
    later = cycle[1:] + cycle[:1]
    line = Line(start, cycle[:1])
    started = Line(line.board.sfen(), (later * 3)[:-1])
    search = searched(started)
    node = child(search, later[-1])
    assert search.tree.nodes.proof[node] == BY_RULE + 1
    assert cshogi.move_to_usi(search.best_move()) != later[-1]


def test_one_quiet_move_makes_it_a_draw():
    quiet = ["1b2b", "5a4a", "2b1b", "4a5a"]
    assert Line(CHASE, CHECKS * 2 + quiet + CHECKS).repetition() == "draw"


@pytest.mark.parametrize("seed", range(6))
def test_search_and_line_agree_on_repetitions(seed):
    """Kings and a dragon wander on few squares; every child of the root is compared."""
    rng, seen = random.Random(seed), 0
    queue = Queue(UniformEvaluator())
    start = CHASE if seed % 2 else "4k4/8+R/9/9/9/9/+r8/9/4K4 b - 1"
    line = Line(start)
    search = Search(SearchConfig(nodes=1000, mate_in_one=False), line)
    for _ in range(400):
        if line.ending() is not None:
            break
        search.set_line(line_of(f"sfen {start} moves {' '.join(line.usi)}"))
        search.begin()
        run([search], queue, 60)
        for move in list(line.board.legal_moves):
            node = search.tree.child_by_move(0, move)
            after = Line(start, [*line.usi, cshogi.move_to_usi(move)])
            if node < 0 or not any(True for _ in after.board.legal_moves):
                continue
            found = after.repetition()
            proof = search.tree.nodes.proof[node]
            by_rule = {"win": BY_RULE + 1, "loss": -BY_RULE - 1}.get(found, 0)
            assert proof == by_rule or (by_rule == 0 and 0 < abs(proof) != BY_RULE + 1)
            drawn = search.tree.nodes.state[node] == ENDED and proof == 0
            assert drawn == (found == "draw")
            seen += found is not None
        near = [m for m in line.board.legal_moves if cshogi.move_to_usi(m) in line.usi[-8:]]
        choices = near if near and rng.random() < 0.9 else list(line.board.legal_moves)
        line.push(rng.choice(choices))
    assert seen or line.ending() is not None


# --- declaration ------------------------------------------------------------------------------

#: Black's king and ten pieces in the farthest ranks: two rooks, two bishops, six golds and
#: silvers; 26 points. One of them can be taken away or the hand filled.
CAMP = "3+RKS+B2/3GGSS2/3+RG+B3/9/9/9/9/9/4k4 b {hand} 1"


def _other_side(sfen: str) -> str:
    return cshogi.rotate_sfen(sfen)


@pytest.mark.parametrize(
    ("hand", "white", "may"),
    [("2P", False, True), ("P", False, False), ("P", True, True), ("-", True, False)],
)
def test_declaration_at_27_and_28_points(hand, white, may):
    sfen = CAMP.format(hand=hand)
    line = Line(_other_side(sfen) if white else sfen)
    assert line.white == white
    assert line.can_declare() == may


@pytest.mark.parametrize("white", [False, True])
def test_no_declaration_in_check(white):
    free = "3+R1S+BG1/3GKSS2/3+RG+B3/9/9/9/9/9/4k4 b 2P 1"
    checked = "3+RpS+BG1/3GKSS2/3+RG+B3/9/9/9/9/9/4k4 b 2P 1"
    assert Line(_other_side(free) if white else free).can_declare()
    line = Line(_other_side(checked) if white else checked)
    assert line.checks[-1]
    assert not line.can_declare()


def test_search_counts_a_declaration_as_won():
    before = "3+RKS+B2/3GGSS2/3+RG+B3/9/9/9/9/9/4k4 w 2P 1"
    search = searched(line_of(f"sfen {before}"), 50)
    # Whatever White does without checking or taking, Black declares.
    node = child(search, "5i4i")
    assert search.tree.nodes.proof[node] == BY_RULE + 1
    assert search.tree.nodes.proof[0] == -BY_RULE - 2
    plain = searched(line_of(f"sfen {before}"), 50, declaration=False)
    assert plain.tree.nodes.proof[child(plain, "5i4i")] == 0


# --- limit, mate, legal moves -----------------------------------------------------------------


def test_ply_limit_draws():
    line = Line(moves=["7g7f"])
    search = searched(line, 60, max_ply=2, draw_value=0.3)
    for usi in ("3c3d", "8c8d"):
        node = child(search, usi)
        assert search.tree.nodes.state[node] == ENDED
        assert search.tree.nodes.value[node] == pytest.approx(0.7)
    assert line.ending(2) is None
    line.push_usi("3c3d")
    assert line.ending(2) == ("d", "max_moves")


MATE_IN_1 = "4k4/9/4P4/9/9/9/9/9/4K4 b G 499"


def test_mate_on_the_last_move_wins():
    search = searched(Line(MATE_IN_1), 100, max_ply=499)
    assert search.tree.nodes.proof[0] == 2
    assert cshogi.move_to_usi(search.best_move()) == "G*5b"
    # One ply earlier nothing is left to be played: a draw, though a mate stands on the board.
    line = Line("3k5/9/4P4/9/9/9/9/9/4K4 w G 498")
    search = searched(line, 100, max_ply=498)
    assert search.tree.nodes.state[child(search, "6a5a")] == ENDED
    assert search.tree.nodes.proof[child(search, "6a5a")] == 0


def test_limit_of_500_plies_from_a_diagram():
    assert Line("4k4/9/9/9/9/9/9/9/4K4 b - 500", ["5i5h"]).ending(500) == ("d", "max_moves")
    assert Line("4k4/9/9/9/9/9/9/9/4K4 b - 499", ["5i5h"]).ending(500) is None


def test_side_without_a_move_has_lost():
    # No check, no move: shogi knows no stalemate.
    line = Line("8k/6G2/7G1/9/9/9/9/9/4K4 w - 2")
    assert not line.checks[-1]
    assert line.ending() == ("b", "tsumi")
    search = searched(line, 10)
    assert search.tree.nodes.proof[0] == -1
    assert search.candidates() == []
    assert search.best_move() == 0


def test_drop_pawn_mate_is_no_move():
    # A pawn dropped at 1b would mate: forbidden; dropped elsewhere it may be.
    line = Line("7nk/7n1/8G/9/9/9/9/9/4K4 b P 1")
    search = searched(line, 300)
    moves = {cshogi.move_to_usi(one.move) for one in search.candidates()}
    assert "P*1b" not in moves
    assert "P*5e" in moves
    with pytest.raises(GinkgoError, match="illegal move"):
        line.push_usi("P*1b")
    line = Line("4k4/9/9/4P4/9/9/9/9/4K4 b P 1")
    moves = {cshogi.move_to_usi(one.move) for one in searched(line, 300).candidates()}
    assert not any(move.startswith("P*5") for move in moves)
    assert "P*4b" in moves


def _perft(board, depth: int) -> int:
    if depth == 1:
        return len(list(board.legal_moves))
    total = 0
    for move in list(board.legal_moves):
        board.push(move)
        total += _perft(board, depth - 1)
        board.pop()
    return total


POSITIONS = [
    "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    "ln1gk2nl/1r1s1g3/p1pppp1pp/6p2/1p5P1/2P6/PP1PPPP1P/1S1GK1SR1/LN3G1NL w Bb 30",
    "l3k3l/4g4/p1n1p1npp/2p3p2/3P1P3/2P3P2/P1N1P1N1P/4G4/L3K3L b RBGSPrbgs4p 90",
]


# The independent library takes 3 ms for a list of moves, 25 ms with full hands.
@pytest.mark.parametrize(("sfen", "depth"), list(zip(POSITIONS, (2, 2, 1), strict=True)))
def test_perft_agrees_with_an_independent_library(sfen, depth):
    assert _perft(cshogi.Board(sfen), depth) == _perft(shogi.Board(sfen), depth)


@pytest.mark.parametrize("sfen", POSITIONS)
def test_edges_of_the_tree_are_the_legal_moves(sfen):
    search = searched(Line(sfen), 40, mate_in_one=False)
    tree = search.tree
    for node in range(tree.size):
        moves: list[str] = []
        at = node
        while tree.nodes.parent[at] >= 0:
            moves.insert(0, cshogi.move_to_usi(int(tree.edges.move[tree.nodes.edge[at]])))
            at = tree.nodes.parent[at]
        board = shogi.Board(sfen)
        for move in moves:
            board.push_usi(move)
        edges = tree.edges.move[tree.edges_of(node)].tolist()
        assert {cshogi.move_to_usi(m) for m in edges} == {m.usi() for m in board.legal_moves}


# --- position commands ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected startpos or sfen"),
        ("startpos 7g7f", "expected moves"),
        ("startpos moves 7g7f 7g7f", "ply 2: illegal move 7g7f"),
        ("startpos moves 7g7f 3c3d 8h2b+ 8b2b 2h2b+ ", "ply 5: illegal move"),
        ("startpos moves hello", "no USI move"),
        ("sfen 9/9/9 b - 1", "9/9/9"),
        ("sfen lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL x - 1", "expected"),
    ],
)
def test_malformed_positions(text, message):
    with pytest.raises(GinkgoError, match=message):
        line_of(text)
