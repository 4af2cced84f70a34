"""A server, workers and a trainer as processes, each killed (`kill -9`) again and again.

Kinds of kills, in turn: the server with half of an upload; a worker with games under way; the
trainer with a file half written; the server with all of an upload, before its answer. That it was
so is shown each time: by the wire between workers and server, by the games that a worker was
handed and neither kept nor sent, by the temporary file that the trainer left. What was killed is
started again by its own command. At the end, when the trainer has made its generations, what is
stored is compared with what was acknowledged.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from fleet import stored_numbers
from postgres import free_port, postgresql
from wire import Cut, Wire

KINDS = ("server with half an upload", "worker with games under way",
         "trainer with a file half written", "server before its answer")  # fmt: skip
#: Seconds that anything here may take at most.
_PATIENCE_S = 900


class Fleet:
    """The processes."""

    def __init__(self, folder: Path, database: str, asked: argparse.Namespace) -> None:
        from ginkgo.fleet import accounts
        from ginkgo.fleet.database import Database

        self.folder, self.rng = folder, random.Random(asked.seed)
        self.runs = folder / "runs"
        port = free_port()
        self.wire = Wire(port, self.rng)
        url = f"http://127.0.0.1:{self.wire.port}"
        rows = Database(database)
        self.tokens = {}
        with rows.session() as session:
            for number in range(asked.workers):
                name = f"worker{number}"
                self.tokens[name] = accounts.add_user(session, name, "worker")
            trainer = accounts.add_user(session, "trainer", "trainer")
        rows.close()
        serve = ["serve", "--port", str(port), "--database", database]
        self.commands = {"server": [*serve, "--storage", str(folder / "files")]}
        for name, token in self.tokens.items():
            lines = {"server": url, "username": name, "token": token}
            lines |= {"folder": str(folder / name), "games_per_batch": 8, "concurrent": 8}
            path = folder / f"{name}.toml"
            path.write_text("".join(f"{key} = {json.dumps(to)}\n" for key, to in lines.items()))
            self.commands[name] = ["contribute", "--config", str(path)]
        options = (
            f"--generations {asked.generations} --games {asked.games} --network b1c8 --window 500 "
            "--playouts 8 --cheap-playouts 4 --full-share .5 --max-ply 60 --batch 4 "
            "--batch-size 64 --elo-games 4"
        )
        self.commands["trainer"] = ["reinforce", "--server", url, "--runs", str(self.runs)]
        self.commands["trainer"] += ["--run", "r", *options.split()]
        self._secret = {"GINKGO_TOKEN": trainer}
        self.processes: dict[str, subprocess.Popen] = {}
        self.killed: set[str] = set()
        """Names of those that were killed and not yet started again."""

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        with open(self.folder / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "ginkgo", *self.commands[name]],
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=common.ROOT,
                start_new_session=True, env=os.environ | self._secret,
            )  # fmt: skip
        self.killed.discard(name)

    def kill(self, name: str) -> None:
        """Kill a process with all that it started."""
        process = self.processes[name]
        self.killed.add(name)  # first: the wire kills from a thread of its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(_PATIENCE_S)

    def ended(self) -> bool:
        """Whether the trainer has made its generations.

        Raises:
            RuntimeError: a process ended by itself that should not have.
        """
        for name, process in self.processes.items():
            if process.poll() is None or name in self.killed:
                continue
            if name != "trainer" or process.returncode:
                text = (self.folder / f"{name}.out").read_text()[-2000:]
                raise RuntimeError(f"{name} ended with status {process.returncode}:\n{text}")
        return self.processes["trainer"].poll() == 0

    def wait_for(self, condition: Callable[[], Any], pause: float = 0.05) -> Any:
        """What `condition` finds; None: the trainer was ready before that.

        Raises:
            RuntimeError: nothing was found for long.
        """
        end = time.monotonic() + _PATIENCE_S
        while not (found := condition()):
            if self.ended():
                return None
            if time.monotonic() > end:
                raise RuntimeError("waited too long")
            time.sleep(pause)
        return found

    # --- kills: each returns what shows that it came when it should; None: too late -----------

    def kill_server(self, share: float) -> dict[str, Any] | None:
        """In the middle of an upload."""
        cut = self.wire.cut = Cut(share, lambda: self.kill("server"))
        if self.wait_for(cut.done.is_set) is None:
            self.wire.cut = None
            return None
        self.start("server")
        return {"sent": cut.sent, "games": len(cut.games), "answer_lost": cut.answered}

    def kill_worker(self, name: str) -> dict[str, Any] | None:
        """While it plays."""
        token, spool = self.tokens[name], self.folder / name / "games"

        def under_way() -> int:
            handed = self.wire.handed[token] - set(self.wire.acknowledged)
            return len(handed - {int(path.stem[5:]) for path in spool.glob("game-*.npz")})

        while True:
            if self.wait_for(under_way) is None:
                return None
            time.sleep(self.rng.uniform(0.2, 2.0))
            self.kill(name)
            found = under_way()
            self.wire.handed[token].clear()  # the server gives those to others
            self.start(name)
            if found:
                return {"under_way": found}

    def kill_trainer(self, before: set[str]) -> dict[str, Any] | None:
        """While it writes a kind of file that is not one of those `before`."""

        def half_written() -> Path | None:
            for folder, folders, files in os.walk(self.runs):
                for name in (*folders, *files):
                    if re.fullmatch(r"\..*\.tmp", name) and kind_of(name) not in before:
                        return Path(folder) / name
            return None

        while True:
            path = self.wait_for(half_written, 0.0005)
            if path is None:
                return None
            process = self.processes["trainer"]
            os.killpg(process.pid, signal.SIGSTOP)
            there = path.exists()
            if not there:
                os.killpg(process.pid, signal.SIGCONT)
                continue
            self.kill("trainer")
            found = {"file": kind_of(path.name), "left": path.exists()}
            self.start("trainer")
            return found

    def close(self) -> None:
        """End what still runs."""
        for name, process in self.processes.items():
            if process.poll() is None:
                self.kill(name)
        self.wire.close()


def kind_of(name: str) -> str:
    """A name without its numbers and its process: `.games_00012.npz.99.tmp` is `games_.npz`."""
    return re.sub(r"(\.[0-9]+)?\.tmp$", "", name[1:]).translate(
        {ord(c): None for c in "0123456789"}
    )


def play(fleet: Fleet, kills: int, seed: int) -> list[dict[str, Any]]:
    """Kill each kind so often, in turn; what each kill met."""
    found: list[dict[str, Any]] = []
    rng, files = random.Random(seed), set[str]()
    workers = itertools.cycle(fleet.tokens)
    for name in fleet.commands:
        fleet.start(name)
    for kind in KINDS * kills:
        time.sleep(rng.uniform(0.5, 3.0))
        if kind == KINDS[1]:
            met = fleet.kill_worker(next(workers))
        elif kind == KINDS[2]:
            met = fleet.kill_trainer(files)
            files |= {met["file"]} if met else set()
        else:
            met = fleet.kill_server(0.5 if kind == KINDS[0] else 1.0)
        if met is None:
            common.say(f"{kind}: not any more, the trainer is ready")
            break
        found.append({"kind": kind, **met})
        common.say(f"{kind}: {met}")
    fleet.wait_for(lambda: False, 0.5)
    for name in fleet.tokens:  # the games under way end and are uploaded
        os.killpg(fleet.processes[name].pid, signal.SIGINT)
    for name in fleet.tokens:
        if fleet.processes[name].wait(_PATIENCE_S):
            raise RuntimeError((fleet.folder / f"{name}.out").read_text()[-2000:])
    return found


def compared(fleet: Fleet, database: str) -> dict[str, Any]:
    """What is stored, against what was acknowledged."""
    from sqlalchemy import select

    from ginkgo.fleet.database import Database, PlayedRow
    from ginkgo.selfplay.audit import audit
    from ginkgo.selfplay.store import run_folders

    rows = Database(database)
    stored = stored_numbers(rows, str(fleet.folder / "files"))
    with rows.reading() as session:
        known = list(session.scalars(select(PlayedRow.number)))
    rows.close()
    runs = run_folders(fleet.runs / "r")
    trained = [
        int(number) for run in runs for _, _, arrays in run.arrays() for number in arrays["number"]
    ]
    lines = (fleet.runs / "r" / "generations.jsonl").read_text().splitlines()
    left = [path for name in fleet.tokens for path in (fleet.folder / name / "games").glob("*-*")]
    return {
        "generations": [json.loads(line)["generation"] for line in lines],
        "stored": len(stored),
        "acknowledged": len(set(fleet.wire.acknowledged)),
        "lost": len(set(fleet.wire.acknowledged) - set(stored)),
        "duplicated": len(stored) - len(set(stored)) + len(trained) - len(set(trained)),
        "rows_and_files_differ": sorted(stored) != sorted(known),
        "trained_and_not_stored": len(set(trained) - set(stored)),
        "left_with_workers": len(left),
        "half_written": sum(1 for _ in fleet.runs.rglob(".*.tmp")),
        "faults": len(audit(runs).faults),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--generations", type=int, default=3, help="of the trainer, after the first model"
    )
    parser.add_argument("--games", type=int, default=150, help="of a generation")
    parser.add_argument("--kills", type=int, default=3, help="of each of the four kinds")
    parser.add_argument(
        "--postgresql", action="store_true", help="instead of SQLite; Debian's package"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ginkgo-bench-")))
        database = f"sqlite:///{folder}/server.db"
        if asked.postgresql:
            (folder / "postgres").mkdir()
            database = stack.enter_context(postgresql(folder / "postgres"))
        fleet = Fleet(folder, database, asked)
        with contextlib.closing(fleet):
            kills = play(fleet, asked.kills, asked.seed)
            figures = compared(fleet, database)
    figures |= {"seconds": time.perf_counter() - start}
    figures["kills"] = dict(Counter(one["kind"] for one in kills))
    common.table(["figure", "value"], list(figures.items()))
    common.finish({**figures, "moments": kills, "machine": machine})
    if figures["lost"] or figures["duplicated"] or figures["faults"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
