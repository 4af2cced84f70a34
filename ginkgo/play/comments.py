"""An analysis as comments of a KIF that GUIs show as evaluations.

In: a game and what was found of its positions. Out: the game with comments.

There is no standard for that. ShogiGUI's lines are the ones that most programs read, and stand
after the move that led to the position:

    **解析 0 ○ 時間 00:00.4 深さ 9/14 ノード数 400 評価値 120 読み筋 ▲２六歩(27) △８四歩(83)

with the value from Black's side, and ○ where the move was the one that the engine had thought
best. ShogiHome reads them too but for mates, which it wants as `*#詰み=先手勝ち:5手`. Before them
stands a line for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ginkgo.play.analysis import Judged, Loss
from ginkgo.records.game import Game
from ginkgo.records.kifu.pieces import SQUARE_NAMES
from ginkgo.records.kifu.write import kif_moves
from ginkgo.records.replay import replay

#: Moves of a line that are written.
_LONGEST = 16
#: Marks of a move, as people say them.
MARKS = {"mistake": "疑問手", "blunder": "悪手"}
#: Comments of an earlier analysis: they give way to those of a new one.
_EARLIER = re.compile(
    r"\*(?:解析|Engines) |#(?:評価値|読み筋|深さ|ノード数|エンジン|詰み)=|先手の勝率 [0-9.]+%"
)  # fmt: skip


def commented(game: Game, judged: Sequence[Judged], lost: Sequence[Loss], engine: str) -> Game:
    """The game with the analysis in its comments, and its own comments before them.

    Args:
        judged: of the first so many positions. lost: of the moves between them.
        engine: its name.
    """
    sfens = replay(game)
    marks = {loss.ply: loss for loss in lost if loss.mark}
    comments = {}
    for ply in range(game.total + 1):
        own = (game.comments or {}).get(ply, "").split("\n")
        lines = [line for line in own if not _EARLIER.match(line)]
        lines = lines if any(lines) else []
        if ply == 0:
            lines.append(f"*Engines 0 {engine}")
        if ply < len(judged):
            before = judged[ply - 1] if ply else None
            lines += _lines(game, sfens, judged[ply], before, marks.get(ply))
        if lines:
            comments[ply] = "\n".join(lines)
    return replace(game, comments=comments, scores=(), variations=())


def _lines(
    game: Game, sfens: Sequence[str], here: Judged, before: Judged | None, loss: Loss | None
) -> list[str]:
    """The comment of a position.

    Args:
        before: the position before it. loss: what the move that led here cost, if it is marked.
    """
    played = game.moves[here.ply - 1] if before else ""
    text = f"先手の勝率 {100 * here.rate:.1f}%"
    if loss is not None and before is not None:
        best = _words(sfens[before.ply], before.line[:1], _last_square(game, before.ply))
        text += f" {MARKS[loss.mark]}: -{100 * loss.rate:.1f}% 最善手 {best}"
    lines = [text]
    if here.mate:
        side = "先手" if here.mate > 0 else "後手"
        lines.append(f"#詰み={side}勝ち:{abs(here.mate)}手")
    if here.line:
        words = ["*解析 0"]
        words += ["○"] if before and played == before.best else []
        words.append(f"時間 {_clock(here.seconds)} 深さ {len(here.line)}/{here.seldepth}")
        words.append(f"ノード数 {here.nodes}")
        value = f"{here.score}"
        if here.mate:
            value = f"{'+' if here.mate > 0 else '-'}詰 {abs(here.mate)}"
        words.append(f"評価値 {value} 読み筋")
        sfen = sfens[here.ply] if here.ply < len(sfens) else _last(game)
        line = here.line if here.mate else here.line[:_LONGEST]
        words.append(_words(sfen, line, _last_square(game, here.ply)))
        lines.append(" ".join(words))
    return lines


def _words(sfen: str, line: Sequence[str], last_to: int) -> str:
    """Moves as ShogiGUI writes them: `▲７六歩(77) △３四歩(33)`."""
    return " ".join(
        ("△" if white else "▲") + text for text, white in kif_moves(sfen, line, last_to)
    )


def _last_square(game: Game, ply: int) -> int:
    """Destination of a move as 10·file + rank, 0 before the first."""
    return SQUARE_NAMES.index(game.moves[ply - 1][2:4]) if ply else 0


def _last(game: Game) -> str:
    from ginkgo.records.kifu.pieces import position_after

    return position_after(game)


def _clock(seconds: float) -> str:
    """`01:05.2`: minutes, seconds, tenths."""
    tenths = round(10 * seconds)
    return f"{tenths // 600:02d}:{tenths // 10 % 60:02d}.{tenths % 10}"
