"""From files to games, in constant memory.

In: a path. Out: first `RawGame`s (the bytes of one game each, or a few packed ones, not yet read),
which may travel to another process; of each then the games in it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from ginkgo.errors import GinkgoError
from ginkgo.records.files import BOM, DAMAGED, open_binary, plain_stem, shown
from ginkgo.records.game import Game, Refusal
from ginkgo.records.gameline import parse_game_line
from ginkgo.records.kifu.archive import (
    Readable,
    archive_stem,
    is_archive,
    members,
    read_all,
    unnested,
)
from ginkgo.records.kifu.csa import read_csa
from ginkgo.records.kifu.detect import HEAD, PACKED_FORMATS, detect
from ginkgo.records.kifu.encoding import UTF16_MARKS, decode_japanese
from ginkgo.records.kifu.jkf import read_jkf
from ginkgo.records.kifu.ki2 import read_ki2
from ginkgo.records.kifu.kif import read_kif
from ginkgo.records.kifu.reading import Fault, ReadOptions, finish

#: A longer line is no game line: the longest game kept takes a few thousand bytes.
LONGEST_LINE = 1 << 20
#: A longer text is no game: the longest known, of 19,447 plies, takes a quarter of it.
LONGEST_GAME = 1 << 24

_READERS = {"csa": read_csa, "kif": read_kif, "ki2": read_ki2, "jkf": read_jkf}
_SEPARATOR = re.compile(rb"(?m)^/[ \t]*+\r?$")
#: A line that is neither blank nor a comment.
_SOMETHING = re.compile(rb"(?m)^[ \t\r]*+[^' \t\r\n]")
#: Formats of one game a file.
_SINGLE = ("kif", "ki2", "jkf")
#: In a name: what follows is the place inside an archive.
INSIDE = "!"
#: Archives within archives are opened so deep.
_DEEPEST = 3


@dataclass(frozen=True)
class RawGame:
    """One game of a file, not yet read (of packed positions: a block of them)."""

    file: str
    line: int
    """Where it begins, from 1; of packed formats the number of its first game or position."""
    format: str
    data: bytes
    name: str = ""
    """Identifier of the game within its source."""


def raw_games(path: str | Path) -> Iterator[RawGame | Refusal]:
    """The games of a file, of all files in an archive, or of standard input (`-`)."""
    file = shown(path)
    if is_archive(path):
        yield from _archived(path, file, shown(archive_stem(path)))
        return
    try:
        with open_binary(path) as stream:
            stem = "stdin" if file == "-" else shown(plain_stem(path))
            yield from cut(file, stream, file, stem)
    except (*DAMAGED, OSError, GinkgoError) as error:
        yield broken(path, 1, error)


def _archived(
    path: str | Path, file: str, stem: str, depth: int = 1
) -> Iterator[RawGame | Refusal]:
    """The games of all files in an archive. Damage to one of them leaves the others.

    Args:
        file: what refusals call the archive. stem: what names of games begin with.
        depth: how many archives this one lies in, itself too.
    """
    try:
        for name, stream in members(path):
            inside, part = f"{file}{INSIDE}{shown(name)}", f"{stem}/{shown(plain_stem(name))}"
            try:
                if not is_archive(name):
                    yield from cut(inside, stream, name, part, member=True)
                elif depth == _DEEPEST:
                    reason = f"archives lie within each other more than {_DEEPEST} deep"
                    yield Refusal(inside, 1, reason, "unreadable file")
                else:
                    with unnested(name, stream) as copy:
                        yield from _archived(copy, inside, part, depth + 1)
            except (*DAMAGED, OSError, GinkgoError) as error:
                yield broken(inside, 1, error)
    except (*DAMAGED, OSError, GinkgoError) as error:
        yield replace(broken(path, 1, error), file=file)


def broken(path: str | Path, line: int, error: Exception) -> Refusal:
    """What to say of a file that cannot be opened or read to its end."""
    if isinstance(error, GinkgoError):
        reason = str(error).removeprefix(f"{path}: ")
        return Refusal(shown(path), line, f"cannot be opened: {reason}", "unreadable file")
    return Refusal(shown(path), line, f"damaged or cut short: {error}", "damaged file")


def cut(
    file: str, stream: IO[bytes], name: str, stem: str, member: bool = False
) -> Iterator[RawGame | Refusal]:
    """The games of one file.

    Args:
        file: what refusals call it. name: with the suffix that hints at the format.
        stem: identifier of the game.
        member: it is part of an archive, where other files may lie too.
    """
    head, damage = _read_up_to(stream, HEAD)
    whole = len(head) < HEAD
    kind = detect(head, name, whole)
    if not kind:
        if damage is not None:
            raise damage  # it left nothing to know the format by
        if not member:
            yield Refusal(file, 1, "no kifu format that is known", "unknown format")
        return
    if whole and damage is None and (kind in _SINGLE or (kind == "csa" and _is_one_game(head))):
        yield RawGame(file, 1, kind, head, stem)
        return
    joined = _Joined(head, io.BytesIO() if whole else stream, damage)
    wide = head.startswith(UTF16_MARKS)
    if (wide and kind in ("usi", "csa")) or (kind == "usi" and b"\r" in head and b"\n" not in head):
        # What is cut line by line must have plain lines.
        text = read_all(joined, LONGEST_GAME)
        if text is None:
            yield Refusal(file, 1, f"more than {LONGEST_GAME} bytes", "too long")
            return
        try:
            joined = _Joined(decode_japanese(text)[0].encode(), io.BytesIO())
        except GinkgoError as error:
            yield Refusal(file, 1, str(error), "unreadable game", format=kind)
            return
    if kind == "usi":
        yield from _lines(file, joined)
    elif kind == "csa":
        for raw in _csa_games(file, joined, stem):
            if wide and isinstance(raw, RawGame):
                raw = replace(raw, data=raw.data.decode().encode("utf-16"))
            yield raw
    elif kind in PACKED_FORMATS:
        from ginkgo.records.kifu.packed import blocks

        yield from blocks(file, joined, kind, stem)
    else:
        data = read_all(joined, LONGEST_GAME)
        if data is None:
            yield Refusal(file, 1, f"more than {LONGEST_GAME} bytes", "too long")
        else:
            yield RawGame(file, 1, kind, data, stem)


def _is_one_game(csa: bytes) -> bool:
    """Whether a CSA file is surely one: it has no separator, nor line ends that could hide one."""
    plain = b"\r" not in csa or b"\n" in csa
    return plain and not csa.startswith(UTF16_MARKS) and not _SEPARATOR.search(csa)


def _read_up_to(stream: IO[bytes], size: int) -> tuple[bytes, Exception | None]:
    """So many bytes, fewer only at the end or before damage; and the damage."""
    parts: list[bytes] = []
    left = size
    while left > 0:
        try:
            data = stream.read(left)
        except DAMAGED as error:
            # Who reads on must be told of it: some streams tell it only once.
            return b"".join(parts), error
        if not data:
            break
        parts.append(data)
        left -= len(data)
    return b"".join(parts), None


class _Joined(io.RawIOBase):
    """What was read already, and the rest, or the damage that was met there."""

    def __init__(self, head: bytes, rest: IO[bytes], damage: Exception | None = None) -> None:
        self._head, self._rest, self._damage = head, rest, damage

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if self._head:
            cut = len(self._head) if size < 0 else size
            data, self._head = self._head[:cut], self._head[cut:]
            return data
        if self._damage is not None:
            raise self._damage
        return self._rest.read(size)


def _lines(file: str, stream: _Joined) -> Iterator[RawGame | Refusal]:
    for line, data in lines_of(file, stream):
        if isinstance(data, Refusal):
            yield data
        elif not is_comment(data):
            yield RawGame(file, line, "usi", data)


def is_comment(line: bytes) -> bool:
    """Whether a line of a file of game lines holds no game."""
    return line.removeprefix(BOM).lstrip().startswith((b"#", b"//"))


def lines_of(file: str, stream: IO[bytes] | _Joined) -> Iterator[tuple[int, bytes | Refusal]]:
    """The lines of a text that are not blank, numbered from 1, without their ends.

    Never holds more than a line and a buffer. A text that is cut short ends with a refusal; the
    line that was cut is left out.
    """
    line = 0
    buffered: Any = stream
    if isinstance(stream, _Joined):
        buffered = io.BufferedReader(stream, 1 << 20)
    try:
        while data := buffered.readline(LONGEST_LINE):
            line += 1
            if len(data) == LONGEST_LINE and not data.endswith(b"\n"):
                yield line, Refusal(file, line, "line too long", "line too long")
                while data and not data.endswith(b"\n"):
                    data = buffered.readline(LONGEST_LINE)
            elif not data.isspace():
                yield line, data.rstrip(b"\r\n")
    except (*DAMAGED, OSError, GinkgoError) as error:
        yield line + 1, broken(file, line + 1, error)


def _csa_games(file: str, stream: Readable, stem: str) -> Iterator[RawGame | Refusal]:
    """The sections of a file between lines of `/`."""
    number = 0
    before: RawGame | None = None
    for line, section in _sections(file, stream):
        if isinstance(section, Refusal):
            if before is not None:
                yield before
                before = None
            yield section
            continue
        if before is not None:
            yield before
        number += 1
        before = RawGame(file, line, "csa", section, f"{stem}-{number}")
    if before is not None:
        # A file of one game gives it its name.
        yield RawGame(
            *(file, before.line, "csa", before.data), stem if number == 1 else before.name
        )


def _sections(file: str, stream: Readable) -> Iterator[tuple[int, bytes | Refusal]]:
    buffer, line, first = b"", 1, True
    while True:
        try:
            data = stream.read(1 << 20)
        except DAMAGED as error:
            yield line, broken(file, line, error)
            return
        if first and b"\n" not in data and b"\r" in data:
            rest = read_all(stream, LONGEST_GAME) or b""
            data = (data + rest).replace(b"\r", b"\n")
        buffer += data
        place = 0
        for match in _SEPARATOR.finditer(buffer):
            if data and match.end() == len(buffer):
                break  # the line may go on
            section = buffer[place : match.start()]
            if _SOMETHING.search(section) or first:
                yield line, section
            first = False
            line += buffer.count(b"\n", place, match.end()) + 1
            place = min(len(buffer), match.end() + 1)
        buffer = buffer[place:]
        if not data:
            break
        if len(buffer) > LONGEST_GAME:
            yield line, Refusal(file, line, f"more than {LONGEST_GAME} bytes", "too long")
            return
    if first or _SOMETHING.search(buffer):
        yield line, buffer


# --- reading one ------------------------------------------------------------------------------


def read_raw(raw: RawGame, options: ReadOptions) -> Iterator[tuple[int, Game | Refusal]]:
    """The games of a piece: one, but of packed positions many.

    Yields:
        the line (or number) of the game, and the game or why it cannot be used.
    """
    if raw.format in PACKED_FORMATS:
        from ginkgo.records.kifu.packed import read_block

        yield from read_block(raw, options)
    elif raw.format == "usi":
        yield raw.line, read_line(raw.file, raw.line, raw.data)
    else:
        yield raw.line, _read_text(raw, options)


def _read_text(raw: RawGame, options: ReadOptions) -> Game | Refusal:
    try:
        text, encoding = decode_japanese(raw.data)
        if "\0" in text:
            raise Fault(0, "text with zero bytes in it")
        game = finish(_READERS[raw.format](text, options), options)
    except Fault as error:
        line = raw.line + error.line
        return Refusal(raw.file, line, str(error), "unusable game", error.plies, raw.format)
    except GinkgoError as error:
        return Refusal(raw.file, raw.line, str(error), "unreadable game", format=raw.format)
    game.game = raw.name
    game.encoding = encoding
    return game


def read_line(path: str | Path, line: int, data: bytes) -> Game | Refusal:
    """One line of a file of game lines, read. Its moves are not replayed here."""
    try:
        return parse_game_line(data.removeprefix(BOM).decode())
    except UnicodeDecodeError:
        return Refusal(shown(path), line, "bytes that are not UTF-8 text", "not UTF-8")
    except GinkgoError as error:
        return Refusal(shown(path), line, str(error), "malformed game line")
