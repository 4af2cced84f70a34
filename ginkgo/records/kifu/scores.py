"""Scores that programs leave in the comments of kifu.

In: the text of a comment, and after which move it stands. Out: by move, the score in centipawns.

There is no standard, only what programs do. All of them count from Black's side. In a comment after
move n stand

- `* 123 +7776FU …` (floodgate and CSA 3.0), `*評価値=123` (ShogiHome) and `*対局 … 評価値 123 …`
  (ShogiGUI): what the player of move n found before it was made;
- `#評価値=123` (ShogiHome) and `*解析 … 評価値 123 …` (ShogiGUI and others): what an analysis found
  of the position after move n, which is a score of move n + 1.

A mate is `*詰み=先手勝ち:5手` or `#詰み=…` to ShogiHome, and `評価値 +詰 5` to ShogiGUI.
"""

from __future__ import annotations

import re

#: What a mate counts as.
MATE = 30000
#: Larger numbers are damage.
_LARGEST = 1_000_000

_PLAYER = re.compile(
    r"\*(?:評価値=([+-]?[0-9]+)| +([+-]?[0-9]+)(?:\.[0-9]+)?(?= +[+-][0-9]{4}[A-Z]{2}| +#| *$))"
)
_ANALYSIS = re.compile(r"#評価値=([+-]?[0-9]+)")
_MATE_IN = re.compile(r"([*#])詰み=(先手|後手)勝ち")
#: ShogiGUI's lines; what is said of other moves than the best (候補2 …) is left out.
_LINE = re.compile(
    r"\*(対局|解析) (?:(?!候補(?!1 )|読み筋).)*?評価値 (?:([+-])詰|([+-]?[0-9]+))"
)  # fmt: skip


def read_score(text: str) -> tuple[int, bool] | None:
    """The score in one line of a comment.

    Returns:
        None where there is none; else centipawns of Black's view, and whether they are of an
        analysis, and so of the move that comes next.

    >>> read_score("*評価値=82"), read_score("*解析 0 時間 00:01.0 評価値 -詰 5 読み筋 △５二金打")
    ((82, False), (-30000, True))
    """
    if match := _PLAYER.match(text):
        score, analysis = int((match[1] or match[2])[:12]), False
    elif match := _ANALYSIS.match(text):
        score, analysis = int(match[1][:12]), True
    elif match := _MATE_IN.match(text):
        score, analysis = MATE if match[2] == "先手" else -MATE, match[1] == "#"
    elif match := _LINE.match(text):
        analysis = match[1] == "解析"
        score = int(match[3][:12]) if match[3] else MATE if match[2] == "+" else -MATE
    else:
        return None
    return (score, analysis) if abs(score) <= _LARGEST else None


class Scores:
    """Gathers the scores of a game."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[bool, int]] = {}

    def note(self, ply: int, text: str) -> None:
        """Look for a score in a line of a comment.

        Where player and analysis differ the analysis is believed, and of two the later one.

        Args:
            ply: moves before the comment. text: without the sign that makes it a comment.
        """
        found = read_score(text)
        if found is None:
            return
        score, analysis = found
        place = ply if analysis else ply - 1
        if place >= 0 and self._found.get(place, (False, 0))[0] <= analysis:
            self._found[place] = analysis, score

    def by_move(self, white: bool, moves: int) -> list[int | None]:
        """The score at each move, in the mover's view; empty where there is none at all.

        Args:
            white: whether White makes the first move. moves: how many there are.
        """
        if not self._found:
            return []
        return [
            None if place not in self._found
            else -self._found[place][1] if white != bool(place % 2) else self._found[place][1]
            for place in range(moves)
        ]  # fmt: skip
