"""Soft policy targets: from the `policy` key of a record to the loss."""

from dataclasses import replace
from pathlib import Path

import cshogi
import keras
import numpy as np
import pytest
import tensorflow as tf
from cshogi.dlshogi import make_move_label

from ginkgo.features.labels import LABELS, MIRROR_LABEL
from ginkgo.pipeline import Loader, LoaderConfig, ParseOptions, build_index, dataset
from ginkgo.pipeline.parse import POLICY, Block
from ginkgo.pipeline.parse_records import parse_records
from ginkgo.pipeline.ragged import Ragged
from ginkgo.records import format_record, parse_record
from ginkgo.training.config import TrainConfig
from ginkgo.training.recipe import make_optimizer
from ginkgo.training.step import TrainStep, mirror_half, policy_targets
from ginkgo.training.trainer import Trainer

SOFT = ParseOptions(policies=True)
START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL"


def expected_target(line: str) -> dict[int, float]:
    """Share of the visits by label, with cshogi's own labels."""
    record = parse_record(line)
    board = cshogi.Board(record.sfen)
    total = sum(record.policy.values())
    return {
        make_move_label(board.move_from_usi(usi), board.turn): visits / total
        for usi, visits in record.policy.items()
    }


def as_dict(rows: Ragged, row: int) -> dict[int, float]:
    values = rows.part(row, row + 1).values
    return dict(zip(values["label"].tolist(), values["probability"].tolist(), strict=True))


@pytest.fixture(scope="module")
def soft_lines(records_dir) -> list[str]:
    """Records of which two in three carry visits on a few legal moves."""
    rng = np.random.default_rng(1)
    lines = (records_dir / "part-00000.sfenx").read_text().splitlines()
    written = []
    for number, line in enumerate(lines):
        record = parse_record(line)
        if number % 3:
            board = cshogi.Board(record.sfen)
            moves = [cshogi.move_to_usi(move) for move in board.legal_moves]
            some = rng.permutation(len(moves))[: rng.integers(1, 9)]
            record.policy = {moves[move]: int(rng.integers(0, 900)) for move in some}
            record.policy[record.move] = 100
        written.append(format_record(record))
    return written


@pytest.fixture(scope="module")
def soft_dir(tmp_path_factory, soft_lines) -> Path:
    folder = tmp_path_factory.mktemp("soft")
    (folder / "self.sfenx").write_text("\n".join(soft_lines) + "\n")
    return folder


def test_golden_labels_and_shares():
    lines = [
        f"{START} b - 1,2,7g7f,b,policy=7g7f:3|2g2f:1",
        f"{START.replace('PPPPPPPPP', 'PP1PPPPPP').replace('9/9/9', '9/9/2P6')} w - 2,2,3c3d,b,"
        "policy=3c3d:1|8c8d:0",
    ]
    block = parse_records([line.encode() for line in lines], SOFT, path="x")
    # 7g7f: up, to 7f = 9·6 + 5; 2g2f: to 2f = 9·1 + 5. 3c3d turned is 7g7f, 8c8d is 2g2f.
    assert as_dict(block.ragged["policy"], 0) == {59: 0.75, 14: 0.25}
    assert as_dict(block.ragged["policy"], 1) == {59: 1.0, 14: 0.0}


def test_policies_are_those_of_the_definition(soft_lines):
    block = parse_records([line.encode() for line in soft_lines], SOFT, path="x")
    assert not block.bad
    policy = block.ragged["policy"]
    assert len(policy) == len(block.positions) == len(soft_lines)
    for row, line in enumerate(soft_lines):
        if parse_record(line).policy:
            assert as_dict(policy, row) == pytest.approx(expected_target(line), abs=1e-3)
        else:
            assert as_dict(policy, row) == {}


def test_policies_that_are_not_asked_for_are_not_read(soft_lines):
    lines = [line.encode() for line in soft_lines]
    block = parse_records(lines, ParseOptions(), path="x")
    assert block.ragged == {}
    bad = [f"{START} b - 1,2,7g7f,b,policy=nonsense".encode()]
    assert len(parse_records(bad, ParseOptions(), path="x").positions) == 1


@pytest.mark.parametrize(
    "policy",
    [
        "nonsense",
        "7g7f",
        "7g7f:",
        "7g7f:-1",
        "7g7f:1.5",
        "7g7f:0",
        "7g7f:1|",
        "7g7f:1|2g2f",
        "7g7f:1:2g2f:1",
        "7g7e:1",
        "P*5e:1",
        "7g7f+:1",
        "7g7f:1|9a9b+:1",
        "7g7f:99999999999",
        "7g7f|1:2g2f:1",
        "7g7f:1|7g7f:3",
    ],
)
def test_a_bad_policy_is_refused_and_its_neighbours_are_not(policy):
    good = f"{START} b - 1,2,7g7f,b,policy=7g7f:3"
    lines = [good, f"{START} b - 1,2,7g7f,b,policy={policy}", good]
    block = parse_records([line.encode() for line in lines], SOFT, path="x.sfenx")
    assert [str(bad) for bad in block.bad] == [
        f"x.sfenx:2: bad policy: expected legal moves and visits in {START} b - 1"
    ]
    assert len(block.positions) == len(block.ragged["policy"]) == 2


def test_encoded_policies_are_read():
    line = f"{START} b - 1,2,7g7f,b,policy=7g7f%3A3%7C2g2f%3A1"
    block = parse_records([line.encode()], SOFT, path="x")
    assert as_dict(block.ragged["policy"], 0) == {59: 0.75, 14: 0.25}
    assert parse_record(line).policy == {"7g7f": 3, "2g2f": 1}


def test_ragged_rows():
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 99, rng.integers(0, 5)) for _ in range(50)]
    ragged = Ragged.of_lengths(np.concatenate(rows), np.array([len(row) for row in rows]))
    chosen = rng.integers(0, 50, 80)
    taken = ragged.take(chosen)
    for place, row in enumerate(chosen.tolist()):
        np.testing.assert_array_equal(taken.part(place, place + 1).values, rows[row])
    both = Ragged.joined([taken, Ragged.empty(np.int64), ragged.part(10, 20)])
    assert len(both) == 90
    np.testing.assert_array_equal(both.part(80, 90).values, np.concatenate(rows[10:20]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("features", ["dlshogi119", "ginkgo148"])
def test_policies_travel_with_their_positions(soft_dir, soft_lines, workers, features):
    """Through workers, shared memory, pool, and a checkpoint inside the epoch."""
    parse = ParseOptions(policies=True, features=features)
    config = LoaderConfig(batch_size=128, pool=1024, workers=workers, seed=2, parse=parse)
    index = build_index([soft_dir], "all", segment_positions=512)
    assert index.policies

    def check(batch) -> None:
        for row, key in enumerate(batch.keys.tolist()):
            line = soft_lines[(key >> 10 & (1 << 34) - 1) - 1]
            wanted = expected_target(line) if parse_record(line).policy else {}
            assert as_dict(batch.ragged["policy"], row) == pytest.approx(wanted, abs=1e-3)

    with Loader(index, config) as loader:
        for _ in range(4):
            batch = next(loader)
            check(batch)
        state = loader.state(batch.number)
        following = next(loader)
    with Loader(index, config, state) as loader:
        again = next(loader)
    check(again)
    np.testing.assert_array_equal(following.keys, again.keys)
    np.testing.assert_array_equal(following.ragged["policy"].values, again.ragged["policy"].values)


def test_an_index_knows_whether_there_are_policies(records_dir, soft_dir):
    assert not build_index([records_dir], "all").policies
    assert build_index([records_dir, soft_dir], "all").policies


def tensors_of(block: Block) -> dict[str, tf.Tensor]:
    batch = {
        name: tf.constant(np.ascontiguousarray(block.positions[name]))
        for name in block.positions.dtype.names
    }
    policy = block.ragged["policy"]
    for name in POLICY.names:
        batch[f"policy_{name}"] = tf.constant(np.ascontiguousarray(policy.values[name]))
    batch["policy_offsets"] = tf.constant(policy.offsets)
    return batch


def test_targets_are_visits_where_there_are_some_else_the_move(soft_lines):
    lines = [line.encode() for line in soft_lines[:60]]
    block = parse_records(lines, SOFT, path="x")
    targets = policy_targets(tensors_of(block)).numpy()
    assert targets.shape == (60, LABELS)
    np.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-6)
    for row in range(60):
        policy = as_dict(block.ragged["policy"], row) or {int(block.positions["move"][row]): 1.0}
        for label, share in policy.items():
            assert targets[row, label] == pytest.approx(share, abs=2e-3)
    mirrored = policy_targets(mirror_half(tensors_of(block))).numpy()
    np.testing.assert_array_equal(mirrored[::2], targets[::2])
    np.testing.assert_array_equal(mirrored[1::2][:, MIRROR_LABEL], targets[1::2])


def test_a_net_learns_the_shares(soft_lines, tmp_path):
    """The cross-entropy falls to the entropy of the targets, and no further."""
    keras.utils.set_random_seed(1)
    config = TrainConfig((tmp_path,), heads=("policy",), mirror=False, weight_decay=0.0)
    lines = [line.encode() for line in soft_lines if "policy=" in line][:32]
    batch = tensors_of(parse_records(lines, SOFT, path="x"))
    from ginkgo.models import build_network, parse_network

    model = build_network(parse_network("b1c16"), 119, ("policy",))
    step = TrainStep(model, make_optimizer(config, model), None, config)
    targets = policy_targets(batch).numpy()
    entropy = -float((targets * np.log(np.maximum(targets, 1e-30))).sum(axis=1).mean())
    losses = [float(step(batch, 1e-2, number)["policy_loss"]) for number in range(120)]
    assert entropy - 1e-3 < min(losses) < entropy + 0.15
    assert losses[0] > entropy + 2


def test_a_run_on_such_records_uses_them(soft_dir, tmp_path):
    config = TrainConfig(
        data=(soft_dir,),
        run="soft",
        runs=tmp_path,
        heads=("policy",),
        network="b1c8",
        batch_size=64,
        steps=4,
        pool=512,
        val_positions=100,
        test_positions=100,
    )
    trainer = Trainer(config)
    assert trainer.parse.policies
    report = trainer.run()
    assert report["dropped_lines"] == 0
    values = Trainer(replace(config, heads=("value",), run="values"))
    values.loader.close()
    assert not values.parse.policies


def test_datasets_show_them(soft_dir):
    data = dataset([soft_dir], split="all", batch_size=64, pool=512, workers=0, parse=SOFT)
    batch = next(iter(data))
    assert batch["policy_offsets"].shape == (65,)
    assert batch["policy_label"].dtype == tf.uint16
    assert batch["policy_probability"].shape == batch["policy_label"].shape
