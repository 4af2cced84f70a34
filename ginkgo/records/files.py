"""Files of records: which there are, how to read them line by line, how to write them whole.

In: paths, directories and globs. Out: sorted lists of files, binary streams that hide the
compression, and atomically replaced files.
"""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import zstandard

from ginkgo.errors import GinkgoError

COMPRESSIONS = (".gz", ".zst")

#: What a compressed stream raises when it is cut short or damaged.
DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError)


def plain_suffix(path: str | Path) -> str:
    """The suffix without its compression, in lower case: `.usi` for `games.usi.gz`."""
    name = Path(path).name.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return Path(name).suffix


def plain_stem(path: str | Path) -> str:
    """The name without suffix and compression: `amateur` for `games/amateur.usi.gz`."""
    name = Path(path).name
    for suffix in COMPRESSIONS:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return Path(name).stem


def is_compressed(path: str | Path) -> bool:
    return Path(path).suffix.lower() in COMPRESSIONS


def find_files(paths: Sequence[str | Path], suffixes: Sequence[str]) -> list[Path]:
    """All files with one of `suffixes` (compressed or not) at `paths`.

    A path may be a file (taken whatever its suffix), a directory (searched with its
    subdirectories) or a glob pattern. The result is sorted and holds each file once.

    Raises:
        GinkgoError: a path does not exist, or holds no file of these kinds.
    """
    found: dict[Path, None] = {}
    for path in paths:
        candidates = [Path(path)]
        if not candidates[0].exists():
            candidates = [Path(match) for match in glob.glob(str(path), recursive=True)]
            if not candidates:
                raise GinkgoError(f"{path}: no such file or directory")
        inside: list[Path] = []
        for candidate in candidates:
            if candidate.is_dir():
                inside += [
                    file
                    for file in candidate.rglob("*")
                    if plain_suffix(file) in suffixes and file.is_file()
                ]
            else:
                inside.append(candidate)
        if not inside:
            raise GinkgoError(f"{path}: no {' or '.join(suffixes)} file in it")
        found.update(dict.fromkeys(sorted(inside)))
    return list(found)


def open_binary(path: str | Path) -> IO[bytes]:
    """Open for reading, decompressing `.gz` and `.zst` on the way.

    Raises:
        GinkgoError: the file cannot be opened.
    """
    path = Path(path)
    try:
        raw = open(path, "rb")
    except OSError as error:
        raise GinkgoError(f"{path}: {error.strerror}") from error
    match path.suffix.lower():
        case ".gz":
            return io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 20)  # type: ignore[arg-type]
        case ".zst":
            reader = zstandard.ZstdDecompressor().stream_reader(
                raw, read_across_frames=True, closefd=True
            )
            return io.BufferedReader(reader, 1 << 20)  # type: ignore[arg-type]
        case _:
            return raw


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under its name only when it is complete.

    The compression follows the suffix. On an error inside the block nothing is left behind
    and what was there before stays.

    Raises:
        GinkgoError: the file cannot be written (disk full, no permission).
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
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
        raise GinkgoError(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_write(path) as stream:
        stream.write(text.encode())
