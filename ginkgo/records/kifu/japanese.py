"""What KIF and KI2 have in common: headers, handicaps, diagrams, piece names, まで lines.

In: lines of text. Out: `Header` gathers them into names and a start position; `until` reads how a
まで line says that the game ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rsshogi.initial_positions import HANDICAP_TO_SFEN

from ginkgo.records.game import ENDINGS, STARTPOS
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
_ROW = re.compile(r"([v^VＶ ]?)([・．.口　]|成香|成桂|成銀|[歩香桂銀金角飛玉王と杏圭全馬龍竜个])")
_HELD = re.compile(r"([歩香桂銀金角飛])([一二三四五六七八九十〇0-9０-９]*)")
_FULL_DIGITS = str.maketrans("０１２３４５６７８９", "0123456789")
_TURN = re.compile(r"(先手|後手|上手|下手)番")
_PLY_LINE = re.compile(r"手数[＝=]\s*([0-9０-９]+)(.*)")
_HINT = re.compile(r"#ginkgo end=([a-z_]+) winner=([bwd-])\s*$")
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
    "宣言勝ち": ("kachi", "win"),
    "勝ち宣言": ("kachi", "win"),
    "不戦勝": ("unknown", "-"),
    "不戦敗": ("unknown", "-"),
    "不詰": ("fuzumi", "-"),
    "待った": ("matta", "-"),
    "エラー": ("error", "-"),
}

#: How a まで line ends, in the order in which it is looked for: ending and whether the side that
#: is named has won (True), lost (False), or nobody has (None).
_UNTIL_WORDS: tuple[tuple[str, str, bool | None], ...] = (
    ("反則負け", "illegal_move", False),
    ("反則勝ち", "illegal_action", True),
    ("反則", "illegal_move", True),
    ("時間切れ負け", "time_up", False),
    ("切れ負け", "time_up", False),
    ("時間切れ", "time_up", True),
    ("入玉勝ち", "kachi", True),
    ("宣言勝ち", "kachi", True),
    ("入玉宣言", "kachi", True),
    ("千日手", "sennichite", None),
    ("持将棋", "jishogi", None),
    ("引き分け", "hikiwake", None),
    ("引分", "hikiwake", None),
    ("最大手数", "max_moves", None),
    ("不詰", "fuzumi", None),
)


@dataclass
class Header:
    """What stands before the moves."""

    fields: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[int, str]] = field(default_factory=list)
    """Rows of a diagram with their line numbers."""
    hands: dict[str, str] = field(default_factory=dict)
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
                self.hands[_SIDES[key[:2]]] = value
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
        handicap = HANDICAPS.get(word)
        if not self.rows:
            if handicap is None:
                if word in _NO_HANDICAP and not any(self.hands.values()):
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
            for file, (sign, kanji) in zip(range(9, 0, -1), found, strict=True):
                if kanji in PIECES:
                    side = WHITE if sign in ("v", "V", "Ｖ") else 0
                    cells[10 * file + rank] = PIECES[kanji] + side
        return cells

    def _hand(self, side: str) -> dict[int, int]:
        return {
            PIECES[kanji]: _count(count) for kanji, count in _HELD.findall(self.hands.get(side, ""))
        }


def _count(text: str) -> int:
    """十八 or 18 or nothing (1)."""
    text = text.translate(_FULL_DIGITS)
    if not text:
        return 1
    if text.isascii():
        return int(text[:2])
    tens, ten, ones = text.rpartition("十")
    if not ten:
        return DIGITS.get(text[:1], 1)
    return 10 * DIGITS.get(tens, 1) + DIGITS.get(ones, 0)


def is_coordinates(text: str) -> bool:
    """Whether a line is the one above a diagram."""
    return "９" in text and "１" in text and set(text) <= set("９８７６５４３２１ 　")


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
    named = _named_side(rest, header)
    for word, end, wins in _UNTIL_WORDS:
        if word in rest:
            rule = "-" if wins is None else named
            if wins is None:
                rule = "-" if end == "fuzumi" else "d"
            elif not named:
                rule = "-"
            elif not wins:
                rule = "w" if named == "b" else "b"
            return Statement(text, end, rule), plies
    for word, (end, rule) in END_WORDS.items():
        if rest.startswith(word):
            return Statement(text, end, rule), plies
    if "勝" in rest and named:
        return Statement(text, "unknown", named), plies
    if "詰" in text:
        return Statement(text, "tsumi", "lose"), plies
    return Statement(text, "unknown", "-"), plies


def _named_side(text: str, header: Header) -> str:
    """`b` or `w` where the text names a side or a player, else nothing."""
    found = {side for word, side in _SIDES.items() if word in text}
    if not found:
        names = {"b": header.name("b"), "w": header.name("w")}
        found = {side for side, name in names.items() if name and name in text}
    return found.pop() if len(found) == 1 else ""


def read_hint(line: str) -> Statement | None:
    """What ginkgo's own writer adds where KIF and KI2 have no word for an ending."""
    match = _HINT.match(line)
    if not match or match[1] not in ENDINGS:
        return None
    return Statement(line, match[1], match[2])


def hinted(statements: list[Statement], hint: Statement) -> list[Statement]:
    """The statements, told more exactly."""
    return [Statement(one.text, hint.end, hint.rule) for one in statements] or [hint]
