"""What mkdocs does besides: options of the verbs, and links to files that are not on the site.

In: a page as it is in the repository. Out: the same for the site.

`<!-- options: VERB -->` becomes what `ginkgo VERB --help` prints, so that nobody writes options
down twice. A link to a file of the repository outside docs/, good on the pages of a code host,
becomes its name; one to a file that is not there is a warning, and so an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
_log = get_plugin_logger("ginkgo")

_OPTIONS = re.compile(r"<!-- options: ([a-z]+) -->")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with options filled in and links outside taken off."""
    source = Path(page.file.abs_src_path)

    def name_only(match: re.Match[str]) -> str:
        if not (source.parent / match[2]).exists():
            _log.warning("%s: no file %s", page.file.src_path, match[2])
        return match[1]

    markdown = _OUTSIDE.sub(name_only, markdown)
    return _OPTIONS.sub(lambda match: f"```text\n{help_of(match[1])}\n```", markdown)


def help_of(verb: str) -> str:
    """What `ginkgo VERB --help` prints, without colours."""
    os.environ["NO_COLOR"] = "1"
    from ginkgo import cli

    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli.run([verb, "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).strip()
