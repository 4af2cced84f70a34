"""Self-play on a Ray cluster of this machine; without Ray what goes out to its nodes."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fleet_parts import PLAY, tiny_network

from ginkgo.errors import GinkgoError
from ginkgo.selfplay import cluster
from ginkgo.selfplay.audit import audit
from ginkgo.selfplay.cluster import pack
from ginkgo.selfplay.config import SelfplayConfig
from ginkgo.selfplay.run import play_run
from ginkgo.selfplay.store import run_folder

SMALL = SelfplayConfig(
    **{name: value for name, value in vars(PLAY).items()}, model="hash", games=40, file_games=10,
    processes=2, concurrent=8, ray="local",
)  # fmt: skip


def test_what_a_node_needs_goes_out(tmp_path):
    network = tiny_network(tmp_path / "tiny.onnx")
    openings = tmp_path / "openings.txt"
    openings.write_text("startpos moves 7g7f\n")
    config = replace(SMALL, model=str(network), openings=openings)
    there = tmp_path / "node"
    there.mkdir()
    found = pack(config).unpack(there)
    assert Path(found.model).parent.parent == there
    assert Path(found.model).read_bytes() == network.read_bytes()
    assert found.openings is not None
    assert found.openings.read_text() == openings.read_text()
    pair = pack(replace(SMALL, model="pretrained+hash"))
    other = tmp_path / "other"
    other.mkdir()
    first, second = pair.unpack(other).model.split("+")
    assert (Path(first) / "config.json").is_file()
    assert second == "hash"
    for model in ("no/such", str(tmp_path / "no.onnx")):
        with pytest.raises(GinkgoError):
            pack(replace(SMALL, model=model))


def test_without_ray_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(GinkgoError, match="Ray is not installed"):
        play_run(SMALL, run_folder(tmp_path, 1), say=lambda _: None)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999", "no..host:10001"]
)
def test_a_cluster_that_is_not_there(address):
    """It says so at once; Ray alone takes minutes."""
    with pytest.raises(GinkgoError, match=re.escape(f"--ray {address}: nothing answers")):
        cluster._reach(address)


def test_addresses_that_only_ray_knows():
    for address in ("auto", "local", "cluster"):
        cluster._reach(address)


def test_an_actor_dies_and_the_games_are_played(tmp_path, monkeypatch):
    """The same games as without a cluster, each once."""
    pytest.importorskip("ray")
    killed: list[int] = []
    iterate = cluster.Cluster.__iter__

    def watched(self):
        for count, found in enumerate(iterate(self)):
            if count == 3 and not killed:
                me = psutil.Process()
                actors = [
                    one.pid
                    for one in me.children(recursive=True)
                    if any("Actor" in word for word in one.cmdline())
                ]
                killed.append(actors[0])
                os.kill(actors[0], signal.SIGKILL)
            yield found

    monkeypatch.setattr(cluster.Cluster, "__iter__", watched)
    run = run_folder(tmp_path / "ray", 1)
    play_run(SMALL, run, say=lambda _: None)
    assert len(killed) == 1
    assert run.look().complete
    alone = run_folder(tmp_path / "alone", 1)
    play_run(replace(SMALL, ray="", processes=1), alone, say=lambda _: None)
    assert audit([run]).faults == []
    moves = []
    for one in (run, alone):
        by_number = {}
        for _, _, arrays in one.arrays():
            plies = 0
            for number, count in zip(arrays["number"], arrays["plies"], strict=True):
                by_number[int(number)] = arrays["move"][plies : plies + count].tolist()
                plies += count
        moves.append(by_number)
    assert moves[0] == moves[1]
