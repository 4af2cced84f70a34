"""Archives of kifu: `.zip`, `.7z`, `.tar` and compressed tars.

In: a path. Out: the files in it one after another, each as a binary stream. Nothing is held in
memory but what is being read; a `.7z` is unpacked into a temporary folder first.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from ginkgo.errors import GinkgoError
from ginkgo.records.files import DAMAGED, open_binary, open_compressed

ARCHIVES = (".zip", ".7z", ".tar", ".tar.gz", ".tgz", ".tar.zst")


class Readable(Protocol):
    """Whatever bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes, none at the end."""


def is_archive(path: str | Path) -> bool:
    """Whether the name is that of an archive.

    >>> is_archive("games.tar.gz"), is_archive("games.usi.gz")
    (True, False)
    """
    return str(path).lower().endswith(ARCHIVES)


def archive_stem(path: str | Path) -> str:
    """The name of an archive without its suffix."""
    name = Path(path).name
    for suffix in sorted(ARCHIVES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return Path(name).stem


def members(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of each file in an archive, in the order in which they stand there.

    Raises:
        GinkgoError: it cannot be opened, or is damaged.
    """
    name = str(path).lower()
    try:
        if name.endswith(".zip"):
            yield from _zip(path)
        elif name.endswith(".7z"):
            yield from _seven_zip(path)
        else:
            yield from _tar(path)
    except DAMAGED as error:
        raise GinkgoError(f"{path}: damaged archive: {error}") from error
    except NotImplementedError as error:
        raise GinkgoError(f"{path}: cannot read this archive: {error}") from error
    except RuntimeError as error:  # zipfile says so of a password
        raise GinkgoError(f"{path}: cannot read this archive: {error}") from error


@contextlib.contextmanager
def unnested(name: str, stream: IO[bytes]) -> Iterator[str]:
    """The path of a copy of an archive that lies in another one.

    Args:
        stream: as `members` gives it, so without the compression of a tar but for `.tgz`.
    """
    suffix = next((end for end in (".zip", ".7z", ".tgz") if name.lower().endswith(end)), ".tar")
    with tempfile.NamedTemporaryFile(prefix="ginkgo-", suffix=suffix) as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.flush()
        yield copy.name


def _zip(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    try:
        archive = zipfile.ZipFile(path)
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror or error}") from error
    with archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                name = _zip_name(entry)
                with archive.open(entry) as stream:
                    yield name, open_compressed(name, stream)


def _zip_name(entry: zipfile.ZipInfo) -> str:
    """Names that are not marked as UTF-8 are mostly CP932 where kifu come from."""
    if entry.flag_bits & 0x800:
        return entry.filename
    try:
        return entry.filename.encode("cp437").decode("cp932")
    except UnicodeError:
        return entry.filename


def _tar(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    with open_binary(path, archive=True) as raw, tarfile.open(fileobj=raw, mode="r|") as archive:
        for entry in archive:
            if entry.isfile():
                stream = archive.extractfile(entry)
                assert stream is not None
                yield entry.name, open_compressed(entry.name, stream)


def _seven_zip(path: str | Path) -> Iterator[tuple[str, IO[bytes]]]:
    import py7zr

    with tempfile.TemporaryDirectory(prefix="ginkgo-7z-") as folder:
        try:
            with py7zr.SevenZipFile(path) as archive:
                names = archive.getnames()
                archive.extractall(folder)
        except OSError as error:
            raise GinkgoError(f"{path}: {error.strerror or error}") from error
        except Exception as error:  # the library lets its parsers' errors through
            raise GinkgoError(f"{path}: damaged archive: {error}") from error
        for name in names:
            file = Path(folder) / name
            if file.is_file() and not file.is_symlink():
                with open_binary(file) as stream:
                    yield name, stream


def read_all(stream: Readable, limit: int) -> bytes | None:
    """The rest of a stream; None: more than `limit` bytes."""
    buffer = io.BytesIO()
    while len(buffer.getbuffer()) <= limit:
        data = stream.read(1 << 20)
        if not data:
            return buffer.getvalue()
        buffer.write(data)
    return None
