"""What format a file has. Its content decides; its name is a hint where the content says nothing.

In: the first bytes of a file, and its name. Out: one of `FORMATS`, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ginkgo.errors import GinkgoError
from ginkgo.records.files import plain_suffix
from ginkgo.records.kifu.encoding import UTF16_MARKS, decode_japanese

#: Text formats, then packed ones.
TEXT_FORMATS = ("csa", "kif", "ki2", "jkf", "usi")
PACKED_FORMATS = ("hcpe", "hcpe3", "psv", "selfplay")
FORMATS = TEXT_FORMATS + PACKED_FORMATS

#: Bytes that are looked at.
HEAD = 1 << 16

#: Formats by suffix of a file's name.
BY_SUFFIX = {
    ".csa": "csa", ".kif": "kif", ".kifu": "kif", ".ki2": "ki2", ".ki2u": "ki2", ".jkf": "jkf",
    ".usi": "usi", ".sfen": "usi", ".hcpe": "hcpe", ".hcpe3": "hcpe3", ".psv": "psv",
    ".npz": "selfplay",
}  # fmt: skip

_RANKS = "一二三四五六七八九1-9１-９"
#: What a line of a format begins with; of CSA also what other texts might have by chance.
_SIGN = re.compile(
    r"(?P<usi>(?:position[ \t]+)?(?:startpos\b|sfen[ \t])"
    r"|(?:[1-9+PLNSGBRKplnsgbrk]+/){8}[1-9+PLNSGBRKplnsgbrk]+[ _][bw]\b)"
    r"|(?P<csa>V[123]|N[+-]|PI|P[1-9+-]|[+-][0-9]{4}[A-Z]{2}|%[A-Z+-]|[+-]$)"
    r"|(?P<ki2>[▲△☗☖▽▼][ 　]*[1-9１-９同])"
    rf"|(?P<kif>[ 　]*+[0-9０-９]+[ 　]++(?:[▲△]?[ 　]*+(?:同|[1-9１-９][{_RANKS}])|投了|中断))"
    r"|(?P<weak>'|\$[A-Z_]+:)"
    r"|(?P<japanese>手数[-－]|(?:手合割|先手|後手|上手|下手|開始日時|棋戦|表題)[ 　]*+[：:]|\|)"
)


def detect(head: bytes, name: str = "", whole: bool = True) -> str:
    """The format of a file, an empty string for none.

    Args:
        head: its first `HEAD` bytes, or all of it.
        name: its name, as a hint.
        whole: whether `head` is all of it.

    >>> detect("手数----指手---\\n   1 ７六歩(77)\\n".encode("cp932"), "a.csa")
    'kif'
    """
    hint = BY_SUFFIX.get(plain_suffix(name), "")
    if b"\0" in head and not head.startswith(UTF16_MARKS):
        return _detect_packed(head, hint, whole)
    try:
        text, _ = decode_japanese(head if whole else head[: head.rfind(b"\n") + 1] or head)
    except GinkgoError:
        # Text that is damaged somewhere is named by its format all the same.
        text = head.decode("cp932", "replace")
        if hint in PACKED_FORMATS:
            return _detect_packed(head, hint, whole)
        if not any(_SIGN.match(line) for line in text.split("\n")):
            return _detect_packed(head, hint, whole)
    if text.lstrip().startswith("{"):
        return "jkf"
    japanese = weak = False
    for line in _lines(text):
        if line[:1] in tuple("#*&") or not (match := _SIGN.match(line)):
            continue
        kind = match.lastgroup or ""
        if kind in TEXT_FORMATS:
            return kind
        japanese |= kind == "japanese"
        weak |= kind == "weak"
    if japanese:
        return "ki2" if hint == "ki2" else "kif"
    if hint in PACKED_FORMATS:
        return _detect_packed(head, hint, whole)
    return "csa" if weak else hint


def _lines(text: str) -> Iterator[str]:
    """The lines of a text; most often the first few tell all."""
    *first, rest = text.split("\n", 32)
    yield from first
    yield from rest.split("\n")


def _detect_packed(head: bytes, hint: str, whole: bool) -> str:
    from ginkgo.records.kifu.packed import guess
    from ginkgo.records.kifu.selfplay import is_selfplay

    if is_selfplay(head):
        return "selfplay"
    return guess(head, hint, whole)
