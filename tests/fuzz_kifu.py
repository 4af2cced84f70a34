"""Damaged kifu: bytes flipped, lines cut, swapped and repeated.

    python tests/fuzz_kifu.py --count 20000 [--data FILE …]

In: kifu of every format, made from the bundled sample or given. Out: how many were read and
refused, and a list of failures: an exception, more than a second of the processor for one file, or
a game that the rules do not support. Batches run in processes of their own, so that a crash is one
line too. The exit status is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kifu_texts import read_all  # noqa: E402

from ginkgo.records import Game, Refusal, parse_game_line  # noqa: E402
from ginkgo.records.convert.render import ConvertConfig, render  # noqa: E402
from ginkgo.records.replay import replay  # noqa: E402

BATCH = 500
SLOW_S = 1.0
_CSA_MOVE = re.compile(rb"(?:^|[\r\n,])[ \t]*[+-][0-9]{4}[A-Z]{2}(?=[,\r\n \t]|$)")


def sample_files(games: int = 12) -> list[tuple[str, bytes]]:
    """The first bundled games in every format."""
    sample = ROOT / "data" / "sample" / "engine-games.usi.gz"
    with gzip.open(sample, "rt") as stream:
        found = [parse_game_line(next(stream)) for _ in range(games)]
    files = []
    for to in ("usi", "csa", "kif", "ki2", "hcpe", "psv"):
        config = ConvertConfig((), "", to=to)  # type: ignore[arg-type]
        pieces = [rendered.data for game in found if (rendered := render(game, config))]
        files += [(f"{number}.{to}", piece) for number, piece in enumerate(pieces)]
        if to in ("csa", "usi", "psv"):
            files.append((f"all.{to}", (b"/\n" if to == "csa" else b"").join(pieces)))
        if to in ("csa", "kif", "ki2"):
            files += [(f"{to}-cp932.{to}", pieces[0].decode().encode("cp932", "replace"))]
    return files


def mutate(data: bytes, rng: random.Random) -> bytes:
    """The same with one to four things wrong with it."""
    for _ in range(rng.randint(1, 4)):
        lines = data.split(b"\n")
        kind = rng.randrange(7)
        here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
        if kind == 0 and data:
            place = rng.randrange(len(data))
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        elif kind == 1 and data:
            place = rng.randrange(len(data))
            data = data[:place] + data[place + rng.randint(1, 8) :]
        elif kind == 2:
            data = b"\n".join(lines[:here] + lines[here + 1 :])
        elif kind == 3:
            lines[here], lines[there] = lines[there], lines[here]
            data = b"\n".join(lines)
        elif kind == 4:
            data = b"\n".join([*lines[:here], lines[here], lines[here], *lines[here + 1 :]])
        elif kind == 5:
            data = data[: rng.randrange(len(data) + 1)]
        else:
            junk = bytes(rng.randrange(256) for _ in range(rng.randint(1, 12)))
            place = rng.randrange(len(data) + 1)
            data = data[:place] + junk + data[place:]
    return data


def check(name: str, data: bytes, slow_s: float) -> tuple[int, int, str]:
    """(games read, refusals, what went wrong or nothing)."""
    begun = time.process_time()
    try:
        found = read_all(data, name, variations=True)
    except Exception as error:
        return 0, 0, f"{type(error).__name__}: {error}"
    seconds = time.process_time() - begun
    if seconds > slow_s:
        return 0, 0, f"took {seconds:.1f} s"
    games = [one for one in found if isinstance(one, Game)]
    for game in games:
        if game.format == "usi" or "one king" in " ".join(game.notes):
            continue  # replayed later; played by python-shogi
        try:
            replay(game)
        except Exception as error:
            return 0, 0, f"believed, but {error}"
        if game.winner not in ("b", "w", "d", "-"):
            return 0, 0, f"winner {game.winner!r}"
    refusals = [one for one in found if isinstance(one, Refusal)]
    if any(not one.reason or one.line < 1 for one in refusals):
        return 0, 0, "a refusal without line or reason"
    if games and not refusals and games[0].format == "csa":
        listed = len(_CSA_MOVE.findall(data))
        fouls = sum("is a foul" in note for game in games for note in game.notes)
        if listed != sum(game.total for game in games) + fouls:
            return 0, 0, f"{listed} lines are moves, {games[0].total} were read"
    return len(games), len(refusals), ""


def run_batch(
    files: list[tuple[str, bytes]], seed: int, count: int, slow_s: float = SLOW_S
) -> dict:
    """`count` damaged files."""
    rng, result = random.Random(seed), Counter()
    failures = []
    for number in range(count):
        name, data = rng.choice(files)
        damaged = mutate(data, rng)
        # The name may lie, too.
        shown = name if rng.random() < 0.8 else f"x.{rng.choice(['kif', 'csa', 'txt', 'psv'])}"
        games, refusals, wrong = check(shown, damaged, slow_s)
        result["read"] += games
        result["refused"] += refusals
        if wrong:
            failures.append({"seed": seed, "number": number, "name": shown, "wrong": wrong})
    return {**result, "failures": failures}


def _work(pipe, files: list[tuple[str, bytes]], seed: int, count: int) -> None:
    pipe.send(run_batch(files, seed, count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", nargs="*", default=[], help="further files to damage")
    options = parser.parse_args()
    files = sample_files() + [(path, Path(path).read_bytes()) for path in options.data]
    context = multiprocessing.get_context("spawn")
    total: dict = {"files": 0, "read": 0, "refused": 0, "failures": []}
    for first in range(0, options.count, BATCH):
        count = min(BATCH, options.count - first)
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, files, options.seed + first, count))
        process.start()
        theirs.close()
        try:
            result = ours.recv()
        except EOFError:
            result = {"failures": [{"seed": options.seed + first, "wrong": "the process died"}]}
        process.join()
        total["files"] += count
        for key in ("read", "refused"):
            total[key] += result.get(key, 0)
        total["failures"] += result["failures"]
    print(json.dumps(total, ensure_ascii=False))
    return 1 if total["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
