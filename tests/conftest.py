"""Shared fixtures: bundled games as lines, records and kifu of every form; a tiny run."""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")

#: Files that take longest, the longest first: processes that got them last would work on alone.
LONGEST = (
    *("training", "distribution", "contribute", "mixed_training", "benchmarks", "notebooks"),
    *("evaluate", "reinforce", "match", "soft_policy", "step", "server_uploads", "convert"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; the order is kept otherwise."""
    ranks = {f"test_{name}": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)))


SAMPLE = Path(__file__).parents[1] / "data" / "sample" / "engine-games.usi.gz"


@pytest.fixture(scope="session")
def sample_lines() -> list[str]:
    with gzip.open(SAMPLE, "rt") as stream:
        return [next(stream).rstrip("\n") for _ in range(240)]


@pytest.fixture(scope="session")
def games_dir(tmp_path_factory, sample_lines) -> Path:
    """Three files of 80 game lines, one of them compressed."""
    folder = tmp_path_factory.mktemp("games")
    for number in range(3):
        text = "\n".join(sample_lines[80 * number : 80 * number + 80]) + "\n"
        if number == 2:
            (folder / f"part-{number:05d}.usi.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"part-{number:05d}.usi").write_text(text)
    return folder


@pytest.fixture(scope="session")
def records_dir(tmp_path_factory, sample_lines) -> Path:
    """The same games as records, not split, in three files, one compressed."""
    from ginkgo.records import format_record, parse_game_line
    from ginkgo.records.replay import replay
    from ginkgo.records.sfenx import Record

    folder = tmp_path_factory.mktemp("records")
    for number in range(3):
        lines = []
        for line in sample_lines[80 * number : 80 * number + 80]:
            game = parse_game_line(line)
            for sfen, move in zip(replay(game), game.moves, strict=True):
                record = Record(sfen, game.total, move, game.winner, game=game.game, end=game.end)
                lines.append(format_record(record))
        text = "\n".join(lines) + "\n"
        if number == 2:
            (folder / f"part-{number:05d}.sfenx.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"part-{number:05d}.sfenx").write_text(text)
    return folder


@pytest.fixture
def config(games_dir, tmp_path):
    """A tiny run of twelve steps, as a `TrainConfig`."""
    from ginkgo.training.config import TrainConfig

    return TrainConfig(
        data=(games_dir,),
        run="tiny",
        runs=tmp_path / "runs",
        network="b1c8",
        batch_size=64,
        steps=12,
        eval_every=6,
        pool=2048,
        val_positions=300,
        test_positions=300,
        deterministic=True,
    )


@pytest.fixture(scope="session")
def some_games(sample_lines):
    """Thirty of the bundled games, as `Game`."""
    from ginkgo.records import parse_game_line

    return [parse_game_line(line) for line in sample_lines[:30]]


@pytest.fixture(scope="session")
def kifu(tmp_path_factory, some_games) -> dict[str, Path]:
    """The same games in every form, by name."""
    import py7zr
    import zstandard

    from ginkgo.records.kifu import write

    folder = tmp_path_factory.mktemp("kifu")
    csa = "/\n".join(map(write.write_csa, some_games)).encode()
    kif = {f"k/{n:03d}.kif": write.write_kif(g).encode("cp932") for n, g in enumerate(some_games)}
    ki2 = {f"k/{n:03d}.ki2": write.write_ki2(g).encode() for n, g in enumerate(some_games)}
    (folder / "merged.csa").write_bytes(csa)
    (folder / "merged.csa.gz").write_bytes(gzip.compress(csa))
    (folder / "merged.csa.zst").write_bytes(zstandard.ZstdCompressor().compress(csa))
    (folder / "oddly-named.txt").write_bytes(csa)
    for name, data in kif.items():
        path = folder / "kif" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("readme.txt", "Dear reader,\n")
        for name, data in ki2.items():
            archive.writestr(name, data)
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz")):
        with tarfile.open(folder / f"all{suffix}", mode) as archive:
            for name, data in kif.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    raw = zstandard.ZstdCompressor().compress((folder / "all.tar").read_bytes())
    (folder / "all.tar.zst").write_bytes(raw)
    with py7zr.SevenZipFile(folder / "all.7z", "w") as archive:
        archive.writeall(folder / "kif" / "k", "k")
    names = [path.name for path in folder.iterdir()]
    return {name: folder / name for name in names}


# --- many machines ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def network(tmp_path_factory) -> Path:
    """A network of one layer."""
    from fleet_parts import tiny_network

    return tiny_network(tmp_path_factory.mktemp("network") / "tiny.onnx")


@pytest.fixture
def place(tmp_path, network):
    """A server in this process with a model and an open run."""
    from fleet_parts import Place, open_run, publish

    place = Place(tmp_path)
    with place.client:
        publish(place.client, place.tom, "first", network)
        open_run(place.client, place.tom, 1, "first")
        yield place


@pytest.fixture(scope="session")
def games() -> list:
    """Sixteen games with the numbers 1024 to 1039, those of the first task."""
    from fleet_parts import played

    from ginkgo.fleet.config import TASK_GAMES

    return played(TASK_GAMES, 16)
