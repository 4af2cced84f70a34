"""What is read of records and games, and how it is split."""

from collections import Counter

import numpy as np
import pytest
from bad_records import BAD_RECORDS, GOOD
from hypothesis import given
from hypothesis import strategies as st

from ginkgo.features.labels import labels_from_moves
from ginkgo.features.position import POSITION, position_from_sfen, sfen_from_position
from ginkgo.pipeline import Loader, LoaderConfig, ParseOptions, build_index
from ginkgo.pipeline.load import load_block
from ginkgo.pipeline.parse_records import parse_records
from ginkgo.records import parse_game_line, parse_record


def index_of(*paths, split="all", **options):
    return build_index(paths, split, segment_positions=1024, **options)


# --- parsing ----------------------------------------------------------------------------------


def test_records_are_parsed_as_the_definition_says(records_dir):
    """The block parser against the line parser, field by field."""
    lines = (records_dir / "part-00000.sfenx").read_bytes().split(b"\n")[:-1][:3000]
    block = parse_records(lines, ParseOptions(), path="x")
    assert not block.bad
    assert len(block.positions) == len(lines)
    for row in range(0, len(lines), 37):
        record, position = parse_record(lines[row].decode()), block.positions[row]
        expected = position_from_sfen(record.sfen)[0]
        np.testing.assert_array_equal(position["board"], expected["board"])
        np.testing.assert_array_equal(position["hand"], expected["hand"])
        assert sfen_from_position(position) == record.sfen
        assert position["total"] == record.total
        wins = {"b": 0, "w": 1}.get(record.winner)
        expected_result = 2 if wins is None else int(wins == position["color"])
        assert position["result"] == expected_result
        assert position["weight"] == 1
        assert np.isnan(position["score"])
        assert np.isnan(position["outcome"])


def test_records_of_merged_positions_bring_their_mean_result(records_dir):
    line = (records_dir / "part-00000.sfenx").read_bytes().split(b"\n")[0]
    lines = [line + b",value=0.25,count=4", line, line + b",value=7", line + b",value=x"]
    positions = parse_records(lines, ParseOptions(), path="x").positions
    np.testing.assert_array_equal(positions["outcome"], [0.25, np.nan, 1, np.nan])


def test_games_and_their_records_are_the_same_positions(games_dir, records_dir):
    games = load_block(index_of(games_dir), ParseOptions(ply_weight=True))
    records = load_block(index_of(records_dir), ParseOptions(ply_weight=True))
    for name in POSITION.names:
        np.testing.assert_array_equal(games.positions[name], records.positions[name], err_msg=name)
    assert len(np.unique(games.positions["game"])) == 240


def test_game_numbers_survive_the_cut_into_segments(records_dir):
    whole = load_block(build_index([records_dir], "all"), ParseOptions())
    cut = load_block(index_of(records_dir), ParseOptions())
    np.testing.assert_array_equal(whole.positions["game"], cut.positions["game"])
    assert whole.positions["game"].max() == 239


@pytest.mark.parametrize("data", ["games_dir", "records_dir"])
def test_filters(data, request):
    index = index_of(request.getfixturevalue(data))
    every = load_block(index, ParseOptions()).positions
    late = load_block(index, ParseOptions(min_ply=30)).positions
    assert late["ply"].min() == 30
    assert len(late) == (every["ply"] >= 30).sum()
    black = load_block(index, ParseOptions(side="b")).positions
    assert (black["color"] == 0).all()
    assert len(black) == (every["color"] == 0).sum()
    mated = load_block(index, ParseOptions(endings=("tsumi",))).positions
    assert 0 < len(mated) < len(every)
    kept = load_block(index, ParseOptions(keep=7)).positions
    counts = Counter(kept["game"].tolist())
    assert set(counts.values()) == {7}
    weighted = load_block(index, ParseOptions(ply_weight=True)).positions
    np.testing.assert_allclose(
        weighted["weight"],
        np.sqrt(every["ply"] / every["total"]).astype(np.float16),
        rtol=2e-3,
    )


def test_view_after_is_the_position_after_the_move(records_dir):
    before = load_block(index_of(records_dir), ParseOptions()).positions
    after = load_block(index_of(records_dir), ParseOptions(view="after")).positions
    same_game = (before["game"][1:] == before["game"][:-1]).nonzero()[0]
    from ginkgo.features.position import orient

    flipped, hands = orient(
        after["board"][same_game], after["hand"][same_game], np.ones(len(same_game), np.uint8)
    )
    np.testing.assert_array_equal(flipped, before["board"][same_game + 1])
    np.testing.assert_array_equal(hands, before["hand"][same_game + 1])
    np.testing.assert_array_equal(after["move"], before["move"])


def test_a_game_from_a_diagram_counts_its_own_plies():
    """A game that starts at ply 34 has its first move at ply 1."""
    from ginkgo.pipeline.parse_games import parse_games
    from ginkgo.records import Game

    start = "4k4/9/9/9/9/9/9/4P4/4K4 b - 34"
    game = Game(start=start, moves=["5h5g", "5a5b"], winner="b")
    direct = parse_games([(0, 1, game)], ParseOptions(), path="x").positions
    assert direct["ply"].tolist() == [1, 2]
    line = f"{start},2,5h5g,b,start=34".encode()
    assert parse_records([line], ParseOptions(), path="x").positions["ply"].tolist() == [1]


@pytest.mark.parametrize(("line", "kind"), BAD_RECORDS.items())
def test_each_kind_of_bad_record_is_named(line, kind):
    block = parse_records([GOOD, line, GOOD], ParseOptions(), path="file", first_line=10)
    assert [(bad.line, bad.kind) for bad in block.bad] == [(11, kind)]
    assert len(block.positions) == 2


def test_a_bad_record_does_not_spoil_the_one_after_it(records_dir):
    """A line that continues the one before is checked on its own where that one was refused."""
    lines = (records_dir / "part-00000.sfenx").read_bytes().split(b"\n")[:60]
    clean = parse_records(lines, ParseOptions(), path="x")
    broken = list(lines)
    broken[20] = broken[20].replace(b" b ", b" w ") if b" b " in lines[20] else b"junk"
    block = parse_records(broken, ParseOptions(), path="x")
    assert len(block.bad) == 1
    np.testing.assert_array_equal(block.positions["move"], np.delete(clean.positions["move"], 20))


@pytest.mark.parametrize(
    "change", [lambda t: t.replace(b"\n", b"\r\n"), lambda t: b"\xef\xbb\xbf" + t]
)
def test_windows_line_ends_and_bom(tmp_path, change):
    text = b"\n".join([GOOD, GOOD.replace(b" 1,80", b" 3,80") + b",game=x"]) + b"\n"
    (tmp_path / "a.sfenx").write_bytes(change(text))
    block = load_block(index_of(tmp_path), ParseOptions())
    assert not block.bad
    assert len(block.positions) == 2
    games = b"startpos moves 7g7f\twinner=b\n\nstartpos moves 2g2f\twinner=w\n"
    (tmp_path / "b.usi").write_bytes(change(games))
    block = load_block(index_of(tmp_path / "b.usi"), ParseOptions())
    assert not block.bad
    assert block.positions["game"].tolist() == [0, 2]


BAD_GAMES = {
    b"startpos moves 7g7f 7g7f\twinner=b": "illegal move",
    b"startpos moves 7g7f 3c3d+\twinner=b": "illegal move",
    b"startpos moves 7g7f zz\twinner=b": "illegal move",
    b"sfen 9/9/9/9/9/9/9/9/9 b - 1 moves 7g7f\twinner=b": "malformed game line",
    b"sfen 4k4/9/9/9/4R4/9/9/9/4K4 b - 1 moves 5e5d\twinner=b": "bad SFEN",
    b"hello world": "malformed game line",
    b"startpos moves 7g7f\twinner=q": "malformed game line",
    b"startpos moves 7g7f\tgame=\xff": "not UTF-8",
}


@pytest.mark.parametrize(("line", "kind"), BAD_GAMES.items())
def test_each_kind_of_bad_game_is_named(tmp_path, line, kind):
    good = b"startpos moves 7g7f 3c3d\twinner=w"
    (tmp_path / "games.usi").write_bytes(b"\n".join([good, line, good]) + b"\n")
    block = load_block(index_of(tmp_path), ParseOptions())
    assert [(bad.line, bad.kind) for bad in block.bad] == [(2, kind)]
    assert len(block.positions) == 4
    assert block.positions["game"].tolist() == [0, 0, 2, 2]


def test_policy_labels_agree_with_the_moves(sample_lines, games_dir):
    import cshogi

    from ginkgo.features.labels import rotate_moves

    block = load_block(index_of(games_dir / "part-00000.usi"), ParseOptions())
    game = parse_game_line(sample_lines[0])
    board, expected = cshogi.Board(), []
    for usi in game.moves:
        move = np.array([board.move_from_usi(usi)])
        color = np.array([board.turn], np.uint8)
        expected.append(int(labels_from_moves(rotate_moves(move, color))[0]))
        board.push_usi(usi)
    assert block.positions["move"][: game.total].tolist() == expected


# --- split ------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["games_dir", "records_dir"])
def test_splits_are_disjoint_and_complete(data, request):
    folder = request.getfixturevalue(data)
    games = {
        split: set(
            load_block(index_of(folder, split=split, fraction=0.1), ParseOptions())
            .positions["game"]
            .tolist()
        )
        for split in ("train", "val", "test")
    }
    assert set.union(*games.values()) == set(range(240))
    assert sum(map(len, games.values())) == 240
    assert len(games["test"]) >= 24
    assert len(games["val"]) >= 24


def test_games_and_records_are_split_alike(games_dir, records_dir):
    games = index_of(games_dir, split="test").sources[0]
    records = index_of(records_dir, split="test").sources[0]
    assert (games.split, games.games, games.positions) == (
        records.split,
        records.games,
        records.positions,
    )


def test_a_game_held_out_in_one_source_is_left_out_of_all(tmp_path, sample_lines):
    """Two sources of different size have different thresholds; a game in both must not leak."""
    (tmp_path / "large.usi").write_text("\n".join(sample_lines) + "\n")
    (tmp_path / "small.usi").write_text("\n".join(sample_lines[:40]) + "\n")

    def games(split):
        index = build_index([tmp_path], split, fraction=0.2)
        with Loader(
            index, LoaderConfig(workers=0, epochs=1, batch_size=256, pool=4096, seed=5)
        ) as loader:
            positions = np.concatenate([batch.positions for batch in loader])
        assert len(positions) == index.positions
        return index, set(
            zip(positions["source"].tolist(), positions["game"].tolist(), strict=True)
        )

    index, train = games("train")
    assert index.left_out
    held_out = games("val")[1] | games("test")[1]
    # Lines 0-39 are the same games in both sources.
    assert not {game for _, game in train if game < 40} & {game for _, game in held_out}


def test_a_row_after_an_unusable_one_is_checked_by_itself(tmp_path):
    """A line may continue one that was refused: then nothing vouches for its position."""
    two_kings = "4k4/9/9/9/9/9/9/4K4/4K4 b P {}"
    after = "4k4/9/9/9/9/4P4/9/4K4/4K4 w - {}"
    good = GOOD.decode()
    lines = [
        f"{two_kings.format(1)},80,P*5f,b",
        f"{after.format(2)},80,5a4a,b",
        good,
    ]
    (tmp_path / "a.sfenx").write_text("\n".join(lines) + "\n")
    block = load_block(index_of(tmp_path), ParseOptions())
    assert [(one.line, one.kind) for one in block.bad] == [(1, "bad SFEN"), (2, "bad SFEN")]
    assert len(block.positions) == 1


@given(st.lists(st.sampled_from([b"b", b"w", b"", b"bw", b"x", b"d"]), max_size=6))
def test_letters_are_read_as_one_by_one(texts):
    from ginkgo.pipeline.parse_records import _letters

    numbers = {b"b": 0, b"w": 1}
    assert _letters(texts, numbers).tolist() == [numbers.get(text, -1) for text in texts]
