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
        np.testing.assert_allclose(epoch_positions(index, options), exact, rtol=0.15)
