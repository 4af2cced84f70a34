"""Kifu to SFEN records: games per second of one core, by format, beside the libraries' readers.

The games are read from files and come out as records on disk: cut, decoded, read, replayed,
hashed, split, written. The libraries' figures are for reading alone, from text in memory that has
been decoded for them, in the same run. *Per core* means per second of CPU time; one process. The
loop that writes records is compiled at its first use and kept on disk: what loading it costs a
process is measured apart.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import common

FORMATS = ("csa", "kif", "ki2", "usi", "psv")
SUFFIXES = {"csa": (".csa",), "kif": (".kif", ".kifu"), "ki2": (".ki2", ".ki2u"), "usi": (".usi",)}


def write_all(data: Sequence[str], games: int, folder: Path) -> dict[str, Path]:
    """The games in every format, as folders of files."""
    from ginkgo.records import Game, format_game_line
    from ginkgo.records.convert import ConvertConfig
    from ginkgo.records.convert.run import convert
    from ginkgo.records.sources import GAME_SUFFIXES, find_sources, read_games

    sources = find_sources(data, GAME_SUFFIXES)
    every = (game for source in sources for file in source.files for _, game in read_games(file))
    good = (format_game_line(game) + "\n" for game in every if isinstance(game, Game))
    few = folder / "few.usi"
    few.write_text("".join(itertools.islice(good, games or None)))
    found = {}
    for kind in FORMATS:
        found[kind] = folder / kind
        convert(ConvertConfig((str(few),), str(found[kind]), to=kind))  # type: ignore[arg-type]
    return found


def merged(folder: Path, games: int, target: Path) -> int:
    """One CSA file of `games` games, those of a folder again and again with other players."""
    texts = [path.read_text() for path in sorted(folder.rglob("*.csa"))]
    with target.open("w") as stream:
        for number in range(games):
            # A few more moves would make another game of it; the reader does the same work.
            stream.write(texts[number % len(texts)].replace("\nN", f"\nN{number} ", 1) + "/\n")
    return games


def end_to_end(paths: Iterable[Path], folder: Path) -> tuple[int, float, float]:
    """Games written or found twice, CPU seconds, and positions written."""
    from ginkgo.records.convert import ConvertConfig
    from ginkgo.records.convert.run import convert

    begun = time.process_time()
    config = ConvertConfig(tuple(map(str, paths)), str(folder), workers=1, overwrite=True)
    report = convert(config)
    seconds = time.process_time() - begun
    games = report["games"] + report["duplicates"] + len(report["refused"])
    return games, seconds, report["positions"]


def load_compiled() -> float:
    """CPU seconds that a process needs once, before it writes its first record."""
    begun = time.process_time()
    from ginkgo.records import STARTPOS
    from ginkgo.records.positions import write_records

    write_records(STARTPOS, [0], 1, (b"\n", b"\n"))
    return time.process_time() - begun


def bare(texts: Sequence[str], read: Callable[[str], Any]) -> float:
    """Games per CPU second of a library's reader; what it refuses counts as read."""
    begun = time.process_time()
    for text in texts:
        try:
            read(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a fault within rsshogi is not an Exception
            continue
    return len(texts) / max(time.process_time() - begun, 1e-9)


def library_readers(kind: str) -> dict[str, Callable[[str], Any]]:
    import cshogi.CSA
    import cshogi.KI2
    import cshogi.KIF
    from rsshogi.record import Record

    return {
        "csa": {"rsshogi": Record.from_csa_str, "cshogi": cshogi.CSA.Parser.parse_str},
        "kif": {"rsshogi": Record.from_kif_str, "cshogi": cshogi.KIF.Parser.parse_str},
        "ki2": {"rsshogi": Record.from_ki2_str, "cshogi": cshogi.KI2.Parser.parse_str},
        "usi": {"rsshogi": lambda text: Record.from_usi_position(text.split("\t")[0])},
    }.get(kind, {})


def texts_of(kind: str, path: Path) -> list[str]:
    """What the libraries are given."""
    from ginkgo.records.kifu.encoding import decode_japanese

    files = sorted(file for suffix in SUFFIXES.get(kind, ()) for file in path.rglob(f"*{suffix}"))
    texts = [decode_japanese(file.read_bytes())[0] for file in files]
    return [line for text in texts for line in text.splitlines()] if kind == "usi" else texts


def peak_mib(path: Path, folder: Path) -> float:
    """Peak memory of a conversion in one process of its own."""
    command = [sys.executable, "-m", "ginkgo", "convert", str(path), "-o", str(folder)]
    subprocess.run(
        [*command, "--workers", "1", "--overwrite"],
        **{"check": True, "stdout": subprocess.DEVNULL, "cwd": common.ROOT},
    )
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser)
    for kind in ("csa", "kif", "ki2"):
        parser.add_argument(f"--{kind}", metavar="DIR", help=f"{kind} files in place of the data's")
    parser.add_argument("--repeats", type=int, default=5, help="the median of so many is told")
    parser.add_argument("--merged", type=int, default=60_000, help="games in one CSA file; 0: none")
    options = parser.parse_args()
    machine = common.machine()
    common.print_machine(machine)
    result: dict[str, Any] = {"machine": machine, "load_cpu_s": load_compiled()}
    rows = []
    with tempfile.TemporaryDirectory(prefix="ginkgo-bench-") as scratch:
        folder = Path(scratch)
        made = write_all(options.data, options.games, folder)
        for kind in FORMATS:
            path = Path(getattr(options, kind, None) or made[kind])
            texts, readers = texts_of(kind, path), library_readers(kind)
            times, theirs = [], {name: [] for name in readers}
            for _ in range(options.repeats):  # in turn: the clock of a shared machine wanders
                games, seconds, positions = end_to_end([path], folder / "out")
                times.append(seconds)
                for name, reader in readers.items():
                    theirs[name].append(bare(texts, reader))
            seconds = statistics.median(times)
            unit = "positions" if kind == "psv" else "games"
            rate = (positions if kind == "psv" else games) / seconds
            result[f"{kind}_{unit}_per_second_per_core"] = rate
            result |= {
                f"{kind}_{name}_games_per_second": statistics.median(rates)
                for name, rates in theirs.items()
            }
            bares = [statistics.median(theirs.get(name, [0])) for name in ("rsshogi", "cshogi")]
            rows.append([kind, games, rate, positions / seconds, *(one or "" for one in bares)])
        if options.merged:
            few, many = folder / "tenth.csa", folder / "merged.csa"
            merged(made["csa"], max(1, options.merged // 10), few)
            result["merged_games"] = merged(made["csa"], options.merged, many)
            result["merged_peak_mib_of_a_tenth"] = peak_mib(few, folder / "out")
            result["merged_peak_mib"] = peak_mib(many, folder / "out")
            games, seconds, _ = end_to_end([many], folder / "out")
            result["merged_games_per_second_per_core"] = games / seconds
    common.table(["format", "games", "games/s", "positions/s", "rsshogi", "cshogi"], rows)
    if options.merged:
        common.say(
            f"{options.merged:,} games in one CSA file: {result['merged_peak_mib']:.0f} MiB, "
            f"a tenth of them {result['merged_peak_mib_of_a_tenth']:.0f} MiB"
        )
    common.finish(result)


if __name__ == "__main__":
    main()
