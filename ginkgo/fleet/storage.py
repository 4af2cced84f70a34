"""Where the server keeps files: a folder of this machine, or anything that fsspec knows (S3, …).

In: a path or URL. Out: files by name, whole or not there. Names are made by the server alone, never
of what a request says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ginkgo.errors import GinkgoError
from ginkgo.records.files import atomic_write


class Storage:
    """Files by name.

    Args:
        url: a path or what fsspec takes, such as `s3://bucket/ginkgo`.

    Raises:
        GinkgoError: it cannot be used.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
            self._local = isinstance(self._fs, LocalFileSystem)
            if self._local:
                Path(self._root).mkdir(parents=True, exist_ok=True)
        except (ImportError, ValueError, OSError) as error:
            raise GinkgoError(f"--storage {url}: {error}") from None

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def put(self, name: str, data: bytes) -> None:
        """Write a file; when this returns it is kept.

        Raises:
            GinkgoError: it cannot be written.
        """
        path = self._path(name)
        if self._local:
            with atomic_write(path) as stream:
                stream.write(data)
            return
        try:
            self._fs.pipe_file(path, data)  # object stores show an object when it is whole
        except Exception as error:  # each kind of storage has errors of its own
            raise GinkgoError(f"{self.url}: cannot write {name}: {error}") from None

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """A file's bytes [start, end).

        Raises:
            GinkgoError: it cannot be read.
        """
        try:
            found: Any = self._fs.cat_file(self._path(name), start=start, end=end)
        except Exception as error:
            raise GinkgoError(f"{self.url}: cannot read {name}: {error}") from None
        return bytes(found)

    def remove(self, name: str) -> None:
        """Remove a file, there or not."""
        try:
            self._fs.rm_file(self._path(name))
        except Exception:  # what is not there needs no removing; what stays is read by nobody
            return
