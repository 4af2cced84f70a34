"""The encoding of a kifu, found by trial; the name of the file says nothing reliable about it.

In: bytes. Out: text with `\\n` line ends, and the name of the encoding.
"""

from __future__ import annotations

import re

from ginkgo.errors import GinkgoError

_HALF_WIDTH_KANA = re.compile("[\uff61-\uff9f]")
#: CSA 3.0 may say it itself: in its first line, between a comment's mark and the word.
_DECLARED = re.compile(rb"\A'?CSA encoding=([A-Za-z0-9_-]+)")
#: What text in UTF-16 begins with.
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
#: ISO-2022-JP is ASCII with these between the two sets of characters.
_JIS_SHIFT = (b"\x1b$B", b"\x1b$@")
_CODECS = {"utf-8": "utf-8", "shift_jis": "cp932", "euc-jp": "euc_jp", "euc_jp": "euc_jp"}


def decode_japanese(data: bytes) -> tuple[str, str]:
    """Text in UTF-8 (with or without BOM), UTF-16 with BOM, CP932, EUC-JP or JIS; any line ends.

    Returns:
        the text, and `ascii`, `utf-8`, `utf-8-sig`, `utf-16`, `cp932`, `euc_jp` or `iso2022_jp`.

    Raises:
        GinkgoError: in none of them.

    >>> decode_japanese("先手\\r\\n".encode("cp932"))
    ('先手\\n', 'cp932')
    """
    text, encoding = _decode(data)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, encoding


def _decode(data: bytes) -> tuple[str, str]:
    if data.isascii():
        if any(shift in data for shift in _JIS_SHIFT):
            try:
                return data.decode("iso2022_jp"), "iso2022_jp"
            except UnicodeDecodeError:
                raise GinkgoError("text shifts to JIS and is none") from None
        return data.decode("ascii"), "ascii"
    if data.startswith(b"\xef\xbb\xbf"):
        try:
            return data[3:].decode(), "utf-8-sig"
        except UnicodeDecodeError:
            raise GinkgoError("text begins as UTF-8 and is none") from None
    if data.startswith(UTF16_MARKS):
        try:
            return data.decode("utf-16"), "utf-16"
        except UnicodeDecodeError:
            raise GinkgoError("text begins as UTF-16 and is none") from None
    if match := _DECLARED.match(data):
        codec = _CODECS.get(match[1].decode().lower())
        if codec:
            try:
                return data.decode(codec), codec
            except UnicodeDecodeError:
                pass  # What is written there is not always true.
    texts = []
    for encoding in ("utf-8", "cp932", "euc_jp"):
        try:
            texts.append((data.decode(encoding), encoding))
        except UnicodeDecodeError:
            continue
        if encoding == "utf-8":
            return texts[0]
    if not texts:
        raise GinkgoError("text is neither UTF-8 nor CP932 nor EUC-JP")
    # EUC-JP mostly is good CP932 too, but reads as half-width kana then.
    return min(texts, key=lambda found: len(_HALF_WIDTH_KANA.findall(found[0])))
