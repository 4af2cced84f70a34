"""`ginkgo convert`, end to end on the first games of the bundled sample."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ginkgo.errors import GinkgoError
from ginkgo.records import Game, format_record, parse_game_line, parse_record
from ginkgo.records.convert import ConvertConfig, main
from ginkgo.records.convert import run as module
from ginkgo.records.convert.chunks import cut_chunks
from ginkgo.records.convert.render import Rendered, render
from ginkgo.records.convert.run import convert, held_elsewhere
from ginkgo.records.files import open_binary
from ginkgo.records.game import BUCKETS, MAX_PLIES, SPLITS
from ginkgo.records.replay import replay
from ginkgo.records.sources import find_sources
from ginkgo.records.split import Split, choose_split

SAMPLE = Path(__file__).parent.parent / "data" / "sample" / "engine-games.usi.gz"
GAMES = 200


@pytest.fixture(scope="session")
def lines() -> list[str]:
    with gzip.open(SAMPLE, "rt") as stream:
        return [next(stream) for _ in range(GAMES)]


@pytest.fixture
def source(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "in" / "engine.usi"
    path.parent.mkdir()
    path.write_text("".join(lines))
    return path


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several shards from few games. Chunks are cut by the parent, so this reaches the workers."""
    monkeypatch.setattr(module.cut_chunks, "__defaults__", (50,))


def config(*sources: Path, out: Path, **options) -> ConvertConfig:
    return ConvertConfig(tuple(map(str, sources)), str(out), **{"workers": 1, **options})


def shards(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.glob("*/*"))
        if path.name != "manifest.json"
    }


def records(out: Path, split: str = "*") -> list:
    found = []
    for path in sorted(out.glob(f"{split}/*.sfenx*")):
        with open_binary(path) as stream:
            found += [parse_record(line.decode()) for line in stream]
    return found


def test_the_whole_way(tmp_path, source, lines):
    out, report_path = tmp_path / "out", tmp_path / "r" / "report.json"
    report = convert(config(source, out=out, report=str(report_path), val_fraction=0.1))
    games = {game.game: game for game in map(parse_game_line, lines)}
    split = choose_split((game.bucket for game in games.values()), 0.1)

    assert json.loads(report_path.read_text()) == report
    assert json.loads((out / "convert-report.json").read_text()) == report
    assert report["games"] == GAMES
    assert report["refused"] == []
    assert report["left_out"] == 0
    assert report["positions"] == sum(game.total for game in games.values())
    assert report["endings"] == Counter(game.end for game in games.values())
    assert report["sources"]["engine"]["thresholds"] == {"test": split.test, "val": split.val}

    seen = set()
    for where in SPLITS:
        found = records(out, where)
        ids = {record.game for record in found}
        assert ids
        assert not ids & seen
        seen |= ids
        assert all(split.of(games[name].bucket) == where for name in ids)
        counts = {"games": len(ids), "positions": len(found)}
        assert report["splits"][where] == report["sources"]["engine"]["splits"][where] == counts
        manifest = json.loads((out / where / "manifest.json").read_text())
        assert manifest["format"] == "sfenx"
        assert set(manifest["files"]) == {path.name for path in (out / where).glob("*.sfenx")}
        assert sum(file["positions"] for file in manifest["files"].values()) == len(found)
        assert sum(file["games"] for file in manifest["files"].values()) == len(ids)
    assert seen == set(games)
    assert {path.name for path in (out / "train").glob("*.sfenx")} == {
        f"engine-{number:05d}.sfenx" for number in range(4)
    }

    for where in SPLITS:
        for path in (out / where).glob("*.sfenx"):
            for line in path.read_text().splitlines():
                record = parse_record(line)
                game = games[record.game]
                assert format_record(record) == line
                ply = int(record.sfen.split()[3])
                assert (record.total, record.winner, record.end) == (
                    game.total,
                    game.winner,
                    game.end,
                )
                assert record.move == game.moves[ply - 1]
    a_game = games[records(out, "val")[0].game]
    assert replay(a_game) == [r.sfen for r in records(out, "val") if r.game == a_game.game]
    saved = json.loads((out / "convert.json").read_text())
    assert saved["val_fraction"] == 0.1
    assert saved["sources"] == [str(source)]


@pytest.mark.parametrize("compress", ["none", "gz", "zst"])
def test_same_bytes_whatever_the_number_of_workers(tmp_path, source, compress):
    reports = [
        convert(config(source, out=tmp_path / str(workers), workers=workers, compress=compress))
        for workers in (1, 2)
    ]
    assert reports[0] == reports[1]
    assert shards(tmp_path / "1") == shards(tmp_path / "2") != {}
    assert len(records(tmp_path / "2")) == reports[0]["positions"]


def test_no_game_is_in_two_splits_through_two_sources(tmp_path, lines):
    """Three sources that overlap; their sizes differ and so do their thresholds."""
    given = {"a": lines[:150], "b": lines[100:], "c": [*lines[40:75], *lines[120:140]]}
    folder = tmp_path / "in"
    folder.mkdir()
    for name, some in given.items():
        (folder / f"{name}.usi").write_text("".join(some))
    games = {name: [parse_game_line(line) for line in some] for name, some in given.items()}
    splits = {
        name: choose_split((game.bucket for game in some), 0.2) for name, some in games.items()
    }
    homes: dict[str, tuple[str, str]] = {}
    for where in reversed(SPLITS):
        for name, some in games.items():
            for game in some:
                if splits[name].of(game.bucket) == where:
                    homes.setdefault(game.game, (where, name))
    expected = []
    for name, some in games.items():
        for number, game in enumerate(some, 1):
            where, keeper = homes[game.game]
            if splits[name].of(game.bucket) != where:
                reason = f"held out as {where} in source {keeper}"
                expected.append(
                    {"file": str(folder / f"{name}.usi"), "line": number, "reason": reason}
                )
    assert {one["reason"].split()[3] for one in expected} == {"test", "val"}
    moved = {(splits[name].of(g.bucket), homes[g.game][0]) for name in games for g in games[name]}
    assert {("train", "val"), ("val", "test")} <= moved

    duplicates = sum(map(len, games.values())) - len(expected) - len(homes)
    reports = []
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        # Nothing is wrong with these games: `strict` does not stop at them.
        reports.append(
            convert(config(folder, out=out, workers=workers, val_fraction=0.2, strict=True))
        )
        ids = {where: {record.game for record in records(out, where)} for where in SPLITS}
        for where in SPLITS:
            assert ids[where] == {name for name, (split, _) in homes.items() if split == where}
    assert reports[0] == reports[1]
    assert shards(tmp_path / "out1") == shards(tmp_path / "out2")
    assert reports[0]["refused"] == expected
    assert reports[0]["duplicates"] == duplicates > 0
    assert reports[0]["games"] == len(homes)


def test_games_keep_their_strictest_split():
    splits = {"a": Split(), "b": Split(20, 40), "c": Split(10, 30), "none": Split(500, 1000)}
    top = 2**64 - 2**64 % BUCKETS - BUCKETS  # in bucket 0, and beyond a signed number
    hashes = {
        "a": np.array([top + 5, top + 15, 35, 50, 35, 7], np.uint64),
        "b": np.array([top + 5, top + 15, 35, 50, 8], np.uint64),
        "c": np.array([50, 35, top + 15, top + 5, 9], np.uint64),
        "none": np.zeros(0, np.uint64),
    }
    in_b = "held out as test in source b"
    assert held_elsewhere(hashes, splits) == {
        "a": {top + 5: in_b, top + 15: in_b, 35: "held out as val in source b"},
        "b": {},
        "c": {top + 15: in_b, 35: "held out as val in source b"},
        "none": {},
    }


def test_filters(tmp_path, source, lines):
    games = [parse_game_line(line) for line in lines]
    convert(config(source, out=tmp_path / "a", min_ply=30, side="w"))
    expected = sum(len(range(30, game.total + 1, 2)) for game in games)
    found = records(tmp_path / "a")
    assert len(found) == expected
    assert {record.sfen.split()[1] for record in found} == {"w"}
    assert min(int(record.sfen.split()[3]) for record in found) == 30

    report = convert(config(source, out=tmp_path / "b", endings=("tsumi,kachi", "perpetual")))
    kept = Counter(game.end for game in games if game.end in ("tsumi", "kachi", "perpetual"))
    assert report["endings"] == dict(kept)
    assert report["games"] == kept.total()
    assert report["left_out"] == GAMES - kept.total()

    with pytest.raises(GinkgoError, match="--endings nonsense"):
        convert(config(source, out=tmp_path / "c", endings=("nonsense",)))
    with pytest.raises(GinkgoError, match="--val-fraction"):
        convert(config(source, out=tmp_path / "c", val_fraction=0.7))


def test_ratings(tmp_path):
    path = tmp_path / "g.usi"
    one, two, three = (f"startpos moves 7g7f 3c3d 2g2f {move}" for move in ("4c4d", "8c8d", "5a4b"))
    path.write_text(
        f"{one}\trate_b=3000\trate_w=2000.5\tgame=one\n{two}\trate_w=2600\tgame=two\n{three}\n"
    )
    convert(config(path, out=tmp_path / "a"))
    assert [record.rate for record in records(tmp_path / "a")] == [
        *(3000.0, 2000.5, 3000.0, 2000.5),
        *(None, 2600.0, None, 2600.0),
        *(None, None, None, None),
    ]
    report = convert(config(path, out=tmp_path / "b", min_rating=2500))
    assert [(record.game, record.move) for record in records(tmp_path / "b")] == [
        *(("one", "7g7f"), ("one", "2g2f"), ("two", "3c3d"), ("two", "8c8d"))
    ]
    assert [refusal["line"] for refusal in report["refused"]] == [3]


def test_lines_are_those_of_format_record():
    game = Game(
        start="4k4/9/9/9/9/9/9/9/4K4 w 2P 34",
        moves=["5a5b", "P*5e"],
        winner="-",
        end="chudan",
        game="a,b=%",
        rate_b=1234.5,
    )
    rendered = render(game, ConvertConfig((), ""))
    assert isinstance(rendered, Rendered)
    lines = rendered.data.decode().splitlines(keepends=True)
    assert len(lines) == rendered.positions == 2
    for line in lines:
        assert format_record(parse_record(line)) + "\n" == line
    assert [parse_record(line).rate for line in lines] == [None, 1234.5]
    assert all(parse_record(line).other == {"start": "34"} for line in lines)
    assert parse_record(lines[1]).game == "a,b=%"
    [line] = render(game, ConvertConfig((), "", min_ply=2)).data.decode().splitlines()
    assert line == f"{lines[1][:-1]},whole={game.hash:016x}"


BAD_LINES = {
    "bad start position": "sfen lnsgkgsnl/9/9 b - 1 moves 7g7f",
    "in check": "sfen 4k4/9/4R4/9/9/9/9/9/4K4 b - 1 moves 4i4h",
    "illegal move": "startpos moves 7g7f 3c3d 8h8b",
    "dead pawn": "sfen 4k4/9/9/9/9/9/9/9/4K4 b P 1 moves P*1a",
    "missing field": "moves 7g7f",
    "bad winner": "startpos moves 7g7f\twinner=x",
    "bad rating": "startpos moves 7g7f\trate_b=high",
    "no moves": "startpos moves\twinner=b",
    "too long": "startpos moves" + " 5i5h 5a5b 5h5i 5b5a" * (MAX_PLIES // 4 + 1),
    "no text": b"startpos moves 7g7f\tblack=\x90\xe6\x8e\xe8",
    "line too long": b"startpos moves" + b" 7g7f" * 300_000,
}


def test_unusable_games_are_counted_and_named(tmp_path, source, lines, capsys):
    bad = [line if isinstance(line, bytes) else line.encode() for line in BAD_LINES.values()]
    source.write_bytes("".join(lines[:20]).encode() + b"\n".join(bad) + b"\n" + lines[20].encode())
    cut = tmp_path / "in" / "cut.usi.gz"
    cut.write_bytes(gzip.compress("".join(lines[21:]).encode())[:-3000])
    (tmp_path / "in" / "k").mkdir()
    (tmp_path / "in" / "k" / "1.csa").write_text("V2.2\nPI\n+\n+7776FU\n-7776FU\n")
    (tmp_path / "in" / "k" / "2.csa").write_text("V2.2\nPI\n+\n+7776FU\n%TORYO\n")
    for workers in (1, 2):
        report = convert(config(source.parent, out=tmp_path / f"out{workers}", workers=workers))
        sources = report["sources"]
        assert (sources["engine"]["games"], sources["engine"]["refused"]) == (21, len(bad))
        refused = [one for one in report["refused"] if one["file"] == str(source)]
        assert [one["line"] for one in refused] == list(range(21, 21 + len(bad)))
        assert all(one["reason"] for one in refused)
        assert (sources["k"]["games"], sources["k"]["refused"]) == (1, 1)
        assert 0 < sources["cut"]["games"] < GAMES
        assert sources["cut"]["refused"] == 1
        [last] = [one for one in report["refused"] if one["file"] == str(cut)]
        assert last["line"] == sources["cut"]["games"] + 1
        assert "cut short" in last["reason"]
        said = capsys.readouterr().err.splitlines()
        # On a slow machine lines of progress stand between them.
        said = [line for line in said if not line.startswith("reading games")]
        assert len(said) == len(set(said)) == 9
        assert all("refused" in line for line in said)
    assert shards(tmp_path / "out1") == shards(tmp_path / "out2")


@pytest.mark.parametrize("kind", BAD_LINES)
@pytest.mark.parametrize("workers", [1])
def test_strict_stops_at_the_first_unusable_game(tmp_path, source, lines, kind, workers):
    line = BAD_LINES[kind]
    line = line if isinstance(line, bytes) else line.encode()
    source.write_bytes("".join(lines[:3]).encode() + line + b"\n" + lines[3].encode())
    with pytest.raises(GinkgoError, match=f"^{source}:4: "):
        convert(config(source, out=tmp_path / "out", strict=True, workers=workers))
    assert not list((tmp_path / "out").glob("**/*"))


def test_a_failure_leaves_no_records(tmp_path, source, monkeypatch):
    out = tmp_path / "out"
    seen = []

    def fail(spooled, *arguments):
        if spooled.number == 2:
            seen.extend(out.glob("**/*.sfenx"))
            raise GinkgoError("no space left")
        return write(spooled, *arguments)

    write = module.write_chunk
    monkeypatch.setattr(module, "write_chunk", fail)
    with pytest.raises(GinkgoError, match="no space left"):
        convert(config(source, out=out))
    assert seen
    assert not list(out.glob("**/*"))


def test_other_records_are_not_touched_unless_asked(tmp_path, source, lines):
    out = tmp_path / "out"
    convert(config(source, out=out))
    before = shards(out)
    other = tmp_path / "in" / "other.usi"
    other.write_text(lines[0])
    with pytest.raises(GinkgoError, match="--overwrite"):
        convert(config(other, out=out))
    assert shards(out) == before
    convert(config(other, out=out, overwrite=True))
    assert {Path(name).name for name in shards(out)} == {"other-00000.sfenx"}


@pytest.mark.parametrize("to", ["usi", "kif", "sfenx"])
def test_no_file_is_removed_that_no_conversion_wrote(tmp_path, source, to):
    """`--overwrite` in a folder of kifu would empty it."""
    out = source.parent
    name = {"usi": "mine.usi", "kif": "2023/2023-01-02.kif", "sfenx": "train/mine.sfenx"}[to]
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("startpos moves 7g7f\n")
    for options in ({}, {"overwrite": True}):
        with pytest.raises(GinkgoError, match=r"no conversion has written|is to be read"):
            convert(config(source, out=out, to=to, **options))
        assert (out / name).exists()
        assert source.exists()
    assert not list(out.glob("**/*-00000*"))


def test_what_is_read_is_not_replaced(tmp_path, source):
    """Though it bears the name that would be written."""
    first = source.rename(source.with_name("engine-00000.usi"))
    for given in (first, first.parent):
        with pytest.raises(GinkgoError, match="is to be read"):
            convert(config(given, out=first.parent, to="usi", overwrite=True))
    assert first.exists()


def test_files_of_other_kinds_are_told_of(tmp_path, source, capsys):
    """Somebody's kifu may lie among them."""
    for name in ("a.txt", "b.TXT", "c.lzh", "d", ".DS_Store"):
        (source.parent / name).write_text("▲７六歩\n")
    report = convert(config(source.parent, out=tmp_path / "out"))
    assert report["passed_over"] == {".txt": 2, ".lzh": 1, "": 1}
    assert main([str(source.parent), "-o", str(tmp_path / "b"), "--workers", "1"]) == 0
    assert "4 files (.txt 2, " in capsys.readouterr().out
    assert convert(config(source, out=tmp_path / "c"))["passed_over"] == {}


def test_a_report_that_cannot_be_written(tmp_path, source, monkeypatch):
    """Found out before the work where that can be; at the end it costs no records."""
    out, report = tmp_path / "out", tmp_path / "r" / "report.json"
    convert(config(source, out=out, report=str(report)))
    before = shards(out)
    for bad in (source / "report.json", source / "r" / "report.json", tmp_path, Path("/")):
        with pytest.raises(GinkgoError, match=f"^{bad}: cannot write: "):
            convert(config(source, out=out, report=str(bad), overwrite=True))
        assert shards(out) == before
    assert [path.name for path in report.parent.iterdir()] == ["report.json"]

    def write_records(*arguments):
        write(*arguments)
        report.unlink()
        report.mkdir()

    write = module._write_records
    monkeypatch.setattr(module, "_write_records", write_records)
    again = tmp_path / "again"
    with pytest.raises(GinkgoError, match=f"^{report}: cannot write: .*{again} are complete"):
        main([str(source), "-o", str(again), "--workers", "1", "--report", str(report)])
    assert shards(again) == before
    assert all((again / split / "manifest.json").exists() for split in SPLITS)
    assert json.loads((again / "convert-report.json").read_text())["games"] == GAMES


def test_chunks_do_not_end_with_files(tmp_path, lines):
    for number in range(3):
        (tmp_path / f"g-{number:05d}.usi").write_text("".join(lines[number * 40 :][:40]))
    [source] = find_sources([tmp_path])
    assert [len(chunk.items) for chunk in cut_chunks(source)] == [50, 50, 20]


def test_main_prints_a_table_and_fails_without_positions(tmp_path, source, capsys):
    assert main([str(source), "-o", str(tmp_path / "a"), "--workers", "1", "--min-ply", "40"]) == 0
    assert "engine" in capsys.readouterr().out
    arguments = [str(source), "-o", str(tmp_path / "b"), "--workers", "1", "--endings", "matta"]
    assert main(arguments) == 1
    assert "error: no game" in capsys.readouterr().err


def test_of_copies_the_one_with_a_result_is_written(tmp_path):
    """Whichever comes first, in whatever file; copies that contradict each other are refused."""
    folder = tmp_path / "in"
    folder.mkdir()
    moves = {"open": "2g2f 8c8d", "torn": "7g7f 3c3d", "drawn": "1g1f 1c1d", "same": "9g9f"}
    stated = {
        "a": {"open": "-", "torn": "b", "drawn": "d", "same": "-"},
        "b": {"open": "w", "torn": "-", "drawn": "w", "same": "-"},
        "c": {"open": "w", "torn": "b", "drawn": "d", "same": "-"},
        "d": {"open": "-", "torn": "w", "drawn": "d", "same": "-"},
    }
    for name, winners in stated.items():
        lines = [
            f"startpos moves {moves[game]}\twinner={winner}\tgame={game}\n"
            for game, winner in winners.items()
        ]
        (folder / f"{name}.usi").write_text("".join(lines))
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        report = convert(config(folder, out=out, workers=workers, val_fraction=0.0))
        found = {record.game: record.winner for where in SPLITS for record in records(out, where)}
        assert found == {"open": "w", "same": "-"}
        assert (report["games"], report["duplicates"]) == (2, 6)
        assert [(Path(one["file"]).name[0], one["line"]) for one in report["refused"]] == [
            (name, line) for name in stated for line in (2, 3)
        ]
        torn, drawn = report["refused"][:2]
        assert f"Black wins in {folder}/a.usi:2, White wins in {folder}/d.usi:2" in torn["reason"]
        assert f"a draw in {folder}/a.usi:3, White wins in {folder}/b.usi:3" in drawn["reason"]
    assert shards(tmp_path / "out1") == shards(tmp_path / "out2")
    with pytest.raises(GinkgoError, match="contradict each other"):
        convert(config(folder, out=tmp_path / "strict", strict=True))
    assert not list((tmp_path / "strict").rglob("*.sfenx*"))
