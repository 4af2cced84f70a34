"""Uploads that are refused, each kind with its reason, and stored nowhere."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import re
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from fleet_parts import (
    OPTIONS,
    PLAY,
    SMALL,
    THRESHOLD,
    Place,
    open_run,
    packed,
    played,
    publish,
)

from ginkgo.fleet.config import TASK_GAMES
from ginkgo.fleet.database import Quarantined
from ginkgo.fleet.upload import Refused
from ginkgo.fleet.validate import Expected, Validators, validate
from ginkgo.records.game import ENDINGS, STARTPOS
from ginkgo.records.kifu.selfplay import as_arrays
from ginkgo.selfplay.audit import faults_of

EXPECTED = Expected(TASK_GAMES, 16, "first", OPTIONS, THRESHOLD, (STARTPOS,))


def npy(header: bytes, body: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def member(data: bytes, name: str, content: bytes, **how) -> bytes:
    """The archive with another content of one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        for one in old.infolist():
            if one.filename == how.get("leave"):
                continue
            inside = content if one.filename == name else old.read(one)
            new.writestr(one.filename, inside, how.get("compress", zipfile.ZIP_STORED))
        for extra in how.get("extra", ()):
            new.writestr(extra, b"x")
    return stream.getvalue()


def lying(data: bytes) -> bytes:
    """Moves that unpack to more than the archive's directory says."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        right = archive.read("move.npy")
    bomb = member(data, "move.npy", right + bytes(9_000_000), compress=zipfile.ZIP_DEFLATED)
    # Where the directory has it: the name stands 46 bytes after the beginning of an entry.
    places = (match.start() - 46 for match in re.finditer(b"move.npy", bomb))
    [at] = (place for place in places if bomb[place : place + 4] == b"PK\x01\x02")
    return bomb[: at + 24] + struct.pack("<I", len(right)) + bomb[at + 28 :]


def stored_as(array) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    return stream.getvalue()


class Evil:
    """Unpickling it would leave a file."""

    def __reduce__(self):
        return (open, ("pickled", "w"))


#: What each of them is refused as.
KINDS = {
    "damaged": (
        "nothing",
        "text",
        "pickle",
        "cut",
        "noise",
        "end of the directory",
        "lzma",
        "version 2",
        "a lie about sizes",
    ),
    "members": (
        "more members",
        "a path",
        "an absolute path",
        "a member twice",
        "fewer members",
    ),
    "type": (
        "pickle in an array",
        "no header",
        "python in a header",
        "fortran",
        "big-endian",
    ),
    "size": (
        "bomb",
        "bomb in meta",
        "nested header",
        "float moves",
        "wide moves",
        "float visits",
        "long start",
    ),
    "shape": ("one dimension more",),
    "sizes": (
        "huge shape",
        "shape of another size",
        "fewer moves",
        "fewer games",
        "no game",
        "too many games",
    ),
    "length": (
        "negative plies",
        "too many plies",
    ),
    "meta": (
        "other format",
        "no JSON",
        "nested JSON",
        "other endings",
    ),
    "model": ("other model",),
    "numbers": (
        "foreign number",
        "number of another task",
        "number twice",
    ),
    "range": (
        "a bool of 2",
        "plies beyond the option",
        "negative candidates",
        "no such winner",
        "no such end",
        "no visits",
        "infinite value",
        "value of 2",
        "value below 0",
        "many playouts",
        "negative playouts",
        "random plies",
        "other start",
        "malformed start",
        "start that is no ASCII",
    ),
    "nan": (
        "NaN of a full search",
        "full without visits",
    ),
    "illegal": (
        "no such move",
        "move to its own square",
        "illegal move",
        "illegal visits",
    ),
    "result": (
        "other winner",
        "other end",
        "other position",
        "resigned without leave",
        "a mate that is none",
    ),
    "policy": (
        "visits twice",
        "many visits",
    ),
}


def hostile(games) -> dict[str, bytes]:
    """Uploads by what is wrong with them."""
    good = packed(games, "first")
    arrays = as_arrays(games, {"model": "first"})
    n, plies = len(games), len(arrays["move"])
    head = b"{'descr': '<u2', 'fortran_order': False, 'shape': (%d,), }\n"
    full = int(arrays["full"].argmax())
    some = int(np.flatnonzero(arrays["candidates"] > 1)[0])
    at = int(arrays["candidates"][:some].sum())

    def changed(name, place, value):
        array = arrays[name].copy()
        array[place] = value
        return packed(games, "first", **{name: array})

    def typed(name, dtype):
        return packed(games, "first", **{name: arrays[name].astype(dtype)})

    moves = arrays["move"]
    swapped = moves.copy()
    swapped[[2, 3]] = moves[[3, 2]]
    object_array = np.empty(n, object)
    object_array[:] = Evil()
    meta = arrays["meta"]
    last = int(arrays["plies"][0])
    resigned = [game.end for game in games].index("toryo")
    return {
        "nothing": b"",
        "text": b"hello",
        "pickle": pickle.dumps(Evil()),
        "cut": good[: len(good) // 2],
        "noise": good[:60] + bytes(100) + good[160:],
        "end of the directory": good[:-10],
        "pickle in an array": member(good, "number.npy", stored_as(object_array)),
        "bomb": member(good, "move.npy", bytes(300_000_000), compress=zipfile.ZIP_DEFLATED),
        "bomb in meta": member(good, "meta.npy", bytes(9_000_000), compress=zipfile.ZIP_DEFLATED),
        "lzma": member(good, "move.npy", b"x", compress=zipfile.ZIP_LZMA),
        "more members": member(good, "", b"", extra=["other.npy"]),
        "a path": member(good, "", b"", extra=["../../evil.npy"]),
        "an absolute path": member(good, "", b"", extra=["/tmp/evil.npy"]),
        "huge shape": member(good, "move.npy", npy(head % 999_999_999)),
        "shape of another size": member(good, "move.npy", npy(head % plies, bytes(4))),
        "no header": member(good, "move.npy", b"\x93NUMPY\x01\x00\xff\xff"),
        "python in a header": member(good, "move.npy", npy(b"__import__('os').getpid()\n")),
        "nested header": member(good, "move.npy", npy(b"(" * 5000)),
        "version 2": member(good, "move.npy", b"\x93NUMPY\x02\x00" + bytes(100)),
        "fortran": member(
            good, "position.npy", stored_as(np.asfortranarray(arrays["position"]))
        ),
        "one dimension more": packed(games, "first", move=moves[:, None]),
        "float moves": typed("move", np.float64),
        "wide moves": typed("move", np.int64),
        "big-endian": typed("number", ">i8"),
        "float visits": typed("policy_visits", np.float32),
        "a bool of 2": member(good, "full.npy", stored_as(arrays["full"])[:-1] + b"\x02"),
        "a lie about sizes": lying(good),
        "a member twice": member(good, "", b"", extra=["number.npy"]),
        "fewer members": member(good, "", b"", leave="winner.npy"),
        "other endings": packed(
            games, "first", meta=np.frombuffer(meta.tobytes().replace(b"toryo", b"tory0"), np.uint8)
        ),
        "resigned without leave": changed("may_resign", resigned, False),
        "a mate that is none": changed("end", resigned, ENDINGS.index("tsumi")),
        "fewer moves": packed(games, "first", move=moves[:-1]),
        "fewer games": packed(games, "first", winner=arrays["winner"][:-1]),
        "no game": packed([], "first"),
        "negative plies": changed("plies", 0, -1),
        "too many plies": changed("plies", 0, 513),
        "plies beyond the option": packed(
            played(TASK_GAMES, 16, replace(PLAY, max_ply=80)), "first"
        ),
        "negative candidates": changed("candidates", 0, -1),
        "other format": packed(games, "first", meta=np.frombuffer(b'{"format": "x"}', np.uint8)),
        "no JSON": packed(games, "first", meta=meta[:-3]),
        "nested JSON": packed(games, "first", meta=np.frombuffer(b"[" * 60_000, np.uint8)),
        "other model": packed(games, "second"),
        "foreign number": changed("number", 0, 5),
        "number of another task": changed("number", 0, 5 * TASK_GAMES),
        "number twice": changed("number", 0, int(arrays["number"][1])),
        "no such winner": changed("winner", 0, 3),
        "other winner": changed("winner", 0, (int(arrays["winner"][0]) + 1) % 3),
        "no such end": changed("end", 0, 99),
        "other end": changed("end", 0, 3),
        "no such move": changed("move", 3, 0x7FFF),
        "move to its own square": changed("move", 3, 5 << 7 | 5),
        "illegal move": packed(games, "first", move=swapped),
        "illegal visits": changed("policy_move", at, 40 << 7 | 41),
        "visits twice": changed("policy_move", at, int(arrays["policy_move"][at + 1])),
        "no visits": changed("policy_visits", at, 0),
        "many visits": changed("policy_visits", at, 60_000),
        "NaN of a full search": changed("root_value", full, np.nan),
        "infinite value": changed("root_value", full, np.inf),
        "value of 2": changed("root_value", full, 2.0),
        "value below 0": changed("root_value", full, -0.5),
        "many playouts": changed("playouts", full, 1 << 30),
        "negative playouts": changed("playouts", full, -1),
        "random plies": changed("random_plies", 0, 100),
        "full without visits": changed("full", int((~arrays["full"]).argmax()), True),
        "other position": changed("position", (last - 1, 3), 255),
        "other start": changed("start", 0, "4k4/9/9/9/9/9/9/9/4K4 b - 1"),
        "malformed start": changed("start", 0, "9/9/9 x"),
        "long start": packed(games, "first", start=np.array(["k" * 500] * n)),
        "start that is no ASCII": changed("start", 0, "王" * 20),
        "too many games": packed(played(TASK_GAMES, 17), "first"),
    }  # fmt: skip


def test_a_good_upload_is_found_good(games):
    found = validate(packed(games, "first"), EXPECTED)
    assert [game.number for game in found] == [game.number for game in games]
    assert [game.end for game in found] == [game.end for game in games]
    assert all(not faults_of(game.arrays, game.end, 40, THRESHOLD) for game in found)


def test_hostile_uploads_are_refused(place, games, tmp_path, monkeypatch):
    """Each with 422 and its kind; a copy is set aside, nothing is stored, no file appears."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    task = place.task(place.ann)["task"]
    wanted = {name: kind for kind, names in KINDS.items() for name in names}
    uploads = hostile(games)
    assert uploads.keys() == wanted.keys()
    found = {}
    for name, data in uploads.items():
        answer = place.send(task, data)
        assert answer.status_code == 422, name
        assert answer.json()["detail"]
        found[name] = answer.json()["kind"]
    assert found == wanted
    assert list(here.iterdir()) == []
    assert place.files("games") == []
    assert len(place.files("quarantine")) == len(uploads)
    status = place.status
    assert status["games"] == 0
    assert status["quarantined"] == {kind: len(names) for kind, names in KINDS.items()}
    with place.server.database.session() as session:
        assert all(one.reason and one.sha256 for one in session.query(Quarantined))
    assert place.send(task, packed(games, "first")).status_code == 201


def test_checks_in_a_process_of_their_own(games):
    validators = Validators(1)
    try:
        assert len(validators.check(packed(games, "first"), EXPECTED)) == 16
        with pytest.raises(Refused, match="no zip archive"):
            validators.check(b"hello", EXPECTED)
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        assert len(validators.check(packed(games, "first"), EXPECTED)) == 16
    finally:
        validators.close()


def test_quarantine_has_room_for_so_many(tmp_path, network, games):
    place = Place(tmp_path, replace(SMALL, quarantined_files=2))
    with place.client:
        publish(place.client, place.tom, "first", network)
        open_run(place.client, place.tom, 1, "first")
        task = place.task(place.ann)["task"]
        for number in range(4):
            assert place.send(task, b"junk %d" % number).status_code == 422
    assert len(place.files("quarantine")) == 2
    assert place.status["quarantined"] == {"damaged": 4}
