"""Which source comes next: the formulas, the games seen, the mixer, the loader, the training."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ginkgo.errors import GinkgoError
from ginkgo.features.position import POSITION
from ginkgo.pipeline import Index, Loader, LoaderConfig, ParseOptions, build_index, dataset
from ginkgo.pipeline import coverage as coverage_module
from ginkgo.pipeline.coverage import Coverage, Progress
from ginkgo.pipeline.history import Earlier, document, earlier, unpack_seen
from ginkgo.pipeline.index import SourceIndex
from ginkgo.pipeline.load import load_block
from ginkgo.pipeline.loader import DataChanged
from ginkgo.pipeline.mixer import LAG, Mixer
from ginkgo.pipeline.mixing import Bandit, by_weight, coverage_bonus, epoch_penalty, rank, ucb1
from ginkgo.pipeline.scan import Scan
from ginkgo.records.convert import ConvertConfig
from ginkgo.records.convert.run import convert
from ginkgo.records.sources import find_sources
from ginkgo.records.split import Split
from ginkgo.training.checkpoint import pack_data, unpack_data

# --- the formulas -----------------------------------------------------------------------------


@pytest.mark.parametrize(("coverage", "bonus"), [(0, 1.3), (0.25, 1.15), (0.5, 1.0), (0.7, 1.0)])
def test_bonus(coverage, bonus):
    assert coverage_bonus(coverage) == pytest.approx(bonus)
    games = 1400
    seen = round(coverage * games)
    assert Progress((games,), (seen,), (float(seen),)).bonus(0) == pytest.approx(bonus)


def test_penalty():
    assert Progress((1400,), (1400,), (5600.0,)).penalty(0) == pytest.approx(0.2)
    assert epoch_penalty(1.0) == 1.0
    assert epoch_penalty(1.5) == pytest.approx(0.4)


def test_coverage():
    assert Progress((512_000,), (154_000,), (154_000.0,)).coverage(0) == pytest.approx(
        0.301, abs=5e-4
    )


def test_what_is_used_up_is_not_explored():
    """Twenty games beside a thousand: no more epochs of them than the penalty allows."""
    sizes, bandit = (1000, 20), Bandit.new(2)
    epochs = [0.0, 0.0]
    for _ in range(400):
        source = bandit.choose([epoch_penalty(one) for one in epochs], 1.0, (0, 1))
        bandit = bandit.drawn(source).rewarded_with(source, 0.5)
        epochs[source] += 10 / sizes[source]
    assert 3 < epochs[0] < 4
    assert epochs[0] < epochs[1] < 20


def test_ucb1_is_that_of_the_paper():
    """Auer et al. 2002, figure 1: x + sqrt(2 ln n / n_j)."""
    assert ucb1(0.25, 7, 90, math.sqrt(2)) == pytest.approx(0.25 + math.sqrt(2 * math.log(90) / 7))
    assert ucb1(0.25, 0, 90, 0.0) == math.inf


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=50), st.floats(-3, 3))
def test_ranks_do_not_depend_on_the_scale(values, value):
    others = np.array(values)
    found = rank(value, others)
    assert 0 <= found <= 1
    assert found == rank(2**4 * value, 2**4 * others)
    assert rank(value, others) == pytest.approx(1 - rank(-value, -others))


@given(st.lists(st.floats(0.1, 9), min_size=1, max_size=5), st.integers(1, 200))
def test_shares_are_kept_at_all_times(weights, draws):
    drawn = [0] * len(weights)
    for _ in range(draws):
        drawn[by_weight(drawn, weights, range(len(weights)))] += 1
    shares = np.array(weights) / sum(weights)
    assert np.abs(drawn - shares * draws).max() < len(weights)


def test_a_bandit_learns_where_the_loss_falls():
    """Source 1 improves steadily, source 0 does not."""
    bandit, losses, rng = Bandit.new(2), [1.0, 1.0], np.random.default_rng(0)
    for _ in range(600):
        source = bandit.choose((1.0, 1.0), 0.3, (0, 1))
        losses[source] -= 0.001 * source
        bandit = bandit.drawn(source).learned(source, losses[source] + rng.normal(0, 0.002))
    assert bandit.mean(1) > bandit.mean(0) + 0.2
    assert bandit.draws[1] > 2 * bandit.draws[0]
    assert Bandit.from_dict(json.loads(json.dumps(bandit.as_dict()))).as_dict() == bandit.as_dict()


def test_a_source_is_not_the_better_for_being_drawn_less():
    """All losses fall alike, whatever is drawn: rewards are alike, drawn one in ten or nine."""
    bandit, rng = Bandit.new(2), np.random.default_rng(0)
    for chunk in range(2000):
        source = int(chunk % 10 == 3)
        bandit = bandit.learned(source, 9 - 0.004 * chunk + rng.normal(0, 0.1))
    assert bandit.heard == 2000
    assert abs(bandit.mean(1) - bandit.mean(0)) < 0.15


def test_a_loss_that_is_no_number_teaches_nothing():
    bandit = Bandit.new(1).learned(0, 1.0)
    assert bandit.learned(0, math.nan).as_dict() == bandit.as_dict()
    assert bandit.rewarded == (0,)
    assert bandit.learned(0, 0.9).rewarded == (1,)


# --- the games seen ---------------------------------------------------------------------------


def positions_of(sources, games):
    positions = np.zeros(len(sources), POSITION)
    positions["source"], positions["game"] = sources, games
    return positions


def index_of(*games: np.ndarray) -> Index:
    """An index of sources with games of these numbers."""
    sources = [
        SourceIndex(f"s{n}", Split(), games=len(numbers), numbers=np.sort(numbers))
        for n, numbers in enumerate(games)
    ]
    return Index("train", sources, [], [])


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_games_are_counted_as_sets_are(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    numbers = [np.unique(rng.integers(0, 60, 20)), np.unique(rng.integers(0, 9, 5))]
    found = Coverage(index_of(*numbers), (2.0, 4.0))
    sets, counts, history = [set(), set()], [0, 0], [[set(), set()]]
    for batch in range(1, 8):
        sources = rng.integers(0, 2, 16)
        games = np.array([rng.choice(numbers[source]) for source in sources])
        found.add(positions_of(sources, games), batch)
        for source, game in zip(sources.tolist(), games.tolist(), strict=True):
            sets[source].add(game)
            counts[source] += 1
        history.append([set(one) for one in sets])
        assert found.progress.seen == tuple(map(len, sets))
        assert found.progress.pulls == pytest.approx((counts[0] / 2, counts[1] / 4))
    ago = data.draw(st.integers(0, 7))
    flags = found.seen_at(ago)
    assert [set(n[f].tolist()) for n, f in zip(numbers, flags, strict=True)] == history[ago]
    again = Coverage(index_of(*numbers), (2.0, 4.0))
    again.restore(flags, (1.0, 2.0))
    assert again.progress.seen == tuple(map(len, history[ago]))
    assert all(map(np.array_equal, again.seen_at(0), flags))


@pytest.mark.parametrize("change", ["none", "grown", "shrunk", "moved", "front", "other"])
def test_games_seen_are_found_again(change):
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 2**63, 5000).astype(np.uint64)
    seen = rng.random(5000) < 0.4
    saved = json.loads(json.dumps(coverage_module.pack(seen, hashes)))
    new = rng.integers(0, 2**63, 300).astype(np.uint64)
    now, expected = {
        "none": (hashes, seen),
        "grown": (np.append(hashes, new), np.append(seen, [False] * 300)),
        "front": (np.append(new, hashes), np.append([False] * 300, seen)),
        "shrunk": (hashes[:2000], seen[:2000]),
        "moved": (np.append(hashes[2500:], hashes[:2500]), np.append(seen[2500:], seen[:2500])),
        "other": (new, np.zeros(300, bool)),
    }[change]
    flags, lost = coverage_module.unpack(saved, now)
    assert not (flags & ~expected).any()  # nothing counts as seen that was not
    missing = int(expected.sum() - flags.sum())
    assert missing <= (0 if change in ("none", "other") else 400)
    assert lost == seen.sum() - flags.sum()
    assert len(saved["bitmap"]) + len(saved["digests"]) + len(saved["lengths"]) < 3000


# --- the mixer --------------------------------------------------------------------------------


def choices(
    losses: np.ndarray, late: int, mixer: Mixer, chosen: list[int], learns: bool = True
) -> list[int]:
    """Goes on with a mixer whose reports come some batches late; the sources by chunk."""
    progress = Progress((100, 100), (0, 0), (0.0, 0.0))
    waiting: list[tuple[int, np.ndarray]] = []
    for batch in range(4 * len(chosen) + 1, len(losses) + 1):
        if batch % 4 == 1:
            chosen.append(mixer.choose(batch, progress, (0, 1), lambda: False))
            assert mixer.now.known == learns * max(0, batch - 1 - LAG)
        waiting.append((batch, 64 * np.eye(2)[chosen[-1]]))
        while waiting and waiting[0][0] <= batch - late:
            number, counts = waiting.pop(0)
            mixer.report(number, losses[number - 1], counts)
    for number, counts in waiting:
        mixer.report(number, losses[number - 1], counts)
    return chosen


def test_decisions_know_what_is_old_enough_and_no_more():
    """Whatever has been reported since; and after a restart in between."""
    losses = np.random.default_rng(0).random((400, 2))
    found = [choices(losses, late, Mixer("ucb", 2, (), 4, 1.0), []) for late in (0, 3, 28)]
    assert found[0] == found[1] == found[2]
    assert 20 < sum(found[0]) < 80
    mixer = Mixer("ucb", 2, (), 4, 1.0)
    first = choices(losses[:200], 5, mixer, [])
    saved = json.loads(json.dumps(mixer.state(mixer.now, 200)))
    again = Mixer("ucb", 2, (), 4, 1.0)
    again.restore(saved)
    assert choices(losses, 5, again, first) == found[0]


def test_reports_do_not_pile_up():
    for kind, most in (("ucb", LAG + 8), ("weights", 0)):
        mixer = Mixer(kind, 2, (), 4, 1.0)
        choices(np.ones((400, 2)), 0, mixer, [], kind == "ucb")
        mixer.forget(mixer.now)
        assert len(mixer.state(mixer.now, 400)["reports"]) <= most


def test_a_state_needs_the_reports_before_it():
    mixer = Mixer("ucb", 2, (), 4, 1.0)
    mixer.report(1, np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="batch 2 has not been reported"):
        mixer.state(mixer.now, 2)


# --- named sources ----------------------------------------------------------------------------


def test_named_sources(games_dir, tmp_path):
    one, two, three = sorted(games_dir.iterdir())
    found = find_sources([games_dir], named={"mine": [two], "other": [three]})
    names = {source.name: [file.name for file in source.files] for source in found}
    assert names == {"mine": [two.name], "other": [three.name], "part": [one.name]}
    with pytest.raises(GinkgoError, match=r"part-00001.usi: in two sources, a and b"):
        find_sources([], named={"a": [games_dir], "b": [two]})


def test_held_out_neighbours_belong_to_the_name(games_dir, tmp_path):
    files = [tmp_path / f"{name}.usi" for name in ("one", "two")]
    for file, games in zip(files, sorted(games_dir.glob("*.usi")), strict=False):
        file.write_bytes(games.read_bytes())
    out = tmp_path / "records"
    convert(ConvertConfig(tuple(map(str, files)), str(out), workers=1))
    [one, two] = sorted((out / "train").glob("*.sfenx"))
    scan = Scan([two], named={"mine": [one]})
    for split in ("train", "val", "test"):
        index = scan.view(split)
        assert index.names == ["mine", "two"]
        plain = build_index([out / "train"], split)
        assert [s.games for s in index.sources] == [s.games for s in plain.sources]
    whole = Scan([], named={"all": [out / "train"]})
    assert whole.view("val").names == ["all"]
    assert whole.view("val").games == build_index([out / "train"], "val").games


# --- the loader -------------------------------------------------------------------------------

SMALL = {"batch_size": 64, "pool": 2048, "seed": 5, "chunk": 3, "coverage": True}


@pytest.fixture(scope="module")
def mixed(games_dir, tmp_path_factory) -> Index:
    """Three sources of 60, 80 and 20 games."""
    folder = tmp_path_factory.mktemp("mixed")
    lines = [file.read_text().splitlines(True) for file in sorted(games_dir.glob("*.usi"))]
    for name, some in (("a", lines[0][:60]), ("b", lines[1]), ("c", lines[0][60:])):
        (folder / f"{name}.usi").write_text("".join(some))
    return build_index([folder], "all", segment_positions=500)


def loss_of(batch: int, sources: int) -> np.ndarray:
    """A made-up loss by source, the same for a batch whenever it is asked for."""
    return 1 / (1 + batch / 50) + 0.1 * np.random.default_rng(batch).random(sources)


def drawn(loader: Loader, until: int, number: int = 0) -> list[tuple[int, np.ndarray]]:
    """(source, keys) of the batches, each reported as soon as it is there."""
    found = []
    while number < until:
        batch = next(loader, None)
        if batch is None:
            break
        number = batch.number
        counts = np.bincount(batch.positions["source"], minlength=len(loader.index.sources))
        loader.acknowledge(number)
        loader.report(number, loss_of(number, len(counts)), counts)
        assert (counts > 0).sum() == 1 or loader.config.mix == "proportional"
        found.append((int(counts.argmax()), batch.keys))
    return found


def same(one, other) -> bool:
    return len(one) == len(other) and all(
        a == b and np.array_equal(x, y) for (a, x), (b, y) in zip(one, other, strict=True)
    )


@pytest.fixture(scope="module")
def whole(mixed) -> dict[str, list]:
    """240 batches in this process, by kind of mix."""
    found = {}
    for mix in ("ucb", "weights"):
        weights = (1.0, 1.0, 2.0) if mix == "weights" else ()
        config = LoaderConfig(workers=0, mix=mix, weights=weights, **SMALL)
        with Loader(mixed, config, ahead=True) as loader:
            found[mix] = drawn(loader, 240)
    return found


def test_chunks_come_from_one_source(whole):
    for found in whole.values():
        sources = [source for source, _ in found]
        assert all(len(set(sources[n : n + 3])) == 1 for n in range(0, 240, 3))
        assert set(sources) == {0, 1, 2}
    assert np.bincount([s for s, _ in whole["weights"]]).tolist() == [60, 60, 120]


def test_each_source_has_exact_epochs(mixed, whole):
    """Whatever is drawn in between, a source gives each position once before any again."""
    everything = load_block(mixed, ParseOptions())
    for found in whole.values():
        for number in range(3):
            own = everything.keys[everything.positions["source"] == number]
            keys = np.concatenate([keys for source, keys in found if source == number])
            assert np.isin(keys, own).all()
            for epoch in range(-(-len(keys) // len(own))):
                part = keys[epoch * len(own) : (epoch + 1) * len(own)]
                assert len(np.unique(part)) == len(part)


@pytest.mark.parametrize("mix", ["ucb", "weights"])
def test_the_workers_do_not_matter(mixed, whole, mix):
    weights = (1.0, 1.0, 2.0) if mix == "weights" else ()
    config = LoaderConfig(workers=2, mix=mix, weights=weights, **SMALL)
    with Loader(mixed, config, ahead=True) as loader:
        assert same(drawn(loader, 120), whole[mix][:120])


@pytest.mark.parametrize("after", [1, 31, 34, 97, 170])
def test_resume_goes_on_exactly(mixed, whole, after):
    """In the middle of a chunk and at its end, with the loader ahead; and the games seen."""
    config = LoaderConfig(workers=0, mix="ucb", **SMALL)
    with Loader(mixed, config, ahead=True) as loader:
        first = drawn(loader, after)
        for _ in range(3):  # handed out, but never trained on
            next(loader)
        state = unpack_data(pack_data(loader.state(after)))
        seen = loader.seen()
    with Loader(mixed, config, state, ahead=True) as loader:
        assert loader.seen().progress == seen.progress
        rest = drawn(loader, 240, after)
        end = loader.seen().progress
    assert same(first + rest, whole["ucb"])
    for number, source in enumerate(mixed.sources):
        keys = np.concatenate([k for s, k in whole["ucb"] if s == number])
        assert end.seen[number] == len(np.unique(keys >> 10))
        assert end.pulls[number] == pytest.approx(len(keys) * source.games / source.positions)
        assert end.games[number] == source.games


def test_all_sources_end(mixed):
    everything = load_block(mixed, ParseOptions()).keys
    for mix in ("weights", "proportional"):
        config = LoaderConfig(workers=0, mix=mix, epochs=1, **SMALL)
        with Loader(mixed, config, ahead=True) as loader:
            keys = np.concatenate([keys for _, keys in drawn(loader, 10**6)])
            assert loader.seen().progress.seen == tuple(s.games for s in mixed.sources)
            assert loader.seen().progress.pulls == pytest.approx([s.games for s in mixed.sources])
        np.testing.assert_array_equal(np.sort(keys), np.sort(everything))


def test_a_source_that_nothing_passes_of_is_named_and_left_out(mixed, tmp_path):
    file = tmp_path / "undecided.usi"
    text = "startpos moves 7g7f 3c3d\twinner=-\tend=chudan\n"
    file.write_text(text)
    index = build_index([mixed.files[0].path, file], "all")
    ends = {line.split("end=")[1].split()[0] for line in open(mixed.files[0].path)}
    parse = ParseOptions(endings=tuple(ends - {"chudan"}))
    said = []
    config = LoaderConfig(workers=0, mix="weights", parse=parse, **SMALL)
    with Loader(index, config, ahead=True, say=said.append) as loader:
        assert {source for source, _ in drawn(loader, 12)} == {0}
    assert said == ["source undecided: none of its positions passes the filters"]


def test_a_dataset_hears_of_no_losses(games_dir):
    with pytest.raises(GinkgoError, match="needs to be told losses"):
        dataset([games_dir], mix="ucb")
    assert len(next(iter(dataset([games_dir], mix="weights", batch_size=8, pool=64)))["ply"]) == 8


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mix": "ucb1"}, "mix 'ucb1': expected one of proportional weights ucb"),
        ({"mix": "weights", "weights": (1.0, 2.0)}, "expected 3 numbers above 0, one a source"),
        ({"mix": "weights", "weights": (1.0, 2.0, 0.0)}, "expected 3 numbers above 0"),
        ({"mix": "weights", "weights": (1.0, 2.0, math.nan)}, "expected 3 numbers above 0"),
        ({"mix": "ucb", "chunk": 0}, "chunk 0: expected at least 1"),
        ({"batch_size": 4096}, "pool 2048: expected at least the batch size, 4096"),
    ],
    ids=str,
)
def test_settings_that_cannot_work(mixed, settings, expected):
    with pytest.raises(GinkgoError, match=expected):
        Loader(mixed, LoaderConfig(**{**SMALL, **settings}))


# --- data that changes ------------------------------------------------------------------------


def test_sources_may_grow_shrink_come_and_go(mixed, tmp_path, games_dir):
    """What is known of the games stays; each source begins with those it has not seen."""
    config = LoaderConfig(workers=0, mix="ucb", **SMALL)
    files = {name: tmp_path / f"{name}.usi" for name in "abcd"}
    texts = {}
    for file in mixed.files:
        name = file.path.rsplit("/", 1)[1][0]
        texts[name] = open(file.path).readlines()
        files[name].write_text("".join(texts[name]))
    before = build_index([tmp_path], "all", segment_positions=500)
    with Loader(before, config, ahead=True) as loader:
        drawn(loader, 20)
        state = loader.state(20)
        seen = loader.seen().progress
    saved = json.loads(json.dumps(document(before, [state], 20, {})))
    files["a"].write_text("".join([*texts["a"], *texts["c"]]))
    files["b"].write_text("".join(texts["b"][:70]))
    files["c"].unlink()
    files["d"].write_text("".join(texts["c"][:5]))
    after = build_index([tmp_path], "all", segment_positions=500)
    with pytest.raises(DataChanged):
        Loader(after, config, state)
    known, said = earlier(saved, after)
    assert [line.split(";")[0] for line in said] == [
        "source a: grew from 60 to 80 games",
        "source b: shrank from 80 to 70 games",
        "source d: new, 5 games",
        "source c: gone",
    ]
    flags = unpack_seen(state["seen"], before)
    assert not (known.seen[0][:60] & ~flags[0]).any()
    assert not known.seen[0][60:].any()
    assert not (known.seen[1] & ~flags[1][:70]).any()
    assert known.seen[0].sum() + known.seen[1].sum() > 0
    assert known.pulls == [*seen.pulls[:2], 0.0]
    assert known.bandit.draws[2] == 0
    with Loader(after, config, ahead=True, earlier=known) as loader:
        start = loader.seen().progress
        assert start.seen == tuple(int(flags.sum()) for flags in known.seen)
        drawn(loader, 12)
        state = unpack_data(pack_data(loader.state(12)))
        rest = drawn(loader, 24, 12)
    with Loader(after, config, state, ahead=True) as loader:
        assert same(drawn(loader, 24, 12), rest)


def test_unseen_games_come_first_after_a_restart(mixed):
    """Nine tenths of a source have been seen: the segments of the rest are read first."""
    seen = [np.ones(source.games, bool) for source in mixed.sources]
    seen[1][:8] = False
    known = Earlier(seen, [0.0] * 3, Bandit.new(3), {"feed_epoch": 4, "draws": 9})
    config = LoaderConfig(workers=0, mix="weights", weights=(1e-9, 1.0, 1e-9), **{
        **SMALL, "pool": 200, "batch_size": 8})  # fmt: skip
    with Loader(mixed, config, ahead=True, earlier=known) as loader:
        assert loader.seen().progress.seen == (60, 72, 20)
        first = next(loader)
        loader.acknowledge(1)
        assert first.epoch == 5
        drawn(loader, 60, 1)
        assert loader.seen().progress.seen[1] == 80


def test_history_stays_short():
    index = index_of(np.arange(4))
    state = {
        "seen": np.packbits(np.ones(4, bool)), "pulls": [1.0], "order": {"mix": "proportional"},
        "streams": [{"feed_epoch": 0, "draws": 3}],
    }  # fmt: skip
    index.sources[0].hashes = np.arange(4, dtype=np.uint64)
    found = None
    for step in range(600):
        found = document(index, [state], step, {}, found)
    steps = [step for step, _ in found["history"]]
    assert len(steps) <= 256
    assert steps[-1] == 599
    assert steps == sorted(set(steps))
    assert min(steps) < 100
