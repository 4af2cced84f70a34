"""KI2 as it is written: its words tell which of several pieces moves, in any position."""

from __future__ import annotations

import random
import re

import cshogi
import pytest
from kifu_texts import read_one
from rsshogi.record import Record
from test_kifu import core, random_game

from ginkgo.errors import GinkgoError
from ginkgo.records import STARTPOS, Game
from ginkgo.records.kifu import write
from ginkgo.records.replay import set_up

#: Pieces of which several can reach a square, and how many of them are set around it at most.
KINDS = {
    **{"G": 4, "S": 4, "N": 4, "B": 2, "R": 2},
    **{"+P": 6, "+L": 4, "+N": 4, "+S": 4, "+B": 2, "+R": 2},
}


def crowded(rng: random.Random, kind: str) -> tuple[str, list[str]]:
    """A position where several pieces of a kind can go to one square, and all moves to it."""
    board = cshogi.Board()
    while True:
        side = rng.choice("bw")
        file, rank = rng.randrange(9), rng.randrange(9)
        squares = [(x, y) for x in range(9) for y in range(9) if (x, y) != (file, rank)]
        near = squares
        if kind == "N":
            near = [(x, y) for x, y in squares if abs(x - file) == 1 and abs(y - rank) == 2]
        elif kind[-1] == "B":
            near = [(x, y) for x, y in squares if abs(x - file) == abs(y - rank)]
        elif kind[-1] != "R":
            near = [(x, y) for x, y in squares if abs(x - file) <= 1 and abs(y - rank) <= 1]
        held = rng.sample(near, min(len(near), rng.randint(2, KINDS[kind])))
        cells = dict.fromkeys(held, kind)
        kings = rng.sample([square for square in squares if square not in cells], 2)
        cells |= dict(zip(kings, "Kk", strict=True))
        # Files are counted from the right.
        rows = "/".join("".join(cells.get((8 - x, y), "1") for x in range(9)) for y in range(9))
        hand = {"G": "-", "S": "-"}.get(kind, "GS")
        if side == "w":
            rows, hand = rows.swapcase(), hand.lower()
        try:
            set_up(board, f"{rows} {side} {hand} 1")
        except GinkgoError:
            continue
        target = f"{file + 1}{'abcdefghi'[rank]}"
        moves = [cshogi.move_to_usi(move) for move in board.legal_moves]
        moves = [usi for usi in moves if usi[2:4] == target]
        if sum(usi[1] != "*" and usi[-1] != "+" for usi in moves) > 1:
            return board.sfen(), moves


def words_of(text: str) -> str:
    """The words for the piece in a game of one move."""
    [line] = [line for line in text.split("\n") if line[:1] in ("▲", "△")]
    return re.sub("[^右左直上寄引]", "", line)


@pytest.mark.parametrize("kind", KINDS)
def test_words_tell_which_piece_moves(kind):
    """Read back by ginkgo and by a library; no two moves to a square are worded alike."""
    rng, seen = random.Random(kind), set()
    for _ in range(60):
        start, moves = crowded(rng, kind)
        texts = []
        for usi in moves:
            text = write.write_ki2(Game(start=start, moves=[usi], end="chudan"))
            assert list(read_one(text, "x.ki2").moves) == [usi], (start, text)
            assert [one.move.to_usi() for one in Record.from_ki2_str(text).moves] == [usi]
            texts.append(text)
            seen.add(words_of(text))
        assert len(set(texts)) == len(moves)
    assert {"右", "左"} <= seen
    if kind in ("G", "+P", "+L", "+N", "+S"):
        assert seen & {"右寄", "左寄"}


def test_aside_to_where_two_more_can_go():
    """Golds on 3h and 3i come from the left, those on 3h and 1h from aside."""
    start = "4k4/9/9/9/9/9/9/6G1G/K5G2 b - 1"
    worded = {
        usi: words_of(write.write_ki2(Game(start=start, moves=[usi], end="chudan")))
        for usi in ("3h2h", "3i2h", "1h2h")
    }
    assert worded == {"3h2h": "左寄", "3i2h": "上", "1h2h": "右"}
    turned = Game(start="2g5k/g1g6/9/9/9/9/9/9/4K4 w - 1", moves=["7b8b"], end="chudan")
    assert words_of(write.write_ki2(turned)) == "左寄"


def test_whole_games_keep_their_moves():
    for seed in (926, 5, 77):
        game = random_game(seed, 77, STARTPOS, 40, ("toryo", "lose"))
        assert core(read_one(write.write_ki2(game), "x.ki2")) == core(game)
