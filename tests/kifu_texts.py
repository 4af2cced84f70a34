"""What the tests of kifu share: small games written for them, and ways to read them."""

from __future__ import annotations

import io

import cshogi

from ginkgo.records import Game, Refusal
from ginkgo.records.kifu.packed import pack
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.kifu.stream import cut, read_raw

CSA_HEADER = "V2.2\nN+black\nN-white\nPI\n+\n"
CSA_MOVES = "+7776FU\nT1\n-3334FU\nT2\n"
KIF_HEADER = "手合割：平手\n先手：甲\n後手：乙\n手数----指手---------消費時間--\n"


def read_all(text: str | bytes, name: str = "", **options) -> list[Game | Refusal]:
    """Everything in a file of that content and name."""
    data = text.encode() if isinstance(text, str) else text
    found: list[Game | Refusal] = []
    for raw in cut(name or "file", io.BytesIO(data), name, "game"):
        if isinstance(raw, Refusal):
            found.append(raw)
        else:
            found += [game for _, game in read_raw(raw, ReadOptions(**options))]
    return found


def read_one(text: str | bytes, name: str = "", **options) -> Game:
    [game] = read_all(text, name, **{"variations": True, **options})
    assert isinstance(game, Game), game
    return game


def refused(text: str | bytes, name: str = "") -> Refusal:
    [refusal] = read_all(text, name)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def hcpe3(game: Game, visits: int = 3) -> bytes:
    """A game as dlshogi packs it, with two candidates a move."""
    board = cshogi.Board(game.start)
    head = pack([game.start], "hcpe").tobytes()
    head += len(game.moves).to_bytes(2, "little")
    body = b"" + bytes([{"b": 1, "w": 2, "d": 0}[game.winner], 0])
    for usi in game.moves:
        move = board.move_from_usi(usi) & 0xFFFF
        other = next((m & 0xFFFF for m in board.legal_moves if m & 0xFFFF != move), move)
        for number in (move, 65536 - 25, 2, move, visits, other, 1):
            body += number.to_bytes(2, "little")
        board.push_usi(usi)
    return head + body


OPENING = "   1 ７六歩(77)\n   2 ３四歩(33)\n"
FOUR = OPENING + "   3 ２二角成(88)\n   4 同　銀(31)\n"
FOUR_USI = ["7g7f", "3c3d", "8h2b+", "3a2b"]
EMPTY_ROW = "| ・ ・ ・ ・ ・ ・ ・ ・ ・|"


def kif(moves: str, header: str = KIF_HEADER) -> Game:
    return read_one(header + moves, "game.kif")


def diagram(rows: dict[int, str], above: str = "なし", below: str = "なし") -> str:
    """A diagram whose other rows are empty."""
    lines = [f"後手の持駒：{above}", "  ９ ８ ７ ６ ５ ４ ３ ２ １", "+" + "-" * 27 + "+"]
    lines += [rows.get(rank, EMPTY_ROW) + "一二三四五六七八九"[rank - 1] for rank in range(1, 10)]
    return "\n".join([*lines, "+" + "-" * 27 + "+", f"先手の持駒：{below}"]) + "\n"


KINGS = {1: "| ・ ・ ・ ・v玉 ・ ・ ・ ・|", 9: "| ・ ・ ・ ・ 玉 ・ ・ ・ ・|"}


def core(game: Game) -> tuple:
    return (game.start.split()[:3], list(game.moves), game.winner, game.end)
