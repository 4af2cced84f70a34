"""Kifu that are malformed or unusual in ways beyond the known list, each of its whole kind."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest
from kifu_texts import CSA_HEADER, CSA_MOVES, KIF_HEADER, read_all, read_one, refused

from ginkgo.errors import GinkgoError
from ginkgo.records import ENDINGS, STARTPOS, Game, Refusal, parse_game_line, parse_record
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.records.files import find_files
from ginkgo.records.inspect import inspect
from ginkgo.records.inspect import main as inspect_main
from ginkgo.records.kifu import jkf, ki2, kif, write
from ginkgo.records.kifu.detect import detect
from ginkgo.records.kifu.stream import raw_games
from ginkgo.records.positions import write_records, write_sfens
from ginkgo.records.replay import played, replay
from ginkgo.records.sfen import check_sfen
from ginkgo.records.sources import read_games
from ginkgo.records.stats import main as stats_main

ROOT = Path(__file__).parent.parent
OPENING = "   1 ７六歩(77)\n   2 ３四歩(33)\n"
CSA_GAME = CSA_HEADER + CSA_MOVES + "%TORYO\n"

# --- who has won ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end", "winner"),
    [
        ("先手の時間切れ", "time_up", "w"),
        ("後手時間切れ", "time_up", "b"),
        ("時間切れにより後手の負け", "time_up", "b"),
        ("先手の時間切れ負け", "time_up", "w"),
        ("先手の時間切れ勝ち", "time_up", "b"),
        ("先手の反則", "illegal_move", "w"),
        ("後手の反則により先手の勝ち", "illegal_move", "b"),
        ("後手の反則負けで先手の勝ち", "illegal_move", "b"),
        ("先手の投了", "toryo", "w"),
        ("後手投了", "toryo", "b"),
        ("後手の入玉宣言", "kachi", "w"),
        ("後手の入玉宣言勝ち", "kachi", "w"),
        ("連続王手の千日手により先手の勝ち", "perpetual", "b"),
        ("後手の勝ち（先手時間切れ）", "time_up", "w"),
        ("千日手で先手の勝ち", "sennichite", "-"),
        ("先手の勝ち、後手の勝ち", "unknown", "-"),
        ("時間切れ", "time_up", "-"),
    ],
)
def test_until_lines_say_who_lost_as_well_as_who_won(text, end, winner):
    for moves in (OPENING, "▲７六歩 △３四歩\n"):
        game = read_one(f"{KIF_HEADER}{moves}まで2手で{text}\n")
        assert (game.end, game.winner) == (end, winner)


def test_until_lines_with_names_that_lie_within_each_other():
    header = KIF_HEADER.replace("甲", "田中").replace("乙", "中")
    assert read_one(f"{header}{OPENING}まで2手で田中の勝ち\n").winner == "b"
    assert read_one(f"{header}{OPENING}まで2手で中の勝ち\n").winner == "w"


@pytest.mark.parametrize("end", ["%TORYO", "%CHUDAN", "%MATTA", "%TORYO,T3", "#TIME_UP"])
@pytest.mark.parametrize("move", ["+2726FU", "+2726FU,T1", "+2726FU "])
def test_csa_moves_after_the_end_would_turn_the_winner_round(end, move):
    refusal = refused(f"{CSA_HEADER}{CSA_MOVES}{end}\n{move}\n", "x.csa")
    assert (refusal.line, refusal.plies) == (11, 2)
    assert "after the end" in refusal.reason


@pytest.mark.parametrize("line", ["N+other", "V2.2"])
def test_csa_games_that_no_slash_parts(line):
    refusal = refused(CSA_HEADER + CSA_MOVES + line + "\n+2726FU\n", "x.csa")
    assert "'/'" in refusal.reason
    assert refusal.line == 10


def test_csa_a_declaration_in_a_client_s_log():
    game = read_one(CSA_HEADER + CSA_MOVES + "%KACHI\n#JISHOGI\n#WIN\n")
    assert (game.end, game.winner) == ("kachi", "b")
    assert read_one(CSA_HEADER + CSA_MOVES + "#JISHOGI\n").winner == "d"


def test_unknown_end_words_are_told():
    game = read_one(CSA_HEADER + CSA_MOVES + "%ILLEGAL_ACTION\n")
    assert (game.end, game.winner) == ("unknown", "-")
    assert "'%ILLEGAL_ACTION'" in game.notes[0]


def test_usi_end_words_against_what_the_line_states():
    game = parse_game_line("startpos moves 7g7f 3c3d resign\twinner=b")
    assert game.winner == "-"
    assert "'resign'" in game.notes[0]
    assert "'winner=b'" in game.notes[0]
    assert parse_game_line("startpos moves 7g7f 3c3d resign\twinner=w\tend=toryo").winner == "w"


# --- nothing is passed over --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "line", "reason"),
    [
        (["P1-OU" + " * " * 8, "P9+OU" + " * " * 8], 2, "lacks P2 P3 P4 P5 P6 P7 P8"),
        (["P1-OU" + " * " * 8] * 2, 2, "already"),
        (["P+55FU", "P-55FU"], 2, "already"),
        (["P+55FU", "P5" + " * " * 9], 2, "already"),
        (["P+55FU", "PI"], 2, "after other lines"),
    ],
)
def test_csa_positions_that_lack_or_repeat_something(lines, line, reason):
    refusal = refused("\n".join([*lines, "+", "+9192OU"]) + "\n", "x.csa")
    assert refusal.line == line
    assert reason in refusal.reason


def diagram(row: str, hand: str = "なし") -> str:
    rows = ["|v玉 ・ ・ ・ ・ ・ ・ ・ ・|", row, *["| ・ ・ ・ ・ ・ ・ ・ ・ ・|"] * 6]
    rows.append("| 玉 ・ ・ ・ ・ ・ ・ ・ ・|")
    return "\n".join([f"後手の持駒：{hand}", *rows, "先手の持駒：なし", "先手番"]) + "\n"


@pytest.mark.parametrize("sign", ["v", "V", "Ｖ", "ｖ"])
def test_diagrams_mark_white_in_several_ways(sign):
    game = read_one(diagram(f"| ・{sign}歩 ・ ・ ・ ・ ・ ・ ・|") + "1 ８八玉(99)\n")
    assert game.start.split("/")[1] == "1p7"


@pytest.mark.parametrize(
    ("row", "hand", "line"),
    [
        ("| ・w歩 ・ ・ ・ ・ ・ ・ ・|", "なし", 3),
        ("| ・ ・ ・ ・ ・ ・ ・ ・ ・?|", "なし", 3),
        ("| ・ ・ ・ ・ ・ ・ ・ ・ ・|", "飛　玉", 1),
        ("| ・ ・ ・ ・ ・ ・ ・ ・ ・|", "残り全部", 1),
    ],
)
def test_diagrams_with_signs_that_mean_nothing(row, hand, line):
    refusal = refused(diagram(row, hand) + "1 ８八玉(99)\n", "x.kif")
    assert refusal.line == line
    assert "cannot read" in refusal.reason


def test_pieces_in_hand_are_added_up_and_need_a_diagram():
    row = "| ・ ・ ・ ・ ・ ・ ・ ・ ・|"
    game = read_one(diagram(row, "歩 歩　歩二、角") + "1 ８八玉(99)\n")
    assert game.start.split()[2] == "b4p"
    assert refused(f"手合割：平手\n後手の持駒：角\n{OPENING}", "x.kif").line == 2
    assert read_one(f"手合割：平手\n後手の持駒：なし\n{OPENING}").total == 2


@pytest.mark.parametrize(
    "word", ["香落", "角落ち", "飛車落", "２枚落ち", "2枚落", "二枚", "10枚落ち"]
)
def test_handicaps_in_every_spelling(word):
    start = read_one(f"手合割：{word}\n1 ５二玉(51)\n").start
    assert start.split()[1] == "w"


def test_a_diagram_after_the_moves_is_not_the_start():
    drawn = diagram("| ・ ・ ・ ・ ・ ・ ・ ・ ・|")
    game = read_one(KIF_HEADER + OPENING + "   3 投了\n" + drawn)
    assert (game.start, game.total, game.winner) == (STARTPOS, 2, "w")
    assert any("not understood" in note for note in game.notes)


def test_lines_with_unknown_words_are_not_all_ends():
    text = KIF_HEADER + "   1 ?\n   2 ??\n   3 ???\n"
    assert refused(text, "x.kif").line == 5
    assert "cannot read" in refused(text, "x.kif").reason


@pytest.mark.parametrize(
    "line",
    ["X ７六歩(77)", "X ７六歩(77) ( 0:01/00:00:01)", "１手目　７六歩(77)", "\xa01 ７六歩(77)"],
)
def test_the_first_move_is_not_passed_over_either(line):
    text = diagram("| ・ ・ 歩 ・ ・ ・ ・ ・ ・|").replace("先手番\n", "")
    # Where no line says who moves, the first move that can be read would.
    refusal = refused(f"{text}{line}\n2 ８二玉(91)\n", "x.kif")
    assert refusal.line == 12
    assert "cannot read" in refusal.reason


def test_remarks_with_moves_in_them_are_no_moves():
    for text in ("備考：７六歩(77)からの変化\n" + OPENING, OPENING + "備考：２六歩打は悪手\n"):
        assert read_one(KIF_HEADER + text).total == 2


def test_notes_do_not_grow_without_end():
    notes = read_one(CSA_HEADER + CSA_MOVES + "what?\n" * 500).notes
    assert len(notes) == 21
    assert notes[-1].startswith("480 more")


# --- nothing takes for ever --------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "1" + " " * 60_000 + "x",
        " " * 60_000 + "x",
        "1 ７六歩" + " " * 60_000 + "(77",
        "1" * 60_000 + " ７六歩(77)",
        "▲" * 20_000 + "７六歩" + " " * 20_000,
        "(" * 60_000,
        "変化：" + "9" * 9000 + "手",
        "まで" + "9" * 9000 + "手で先手の勝ち",
        "'black_rate:" + ":1" * 20_000 + "x",
        "+7776FU,T" + "9" * 9000,
        "手数＝" + "9" * 9000,
    ],
)
def test_long_lines_take_no_longer_than_they_are(line):
    for name in ("x.kif", "x.ki2", "x.csa"):
        begun = time.process_time()
        read_all(f"{line}\n1 ７六歩(77)\n{line}\n", name)
        # Quadratic time would be minutes: no machine is that slow.
        assert time.process_time() - begun < 20


def test_variations_without_end(monkeypatch):
    """Each is played from the start of the game: a small file could ask for days of that."""
    for module in (kif, ki2, jkf):
        monkeypatch.setattr(module, "MOST_BRANCH_PLIES", 20)
    text = KIF_HEADER + OPENING + "変化：2手\n   2 ８四歩(83)\n" * 50
    node = '{"move": {"from": {"x": 3, "y": 3}, "to": {"x": 3, "y": 4}, "piece": "FU"}'
    first = node.replace("3", "7").replace('"y": 4', '"y": 6')
    tree = f'{{"moves": [{{}}, {first}}}, {node}, "forks": [{", ".join([f"[{node}}}]"] * 50)}]}}]}}'
    for whole, name in (
        (text, "x.kif"),
        ("▲７六歩 △３四歩\n" + "変化：2手\n△８四歩\n" * 50, "x.ki2"),
        (tree, "x.jkf"),
    ):
        game = read_one(whole, name)
        assert (list(game.moves), len(game.variations)) == (["7g7f", "3c3d"], 10)
        assert "too many variations" in game.notes[-1]


def test_numbers_without_end_are_no_numbers(tmp_path):
    long = "9" * 400
    game = read_one(f"{CSA_HEADER}+7776FU\nT{long}\n-3334FU,T{long}\n'black_rate:a:{long}\n")
    assert (game.total, game.rate_b, list(game.times)) == (2, None, [])
    for text in ("nan", "inf", "-inf", "1e999"):
        with pytest.raises(GinkgoError, match="expected a number"):
            parse_game_line(f"startpos moves 7g7f\trate_b={text}")
        with pytest.raises(GinkgoError, match="expected a number"):
            parse_record(f"{STARTPOS},1,7g7f,b,rate={text}")
    with pytest.raises(GinkgoError, match="number of plies"):
        parse_record(f"{STARTPOS},{long * 20},7g7f,b")
    move = '{"move": {"from": {"x": 7, "y": 7}, "to": {"x": 7, "y": 6}, "piece": "FU"},'
    timed = f'{{"moves": [{{}}, {move} "time": {{"now": {{"m": 1e999, "s": 1}}}}}}]}}'
    game = read_one(timed, "x.jkf")
    assert list(game.times) == []
    assert "７六歩" in write.write_kif(game)


def test_times_and_comments_come_back_from_what_is_written():
    game = Game(moves=["7g7f", "3c3d"], times=[1_234_567.0, 0.125], comments={1: "a\r+2726FU\r\nb"})
    for text in (write.write_csa(game), write.write_kif(game)):
        back = read_one(text)
        assert list(back.moves) == list(game.moves)
        assert back.comments == {1: "a\n+2726FU\nb"}
        assert list(back.times) == list(game.times)


# --- files, archives, names ----------------------------------------------------------------------


def zipped(entries: dict[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(entries: dict[str, bytes], mode: str = "w") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def test_archives_within_archives(tmp_path):
    game = CSA_GAME.encode()
    inner = {
        "a.zip": zipped({"1.csa": game, "empty.csa": b""}),
        "b.tar.gz": tarred({"2.csa": game}, "w:gz"),
        "c.tgz": tarred({"3.csa": game}, "w:gz"),
        "d.tar": tarred({"e.zip": zipped({"4.csa": game})}),
    }
    path = tmp_path / "all.zip"
    path.write_bytes(zipped(inner))
    found = list(inspect([str(path)]))
    assert [one.game for _, _, one in found if isinstance(one, Game) and one.moves] == [
        *("all/a/1", "all/b/2", "all/c/3", "all/d/e/4")
    ]
    assert found[0][0] == f"{path}!a.zip!1.csa"
    deep = game
    for _ in range(5):
        deep = zipped({"x.zip": deep, "1.csa": game})
    path.write_bytes(deep)
    found = list(inspect([str(path)]))
    assert any(isinstance(one, Refusal) and "deep" in one.reason for _, _, one in found)


def test_damage_to_one_member_leaves_the_others(tmp_path):
    path = tmp_path / "x.zip"
    data = bytearray(zipped({"1.csa": CSA_GAME.encode(), "2.csa": CSA_GAME.encode()}))
    place = data.index(b"+7776FU")
    data[place : place + 7] = b"+2726FU"
    path.write_bytes(data)
    bad, good = inspect([str(path)])
    assert isinstance(bad[2], Refusal)
    assert bad[0] == f"{path}!1.csa"
    assert isinstance(good[2], Game)
    cut = tmp_path / "x.tar"
    cut.write_bytes(tarred({"1.csa": CSA_GAME.encode(), "2.csa": CSA_GAME.encode() * 30})[:2500])
    kinds = [type(one) for _, _, one in inspect([str(cut)])]
    assert kinds[0] is Game
    assert kinds[-1] is Refusal


def test_directories_with_links_in_circles_and_to_nowhere(tmp_path):
    games = tmp_path / "games"
    (games / "deep").mkdir(parents=True)
    (games / "deep" / "a b.csa").write_text(CSA_GAME)
    (games / "deep" / "up").symlink_to(games)
    (games / "gone.csa").symlink_to("nowhere")
    (games / "round.kif").symlink_to("round.kif")
    (games / "elsewhere").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.csa").write_text(CSA_GAME.replace("7776", "2726"))
    found = {file: one for file, _, one in inspect([str(games)])}
    assert [Path(file).name for file in found] == ["a b.csa", "b.csa", "gone.csa", "round.kif"]
    assert [isinstance(one, Refusal) for one in found.values()] == [False, False, True, True]
    report = convert(ConvertConfig((str(games),), str(tmp_path / "out"), workers=1))
    assert (report["games"], len(report["refused"])) == (2, 2)


def test_patterns_end_where_links_lead_in_circles(tmp_path, monkeypatch):
    folder = tmp_path / "games" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.csa").write_text(CSA_GAME)
    for number in range(6):
        (folder / f"up{number}").symlink_to(tmp_path / "games")
    monkeypatch.chdir(tmp_path)
    expected = [Path("games/deep/a.csa")]
    for pattern in ("games/**/*.csa", "**/*.csa", "ga*/**/deep/a.*", f"{tmp_path}/**"):
        found = find_files([pattern], [".csa"])
        assert [file.absolute() for file in found] == [file.absolute() for file in expected]


def test_a_directory_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    (tmp_path / "a.csa").write_text(CSA_GAME)
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(GinkgoError, match="shut: Permission denied"):
        find_files([tmp_path], [".csa"])


def test_names_in_no_encoding(tmp_path, capsys):
    folder = os.fsencode(tmp_path) + b"/g\xff"
    os.mkdir(folder)
    for name, text in ((b"\xfe.csa", CSA_GAME), (b"bad\xfe.csa", "+7775FU\n"), (b"\xfd.usi", "x")):
        with open(folder + b"/" + name, "w") as stream:
            stream.write(text)
    path = os.fsdecode(folder)
    assert inspect_main([path, "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["plies"] for one in found) == [0, 0, 2]
    assert "\\udcfe.csa" in found[-1]["file"]
    report = convert(ConvertConfig((path,), str(tmp_path / "out"), workers=1))
    assert (report["games"], len(report["refused"])) == (1, 2)
    assert stats_main([path]) == 0


def test_output_that_the_terminal_cannot_show(tmp_path):
    (tmp_path / "g.csa").write_text(CSA_GAME.replace("black", "先手"))
    done = subprocess.run(
        [sys.executable, "-m", "ginkgo", "inspect", str(tmp_path / "g.csa")],
        **{"capture_output": True, "cwd": ROOT, "env": os.environ | {"PYTHONIOENCODING": "ascii"}},
    )
    assert done.returncode == 0, done.stderr
    assert b"2 plies" in done.stdout


@pytest.mark.parametrize("name", ["pipe", "pipe.usi", "pipe.csa"])
def test_pipes_are_read_once_and_whole(tmp_path, name):
    path = tmp_path / name
    os.mkfifo(path)
    games = [CSA_GAME.replace("3334FU", move) for move in ("8384FU", "3334FU", "4344FU")]
    writer = threading.Thread(target=path.write_text, args=("/\n".join(games),))
    writer.start()
    report = convert(ConvertConfig((str(path),), str(tmp_path / "out"), workers=1))
    writer.join()
    assert report["games"] == 3


@pytest.mark.parametrize("name", ["x.usi", "x.sfen", "x.csa", "x.kif", "x.jkf", "x.psv"])
def test_content_decides_in_every_verb(tmp_path, name):
    path = tmp_path / name
    texts = {
        "csa": CSA_GAME,
        "kif": KIF_HEADER + OPENING + "3 投了\n",
        "usi": "startpos moves 7g7f 3c3d\twinner=w\tend=toryo\n",
        "jkf": '{"header": {}, "moves": [{}, {"special": "TORYO"}]}',
    }
    for kind, text in texts.items():
        path.write_text(text)
        [(_, game)] = read_games(path)
        assert isinstance(game, Game), game
        assert game.format == kind
        if kind != "jkf":
            out = tmp_path / f"{kind}-out"
            report = convert(ConvertConfig((str(path),), str(out), workers=1))
            assert (report["games"], report["positions"]) == (1, 2)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_files_of_many_games_in_any_encoding(tmp_path, encoding, line_end):
    lines = "startpos moves 7g7f\twinner=b\n# x\n\nstartpos moves 2g2f\twinner=b\n"
    for name, text in (("g.csa", f"{CSA_GAME}/\n{CSA_GAME}"), ("g.usi", lines)):
        path = tmp_path / name
        path.write_bytes(text.replace("\n", line_end).encode(encoding))
        found = [game for _, game in read_games(path)]
        assert [isinstance(game, Game) for game in found] == [True, True], found
        assert [one.total for _, _, one in inspect([str(path)])] == [len(g.moves) for g in found]


def test_text_in_jis():
    game = read_one((KIF_HEADER + OPENING).encode("iso2022_jp"), "x.kif")
    assert (game.encoding, game.black, game.total) == ("iso2022_jp", "甲", 2)
    assert "JIS" in refused(b"\x1b$B\x01\x02 1\n+7776FU\n", "x.csa").reason


def test_a_jkf_with_any_name():
    assert detect(b'{"header": {}, "moves": [{}]}', "x.csa") == "jkf"


# --- SFENs and records that a game's loop writes -------------------------------------------------


def test_sfens_are_cshogi_s(sample_lines):
    import cshogi

    games = [parse_game_line(line) for line in sample_lines[::20]]
    games.append(Game(start="4k4/9/9/9/9/9/9/9/4K4 w 2r2b4g4s4n4l18p 65000", moves=["P*5e"]))
    for game in games:
        board, expected = cshogi.Board(game.start), []
        for usi in game.moves:
            expected.append(board.sfen())
            board.push_usi(usi)
        packed = played(game)
        assert replay(game) == write_sfens(game.start, packed) == expected
        lines = [
            f"{sfen},{game.total},{usi},x\n" for sfen, usi in zip(expected, game.moves, strict=True)
        ]
        start, total = game.start, game.total
        every = write_records(start, packed, total, (b",x\n", b",x\n")).decode()
        assert every == "".join(lines)
        odd = write_records(start, packed, total, (None, b",x\n"), 2).decode()
        assert odd == "".join(lines[3::2])


def test_start_positions_in_canonical_form():
    sfen = "4k4/45/9/111111111/9/9/9/9/4K4 b P 1"
    assert check_sfen(sfen) == "4k4/9/9/9/9/9/9/9/4K4 b P 1"
    game = parse_game_line(f"sfen {sfen} moves P*5e")
    assert replay(game) == ["4k4/9/9/9/9/9/9/9/4K4 b P 1"]
    assert game.hash == parse_game_line("sfen 4k4/9/9/9/9/9/9/9/4K4 b P moves P*5e").hash


def test_raw_games_of_nothing(tmp_path):
    for name in ("x.csa", "x.kif", "x.hcpe", "x.zip", "x.7z", "x.tar", "x.csa.gz", "x.zst"):
        path = tmp_path / name
        path.write_bytes(b"")
        for raw in raw_games(path):
            assert isinstance(raw, Refusal) or not raw.data


@pytest.mark.parametrize("winner", ["b", "w", "d", "-"])
def test_no_format_turns_what_is_not_clear_into_a_result(winner):
    """A game whose end and winner do not agree comes back as it was."""
    for end in ENDINGS:
        for moves in (["7g7f", "3c3d"], ["7g7f"]):
            game = Game(moves=moves, winner=winner, end=end)
            for text in (write.write_csa(game), write.write_kif(game), write.write_ki2(game)):
                back = read_one(text)
                assert (back.end, back.winner) == (end, winner), text
                if winner == "-":  # other programs, which pass over hints, see no winner either
                    plain = "\n".join(line for line in text.split("\n") if "#ginkgo" not in line)
                    assert read_one(plain).winner == "-", text
