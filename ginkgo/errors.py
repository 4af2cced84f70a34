"""The one exception that means «the user can mend this»."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable


class GinkgoError(Exception):
    """A user's mistake or a fault of the surroundings (a bad file, a full disk).

    Its text is one line that says which file, which line, and what was expected. The command
    line prints it without a traceback and exits with status 1.
    """


def run_main(main: Callable[[], int | None]) -> None:
    """Run `main` as a program: one clear line for a `GinkgoError`, status 130 for Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of players and files may hold what the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except GinkgoError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # The reader of our output has gone (`ginkgo … | head`): nothing is left to say.
        sys.stderr.close()
        status = 141
    sys.exit(status)
