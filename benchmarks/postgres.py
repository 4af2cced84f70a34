"""A PostgreSQL of one's own for a while, in a folder, on a free port of the loopback address."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; Debian keeps them out of the way."""
    found = shutil.which("initdb")
    if found and shutil.which("pg_ctl"):
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders and (folders[-1] / "initdb").exists() else None


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """URL of a new database; its server ends with the block.

    Args:
        folder: empty; its parents are made passable for the user that the server runs as.

    Raises:
        RuntimeError: it is not installed, or does not start.
    """
    where = programs()
    if where is None:
        raise RuntimeError("PostgreSQL is not installed")
    who = {}
    if os.getuid() == 0:  # as which it does not run
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        os.chown(folder, user.pw_uid, user.pw_gid)
        for parent in folder.parents[:3]:
            parent.chmod(parent.stat().st_mode | 0o011)

    def run(name: str, *arguments: str) -> None:
        command = [str(where / name), "-D", str(folder / "data"), *arguments]
        done = subprocess.run(
            command, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, timeout=600, **who,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stdout)

    port = free_port()
    run("initdb", "-U", "ginkgo", "-A", "trust", "-N", "--no-instructions")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    run("pg_ctl", "-w", "-t", "300", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://ginkgo@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-m", "immediate", "stop")
