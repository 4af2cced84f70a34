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
    """Run `main` as a program: one clear line for a `GinkgoError`, status 130 for Ctrl-C.

    A package that is not installed, or a module that Python has on other systems only, is told in
    a line as well.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of players and files may hold what the terminal cannot show.
            stream.reconfigure(errors="backslashreplace")
    try:
        status = main()
    except GinkgoError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    except ModuleNotFoundError as error:
        text = missing(error)
        if not text:
            raise
        print(f"error: {text}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # The reader of our output has gone (`ginkgo … | head`): nothing is left to say.
        sys.stderr.close()
        status = 141
    sys.exit(status)


def missing(error: ModuleNotFoundError) -> str:
    """What to say of a module that is not there; empty where the fault is ginkgo's.

    >>> missing(ModuleNotFoundError(name="fcntl"))
    'Python has no module fcntl on this system; docs/FAQ.md says what works where'
    """
    name = (error.name or "").partition(".")[0]
    if name in sys.stdlib_module_names:
        return f"Python has no module {name} on this system; docs/FAQ.md says what works where"
    if name in ("", "ginkgo"):
        return ""
    return f"the Python package {name} is missing: pip install -r requirements.txt"
