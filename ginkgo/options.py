"""Options of all verbs: one line for a mistake, and completion for shells.

In: what tyro found wrong; names of verbs with their configurations. Out: a line that names the
option and the nearest one; a script for bash, zsh, fish or tcsh.

tyro hands a mistake to a hook before it draws a box about it. The hook is in a private module of
its, so where another version lacks it the boxes stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

SHELLS = ("bash", "zsh", "fish", "tcsh")


@contextlib.contextmanager
def one_line(verb: str, options: type) -> Iterator[None]:
    """Inside it, a mistake in the options of a verb is told in one line, with exit status 2.

    Args:
        verb: whose options they are.
        options: its dataclass.
    """
    try:
        from tyro._errors import on_parse_error
    except ImportError:  # another tyro than the pinned one
        yield
        return

    def tell(event: Any) -> None:
        text = explain(event, names_of(options))
        if text:
            print(f"error: {text}; see ginkgo {verb} --help", file=sys.stderr)
            raise SystemExit(2)

    with on_parse_error(tell):
        yield


def explain(event: Any, known: list[str]) -> str:
    """What is wrong, in one line; empty for what tyro tells better.

    Args:
        event: of `tyro._errors`, known by the name of its type.
        known: all options of the verb, for a near one.
    """
    kind = type(event).__name__
    if kind in ("UnrecognizedArgs", "MissingArgs"):
        wrong = event.tokens if kind == "UnrecognizedArgs" else event.unrecognized_tokens
        if wrong:
            return _unknown(wrong, known)
        missing = [_spelled(entry.arg) for entry in event.missing_arguments]
        return f"missing: {', '.join(missing)}"
    if kind == "InvalidChoice":
        near = difflib.get_close_matches(event.value, event.choices, 1)
        choices = [choice if choice else "''" for choice in event.choices]
        expected = f"did you mean {near[0]}?" if near else f"expected one of {' '.join(choices)}"
        return f"{_spelled(event.argument)} {event.value}: {expected}"
    if kind == "BadValue" and event.reason == "too_few_values":
        return f"missing: a value for {_spelled(event.argument)}"
    if kind == "InstantiationFailure":
        about = f"{_spelled(event.argument)}: " if event.argument is not None else ""
        return about + _in_words(" ".join(str(event.message).split()))
    return ""


def _in_words(message: str) -> str:
    """What Python says of text that is no number, for people who did not write Python."""
    for sign, what in (("invalid literal for int", "a whole number"), ("to float", "a number")):
        if sign in message:
            return f"expected {what}, not {message.rpartition(': ')[2]}"
    return message


def _unknown(tokens: list[str], known: list[str]) -> str:
    wrong = next((token for token in tokens if token.startswith("-")), tokens[0])
    if not wrong.startswith("-"):
        return f"unexpected: {' '.join(tokens)}"
    name = wrong.partition("=")[0]
    near = difflib.get_close_matches(name.replace("_", "-"), known, 1)
    return f"no option {name}" + (f": did you mean {near[0]}?" if near else "")


def _spelled(argument: Any) -> str:
    """An option as it is typed, a positional argument by its name in capitals."""
    if argument.is_positional():
        return str(argument.display_name()).upper()
    return str(argument.lowered.name_or_flags[-1])


def names_of(options: type) -> list[str]:
    """All options of a dataclass as they are typed, positional arguments left out.

    >>> from ginkgo.records.convert.config import ConvertConfig
    >>> {"--out", "-o", "--workers"} <= set(names_of(ConvertConfig))
    True
    """
    names = ["--help"]
    hints = get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        marks = getattr(hints[field.name], "__metadata__", ())
        if any("Positional" in repr(mark) for mark in marks):
            continue
        named = [mark for mark in marks if hasattr(mark, "aliases")]
        name = next((mark.name for mark in named if mark.name), field.name)
        names.append("--" + name.strip("_").replace("_", "-"))
        names += [alias for mark in named for alias in mark.aliases or ()]
        if hints[field.name] is bool:
            names.append("--no-" + name.replace("_", "-"))
    return names


def completion(shell: str, verbs: Mapping[str, tuple[type, str]]) -> str:
    """A script that completes verbs and their options.

    Args:
        shell: one of `SHELLS`.
        verbs: name to configuration and what it does.
    """
    import io
    from typing import Annotated, Union

    import tyro

    parts: Any = [
        Annotated[options, tyro.conf.subcommand(name=verb, description=text)]
        for verb, (options, text) in verbs.items()
    ]
    together: Any = Union[tuple(parts)]  # noqa: UP007
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        tyro.cli(together, prog="ginkgo", args=["--tyro-print-completion", shell])
    return written.getvalue()
