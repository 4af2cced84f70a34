"""`ginkgo convert`: kifu of every format to SFEN records, split into train, val and test.

In: files of games. Out: a folder

    train/<source>-NNNNN.sfenx  …  train/manifest.json
    val/…  test/…
    convert.json                what was asked for
    convert-report.json         what came of it

or, with `--to`, the same games in another format, not split.

Each game is read and replayed once, in `passes.spool_chunk`, and what is to be written of it is
laid into a temporary folder; when the hashes of all games are known, and with them the split of
each source, `passes.write_chunk` puts the pieces where they belong. So input of any size, standard
input too, streams through. The parent hands games out in chunks of 512, so that one large file
keeps all processes busy; a chunk becomes one shard per split, which makes the output the same
whatever the number of processes.

`config` has the options, `chunks` cuts the input, `render` makes text of a game, `pool` runs the
processes, `run` is the conversion, `report` what is told of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import tyro

from ginkgo.records.convert.config import ConvertConfig

__all__ = ["ConvertConfig", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, convert, print the report.

    Returns:
        the exit status: 0; 1 where no position came out; 130 after Ctrl-C.

    Raises:
        GinkgoError: a user's mistake, or a report that could not be written.
    """
    config = tyro.cli(
        ConvertConfig, prog="ginkgo convert", args=argv, config=(tyro.conf.FlagCreatePairsOff,)
    )
    # Imported here, so that `ginkgo convert --help` need not wait for it.
    from ginkgo.records.convert.report import print_report
    from ginkgo.records.convert.run import convert

    begun = time.monotonic()
    try:
        report = convert(config)
    except KeyboardInterrupt:
        print(f"stopped: no records are left in {config.out}", file=sys.stderr)
        return 130
    print_report(report)
    seconds = time.monotonic() - begun
    rate = report["positions"] / max(seconds, 1e-9)
    print(f"{report['positions']:,} positions in {seconds:.1f} s ({rate:,.0f}/s) to {config.out}")
    if not report["positions"]:
        print("error: no game could be used, or the filters left none", file=sys.stderr)
        return 1
    return 0
