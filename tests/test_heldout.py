"""No game is in two of training, validation and test, however the data are named."""

import itertools
import json
import shutil

import numpy as np
import pytest

from ginkgo.errors import GinkgoError
from ginkgo.pipeline import ParseOptions, build_index
from ginkgo.pipeline.load import epoch_positions, load_block
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.training.heldout import find_data


@pytest.fixture(scope="module")
def root(tmp_path_factory, sample_lines):
    """raw/a.usi (200 games), raw/b.usi (60, of which 40 are in a too), and conversions of each."""
    root = tmp_path_factory.mktemp("data")
    (root / "raw").mkdir()
    (root / "raw" / "a.usi").write_text("\n".join(sample_lines[:200]) + "\n")
    (root / "raw" / "b.usi").write_text("\n".join(sample_lines[160:220]) + "\n")
    for name in "ab":
        convert(
            ConvertConfig(
                sources=(str(root / "raw" / f"{name}.usi"),),
                out=str(root / name),
                val_fraction=0.1,
                workers=1,
            )
        )
    return root


def games_of(index) -> set[bytes]:
    """What names the games of an index: all their moves."""
    positions = load_block(index, ParseOptions()).positions
    assert len(positions) == index.positions
    numbers = positions["source"].astype(np.int64) << 32 | positions["game"]
    bounds = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1))
    return {
        positions["move"][low:high].tobytes() for low, high in itertools.pairwise(bounds.tolist())
    }


CASES = {
    "raw": (["raw"], [], []),
    "one raw file": (["raw/a.usi"], [], []),
    "train folder": (["a/train"], [], []),
    "whole conversion": (["a"], [], []),
    "shards": (["a/train/a-00000.sfenx"], [], []),
    "glob": (["*/train"], [], []),
    "glob of shards": (["a/train/*.sfenx"], [], []),
    "two conversions": (["a", "b"], [], []),
    "converted and raw": (["a/train", "raw/b.usi"], [], []),
    "same file as val": (["raw/a.usi"], ["raw/b.usi"], []),
    "conversion as val": (["raw/a.usi"], ["b"], []),
    "all given": (["raw/a.usi"], ["b/val"], ["b/test"]),
}


@pytest.mark.parametrize("case", CASES)
def test_no_game_is_in_two_splits(root, case):
    data, val, test = ([root / path for path in paths] for paths in CASES[case])
    indices = find_data(data, val, test, 0.1)
    games = {split: games_of(index) for split, index in indices.items()}
    assert games["train"]
    assert games["val"]
    assert not games["train"] & games["val"]
    assert not games["train"] & games["test"]
    assert not games["val"] & games["test"]
    if case in ("raw", "two conversions", "glob"):
        assert len(set.union(*games.values())) == 220


CONVERSIONS = {
    "late plies": {"min_ply": 30},
    "one side": {"side": "b"},
    "rated": {"min_rating": 1000.0},
    "merged": {"merge_duplicates": True},
    "merged late plies": {"merge_duplicates": True, "min_ply": 30},
}


@pytest.fixture(scope="module", params=CONVERSIONS)
def incomplete(request, root, tmp_path_factory):
    """A conversion of a.usi whose records do not hold all plies of a game, or not by game."""
    source = root / "raw" / "a.usi"
    if request.param == "rated":
        lines = source.read_text().splitlines()
        source = tmp_path_factory.mktemp("rated") / "a.usi"
        source.write_text("".join(f"{line}\trate_b=900\trate_w=1100\n" for line in lines))
    out = tmp_path_factory.mktemp("incomplete")
    options = {"val_fraction": 0.1, "workers": 1, **CONVERSIONS[request.param]}
    convert(ConvertConfig(sources=(str(source),), out=str(out), **options))
    return out


def test_records_that_lack_plies_are_of_the_games_they_are_of(root, incomplete):
    """What was trained on is known by the hashes of whole games, however it was converted."""
    indices = find_data([incomplete / "train"], [], [], 0.1)
    known = {split: set(index.known.tolist()) for split, index in indices.items()}
    whole = {
        split: set(build_index([root / "a" / "train"], split).hashes.tolist()) for split in known
    }
    for split, hashes in known.items():
        # Of merged records the runs of lines have hashes of their own.
        assert hashes & set.union(*whole.values()) == whole[split] != set()


def test_held_out_games_are_not_in_records_that_lack_plies(root, incomplete):
    held_out = set(build_index([root / "raw" / "b.usi"], "all").hashes.tolist())
    assert held_out & set(build_index([incomplete / "train"], "all").known.tolist())
    if any((incomplete / "train").glob("merged-*")):
        with pytest.raises(GinkgoError, match="convert without --merge-duplicates"):
            find_data([incomplete / "train"], [root / "raw" / "b.usi"], [], 0.1)
        return
    indices = find_data([incomplete / "train"], [root / "raw" / "b.usi"], [], 0.1)
    index = indices["train"]
    assert index.games > 100
    assert not held_out & set(index.known.tolist())
    # What the workers leave out is what the index does not count.
    assert len(load_block(index, ParseOptions()).positions) == index.positions


@pytest.mark.parametrize("path", ["a/val", "a/test"])
def test_held_out_folders_are_no_training_data(root, path):
    with pytest.raises(GinkgoError, match="no games to train on"):
        find_data([root / path], [], [], 0.1)


def test_a_folder_called_train_is_only_a_folder(root, tmp_path):
    """Without a manifest it is split like any other."""
    folder = tmp_path / "train"
    shutil.copytree(root / "raw", folder)
    indices = find_data([folder], [], [], 0.1)
    assert indices["val"].games > 0
    (folder / "manifest.json").write_text(json.dumps({"format": "something else"}))
    assert find_data([folder], [], [], 0.1)["val"].games > 0


def test_too_few_games_are_named(tmp_path, sample_lines):
    (tmp_path / "few.usi").write_text("\n".join(sample_lines[:3]) + "\n")
    with pytest.raises(GinkgoError, match="too few games"):
        find_data([tmp_path], [], [], 0.05)


def test_an_epoch_is_counted_with_its_filters(root):
    index = build_index([root / "raw"], "train", fraction=0.1)
    for options in (
        ParseOptions(),
        ParseOptions(side="b"),
        ParseOptions(min_ply=40),
        ParseOptions(keep=8),
        ParseOptions(endings=("tsumi",)),
    ):
        exact = len(load_block(index, options).keys)
        np.testing.assert_allclose(sum(epoch_positions(index, options)), exact, rtol=0.15)
