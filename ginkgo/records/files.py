"""Files of records: which there are, how to read them line by line, how to write them whole.

In: paths, directories and globs. Out: sorted lists of files, binary streams that hide the
compression, and atomically replaced files.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import gzip
import io
import json
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import zstandard

from ginkgo.errors import GinkgoError

#: What some programs put before UTF-8 text.
BOM = b"\xef\xbb\xbf"

COMPRESSIONS = (".gz", ".zst")

#: Stands for standard input where a path is asked for.
STDIN = "-"

#: What a compressed stream, or a file inside an archive, raises when it is cut short or damaged.
DAMAGED = (
    *(EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError),
    *(tarfile.TarError, zipfile.BadZipFile),
)


def shown(path: str | Path) -> str:
    """A path as text that can be written anywhere: names of files may be bytes of any kind."""
    text = str(path)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _plain_name(path: str | Path) -> str:
    """The name without its compression."""
    # Strings are cut several times faster than `Path` takes them apart.
    name = os.path.basename(str(path))
    for suffix in COMPRESSIONS:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name


def plain_suffix(path: str | Path) -> str:
    """The suffix without its compression, in lower case: `.usi` for `games.usi.gz`."""
    return os.path.splitext(_plain_name(path))[1].lower()


def plain_stem(path: str | Path) -> str:
    """The name without suffix and compression: `amateur` for `games/amateur.usi.gz`."""
    return os.path.splitext(_plain_name(path))[0]


def is_compressed(path: str | Path) -> bool:
    """Whether the name says that the file is compressed."""
    return Path(path).suffix.lower() in COMPRESSIONS


def find_files(
    paths: Sequence[str | Path],
    suffixes: Sequence[str],
    suffix_of: Callable[[str], str] = plain_suffix,
    passed: Counter[str] | None = None,
) -> list[Path]:
    """All files with one of `suffixes` (compressed or not) at `paths`.

    A path may be a file (taken whatever its suffix), a directory (searched with its
    subdirectories, through links too) or a glob pattern. The files of each path are sorted. A file
    that is met more than once (as a relative and an absolute path, through a link) keeps its first
    spelling. A link that leads nowhere is among them: whoever opens it says what is wrong.

    Args:
        passed: counts the files in directories that have none of the suffixes, by suffix.

    Raises:
        GinkgoError: a path does not exist, holds no file of these kinds, or is a directory (or
            has one in it) that cannot be read.
    """
    found: dict[str, Path] = {}
    for path in paths:
        candidates = [Path(path)]
        if not candidates[0].exists():
            candidates = _matches(str(path))
            if not candidates:
                raise GinkgoError(f"{path}: no such file or directory")
        inside: list[tuple[Path, str]] = []
        for candidate in candidates:
            # Unlike `Path.resolve` this takes links that lead in a circle.
            real = os.path.realpath(candidate)
            if candidate.is_dir():
                inside += _files_below(str(candidate), real, suffixes, suffix_of, passed)
            else:
                inside.append((candidate, real))
        if not inside:
            raise GinkgoError(f"{path}: no {' or '.join(suffixes)} file in it")
        for file, real in sorted(inside):
            found.setdefault(real, file)
    return list(found.values())


def passed_over(passed: Mapping[str, int]) -> str:
    """What to say of the files that `find_files` counted.

    >>> passed_over({".txt": 2, "": 1})
    'passed over by their names: 3 files (.txt 2, no suffix 1); files that are named are read'
    """
    kinds = ", ".join(f"{suffix or 'no suffix'} {number:,}" for suffix, number in passed.items())
    number = sum(passed.values())
    files = f"{number:,} file{'s' if number > 1 else ''}"
    return f"passed over by their names: {files} ({kinds}); files that are named are read"


def _matches(pattern: str) -> list[Path]:
    """The paths that a pattern fits, in no order."""
    parts = pattern.split("/")
    if parts.count("**") != 1:
        return [Path(match) for match in glob.glob(pattern, recursive=True)]
    # Where links lead in circles the library's own search goes round in them.
    place = parts.index("**")
    tops = glob.glob("/".join(parts[:place]) or "/") if place else ["."]
    below = (_files_below(top, os.path.realpath(top)) for top in tops if os.path.isdir(top))
    tail = "/".join(parts[place + 1 :]) or "*"
    return [file for files in below for file, _ in files if file.match(tail)]


def _files_below(
    folder: str,
    real: str,
    suffixes: Sequence[str] | None = None,
    suffix_of: Callable[[str], str] = plain_suffix,
    passed: Counter[str] | None = None,
) -> Iterator[tuple[Path, str]]:
    """Files of a directory tree (None: with any suffix), and where they really are."""
    pending, seen = [(folder, real)], {real}
    while pending:
        folder, real = pending.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            raise GinkgoError(f"{folder}: {error.strerror}") from error
        for entry in entries:
            place = os.path.join(real, entry.name)
            if entry.is_symlink():
                place = os.path.realpath(place)
            if os.path.isdir(place) if entry.is_symlink() else entry.is_dir():
                if place not in seen:
                    seen.add(place)
                    pending.append((os.path.join(folder, entry.name), place))
            elif suffixes is not None and suffix_of(entry.name) not in suffixes:
                if passed is not None and entry.is_file() and not entry.name.startswith("."):
                    passed[suffix_of(entry.name)] += 1
            elif entry.is_symlink() or entry.is_file():
                yield Path(folder, entry.name), place


def open_binary(path: str | Path, archive: bool = False) -> IO[bytes]:
    """Open for reading, decompressing `.gz` and `.zst` on the way.

    Args:
        path: `-`: standard input.
        archive: it is a tar, whose short suffix `.tgz` means compression too.

    Raises:
        GinkgoError: the file cannot be opened.
    """
    if str(path) == STDIN:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        raw = open(path, "rb")
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror}") from error
    name = str(path).lower()
    return open_compressed(name + ".gz" if archive and name.endswith(".tgz") else name, raw)


def open_compressed(name: str, raw: IO[bytes]) -> IO[bytes]:
    """The stream without the compression that its name tells of."""
    match os.path.splitext(name)[1].lower():
        case ".gz":
            return io.BufferedReader(_WhatIsThere(gzip.GzipFile(fileobj=raw), raw), 1 << 20)
        case ".zst":
            return io.BufferedReader(_WhatIsThere(_ZstdFrames(raw), raw), 1 << 20)
        case _:
            return raw


class _ZstdFrames:
    """Frame after frame of a `.zst` stream. The library's own reader keeps silent about a cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._rest = b""
        self._inside = False

    def read1(self, _size: int) -> bytes:
        while True:
            data = self._rest or self._raw.read(1 << 16)
            self._rest = b""
            if not data:
                if self._inside:
                    raise EOFError("compressed file ended before the end of a frame")
                return b""
            self._inside = True
            text = self._frame.decompress(data)
            if self._frame.eof:
                self._rest = self._frame.unused_data
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._inside = False
            if text:
                return text


class _WhatIsThere(io.RawIOBase):
    """Hands on what a decompressor has, so that a file cut short is read up to the cut."""

    def __init__(self, stream: Any, raw: IO[bytes]) -> None:
        self._stream, self._raw = stream, raw
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._left or self._stream.read1(len(buffer))
        data, self._left = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()


def unwritable(path: str | Path, error: OSError) -> GinkgoError:
    """What to say of a file or folder that cannot be written."""
    places = (Path(path), *Path(path).parents)
    place = next((one for one in places if os.path.lexists(one)), places[-1])
    if isinstance(error, FileExistsError | NotADirectoryError) and not place.is_dir():
        return GinkgoError(f"{path}: cannot write: {place} is not a directory")
    return GinkgoError(f"{path}: cannot write: {error.strerror or error}")


def make_folder(path: str | Path) -> None:
    """Make a folder and those that lead to it, where they are not there.

    Raises:
        GinkgoError: it cannot be made.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def read_object(path: str | Path, *keys: str) -> dict[str, Any]:
    """A JSON object that a file holds.

    Args:
        keys: that it must have.

    Raises:
        FileNotFoundError: there is no such file.
        GinkgoError: it cannot be read, is no JSON object, or lacks a key.
    """
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise GinkgoError(f"{path}: cannot read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise GinkgoError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise GinkgoError(f"{path}: expected a JSON object, not {type(found).__name__}")
    for key in keys:
        if key not in found:
            raise GinkgoError(f"{path}: no {key!r} in it")
    return found


def why_no_arrays(error: Exception) -> str:
    """What is wrong with a file of numpy arrays.

    numpy takes what it does not know for Python objects and says how to load them, which nobody
    should do.
    """
    return "no numpy arrays in it" if "pickle" in str(error) else str(error) or "damaged"


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def check_writable(path: str | Path) -> None:
    """Find out before the work that `atomic_write` could not keep its result.

    Makes the directories that lead to the file; the file itself stays as it is.

    Raises:
        GinkgoError: the file cannot be written.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _temporary(path)
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise unwritable(path, error) from error


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under its name only when it is complete.

    The compression follows the suffix. On an error inside the block nothing is left behind
    and what was there before stays.

    Raises:
        GinkgoError: the file cannot be written (disk full, no permission).
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as raw:
            match path.suffix.lower():
                case ".gz":
                    # No name and no time in the header: the same records give the same bytes.
                    with gzip.GzipFile("", "wb", 6, raw, mtime=0) as stream:
                        yield stream  # type: ignore[misc]
                case ".zst":
                    with zstandard.ZstdCompressor(6).stream_writer(raw, closefd=False) as stream:
                        yield stream  # type: ignore[misc]
                case _:
                    yield raw
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_write(path) as stream:
        stream.write(text.encode())
