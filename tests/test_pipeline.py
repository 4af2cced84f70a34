"""The pipeline: what is read, in which order, and what survives which accident."""

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
from bad_records import BAD_RECORDS, GOOD
from hypothesis import given, settings
from hypothesis import strategies as st

from ginkgo.errors import GinkgoError
from ginkgo.features.position import POSITION
from ginkgo.pipeline import Loader, LoaderConfig, ParseOptions, build_index
from ginkgo.pipeline.load import epoch_positions, load_block
from ginkgo.pipeline.parse import Block
from ginkgo.pipeline.pool import Bag, Pool, Shadow, draw_places
from ginkgo.pipeline.shuffle import measured_share_without_mate, share_without_mate

SMALL = {"batch_size": 256, "pool": 4096, "seed": 5}


def index_of(*paths, split="all", **options):
    return build_index(paths, split, segment_positions=1024, **options)


def keys_of(index, config, batches=None, state=None, say=print) -> list[np.ndarray]:
    with Loader(index, config, state, say=say) as loader:
        found = []
        for batch in loader:
            found.append(batch.keys)
            if batches and len(found) == batches:
                break
        return found


def fingerprint(batches) -> str:
    return hashlib.sha256(b"".join(keys.tobytes() for keys in batches)).hexdigest()


# --- the pool ---------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_bag_keeps_what_is_not_removed(data):
    bag, inside, following = Bag(np.int64), set(), 0
    for _ in range(data.draw(st.integers(1, 8))):
        count = data.draw(st.integers(0, 40))
        bag.add(np.arange(following, following + count))
        inside |= set(range(following, following + count))
        following += count
        wanted = data.draw(st.integers(0, bag.size))
        taken = bag.remove(draw_places(bag.size, wanted, 1, following))
        assert len(set(taken.tolist())) == wanted
        inside -= set(taken.tolist())
        assert set(bag.items.tolist()) == inside


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_shadow_is_the_pool_some_batches_ago(data):
    pool = Pool(1000, seed=1)
    shadow = Shadow(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
    history, following = [], 0
    for batch in range(1, data.draw(st.integers(2, 9))):
        for to_next in (False, True):
            count = data.draw(st.integers(0, 30))
            block = Block(
                np.zeros(count, POSITION), np.arange(following, following + count, dtype=np.uint64)
            )
            following += count
            pool.add(block, to_next)
            shadow.note(batch, "add_next" if to_next else "add", block.keys)
        places = draw_places(pool.current.size, min(10, pool.current.size), 1, batch)
        pool.draw(places)
        shadow.note(batch, "draw", places)
        history.append([pool.keys[bag.items].tolist() for bag in (pool.current, pool.next)])
    ago = data.draw(st.integers(1, len(history)))
    shadow.advance(ago)
    assert [bag.items.tolist() for bag in shadow.bags] == history[ago - 1]


def test_shuffle_formulas_hold(tmp_path):
    """Made-up games of equal length through a real pool, steady and holding a whole epoch."""
    per_game, games, batch = 32, 2000, 256
    positions = np.zeros(per_game * games, POSITION)
    positions["game"] = np.repeat(np.arange(games), per_game)
    keys = np.arange(len(positions), dtype=np.uint64)

    def shares(pool_size):
        pool, place, found, number = Pool(pool_size + 1024, seed=3), 0, [], 0
        while True:
            while len(pool) < pool_size and place < len(positions):
                part = slice(place, place + 1024)
                pool.add(Block(positions[part], keys[part]), to_next=False)
                place += 1024
            if pool.current.size < batch or (place >= len(positions) > pool_size and number > 150):
                return found
            drawn = pool.draw(draw_places(pool.current.size, batch, 3, number)).positions
            number += 1
            found.append(measured_share_without_mate(drawn))

    steady = np.mean(shares(8192)[8192 // batch * 2 : 180])
    expected = share_without_mate(batch, per_game, 8192, len(positions))
    assert abs((1 - steady) / (1 - expected) - 1) < 0.1
    full = np.mean(shares(len(positions)))
    expected = share_without_mate(batch, per_game, 1 << 20, len(positions))
    assert abs((1 - full) / (1 - expected) - 1) < 0.1


# --- the loader -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(records_dir, games_dir):
    """Two epochs of both sources in this process: what every other way must reproduce."""
    index = index_of(records_dir, games_dir)
    return keys_of(index, LoaderConfig(workers=0, epochs=2, **SMALL))


def test_each_position_once_an_epoch(records_dir, games_dir, uninterrupted):
    everything = load_block(index_of(records_dir, games_dir), ParseOptions()).keys
    assert len(np.unique(everything)) == len(everything)
    keys = np.concatenate(uninterrupted)
    assert len(keys) == 2 * len(everything)
    first, second = keys[: len(everything)], keys[len(everything) :]
    np.testing.assert_array_equal(np.sort(first), np.sort(everything))
    np.testing.assert_array_equal(np.sort(second), np.sort(everything))
    assert not np.array_equal(first, second)
    assert {len(batch) for batch in uninterrupted[:-1]} == {256}


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_same_batches_whatever_the_workers(records_dir, games_dir, uninterrupted, workers):
    index = index_of(records_dir, games_dir)
    keys = keys_of(index, LoaderConfig(workers=workers, epochs=2, **SMALL))
    assert fingerprint(keys) == fingerprint(uninterrupted)


def test_another_seed_another_order(records_dir, games_dir, uninterrupted):
    index = index_of(records_dir, games_dir)
    keys = keys_of(index, LoaderConfig(workers=0, epochs=2, **{**SMALL, "seed": 6}))
    assert fingerprint(keys) != fingerprint(uninterrupted)


@pytest.mark.parametrize("after", [1, 40, 97, 170])
def test_resume_goes_on_exactly(records_dir, games_dir, uninterrupted, after):
    """Stop in the middle of an epoch, at its end, in the next one; with the loader ahead."""
    index, config = index_of(records_dir, games_dir), LoaderConfig(workers=1, epochs=2, **SMALL)
    with Loader(index, config, ahead=True) as loader:
        first = [next(loader).keys for _ in range(after)]
        for _ in range(3):  # batches that were handed out but never trained on
            next(loader)
        state = loader.state(after)
    rest = keys_of(index, config, state=state)
    assert fingerprint(first + rest) == fingerprint(uninterrupted)


def test_a_state_of_the_past_is_refused(games_dir):
    with Loader(index_of(games_dir), LoaderConfig(workers=0, **SMALL)) as loader:
        for _ in range(4):
            next(loader)
        loader.state(3)
        with pytest.raises(ValueError, match="batch 2 is past"):
            loader.state(2)


def test_resume_of_a_resumed_run_with_keep(games_dir):
    parse = ParseOptions(keep=9)
    index = index_of(games_dir)
    config = LoaderConfig(workers=0, epochs=4, parse=parse, **SMALL)
    whole = keys_of(index, config)
    found, state = [], None
    for after in (3, 9, 20, len(whole)):
        with Loader(index, config, state) as loader:
            while len(found) < after:
                found.append(next(loader).keys)
            state = loader.state(after)
    assert fingerprint(found) == fingerprint(whole)


def test_a_state_of_other_data_is_refused(games_dir, records_dir):
    config = LoaderConfig(workers=0, **SMALL)
    with Loader(index_of(games_dir), config) as loader:
        next(loader)
        state = loader.state(1)
    with pytest.raises(GinkgoError, match="data has changed"):
        Loader(index_of(records_dir), config, state)
    with pytest.raises(GinkgoError, match="batch_size"):
        Loader(index_of(games_dir), LoaderConfig(workers=0, pool=4096, seed=5), state)


def test_a_killed_worker_is_named_and_replaced(records_dir, games_dir, uninterrupted):
    index, config = index_of(records_dir, games_dir), LoaderConfig(workers=2, epochs=2, **SMALL)
    said, keys = [], []
    with Loader(index, config, say=said.append) as loader:
        for number, batch in enumerate(loader):
            keys.append(batch.keys)
            if number in (5, 60):
                os.kill(loader.pids[0], signal.SIGKILL)
    assert fingerprint(keys) == fingerprint(uninterrupted)
    died = [line for line in said if "died (signal 9)" in line]
    assert len(died) == 2


def test_a_file_that_kills_every_reader_is_left_out(games_dir, monkeypatch, tmp_path):
    """A crash of the C++ rules would look like this: the segment goes, the rest is read."""
    import ginkgo.pipeline.workers as workers

    monkeypatch.setattr(workers, "worker_main", _dies_on_part_1)
    index, said = build_index([games_dir], "all"), []
    assert len(index.files[1].segments) == 1
    with Loader(index, LoaderConfig(workers=1, epochs=1, **SMALL), say=said.append) as loader:
        keys = np.concatenate([batch.keys for batch in loader])
        dropped = loader.dropped.as_dict()
    files = np.unique(keys >> 44)
    assert files.tolist() == [0, 2]
    assert dropped["crashed the reader"]["count"] == 1
    assert len([line for line in said if "died" in line]) == 3
    assert "part-00001.usi" in dropped["crashed the reader"]["first"]


def _dies_on_part_1(pipe, memory_name, slot_size, slots, options):
    from ginkgo.pipeline import worker

    real = worker.run_job

    def run_job(job, *rest):
        if "part-00001" in job.paths[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(job, *rest)

    worker.run_job = run_job
    worker.worker_main(pipe, memory_name, slot_size, slots, options)


def test_workers_that_cannot_start_are_an_error(games_dir, monkeypatch):
    import ginkgo.pipeline.workers as workers

    monkeypatch.setattr(workers, "worker_main", _dies_at_once)
    with (
        pytest.raises(GinkgoError, match=r"as soon as they start.*__main__"),
        Loader(index_of(games_dir), LoaderConfig(workers=1, **SMALL), say=list) as loader,
    ):
        next(loader)


def _dies_at_once(*_args):
    os._exit(3)


def test_a_block_too_large_for_its_slot_comes_all_the_same(games_dir, monkeypatch):
    import ginkgo.pipeline.loader as loader_module

    index = index_of(games_dir)
    expected = keys_of(index, LoaderConfig(workers=0, epochs=1, **SMALL))
    monkeypatch.setattr(loader_module, "slot_bytes", lambda *_: 50_000)
    keys = keys_of(index, LoaderConfig(workers=1, epochs=1, **SMALL))
    assert fingerprint(keys) == fingerprint(expected)


def test_nothing_is_left_behind(games_dir):
    before = set(Path("/dev/shm").glob("psm_*")) if Path("/dev/shm").exists() else set()
    with Loader(index_of(games_dir), LoaderConfig(workers=2, **SMALL)) as loader:
        next(loader)
        pids = loader.pids
    assert not any(psutil.pid_exists(pid) for pid in pids)
    if Path("/dev/shm").exists():
        assert set(Path("/dev/shm").glob("psm_*")) <= before


def test_workers_end_with_their_parent(games_dir, tmp_path):
    """kill -9 of the parent leaves no process behind."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time\n"
        "from ginkgo.pipeline import Loader, LoaderConfig, build_index\n"
        "if __name__ == '__main__':\n"
        "    loader = Loader(build_index([sys.argv[1]], 'all'),\n"
        "        LoaderConfig(workers=2, batch_size=64, pool=1024))\n"
        "    next(loader)\n"
        "    print(*loader.pids, flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, script, games_dir], stdout=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    deadline = time.time() + 10
    while any(map(alive, pids)) and time.time() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_no_worker_holds_tensorflow(games_dir):
    import tensorflow  # noqa: F401  (the parent does)

    with Loader(index_of(games_dir), LoaderConfig(workers=2, **SMALL)) as loader:
        next(loader)
        for pid in loader.pids:
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert "cshogi" in maps
            assert "tensorflow" not in maps


def test_bad_lines_are_counted_once_and_training_goes_on(tmp_path, records_dir):
    lines = (records_dir / "part-00001.sfenx").read_bytes().split(b"\n")[:-1]
    kinds = list(BAD_RECORDS.items())
    for place in range(500, len(lines), 500):
        lines[place] = kinds[place // 500 % len(kinds)][0]
    expected = Counter(kinds[place // 500 % len(kinds)][1] for place in range(500, len(lines), 500))
    data = tmp_path / "bad.sfenx"
    data.write_bytes(b"\n".join(lines) + b"\n")
    said = []
    config = LoaderConfig(workers=1, epochs=2, **SMALL)
    with Loader(index_of(data), config, say=said.append) as loader:
        count = sum(len(batch.keys) for batch in loader)
        dropped = loader.dropped.as_dict()
    assert count == 2 * (len(lines) - sum(expected.values()))
    assert {kind: entry["count"] for kind, entry in dropped.items()} == dict(expected)
    assert all(str(data) in entry["first"] for entry in dropped.values())
    assert len([line for line in said if line.startswith("left out")]) == len(expected)


def test_strict_stops_at_the_first_bad_line(tmp_path):
    data = tmp_path / "bad.sfenx"
    data.write_bytes(b"\n".join([GOOD, GOOD, b"nonsense", GOOD]) + b"\n")
    config = LoaderConfig(batch_size=2, pool=2, workers=1, epochs=1, strict=True)
    with (
        pytest.raises(GinkgoError, match=r"bad\.sfenx:3: missing field"),
        Loader(index_of(data), config) as loader,
    ):
        list(loader)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_file_gives_what_is_there(tmp_path, games_dir, suffix):
    import zstandard

    text = (games_dir / "part-00000.usi").read_bytes()
    frames = [text[place : place + 10_000] for place in range(0, len(text), 10_000)]
    pack = gzip.compress if suffix == ".gz" else zstandard.compress
    packed = b"".join(map(pack, frames))
    data = tmp_path / f"cut.usi{suffix}"
    data.write_bytes(packed[: len(packed) * 2 // 3])
    config = LoaderConfig(workers=1, epochs=1, batch_size=64, pool=1024)
    with Loader(index_of(data), config) as loader:
        count = sum(len(batch.keys) for batch in loader)
        dropped = loader.dropped.as_dict()
    assert (
        1000 < count < load_block(index_of(games_dir / "part-00000.usi"), ParseOptions()).keys.size
    )
    assert dropped["damaged file"]["count"] == 1
    assert str(data) in dropped["damaged file"]["first"]


def test_a_file_with_nothing_readable_is_named(tmp_path):
    data = tmp_path / "cut.usi.gz"
    data.write_bytes(gzip.compress(b"startpos moves 7g7f")[:12])
    with pytest.raises(GinkgoError, match=r"cut\.usi\.gz"):
        Loader(index_of(data), LoaderConfig(workers=0, **SMALL))


def test_no_position_passes(games_dir):
    config = LoaderConfig(workers=0, parse=ParseOptions(min_ply=5000), **SMALL)
    with (
        pytest.raises(GinkgoError, match="no position"),
        Loader(index_of(games_dir), config) as loader,
    ):
        next(loader)


def test_sparse_codes_travel_with_their_positions(games_dir):
    from ginkgo.features.ginkgo148 import pack_positions

    config = LoaderConfig(
        workers=1,
        epochs=1,
        batch_size=64,
        pool=2048,
        parse=ParseOptions(features="ginkgo148", keep=3),
    )
    with Loader(index_of(games_dir), config) as loader:
        for batch in loader:
            codes, offsets = pack_positions(batch.positions)
            np.testing.assert_array_equal(offsets, batch.ragged["codes"].offsets)
            np.testing.assert_array_equal(codes, batch.ragged["codes"].values)


def test_dataset_is_usable_without_the_trainer(games_dir):
    import ginkgo.pipeline

    data = ginkgo.pipeline.dataset(
        [games_dir], split="all", batch_size=64, pool=1024, workers=1, epochs=1
    )
    total, shapes = 0, set()
    for batch in data:
        total += int(batch["board"].shape[0])
        shapes.add(tuple(batch["hand"].shape[1:]))
    assert total == index_of(games_dir).positions
    assert shapes == {(2, 7)}


def test_positions_kept_by_source(tmp_path, games_dir):
    for number, name in enumerate(("one", "two")):
        file = sorted(games_dir.glob("*.usi"))[number]
        (tmp_path / f"{name}.usi").write_bytes(file.read_bytes())
    index = build_index(sorted(tmp_path.glob("*.usi")), "all")
    options = ParseOptions(keep=8, keep_from=(None, 3))
    config = LoaderConfig(batch_size=64, pool=2048, workers=0, seed=2, epochs=1, parse=options)
    with Loader(index, config) as loader:
        expected = loader.share_without_mate["all"]
        found = np.concatenate([batch.positions for batch in loader])
    for source, keep in ((0, 8), (1, 3)):
        games = found["game"][found["source"] == source]
        assert set(np.unique(games, return_counts=True)[1]) == {keep}
    assert len(found) == sum(epoch_positions(index, options))
    mates = (8 * 8 + 3 * 3) / 11 - 1
    assert expected == pytest.approx(np.exp(-63 * mates / len(found)), rel=0.05)


@pytest.mark.parametrize("features", ["dlshogi119", "ginkgo148"])
def test_packed_batches_are_those_of_the_loader(games_dir, features):
    from ginkgo.pipeline.tfdata import dataset_of, packed_signature, signature, unpack

    config = LoaderConfig(
        batch_size=64, pool=512, workers=0, seed=4, parse=ParseOptions(features=features)
    )
    index = build_index([games_dir], "all")
    with Loader(index, config) as plain, Loader(index, config, ahead=True) as ahead:
        ragged = config.parse.ragged
        data = dataset_of(lambda: ahead, ragged, close=False, packed=True)
        assert data.element_spec == packed_signature(ragged)
        for packed, batch in zip(data.take(5), plain, strict=False):
            fields = unpack(packed, ragged)
            assert set(fields) == set(signature(ragged))
            for name in POSITION.names:
                np.testing.assert_array_equal(fields[name].numpy(), batch.positions[name])
            assert int(fields["number"]) == batch.number
            ahead.acknowledge(batch.number)
            if features == "ginkgo148":
                codes = batch.ragged["codes"]
                np.testing.assert_array_equal(fields["codes"].numpy(), codes.values)
                np.testing.assert_array_equal(fields["codes_offsets"].numpy(), codes.offsets)


def test_a_loader_that_is_told_nothing_goes_on(games_dir):
    """Waiting for the training loop is a courtesy: nobody hangs who does not acknowledge."""
    config = LoaderConfig(batch_size=64, pool=512, workers=0, seed=4, prefetch=2)
    with Loader(build_index([games_dir], "all"), config, ahead=True) as loader:
        numbers = [next(loader).number for _ in range(12)]
    assert numbers == list(range(1, 13))
