"""What holds for each encoding of planes, whichever there are."""

from typing import get_args, get_type_hints

import numpy as np
import pytest
import tensorflow as tf

from ginkgo.errors import GinkgoError
from ginkgo.features.encoding import ENCODINGS, encoding
from ginkgo.features.position import mirror, position_from_sfen
from ginkgo.records import parse_game_line
from ginkgo.records.replay import replay
from ginkgo.training.config import TrainConfig
from ginkgo.training.step import planes_of


@pytest.fixture(scope="module")
def positions(sample_lines):
    found = [sfen for line in sample_lines[:4] for sfen in replay(parse_game_line(line))[::7]]
    return np.concatenate([position_from_sfen(sfen) for sfen in found])


def batch_of(positions, name: str) -> dict:
    batch = {key: tf.constant(np.ascontiguousarray(positions[key])) for key in ("board", "hand")}
    if (pack := encoding(name).pack) is not None:
        codes, offsets = pack(positions)
        batch |= {"codes": tf.constant(codes), "codes_offsets": tf.constant(offsets)}
    return batch


def test_training_offers_each():
    assert get_args(get_type_hints(TrainConfig)["features"]) == ENCODINGS
    with pytest.raises(GinkgoError, match=r"planes 'foo': expected one of dlshogi119"):
        encoding("foo")


@pytest.mark.parametrize("name", ENCODINGS)
def test_host_and_device_agree(name, positions):
    found = encoding(name)
    planes = found.on_host(positions)
    assert planes.shape == (len(positions), found.planes, 9, 9)
    on_device = planes_of(batch_of(positions, name), name).numpy()
    np.testing.assert_array_equal(on_device, planes.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("name", ENCODINGS)
def test_parts_for_an_exported_model_are_the_whole(name, positions):
    found = encoding(name)
    planes = found.on_host(positions[:2])
    parts = found.split(planes)
    assert {key: part.shape[1] for key, part in parts.items()} == found.inputs
    np.testing.assert_array_equal(np.concatenate(list(parts.values()), 1), planes)


@pytest.mark.parametrize("name", [name for name in ENCODINGS if encoding(name).mirrors])
def test_planes_of_the_mirror_are_the_mirror_of_the_planes(name, positions):
    on_host = encoding(name).on_host
    np.testing.assert_array_equal(on_host(mirror(positions)), on_host(positions)[:, :, ::-1])
