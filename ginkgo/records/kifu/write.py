"""Games as KIF, KI2 and CSA text, and as packed positions.

In: a `Game` whose moves are legal. Out: what the readers of this package read back as the same
moves, ending and winner. Where a format has no word for an ending, or one that would state another
winner, a comment line says it (`#ginkgo end=…`), which other programs pass over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from rsshogi.initial_positions import HANDICAP_TO_SFEN

from ginkgo.records.game import STARTPOS, Game
from ginkgo.records.kifu.bod import FILES, KANJI, NUMBERS, diagram
from ginkgo.records.kifu.japanese import END_WORDS
from ginkgo.records.kifu.ki2 import TOKEN, Board, Unclear, meant
from ginkgo.records.kifu.packed import HCPE, PSV, pack
from ginkgo.records.kifu.pieces import CSA_NAMES, WHITE, cells_from_sfen
from ginkgo.records.kifu.result import END_WORDS as CSA_END_WORDS
from ginkgo.records.kifu.result import repetition_winner, side_to_move

_LETTERS = "?PLNSBRG"
_HAND_NAMES = {"P": "FU", "L": "KY", "N": "KE", "S": "GI", "G": "KI", "B": "KA", "R": "HI"}
_KIF_WORDS = {
    **{"toryo": "投了", "chudan": "中断", "sennichite": "千日手", "jishogi": "持将棋"},
    **{"hikiwake": "引き分け", "max_moves": "最大手数", "tsumi": "詰み", "time_up": "切れ負け"},
    **{"illegal_move": "反則負け", "kachi": "入玉勝ち", "fuzumi": "不詰", "matta": "待った"},
    **{"error": "エラー", "perpetual": "千日手"},
}
#: What states a winner, or that there is none, and nothing else.
_CSA_WINNERS = {
    **{"b": "SENTE_WIN_UNKNOWN", "w": "GOTE_WIN_UNKNOWN", "d": "DRAW_UNKNOWN", "-": "%CHUDAN"},
}
#: What tells pieces of a kind apart in KI2, the plainest first.
_WHICH = ("", "上", "寄", "引", "直", "右", "左", "右上", "右寄", "右引", "左上", "左寄", "左引")
_CSA_WORDS = {end: word for word, (end, _) in reversed(CSA_END_WORDS.items()) if end != "unknown"}


def _steps(game: Game):
    """(origin or 0, destination, piece after the move, promotes, White moves) by move."""
    cells, white = cells_from_sfen(game.start)
    for usi in game.moves:
        to = 10 * int(usi[2]) + "abcdefghi".index(usi[3]) + 1
        if usi[1] == "*":
            origin, piece = 0, _LETTERS.index(usi[0])
        else:
            origin = 10 * int(usi[0]) + "abcdefghi".index(usi[1]) + 1
            piece = cells[origin] % WHITE + (8 if usi[-1] == "+" else 0)
            cells[origin] = 0
        cells[to] = piece + (WHITE if white else 0)
        yield origin, to, piece, usi[-1] == "+", white
        white = not white


def _said(game: Game, rule: str) -> str:
    """The winner that an end word states, see `result.END_WORDS`."""
    mover = side_to_move(game)
    return {"win": mover, "lose": "w" if mover == "b" else "b"}.get(rule, rule)


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- CSA --------------------------------------------------------------------------------------


def write_csa(game: Game) -> str:
    """A game as CSA 2.2, in UTF-8 where names need it."""
    lines = ["V2.2"]
    lines += [f"N+{_one_line(game.black)}"] if game.black else []
    lines += [f"N-{_one_line(game.white)}"] if game.white else []
    for side, rate in (("black", game.rate_b), ("white", game.rate_w)):
        if rate is not None:
            lines.append(f"'{side}_rate:{side}:{rate:.15g}")
    lines += _csa_position(game.start)
    comments = game.comments or {}
    lines += _comment_lines(comments.get(0, ""), "'*")
    white = game.start.split()[1] == "w"
    for ply, (origin, to, piece, _, white) in enumerate(_steps(game), 1):
        lines.append(f"{'-' if white else '+'}{origin:02d}{to}{CSA_NAMES[piece]}")
        time = game.times[ply - 1] if game.times else None
        if time is not None:
            lines.append(f"T{round(time, 3):.10g}")
        score = game.scores[ply - 1] if game.scores else None
        if score is not None:
            lines.append(f"'** {-score if white else score}")
        lines += _comment_lines(comments.get(ply, ""), "'*")
    return "\n".join([*lines, *_csa_end(game)]) + "\n"


def _csa_end(game: Game) -> list[str]:
    """The end word, and where it would say something else, one that does not and a hint."""
    if game.end == "unknown":
        return [] if game.winner == "-" else [_CSA_WINNERS[game.winner]]
    if game.end == "illegal_action" and game.winner in ("b", "w"):
        return ["%-ILLEGAL_ACTION" if game.winner == "b" else "%+ILLEGAL_ACTION"]
    if game.end == "perpetual":
        word, said = "SENNICHITE", repetition_winner(game)
    else:
        word = _CSA_WORDS[game.end]
        said = _said(game, CSA_END_WORDS[word][1])
    if said == game.winner:
        return [f"%{word}"]
    return [_CSA_WINNERS[game.winner], f"'{_hint(game)}"]


def _hint(game: Game) -> str:
    return f"#ginkgo end={game.end} winner={game.winner}"


def _csa_position(start: str) -> list[str]:
    turn = "-" if start.split()[1] == "w" else "+"
    if start.split()[:3] == [STARTPOS.split()[0], start.split()[1], "-"]:
        return ["PI", turn]
    cells, _ = cells_from_sfen(start)
    lines = []
    for rank in range(1, 10):
        row = ""
        for file in range(9, 0, -1):
            piece = cells[10 * file + rank]
            sign = "-" if piece > WHITE else "+"
            row += f"{sign}{CSA_NAMES[piece % WHITE]}" if piece else " * "
        lines.append(f"P{rank}{row}")
    held = {"+": "", "-": ""}
    count = ""
    for letter in start.split()[2].replace("-", ""):
        if letter.isdigit():
            count += letter
            continue
        sign = "-" if letter.islower() else "+"
        held[sign] += f"00{_HAND_NAMES[letter.upper()]}" * int(count or 1)
        count = ""
    lines += [f"P{sign}{pieces}" for sign, pieces in held.items() if pieces]
    return [*lines, turn]


def _comment_lines(text: str, mark: str) -> list[str]:
    return [mark + line for line in re.split(r"\r\n?|\n", text)] if text else []


# --- KIF and KI2 ------------------------------------------------------------------------------


def write_kif(game: Game) -> str:
    """A game as KIF (UTF-8)."""
    lines = ["#KIF version=2.0 encoding=UTF-8", *_header(game)]
    lines.append("手数----指手---------消費時間--")
    comments = game.comments or {}
    lines += _comment_lines(comments.get(0, ""), "*")
    spent = [0.0, 0.0]
    for ply, (text, white) in enumerate(kif_moves(game.start, game.moves), 1):
        time = game.times[ply - 1] if game.times else None
        if time is not None:
            spent[white] += time
            text = f"{text:<10}({_clock(time)}/{_long_clock(spent[white])})"
        lines.append(f"{ply:4d} {text}")
        lines += _comment_lines(comments.get(ply, ""), "*")
    return "\n".join([*lines, *_kif_end(game, numbered=True)]) + "\n"


def kif_moves(start: str, moves: Sequence[str], last_to: int = 0) -> Iterator[tuple[str, bool]]:
    """Moves as KIF words them, and whether White makes them.

    Args:
        start: SFEN of the position before the first. moves: legal ones, in USI.
        last_to: destination of the move before the first, as 10·file + rank; 0: there is none.

    >>> [text for text, _ in kif_moves("4k4/9/9/9/9/9/9/4p4/4K4 b G 1", ["5i5h", "5a5b", "G*5c"])]
    ['５八玉(59)', '５二玉(51)', '５三金打']
    """
    for origin, to, piece, promotes, white in _steps(Game(start=start, moves=moves)):
        square = "同　" if to == last_to else _square(to)
        kanji = KANJI[piece - 8 if promotes else piece]
        tail = f"({origin})" if origin else "打"
        yield f"{square}{kanji}{'成' if promotes else ''}{tail}", white
        last_to = to


def kif_file(game: Game) -> bytes:
    """A game as a `.kif` file.

    It is in Shift-JIS, which its suffix stands for, where every sign of it is there, else in UTF-8
    (which its first line says).
    """
    text = write_kif(game)
    try:
        return text.replace("encoding=UTF-8", "encoding=Shift_JIS", 1).encode("cp932")
    except UnicodeEncodeError:
        return text.encode()


def write_ki2(game: Game) -> str:
    """A game as KI2 (UTF-8). Which piece is meant is worded by rsshogi, see also `_clear`."""
    from rsshogi import core

    lines = ["#KI2 version=2.0 encoding=UTF-8", *_header(game), ""]
    comments = game.comments or {}
    lines += _comment_lines(comments.get(0, ""), "*")
    board, read = core.Board(), Board(game.start)
    board.set_sfen(game.start)
    row: list[str] = []
    last_to = ""
    for ply, usi in enumerate(game.moves, 1):
        text = core.Move.from_usi(usi).to_ki2(board)
        if text is None:
            raise ValueError(f"ply {ply}: {usi} has no name in KI2")
        board.apply_usi(usi)
        if usi[2:4] == last_to and "同" not in text:
            text = f"{text[0]}同　{text[3:]}"
        row.append(_clear(text, usi, read))
        read.push(usi)
        last_to = usi[2:4]
        comment = comments.get(ply, "")
        if len(row) == 6 or comment or ply == game.total:
            lines.append("    ".join(row))
            row = []
        lines += _comment_lines(comment, "*")
    return "\n".join([*lines, *_kif_end(game, numbered=False)]) + "\n"


def _clear(text: str, usi: str, board: Board) -> str:
    """A move in KI2, worded so that whoever reads it finds the right piece.

    rsshogi lets 左 and 右 stand alone where they leave two pieces: golds on 3h and 3i can both go
    to 2h from the left, and with a third one on 1h neither 寄 nor 左 is enough, only 左寄.

    Args:
        text: as rsshogi words it. usi: the move. board: the position before it.

    Raises:
        ValueError: no words tell the piece.
    """
    if _names(text, usi, board):
        return text
    match = TOKEN.fullmatch(text)
    if match is not None:
        head, tail = text[: match.start(6)], match[7] or ""
        for words in ("打",) if usi[1] == "*" else _WHICH:
            if _names(f"{head}{words}{tail}", usi, board):
                return f"{head}{words}{tail}"
    raise ValueError(f"{usi} has no name in KI2")


def _names(text: str, usi: str, board: Board) -> bool:
    """Whether the reader takes a move in KI2 for the one that is meant."""
    match = TOKEN.fullmatch(text)
    try:
        return match is not None and meant(board, match) == usi
    except Unclear:
        return False


def _sides(start: str) -> tuple[str, str, str]:
    """The name of the handicap, empty for other positions, and what Black and White are called."""
    # Only names that other programs know; what has none gets a diagram.
    names = {sfen: word for word, sfen in HANDICAP_TO_SFEN.items()}
    handicap = names.get(start.rsplit(" ", 1)[0] + " 1", "")
    return handicap, *(("先手", "後手") if handicap in ("", "平手") else ("下手", "上手"))


def _header(game: Game) -> list[str]:
    handicap, black, white = _sides(game.start)
    lines = [f"手合割：{handicap}"] if handicap else diagram(game.start).split("\n")
    lines += [f"{black}：{_one_line(game.black)}"] if game.black else []
    lines += [f"{white}：{_one_line(game.white)}"] if game.white else []
    return lines


def _square(square: int) -> str:
    return FILES[square // 10 - 1] + NUMBERS[square % 10]


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60):2d}:{_seconds(seconds % 60)}"


def _long_clock(seconds: float) -> str:
    minutes = int(seconds // 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{int(seconds % 60):02d}"


def _seconds(seconds: float) -> str:
    text = f"{seconds:06.3f}".rstrip("0").rstrip(".")
    return text if "." in text else f"{int(seconds):02d}"


def _kif_end(game: Game, numbered: bool) -> list[str]:
    """The end word, the まで line, and the line that says what both leave open."""
    mover = side_to_move(game)
    other = "w" if mover == "b" else "b"
    word = _KIF_WORDS.get(game.end, "")
    if game.end == "illegal_action":
        word = "反則勝ち" if game.winner == mover else "反則負け"
    if not word:
        return [_hint(game)] if game.winner != "-" else []
    end, rule = END_WORDS[word]
    said = _said(game, rule)
    if game.end == "perpetual":
        end, said = "perpetual", repetition_winner(game)
    if said != game.winner and rule != "-":
        word = "中断"  # the right word would be taken for another result
    names = dict(zip("bw", _sides(game.start)[1:], strict=True))
    lines = [f"{game.total + 1:4d} {word}"] if numbered else []
    text = f"まで{game.total}手で"
    if word in ("反則負け", "反則勝ち"):
        loser = names[mover if word == "反則負け" else other]
        winner = names[mover]
        text += f"{loser}の反則負け" if word == "反則負け" else f"{winner}の反則勝ち"
    elif word == "切れ負け":
        text += f"時間切れにより{names[other]}の勝ち"
    elif word == "入玉勝ち":
        text += f"{names[mover]}の入玉勝ち"
    elif word == "投了":
        text += f"{names[other]}の勝ち"
    else:
        text += word
    lines.append(text)
    if (end, said) != (game.end, game.winner):
        lines.append(_hint(game))
    return lines


# --- packed -----------------------------------------------------------------------------------


def pack_positions(game: Game, kind: str, sfens: Sequence[str], indices: Sequence[int]) -> bytes:
    """Positions of a game, with its moves and result, as hcpe or PSV.

    Args:
        kind: `hcpe` or `psv`.
        sfens: before each move. indices: which of them, from 0.
    """
    from cshogi import move16_to_psv

    from ginkgo.records.kifu.pieces import move16

    dtype = HCPE if kind == "hcpe" else PSV
    records = np.zeros(len(indices), dtype)
    records["position"] = pack([sfens[index] for index in indices], kind)
    result = {"b": 1, "w": 2}.get(game.winner, 0)
    for row, index in enumerate(indices):
        record = records[row]
        white = sfens[index].split(" ", 2)[1] == "w"
        score = game.scores[index] if game.scores else None
        record["score"] = max(-32767, min(32767, score or 0))
        move = move16(game.moves[index])
        if kind == "hcpe":
            record["move"], record["result"] = move, result
        else:
            record["move"] = move16_to_psv(move)
            record["ply"] = min(65535, int(sfens[index].rsplit(" ", 1)[1]))
            record["result"] = 0 if result == 0 else 1 if (result == 2) == white else -1
    return records.tobytes()
