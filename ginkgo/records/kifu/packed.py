"""Positions as bytes: hcpe (38 bytes) and PSV (40 bytes), each with a move, a score and a result.

In: blocks of records. Out: arrays of boards, and `Game`s of one ply.

Both hold a position as a Huffman code of 256 bits; the codes differ (Apery's `HuffmanCodedPos`,
YaneuraOu's `PackedSfen`). cshogi decodes them one by one and ends the process on damaged ones, so
they are decoded here, many at once, and only what decoded well goes to cshogi.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import cshogi
import numpy as np
from numpy.typing import NDArray

from ginkgo.records.files import DAMAGED
from ginkgo.records.game import Game, Refusal
from ginkgo.records.kifu.archive import Readable
from ginkgo.records.kifu.hcpe3 import guess_hcpe3, hcpe3_blocks, read_hcpe3_block
from ginkgo.records.kifu.huffman import unpack
from ginkgo.records.kifu.reading import ReadOptions
from ginkgo.records.kifu.selfplay import read_selfplay_block, selfplay_blocks
from ginkgo.records.kifu.stream import RawGame, broken
from ginkgo.records.replay import breaks_promotion

HCPE = np.dtype(
    [
        ("position", np.uint8, (32,)),
        ("score", "<i2"),
        ("move", "<u2"),
        ("result", np.uint8),
        ("padding", np.uint8),
    ]
)
PSV = np.dtype(
    [
        ("position", np.uint8, (32,)),
        ("score", "<i2"),
        ("move", "<u2"),
        ("ply", "<u2"),
        ("result", np.int8),
        ("padding", np.uint8),
    ]
)
RECORDS = {"hcpe": HCPE, "psv": PSV}
CODES = {"hcpe": "hcp", "psv": "psfen"}

#: Records that go through the processes as one piece.
BLOCK_RECORDS = 1024
#: Of the moves in the first block so many must be legal. Other programs pack moves in other ways:
#: a third of those is legal by chance.
_LEGAL_SHARE = 0.9
_SAMPLE = 64


def guess(head: bytes, hint: str, whole: bool) -> str:
    """Which packed format these bytes have: the one whose positions decode; nothing: none."""
    shares = {}
    for kind, dtype in RECORDS.items():
        count = min(_SAMPLE, len(head) // dtype.itemsize)
        if not count or (whole and len(head) % dtype.itemsize and hint != kind):
            shares[kind] = 0.0
            continue
        records = np.frombuffer(head, dtype, count)
        shares[kind] = float(unpack(records["position"], CODES[kind])[3].mean())
    shares["hcpe3"] = guess_hcpe3(head, whole)
    best = max(shares, key=lambda kind: (shares[kind], kind == hint))
    return best if shares[best] >= 0.5 else ""


def blocks(file: str, stream: Readable, kind: str, stem: str) -> Iterator[RawGame | Refusal]:
    """A file of packed records in pieces."""
    if kind == "hcpe3":
        yield from hcpe3_blocks(file, stream, stem)
        return
    if kind == "selfplay":
        yield from selfplay_blocks(file, stream, stem)
        return
    size = RECORDS[kind].itemsize
    number, rest = 1, b""
    while True:
        try:
            data = stream.read(BLOCK_RECORDS * size - len(rest))
        except DAMAGED as error:
            yield broken(file, number, error)
            return
        rest += data
        if len(rest) < BLOCK_RECORDS * size and data:
            continue
        records = len(rest) // size
        if records:
            block = RawGame(file, number, kind, rest[: records * size], stem)
            if number == 1 and (reason := _other_moves(block)):
                yield Refusal(file, 1, reason, "moves of another kind")
                return
            yield block
        if not data:
            break
        number, rest = number + records, b""
    left = len(rest) % size
    if left:
        reason = f"cut short: {left} bytes after the last whole record"
        yield Refusal(file, number + len(rest) // size, reason, "damaged file")


def _other_moves(block: RawGame) -> str:
    """Why the moves of a file cannot be those of its format; nothing: they can."""
    records = np.frombuffer(block.data, RECORDS[block.format])
    legal, sound = legal_records(records, block.format)[:2]
    count = int(sound.sum())
    if count and int(legal.sum()) < _LEGAL_SHARE * count:
        return (
            f"only {int(legal.sum())} of the first {count} moves are legal: "
            f"they are not packed as {block.format} packs them"
        )
    return ""


def block_hash(data: bytes) -> int:
    """What decides the split of a block of positions whose games are not known.

    They are split by the block, for those of a game mostly lie together.
    """
    digest = hashlib.blake2b(b"ginkgo1" + data, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def moves_of(records: NDArray, kind: str) -> NDArray[np.int32]:
    """The moves as cshogi has them in sixteen bits."""
    moves = records["move"].astype(np.int32)
    if kind == "hcpe":
        return moves
    # YaneuraOu: drop in bit 14, promotion in bit 15, a dropped piece in place of the origin.
    to, origin = moves & 0x7F, moves >> 7 & 0x7F
    drop, promote = moves >> 14 & 1, moves >> 15 & 1
    return (to | np.where(drop == 1, origin + 80, origin) << 7 | promote << 14).astype(np.int32)


def legal_records(
    records: NDArray, kind: str
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], tuple]:
    """Which records can be used.

    Returns:
        (n,) whether the move is legal, (n,) whether the position is possible, and what `unpack`
        gives.
    """
    unpacked = unpack(records["position"], CODES[kind])
    sound = unpacked[3].copy()
    legal = np.zeros(len(records), bool)
    board = cshogi.Board()
    put = board.set_hcp if kind == "hcpe" else board.set_psfen
    moves = moves_of(records, kind).tolist()
    positions = np.ascontiguousarray(records["position"])
    for index in np.flatnonzero(sound).tolist():
        put(positions[index : index + 1])
        board.turn ^= 1
        if board.is_check():
            sound[index] = False
            board.turn ^= 1
            continue
        board.turn ^= 1
        legal[index] = is_legal16(board, moves[index])
    return legal, sound, unpacked


def is_legal16(board: cshogi.Board, move16: int) -> bool:
    """Whether a move of sixteen bits, of whatever origin, is legal on a board."""
    to, origin = move16 & 0x7F, move16 >> 7 & 0x7F
    if to > 80 or origin > 87 or (move16 >> 15) & 1 or origin == to:
        return False
    if origin < 81 and board.piece(origin) == 0:
        return False
    move = board.move_from_move16(move16)
    return bool(move) and not breaks_promotion(move, bool(board.turn)) and board.is_legal(move)


def winners_of(records: NDArray, kind: str, color: NDArray[np.uint8]) -> list[str]:
    """The winner by record: `b`, `w`, `d`, or `-` for values that mean nothing."""
    if kind == "hcpe":
        table = {0: "d", 1: "b", 2: "w"}
        return [table.get(result, "-") for result in records["result"].tolist()]
    sides = ("b", "w")
    return [
        {0: "d", 1: sides[turn], -1: sides[1 - turn]}.get(result, "-")
        for result, turn in zip(records["result"].tolist(), color.tolist(), strict=True)
    ]


def read_block(raw: RawGame, options: ReadOptions) -> Iterator[tuple[int, Game | Refusal]]:
    """The records of a piece as games of one ply."""
    if raw.format == "hcpe3":
        yield from read_hcpe3_block(raw, options)
        return
    if raw.format == "selfplay":
        yield from read_selfplay_block(raw, options)
        return
    records = np.frombuffer(raw.data, RECORDS[raw.format])
    legal, sound, unpacked = legal_records(records, raw.format)
    winners = winners_of(records, raw.format, unpacked[2])
    moves, board = moves_of(records, raw.format).tolist(), cshogi.Board()
    put = board.set_hcp if raw.format == "hcpe" else board.set_psfen
    positions = np.ascontiguousarray(records["position"])
    home = block_hash(raw.data)
    for index in range(len(records)):
        number = raw.line + index
        if not sound[index]:
            yield number, Refusal(raw.file, number, "impossible position", "bad start position")
            continue
        if not legal[index]:
            yield number, Refusal(raw.file, number, "illegal move", "illegal move")
            continue
        put(positions[index : index + 1])
        ply = int(records["ply"][index]) if raw.format == "psv" else 1
        start = f"{board.sfen().rsplit(' ', 1)[0]} {max(1, ply)}"
        yield (
            number,
            Game(
                start=start,
                moves=[cshogi.move_to_usi(board.move_from_move16(moves[index]))],
                winner=winners[index],
                game=f"{raw.name}-{number}",
                scores=[int(records["score"][index])],
                format=raw.format,
                home=home,
                played=[board.move_from_move16(moves[index])],
            ),
        )


def pack(sfens: list[str], kind: str) -> NDArray[np.uint8]:
    """Positions as (n, 32) bytes."""
    board, found = cshogi.Board(), np.zeros((len(sfens), 32), np.uint8)
    put = "to_hcp" if kind == "hcpe" else "to_psfen"
    for index, sfen in enumerate(sfens):
        board.set_sfen(sfen)
        getattr(board, put)(found[index : index + 1])
    return found
