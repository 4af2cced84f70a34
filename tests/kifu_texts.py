"""What the tests of kifu share: small games written for them, and ways to read them."""

from __future__ import annotations

import io

from ginkgo.records import Game, Refusal
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
