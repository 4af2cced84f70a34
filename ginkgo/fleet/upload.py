"""An upload of games as bytes of a stranger, and what may be read of it.

In: bytes. Out: the arrays of a file of self-play games (`ginkgo.records.kifu.selfplay`), each of
them of the right type and size; or `Refused`. Nothing is unpacked before its size is known and
allowed, nothing is unpickled, and no name in the archive is ever used as a path.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ginkgo.records.game import ENDINGS, MAX_PLIES
from ginkgo.records.kifu.selfplay import FORMAT

#: Bytes of `meta` at most, and of the header of an array.
_META, _HEADER = 1 << 16, 512
#: Letters of a start position at most.
_SFEN = 128
#: Moves with visits of one position at most; no position of shogi has more legal ones.
_CANDIDATES = 593
_MAGIC = b"\x93NUMPY\x01\x00"
_ARRAY = re.compile(
    rb"\{'descr': '([<|>=]?[a-zA-Z][0-9]{0,4})', 'fortran_order': False, "
    rb"'shape': \(([0-9]{1,9}), ?([0-9]{0,9})\), \} *\n"
)
_TYPES = {
    **{"meta": "|u1", "number": "<i8", "winner": "|u1", "end": "|u1", "plies": "<i4"},
    **{"may_resign": "|b1", "random_plies": "<i2", "start": "<U"},
    **{"move": "<u2", "full": "|b1", "playouts": "<i4", "root_value": "<f2"},
    **{"candidates": "<i2", "position": "|u1", "policy_move": "<u2", "policy_visits": "<u2"},
}
_BY_GAME = ("number", "winner", "end", "plies", "may_resign", "random_plies", "start")
_BY_POSITION = ("move", "full", "playouts", "root_value", "candidates", "position")
_BY_MOVE = ("policy_move", "policy_visits")


class Refused(Exception):
    """An upload, or something in it, that is not taken.

    Args:
        kind: one word, by which refusals are counted. reason: a line for people.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind, self.reason = kind, reason

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


def read_upload(data: bytes, games: int) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """`meta` and the arrays of an upload.

    Args:
        games: in it at most.

    Raises:
        Refused: it is damaged, no such file, or larger than it may be.
    """
    try:
        return _read(data, games)
    except Refused:
        raise
    except (
        *(OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError),
        *(zipfile.BadZipFile, zlib.error, struct.error, RecursionError, OverflowError),
    ) as error:
        raise Refused("damaged", f"no readable archive: {type(error).__name__}") from None


def _read(data: bytes, games: int) -> tuple[dict[str, Any], dict[str, NDArray]]:
    if not data.startswith(b"PK\x03\x04"):
        raise Refused("damaged", "no zip archive of arrays")
    arrays: dict[str, NDArray] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sorted(one.filename for one in members) != sorted(f"{name}.npy" for name in _TYPES):
            raise Refused("members", f"expected {len(_TYPES)} arrays, {', '.join(_TYPES)}")
        found = {one.filename.removesuffix(".npy"): one for one in members}
        meta = _member(archive, found["meta"], "meta", (_META,))
        arrays = {name: _member(archive, found[name], name, (games,)) for name in _BY_GAME}
        count = len(arrays["number"])
        if not count or any(len(arrays[name]) != count for name in _BY_GAME):
            raise Refused("sizes", "arrays by game differ in length, or there is no game")
        plies = arrays["plies"].astype(np.int64)
        if (plies < 0).any() or (plies > MAX_PLIES).any():
            raise Refused("length", f"expected games of 0 to {MAX_PLIES} plies")
        total = int(plies.sum())
        for name in _BY_POSITION:
            arrays[name] = _member(archive, found[name], name, (total,), exact=True)
        candidates = arrays["candidates"].astype(np.int64)
        if (candidates < 0).any() or (candidates > _CANDIDATES).any():
            raise Refused("range", "candidates: no position has so many moves")
        moves = int(candidates.sum())
        for name in _BY_MOVE:
            arrays[name] = _member(archive, found[name], name, (moves,), exact=True)
    return _meta(meta), arrays


def _member(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    name: str,
    most: tuple[int, ...],
    exact: bool = False,
) -> NDArray:
    """An array of the archive, unpacked only when its stated size is right.

    Args:
        most: its length at most. exact: this and no other.
    """
    if info.flag_bits & 1:
        raise Refused("damaged", f"{name}: encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused("damaged", f"{name}: expected deflate")
    letters = _SFEN if name == "start" else 1
    wide = 32 if name == "position" else 1
    item = 4 * letters if name == "start" else np.dtype(_TYPES[name]).itemsize * wide
    if info.file_size > _HEADER + most[0] * item:
        raise Refused("size", f"{name}: {info.file_size} bytes unpacked")
    with archive.open(info) as stream:  # gives no more than the size that the directory states
        raw = stream.read(info.file_size + 1)
    if len(raw) != info.file_size or not raw.startswith(_MAGIC):
        raise Refused("damaged", f"{name}: no array")
    length = int.from_bytes(raw[8:10], "little")
    match = _ARRAY.fullmatch(raw[10 : 10 + length])
    if match is None:
        raise Refused("type", f"{name}: expected a plain array of {_TYPES[name]}")
    descr, rows, columns = match[1].decode(), int(match[2]), match[3].decode()
    if name == "start":
        right = re.fullmatch(r"<U[0-9]+", descr) is not None and int(descr[2:]) <= _SFEN
    else:
        right = descr == _TYPES[name]
    if not right:
        raise Refused("type", f"{name}: {descr}, expected {_TYPES[name]}")
    if columns != ("32" if name == "position" else ""):
        raise Refused("shape", f"{name}: ({rows}, {columns})")
    if rows > most[0] or (exact and rows != most[0]):
        raise Refused("sizes", f"{name}: {rows} values, expected {most[0]}")
    dtype = np.dtype(descr)
    body = raw[10 + length :]
    shape = (rows, 32) if columns else (rows,)
    if len(body) != math.prod(shape) * dtype.itemsize:
        raise Refused("sizes", f"{name}: {len(body)} bytes for {rows} values")
    if name == "start":
        _check_letters(body)
    if dtype == np.bool_ and body.strip(b"\0\1"):
        raise Refused("range", f"{name}: neither true nor false")
    return np.frombuffer(body, dtype).reshape(shape)


def _check_letters(body: bytes) -> None:
    """Refuse what is no ASCII in (n,) strings of four bytes a letter."""
    if (np.frombuffer(body, "<u4") > 126).any():
        raise Refused("range", "start: letters that no position has")


def _meta(found: NDArray) -> dict[str, Any]:
    try:
        meta = json.loads(found.tobytes().decode())
    except (ValueError, RecursionError):
        raise Refused("meta", "no JSON") from None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise Refused("meta", f"expected games of format {FORMAT}")
    if meta.get("endings") != list(ENDINGS):
        raise Refused("meta", "another list of endings")
    return meta
