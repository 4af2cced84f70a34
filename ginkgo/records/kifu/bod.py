"""Positions as diagrams.

In: an SFEN. Out: the diagram that KIF uses.
"""

from __future__ import annotations

from ginkgo.records.kifu.japanese import PIECES
from ginkgo.records.kifu.pieces import WHITE, cells_from_sfen

_KANJI = {number: kanji for kanji, number in reversed(PIECES.items()) if len(kanji) == 1}
#: The usual sign of each: 王 and 竜 are read, not written.
KANJI = {**_KANJI, PIECES["玉"]: "玉", PIECES["龍"]: "龍", PIECES["全"]: "全", PIECES["と"]: "と"}
NUMBERS = ["", *"一二三四五六七八九", *(f"十{sign}" for sign in ["", *"一二三四五六七八"])]
FILES = "１２３４５６７８９"
_HAND_LETTERS = {"R": "飛", "B": "角", "G": "金", "S": "銀", "N": "桂", "L": "香", "P": "歩"}


def diagram(sfen: str) -> str:
    """A position as KIF draws it, with both hands and the side to move.

    >>> print(diagram("4k4/9/9/9/9/9/9/9/4K4 w R2p 7").split("\\n")[0])
    後手の持駒：歩二
    """
    cells, white = cells_from_sfen(sfen)
    hands = sfen.split()[2]
    lines = [
        f"後手の持駒：{_hand(hands, False)}",
        "  ９ ８ ７ ６ ５ ４ ３ ２ １",
        "+" + "-" * 27 + "+",
    ]
    for rank in range(1, 10):
        row = "".join(_square(cells[10 * file + rank]) for file in range(9, 0, -1))
        lines.append(f"|{row}|{NUMBERS[rank]}")
    lines += ["+" + "-" * 27 + "+", f"先手の持駒：{_hand(hands, True)}"]
    lines.append("後手番" if white else "先手番")
    return "\n".join(lines)


def _square(piece: int) -> str:
    if not piece:
        return " ・"
    return ("v" if piece > WHITE else " ") + KANJI[piece % WHITE]


def _hand(hands: str, black: bool) -> str:
    found, count = [], ""
    for sign in hands:
        if sign.isdigit():
            count += sign
        else:
            if sign != "-" and sign.isupper() == black:
                number = int(count or 1)
                found.append(_HAND_LETTERS[sign.upper()] + (NUMBERS[number] if number > 1 else ""))
            count = ""
    return "　".join(found) or "なし"
