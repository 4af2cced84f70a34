"""Self-play by the actors of a Ray cluster (Moritz et al. 2018), which plays as processes here do.

In: a configuration and the numbers of games. Out: games as they end, and what the evaluators did.
The model goes out once, through Ray's object store; its nodes need ginkgo and nothing else. An
actor that dies is replaced, and the games that it had not finished are played anew, the same.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ginkgo.errors import GinkgoError
from ginkgo.models.directory import CONFIG, INT8, ONNX, WEIGHTS, find_model
from ginkgo.records.kifu.selfplay import PlayedGame
from ginkgo.selfplay.config import SelfplayConfig
from ginkgo.selfplay.counting import Used
from ginkgo.selfplay.worker import play_here

#: The address that stands for a cluster on this machine, made and ended with the run.
LOCAL = "local"
#: Of the object store of such a cluster, which holds the model and the games under way; Ray would
#: take a third of the memory.
_STORE_BYTES = 512 << 20
#: Seconds in which something must listen at the address of another cluster.
_PATIENCE_S = 10.0
#: Actors of one share of the games that may die before any of them has finished a game.
_DEATHS = 3


@dataclass(frozen=True)
class Parcel:
    """A configuration with the files that it names."""

    config: SelfplayConfig
    models: tuple[str | dict[str, bytes], ...]
    """Of each model its files, or a word that stands for one without files."""
    openings: bytes | None

    def unpack(self, folder: Path) -> SelfplayConfig:
        """The configuration, its files in a folder of this machine."""
        names = []
        for index, model in enumerate(self.models):
            if isinstance(model, str):
                names.append(model)
                continue
            path = folder / f"model-{index}"
            path.mkdir()
            for name, data in model.items():
                (path / name).write_bytes(data)
            names.append(str(path if CONFIG in model else path / next(iter(model))))
        config = replace(self.config, model="+".join(names))
        if self.openings is not None:
            path = folder / "openings.txt"
            path.write_bytes(self.openings)
            config = replace(config, openings=path)
        return config


def pack(config: SelfplayConfig) -> Parcel:
    """Read what other machines need.

    Raises:
        GinkgoError: there is no such model, or it cannot be read.
    """
    pair = "+" in config.model and not Path(config.model).exists()
    names = config.model.split("+") if pair else [config.model]
    try:
        openings = None if config.openings is None else config.openings.read_bytes()
        return Parcel(config, tuple(map(_files_of, names)), openings)
    except OSError as error:
        raise GinkgoError(f"{error.filename}: cannot be read: {error.strerror}") from None


def _files_of(model: str) -> str | dict[str, bytes]:
    from ginkgo.search.evaluators import HASH, UNIFORM

    if model in (HASH, UNIFORM):
        return model
    path = Path(model)
    if path.suffix == ".onnx":
        return {path.name: path.read_bytes()}
    folder = find_model(model)
    found = [folder / name for name in (CONFIG, INT8, ONNX, WEIGHTS)]
    return {one.name: one.read_bytes() for one in found if one.is_file()}


class Actor:
    """What plays on a node.

    Args:
        parcel: from the object store.
    """

    def __init__(self, parcel: Parcel) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ginkgo-")
        self._config = parcel.unpack(Path(self._folder.name))

    def play(
        self, run: int, numbers: Sequence[int], threshold: float
    ) -> Iterator[PlayedGame | Used]:
        """See `play_here`."""
        yield from play_here(self._config, run, numbers, threshold)


@dataclass
class _Share:
    """Games of one actor."""

    actor: Any
    left: set[int]
    deaths: int = 0


class Cluster:
    """Actors that play the games of `numbers`; `ginkgo.selfplay.worker.Players` is the same here.

    Use it in a `with` block, which ends them.

    Raises:
        GinkgoError: Ray is not there, or does not answer at `config.ray`.
    """

    def __init__(
        self,
        config: SelfplayConfig,
        run: int,
        numbers: Sequence[int],
        threshold: float,
        processes: int,
    ) -> None:
        self._ray = _ray()
        self._run, self._threshold = run, threshold
        parcel = pack(replace(config, ray=""))
        self._start(config.ray, processes)
        here = self._ray
        self._parcel = here.put(parcel)
        self._class = here.remote(num_cpus=1)(Actor)
        actors = config.processes or max(1, int(here.cluster_resources().get("CPU", 1)))
        self._shares: dict[Any, _Share] = {}
        for first in range(min(actors, len(numbers))):
            self._begin(set(numbers[first::actors]), 0)

    def _start(self, address: str, processes: int) -> None:
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            how |= {"num_cpus": processes, "include_dashboard": False}
            how |= {"object_store_memory": _STORE_BYTES}
        else:
            _reach(address)
        try:
            self._ray.init(None if address == LOCAL else address, **how)
        except Exception as error:  # Ray raises nothing narrower where a node does not start
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise GinkgoError(f"--ray {address}: {line}") from None

    def _begin(self, numbers: set[int], deaths: int) -> None:
        actor = self._class.remote(self._parcel)
        play = actor.play.options(num_returns="streaming")
        games = play.remote(self._run, sorted(numbers), self._threshold)
        self._shares[games] = _Share(actor, numbers, deaths)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ray.shutdown()

    def __iter__(self) -> Iterator[PlayedGame | Used]:
        """What the actors say, until all have played all.

        Raises:
            GinkgoError: an actor could not play, or new ones keep dying.
        """
        errors = self._ray.exceptions
        while self._shares:
            ready, _ = self._ray.wait(list(self._shares), num_returns=1)
            share = self._shares[ready[0]]
            try:
                found = self._ray.get(next(ready[0]))
            except StopIteration:
                del self._shares[ready[0]]
                self._ray.kill(share.actor)
                continue
            except errors.RayTaskError as error:
                if isinstance(error.cause, GinkgoError):
                    raise GinkgoError(str(error.cause)) from None
                raise GinkgoError(f"an actor failed: {error.cause!r}") from None
            except errors.RayError as error:
                del self._shares[ready[0]]
                self._replace(share, error)
                continue
            if isinstance(found, PlayedGame):
                share.left.discard(found.number)
                share.deaths = 0
            yield found

    def _replace(self, share: _Share, error: Exception) -> None:
        if share.deaths >= _DEATHS:
            raise GinkgoError(
                f"actors keep dying ({type(error).__name__}); what is stored is safe, the same "
                "command goes on"
            )
        if share.left:
            self._begin(share.left, share.deaths + 1)


def _reach(address: str) -> None:
    """Look whether something listens there: Ray asks for minutes, and says little at the end.

    Raises:
        GinkgoError: nothing does. An address without a port (`auto`) is left to Ray.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise GinkgoError(f"--ray {address}: nothing answers there: {why}") from None


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")  # busy machines need long
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise GinkgoError("--ray: Ray is not installed; pip install -e '.[ray]'") from None
    return ray
