"""Uploads a second that a server takes of many workers at once.

A server as a process, SQLite and a local folder; workers as threads of this one, each with an
account of its own, that ask for a task, upload games made beforehand, and ask again. At the end
what is stored is compared with what was acknowledged.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import common
import numpy as np

#: Of the made games.
_MAX_PLY = 24


def made_games(count: int) -> dict[str, Any]:
    """The arrays of a file of short games."""
    from ginkgo.records.kifu.selfplay import as_arrays
    from ginkgo.search.evaluators import HashEvaluator
    from ginkgo.search.many import play_many
    from ginkgo.search.queue import Queue
    from ginkgo.selfplay.game import load_openings, play_game

    play = options()
    coming = (play_game(number, play, load_openings(None), 0.0, (0,)) for number in range(count))
    games = list(play_many(coming, [[Queue(HashEvaluator())]], count))
    return as_arrays(games, {"model": "bench"})


def options() -> Any:
    """How the games are said to be played."""
    from ginkgo.selfplay.config import PlayOptions

    return PlayOptions(playouts=8, cheap_playouts=4, max_ply=_MAX_PLY, resign=0.0)


def resident_mib(pid: int) -> tuple[float, float]:
    """Memory of the server's process, and of those that it started to check uploads."""
    import psutil

    process = psutil.Process(pid)
    checkers = sum(one.memory_info().rss for one in process.children(recursive=True))
    return process.memory_info().rss / 2**20, checkers / 2**20


def stored_numbers(database: Any, folder: str) -> list[int]:
    """Numbers of all games in the files that the database knows."""
    from sqlalchemy import select

    from ginkgo.fleet.database import Upload
    from ginkgo.fleet.storage import Storage
    from ginkgo.records.kifu.selfplay import read_arrays

    storage, found = Storage(folder), []
    with database.reading() as session:
        for file in session.scalars(select(Upload.file)):
            found += read_arrays(storage.read(file))[1]["number"].tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--uploads", type=int, default=2000, help="of all workers together")
    parser.add_argument("--games", type=int, default=10, help="of an upload")
    parser.add_argument("--validators", type=int, default=1)
    asked = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)

    from ginkgo.fleet import accounts
    from ginkgo.fleet.client import Away, ServerClient
    from ginkgo.fleet.database import Database
    from ginkgo.fleet.validate import Expected, validate
    from ginkgo.models.directory import INT8, find_model
    from ginkgo.records.game import STARTPOS

    arrays = made_games(asked.games)
    play = {one.name: getattr(options(), one.name) for one in fields(options())}
    play.pop("openings")

    def upload(first: int) -> bytes:
        stream = io.BytesIO()
        numbers = first + np.arange(asked.games)
        np.savez_compressed(stream, **{**arrays, "number": numbers})
        return stream.getvalue()

    expected = Expected(0, asked.games, "bench", play, 0.0, (STARTPOS,))
    validate(upload(0), expected)
    start = time.perf_counter()
    for _ in range(3):
        validate(upload(0), expected)
    checking_ms = 1000 * (time.perf_counter() - start) / 3 / asked.games

    with tempfile.TemporaryDirectory(prefix="ginkgo-bench-") as scratch:
        url = f"sqlite:///{scratch}/server.db"
        database = Database(url)
        with database.session() as session:
            tokens = [
                accounts.add_user(session, f"worker-{number}", "worker")
                for number in range(asked.workers)
            ]
            trainer = accounts.add_user(session, "trainer", "trainer")
        database.close()
        command = [sys.executable, "-m", "ginkgo", "serve", "--port", "0", "--database", url]
        command += ["--storage", f"{scratch}/files", "--validators", str(asked.validators)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=common.ROOT)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split("/  ")[0]
            publisher = ServerClient(address, trainer)
            publisher.publish("bench", find_model("pretrained") / INT8, {})
            wish = {"model": "bench", "games": 10**8, "options": play}
            publisher.ask("PUT", "runs/1", json=wish)

            share = -(-asked.uploads // asked.workers)
            seconds: list[float] = []
            acknowledged: list[int] = []
            failures: list[str] = []

            def patient(call: Callable[[], Any]) -> Any:
                """Ask until the server has time."""
                while True:
                    try:
                        return call()
                    except Away:
                        time.sleep(1.0)

            def work(token: str) -> None:
                client = ServerClient(address, token)
                for _ in range(share):
                    try:
                        task = patient(lambda: client.task(asked.games, False, [])[0])
                        assert task is not None
                        data = upload(task["first"])
                        begun = time.perf_counter()
                        patient(partial(client.upload, task["task"], data))
                        seconds.append(time.perf_counter() - begun)
                        acknowledged.append(task["first"])
                    except Exception as error:
                        failures.append(str(error))

            threads = [threading.Thread(target=work, args=(token,)) for token in tokens]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            while len(acknowledged) + len(failures) < share * asked.workers // 10:
                time.sleep(0.05)
            early = resident_mib(server.pid)
            for thread in threads:
                thread.join()
            wall = time.perf_counter() - start
            late = resident_mib(server.pid)
        finally:
            server.terminate()
            server.wait()
        stored = stored_numbers(Database(url), f"{scratch}/files")
    wanted = {first + place for first in acknowledged for place in range(asked.games)}
    figures = {
        "uploads_per_second": len(acknowledged) / wall,
        "p50_ms": 1000 * float(np.percentile(seconds, 50)),
        "p99_ms": 1000 * float(np.percentile(seconds, 99)),
        "lost": len(wanted - set(stored)),
        "duplicated": len(stored) - len(set(stored)),
        "validation_ms_per_game": checking_ms,
        "failed": len(failures),
        # After a tenth of the uploads, when everything has been loaded, and at the end.
        "server_mib": [early[0], late[0]],
        "checkers_mib": [early[1], late[1]],
    }
    common.table(["figure", "value"], list(figures.items()))
    for failure in failures[:3]:
        common.say(failure)
    common.finish({**figures, "plies": int(arrays["plies"].mean()), "machine": machine})


if __name__ == "__main__":
    main()
