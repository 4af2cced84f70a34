"""What KIF and KI2 have in common: headers, handicaps, diagrams, piece names, まで lines.

In: lines of text. Out: `Header` gathers them into names and a start position; `until` reads how a
まで line says that the game ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rsshogi.initial_positions import HANDICAP_TO_SFEN

from ginkgo.records.game import STARTPOS
from ginkgo.records.kifu.pieces import CSA_PIECES, WHITE, empty_cells, sfen_from_cells
from ginkgo.records.kifu.reading import Fault
from ginkgo.records.kifu.result import Statement

#: CSA name by kanji.
_KANJI = {
    **{"歩": "FU", "香": "KY", "桂": "KE", "銀": "GI", "金": "KI", "角": "KA", "飛": "HI"},
    **{"玉": "OU", "王": "OU", "と": "TO", "杏": "NY", "圭": "NK", "全": "NG", "馬": "UM"},
    **{"龍": "RY", "竜": "RY", "个": "TO"},
    **{"成香": "NY", "成桂": "NK", "成銀": "NG", "仝": "NG"},
}
PIECES = {kanji: CSA_PIECES[name] for kanji, name in _KANJI.items()}
PIECE_PATTERN = "成香|成桂|成銀|[歩香桂銀金角飛玉王と杏圭全馬龍竜]"
#: A line with these among the moves is never passed over.
MOVE_SIGNS = re.compile(rf"(?:[1-9１-９][一二三四五六七八九1-9１-９]|同)[ 　]*(?:{PIECE_PATTERN})")

DIGITS = {
    sign: number
    for signs in ("123456789", "１２３４５６７８９", "一二三四五六七八九")
    for number, sign in enumerate(signs, 1)
}
#: How the side to move is marked in front of a move.
BLACK_MARKS, WHITE_MARKS = "▲☗▼", "△☖▽"

_SIDES = {"先手": "b", "下手": "b", "後手": "w", "上手": "w"}
_HEADER = re.compile(r"([^：:]{1,20}?)[ 　]*[：:](.*)")
_ROW = re.compile(r"([v^VＶｖ ]?)([・．.口　]|成香|成桂|成銀|[歩香桂銀金角飛玉王と杏圭全馬龍竜个])")
_HELD = re.compile(r"([歩香桂銀金角飛])([一二三四五六七八九十〇0-9０-９]*)")
#: What else may stand among the pieces in hand.
_NOT_HELD = re.compile(r"なし|無し|[ 　、,・.]")
_FULL_DIGITS = str.maketrans("０１２３４５６７８９", "0123456789")
_TURN = re.compile(r"(先手|後手|上手|下手)番")
_PLY_LINE = re.compile(r"手数[＝=]\s*([0-9０-９]+)(.*)")
_UNTIL = re.compile(r"まで[ 　]*([0-9０-９]*)[ 　]*手?(?:詰|[でにて])?[ 　、]*(.*)")

#: Names of handicaps that the library's table lacks. Black is the side without the handicap; the
#: giver moves first.
_MORE_HANDICAPS = {
    "飛落ち": HANDICAP_TO_SFEN["飛車落ち"],
    "左香落ち": HANDICAP_TO_SFEN["香落ち"],
    "右五枚落ち": HANDICAP_TO_SFEN["五枚落ち"],
    "左七枚落ち": "2sgkg3/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1",
    "右七枚落ち": "3gkgs2/9/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL w - 1",
}
HANDICAPS = {**HANDICAP_TO_SFEN, **_MORE_HANDICAPS}
_KANJI_DIGITS = str.maketrans("2345678２３４５６７８", "二三四五六七八" * 2)
#: Words that stand where there is no handicap but a diagram.
_NO_HANDICAP = ("その他", "詰将棋", "詰め将棋", "次の一手", "任意局面", "")

#: By word of a KIF end line: the ending, and who has won: see `result.END_WORDS`.
END_WORDS = {
    "投了": ("toryo", "lose"),
    "中断": ("chudan", "-"),
    "封じ手": ("chudan", "-"),
    "千日手": ("sennichite", "d"),
    "連続王手の千日手": ("perpetual", "-"),
    "持将棋": ("jishogi", "d"),
    "引き分け": ("hikiwake", "d"),
    "引分": ("hikiwake", "d"),
    "最大手数": ("max_moves", "d"),
    "詰み": ("tsumi", "lose"),
    "詰": ("tsumi", "lose"),
    "切れ負け": ("time_up", "lose"),
    "時間切れ": ("time_up", "lose"),
    "反則勝ち": ("illegal_action", "win"),
    "反則負け": ("illegal_move", "lose"),
    "入玉勝ち": ("kachi", "win"),
    "入玉宣言": ("kachi", "win"),
    "入玉宣言勝ち": ("kachi", "win"),
    "宣言勝ち": ("kachi", "win"),
    "勝ち宣言": ("kachi", "win"),
    "不戦勝": ("unknown", "-"),
    "不戦敗": ("unknown", "-"),
    "不詰": ("fuzumi", "-"),
    "待った": ("matta", "-"),
    "エラー": ("error", "-"),
}

#: How a まで line ends, in the order in which it is looked for: the ending, and who has won by it
#: where no side is said to have won or lost (`result.END_WORDS`; `blamed`: not the one named).
_UNTIL_WORDS = (
    ("反則勝ち", "illegal_action", "-"),
    ("反則", "illegal_move", "blamed"),
    ("切れ", "time_up", "blamed"),
    ("入玉勝ち", "kachi", "named"),
    ("宣言", "kachi", "named"),
    ("連続王手", "perpetual", "-"),
    ("千日手", "sennichite", "d"),
    ("持将棋", "jishogi", "d"),
    ("引き分け", "hikiwake", "d"),
    ("引分", "hikiwake", "d"),
    ("最大手数", "max_moves", "d"),
    ("不詰", "fuzumi", "-"),
    ("投了", "toryo", "lose"),
)


@dataclass
class Header:
    """What stands before the moves."""

    fields: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[int, str]] = field(default_factory=list)
    """Rows of a diagram with their line numbers."""
    hands: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By side what it holds, with the line number."""
    turn: str = ""
    """`b` or `w` where a line says who moves."""
    ply: int = 0
    """How many moves led to the diagram."""

    def take(self, number: int, line: str) -> bool:
        """Whether a line belongs here; if so it is kept."""
        text = line.strip()
        if text[:1] == "|":
            self.rows.append((number, line))
            return True
        if text[:1] == "+" and set(text) <= set("+-"):
            return True
        if is_coordinates(text):
            return True
        if match := _TURN.fullmatch(text):
            self.turn = _SIDES[match[1]]
            return True
        if match := _PLY_LINE.match(text):
            self.ply = int(match[1].translate(_FULL_DIGITS)[:5])
            rest = match[2]
            if any(mark in rest for mark in BLACK_MARKS):
                self.turn = self.turn or "w"
            elif any(mark in rest for mark in WHITE_MARKS):
                self.turn = self.turn or "b"
            return True
        if match := _HEADER.match(text):
            key, value = match[1].strip(" 　"), match[2].strip(" 　")
            if key.endswith(("持駒", "持ち駒")) and key[:2] in _SIDES:
                self.hands[_SIDES[key[:2]]] = (number, value)
            else:
                self.fields.setdefault(key, value)
            return True
        return text.startswith(("手数---", "盤面回転", "盤面反転"))

    def name(self, side: str) -> str:
        words = [word for word, letter in _SIDES.items() if letter == side]
        return next((self.fields[word] for word in words if word in self.fields), "")

    @property
    def problem(self) -> bool:
        """Whether it says that this is a mate problem: nobody wins there."""
        word = self.fields.get("手合割", "") in ("詰将棋", "詰め将棋")
        return word or any(key in self.fields for key in ("作品番号", "作品名", "発表誌"))

    def start(self, first_from: int = 0) -> str:
        """The start position.

        Args:
            first_from: square that the first listed move comes from, 0: a drop or none. It tells
                who moves from a diagram where no line does.

        Raises:
            Fault: the diagram or the handicap cannot be understood.
        """
        word = self.fields.get("手合割", "平手")
        handicap = _handicap(word)
        if not self.rows:
            for number, held in self.hands.values():
                if _HELD.search(held):
                    raise Fault(number, "pieces in hand and no diagram")
            if handicap is None:
                if word in _NO_HANDICAP:
                    handicap = STARTPOS
                else:
                    raise Fault(0, f"unknown handicap {word[:40]!r} and no diagram")
            return handicap.replace(" b ", f" {self.turn} ") if self.turn == "w" else handicap
        cells = self._cells()
        hands = (self._hand("b"), self._hand("w"))
        white = self.turn == "w"
        if not self.turn:
            if first_from and cells[first_from]:
                white = cells[first_from] > WHITE
            elif handicap:
                board = sfen_from_cells(cells, True, hands).split()[:3]
                white = board == handicap.split()[:3]
        return sfen_from_cells(cells, white, hands, self.ply + 1)

    def _cells(self) -> list[int]:
        cells = empty_cells()
        if len(self.rows) != 9:
            raise Fault(self.rows[0][0], f"diagram of {len(self.rows)} rows, expected 9")
        for rank, (number, row) in enumerate(self.rows, 1):
            inside = row.strip().removeprefix("|").rpartition("|")[0] or row.strip()[1:]
            found = _ROW.findall(inside)
            if len(found) != 9:
                raise Fault(number, f"row of {len(found)} squares in the diagram, expected 9")
            if left := _ROW.sub("", inside).strip(" "):
                raise Fault(number, f"cannot read {left[:20]!r} in the diagram")
            for file, (sign, kanji) in zip(range(9, 0, -1), found, strict=True):
                if kanji in PIECES:
                    side = WHITE if sign in tuple("vVＶｖ") else 0
                    cells[10 * file + rank] = PIECES[kanji] + side
        return cells

    def _hand(self, side: str) -> dict[int, int]:
        number, text = self.hands.get(side, (0, ""))
        if left := _NOT_HELD.sub("", _HELD.sub("", text)):
            raise Fault(number, f"cannot read {left[:20]!r} among the pieces in hand")
        found: dict[int, int] = {}
        for kanji, count in _HELD.findall(text):
            found[PIECES[kanji]] = found.get(PIECES[kanji], 0) + _count(count)
        return found


def _handicap(word: str) -> str | None:
    """The start position that a 手合割 names, in whatever spelling."""
    for name in (word, word.translate(_KANJI_DIGITS), word.replace("10", "十")):
        for spelling in (name, f"{name}ち", f"{name}落ち"):
            if found := HANDICAPS.get(spelling):
                return found
    return None


def _count(text: str) -> int:
    """十八 or 18 or nothing (1)."""
    text = text.translate(_FULL_DIGITS)
    if not text:
        return 1
    if text.isascii():
        return int(text[:3])
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return DIGITS.get(text[:1], 1)
    return 10 * DIGITS.get(tens, 1) + DIGITS.get(ones, 0)


def is_coordinates(text: str) -> bool:
    """Whether a line is the one above a diagram."""
    return "９" in text and "１" in text and set(text) <= set("９８７６５４３２１ 　")


def is_field(text: str) -> bool:
    """Whether a line names something and says what it is, before and after a colon."""
    match = _HEADER.match(text)
    return match is not None and not MOVE_SIGNS.search(match[1])


def is_until(line: str) -> bool:
    return line.lstrip(" 　").startswith("まで")


def until(line: str, header: Header) -> tuple[Statement, int] | None:
    """What a まで line says, and the number of plies in it (0: none).

    None: it says nothing about the end of a game.
    """
    match = _UNTIL.match(line.strip(" 　"))
    if not match:
        return None
    text, plies = line.strip(" 　"), int(match[1].translate(_FULL_DIGITS)[:5] or 0)
    rest = match[2].strip(" 　。")
    winner, named = _claimed(rest, header)
    for word, end, rule in _UNTIL_WORDS:
        if word in rest:
            if rule == "blamed":
                rule = {"b": "w", "w": "b"}.get(named, "-")
            elif rule == "named":
                rule = named or "-"
            elif rule == "lose" and not rest.startswith(word):
                rule = {"b": "w", "w": "b"}.get(named, "-")
            elif rule == "d" and winner:
                return Statement(text, end, "-"), plies  # a draw that somebody has won
            return Statement(text, end, winner or rule), plies
    for word, (end, rule) in END_WORDS.items():
        if rest.startswith(word):
            return Statement(text, end, winner or rule), plies
    if "詰" in text:
        return Statement(text, "tsumi", winner or "lose"), plies
    return Statement(text, "unknown", winner or "-"), plies


def _claimed(text: str, header: Header) -> tuple[str, str]:
    """Who is said to have won, and the only side that is named: `b`, `w`, or nothing.

    後手の反則により先手の勝ち: each side owns the words from its name to the next one.
    """
    sides = {word: side for word, side in _SIDES.items() if word in text}
    if not sides:
        names = {header.name("b"): "b", header.name("w"): "w"}
        if len(names) == 2:
            sides = {name: side for name, side in names.items() if name and name in text}
    if not sides:
        return "", ""
    words = "|".join(map(re.escape, sorted(sides, key=len, reverse=True)))
    _, *parts = re.split(f"({words})", text)
    winners, named = set(), set()
    for name, clause in zip(parts[::2], parts[1::2], strict=True):
        side = sides[name]
        named.add(side)
        if "負" in clause:
            winners.add("w" if side == "b" else "b")
        elif "勝" in clause:
            winners.add(side)
    return winners.pop() if len(winners) == 1 else "", named.pop() if len(named) == 1 else ""
