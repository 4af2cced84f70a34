"""Planes `ginkgo148` by hand, against python-shogi, under the mirror, on host and device."""

import random
import subprocess
import sys

import cshogi
import numpy as np
import pytest
import rsshogi.core
import shogi

from ginkgo.errors import GinkgoError
from ginkgo.features import labels, position
from ginkgo.features.ginkgo148 import Packer, pack_positions, planes_on_device, planes_on_host
from ginkgo.features.position import position_from_sfen

START = "lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1"

# Family, its size and first planes plain and promoted, spelled out a second time on purpose.
FAMILIES = {"K": (2, 0, None), "R": (2, 4, 8), "B": (2, 12, 16), "G": (4, 20, None)}
FAMILIES |= {"S": (4, 28, 36), "N": (4, 44, 52), "L": (4, 60, 68), "P": (18, 76, 112)}


def random_positions(count: int, seed: int, check_share: float) -> list[str]:
    """SFENs met in random games, about `check_share` of them with the mover in check."""
    rng, board, sfens = random.Random(seed), cshogi.Board(), []
    checks = 0
    while len(sfens) < count:
        board.reset()
        for _ in range(220):
            moves = list(board.legal_moves)
            if not moves:
                break
            if rng.random() < 0.3:
                moves = [m for m in moves if cshogi.move_cap(m) or m & 0x4000] or moves
            board.push(rng.choice(moves))
            wanted = checks < check_share * (len(sfens) + 1)
            if rng.random() < 0.1 and board.is_check() == wanted:
                sfens.append(board.sfen())
                checks += wanted
    return sfens[:count]


SFENS = random_positions(360, seed=148, check_share=0.35)


def packed(sfens: list[str]) -> np.ndarray:
    return np.concatenate([position_from_sfen(sfen) for sfen in sfens])


def planes_of(sfen: str) -> np.ndarray:
    """(148, 81) planes of one position."""
    return planes_on_host(*pack_positions(position_from_sfen(sfen))).reshape(148, 81)


def squares(*names: str) -> list[int]:
    return sorted(9 * (int(name[0]) - 1) + "abcdefghi".index(name[1]) for name in names)


def own(plane: np.ndarray) -> list[int]:
    return np.flatnonzero(plane == 1).tolist()


def opponents(plane: np.ndarray) -> list[int]:
    return np.flatnonzero(plane == -1).tolist()


# --- by hand ----------------------------------------------------------------------------------


def test_start_position():
    planes = planes_of(START)
    assert own(planes[0]) == squares("5i")
    assert own(planes[1]) == squares("4h", "5h", "6h")
    assert opponents(planes[2]) == squares("5a")
    assert opponents(planes[3]) == squares("4b", "5b", "6b")
    assert own(planes[4]) == squares("2h")
    assert own(planes[5]) == squares("1h", "3h", "4h", "5h", "6h", "7h")
    assert opponents(planes[6]) == squares("8b")
    assert opponents(planes[7]) == squares("9b", "7b", "6b", "5b", "4b", "3b")
    assert own(planes[12]) == squares("8h")
    assert opponents(planes[14]) == squares("2b")
    # Golds: own 4i, 6i in slots 0 and 1, the opponent's 4a, 6a in 2 and 3.
    assert [own(planes[20 + 2 * slot]) for slot in (0, 1)] == [squares("4i"), squares("6i")]
    assert [opponents(planes[24 + 2 * slot]) for slot in (0, 1)] == [squares("4a"), squares("6a")]
    assert own(planes[21]) == squares("3h", "4h", "5h")
    for file in range(1, 10):
        mine, theirs = planes[76 + 2 * (file - 1) :], planes[94 + 2 * (file - 1) :]
        assert own(mine[0]) == squares(f"{file}g")
        assert own(mine[1]) == squares(f"{file}f")
        assert opponents(theirs[0]) == squares(f"{file}c")
        assert opponents(theirs[1]) == squares(f"{file}d")
    for first, end in ((8, 12), (16, 20), (36, 44), (52, 60), (68, 76), (112, 148)):
        assert not planes[first:end].any()
    assert np.abs(planes[::2]).sum() == 40
    assert np.abs(planes[1::2]).sum() == 60


HANDS = "4k4/9/1+B7/6P2/7b1/9/9/9/4K4 b 2Pp 1"


@pytest.mark.parametrize("sfen", [HANDS, "4k4/9/9/9/1B7/2p6/7+b1/9/4K4 w P2p 1"])
def test_hands_and_promotions(sfen):
    """The same position from Black's view and turned round for White."""
    planes = planes_of(sfen)
    # Bishops: one index over both states, so the opponent's is the second of either family.
    assert own(planes[16]) == squares("8c")
    assert opponents(planes[14]) == squares("2e")
    assert not planes[[12, 13, 18]].any()
    reach = squares("7b", "6a", "7d", "6e", "5f", "4g", "3h", "2i", "9d", "9b")
    assert own(planes[17]) == sorted(reach + squares("8b", "8d", "7c", "9c"))
    assert opponents(planes[15]) == squares("1d", "1f", "3d", "3f", "4g", "5h", "6i")
    assert opponents(planes[19]) == squares("4g", "5h", "6i")
    # Pawns: own on the board, two own in hand, the opponent's in hand.
    assert own(planes[76]) == squares("3d")
    assert own(planes[77]) == own(planes[113]) == squares("3c")
    assert not planes[[78, 80, 82]].any()
    assert not planes[84:112].any()
    assert not planes[114:].any()
    empty = set(range(81)) - set(squares("5a", "8c", "3d", "2e", "5i"))
    drops = sorted(sq for sq in empty if sq % 9 != 0 and sq // 9 != 2)
    assert own(planes[79]) == own(planes[81]) == drops
    assert len(drops) == 61
    assert opponents(planes[83]) == sorted(sq for sq in empty if sq % 9 != 8)


def test_captures_of_the_king_are_left_out():
    # The rook gives check from 5e; turned round, it could take the king.
    planes = planes_of("4k4/9/9/9/4r4/9/9/9/4K4 b - 1")
    assert own(planes[1]) == squares("4h", "4i", "6h", "6i")
    file_five = [f"5{rank}" for rank in "bcdfgh"]
    rank_e = [f"{file}e" for file in (1, 2, 3, 4, 6, 7, 8, 9)]
    assert opponents(planes[5]) == squares(*file_five, *rank_e)
    assert opponents(planes[9]) == squares("5g", "5h")


# --- against python-shogi ---------------------------------------------------------------------


def legal_moves(sfen: str, turn: int) -> list[shogi.Move]:
    """Legal moves of `turn` by trying each move of python-shogi, captures of the king left out."""
    board = shogi.Board(sfen)
    turned = turn != board.turn and board.is_check()
    board.turn = turn
    king = board.king_squares[1 - turn]
    before_king = king + (9 if turn == shogi.BLACK else -9)
    fields = sfen.split()
    fields[1] = "bw"[turn]
    legal = []
    for move in list(board.pseudo_legal_moves):
        if move.to_square == king:
            continue
        pawn_check = move.drop_piece_type == shogi.PAWN and move.to_square == before_king
        if pawn_check and turned:
            # A drop onto a board with a check on it already: the rule says nothing of such.
            if move.usi() in {
                m.to_usi() for m in rsshogi.core.Board(" ".join(fields)).legal_moves()
            }:
                legal.append(move)
            continue
        board.push(move)
        if not board.was_suicide() and not (pawn_check and board.is_checkmate()):
            legal.append(move)
        board.pop()
    return legal


def oracle(sfen: str, mover: int) -> np.ndarray:
    """(148, 81) planes seen by `mover`, written straight from the definition."""
    board = shogi.Board(sfen)
    planes = np.zeros((148, 81), np.float32)

    def seen(square: int) -> int:
        rank, file = square // 9, 8 - square % 9
        return 9 * file + rank if mover == shogi.BLACK else 80 - (9 * file + rank)

    where = {}
    for square in range(81):
        if piece := board.piece_at(square):
            where[seen(square)] = square, piece.color, piece.symbol().upper()
    slot_of, copies = {}, {}
    for family, (size, plain, promoted) in FAMILIES.items():
        index = 0
        for color in (mover, 1 - mover):
            for at in sorted(where):
                square, owner, symbol = where[at]
                if owner == color and symbol[-1] == family:
                    base = promoted if symbol[0] == "+" else plain
                    planes[base + 2 * index, at] = 1 if color == mover else -1
                    slot_of[square] = index
                    index += 1
            held = 0
            if family != "K":
                held = board.pieces_in_hand[color][shogi.Piece.from_symbol(family).piece_type]
            copies[color, family] = range(index, index + held)
            index += held
        assert index <= size
    for color in (mover, 1 - mover):
        for move in legal_moves(sfen, color):
            sign, to = (1 if color == mover else -1), seen(move.to_square)
            if move.drop_piece_type:
                family = shogi.Piece(move.drop_piece_type, shogi.BLACK).symbol()
                for index in copies[color, family]:
                    planes[FAMILIES[family][1] + 2 * index + 1, to] = sign
                continue
            symbol = board.piece_at(move.from_square).symbol().upper()
            _, plain, promoted = FAMILIES[symbol[-1]]
            base = promoted if move.promotion or symbol[0] == "+" else plain
            planes[base + 2 * slot_of[move.from_square] + 1, to] = sign
    return planes


def test_planes_agree_with_python_shogi():
    planes = planes_on_host(*pack_positions(packed(SFENS))).reshape(-1, 148, 81)
    checks = 0
    for sfen, got in zip(SFENS, planes, strict=True):
        board = shogi.Board(sfen)
        checks += board.is_check()
        np.testing.assert_array_equal(got, oracle(sfen, board.turn), sfen)
    assert checks > 100


def test_view_after_agrees_with_python_shogi():
    """After the move, still the mover's view: from arrays and from the board."""
    rng, board, packer = random.Random(4), cshogi.Board(), Packer()
    after, expected, checks = [], [], 0
    for sfen in SFENS[:80]:
        board.set_sfen(sfen)
        moves = list(board.legal_moves)
        checking = []
        for move in moves:
            board.push(move)
            checking += [move] if board.is_check() else []
            board.pop()
        if not moves:
            continue
        mover, move = board.turn, rng.choice(checking or moves)
        one = position_from_sfen(sfen)
        turned = labels.rotate_moves(np.array([move]), one["color"])
        position.play(one["board"], one["hand"], turned)
        after.append(one)
        board.push(move)
        packer.add(board, mover)
        checks += board.is_check()
        expected.append(oracle(board.sfen(), mover))
    assert checks > 20
    for codes, offsets in (pack_positions(np.concatenate(after)), packer.finish()):
        planes = planes_on_host(codes, offsets).reshape(-1, 148, 81)
        np.testing.assert_array_equal(planes, np.stack(expected))


# --- properties -------------------------------------------------------------------------------


def family_sums(planes: np.ndarray) -> np.ndarray:
    """(n, 2, 14 families, 2 kinds, 9, 9): squares of each side, whichever slot they are in."""
    first = sorted(base for _, *bases in FAMILIES.values() for base in bases if base is not None)
    sides = np.stack([planes > 0, planes < 0], axis=1).astype(np.float32)
    kinds = sides.reshape(len(planes), 2, 74, 2, 9, 9)
    return np.add.reduceat(kinds, np.array(first) // 2, axis=2)


def test_mirrored_positions_give_mirrored_families():
    positions = packed(SFENS)
    planes = planes_on_host(*pack_positions(positions))
    mirrored = planes_on_host(*pack_positions(position.mirror(positions)))
    np.testing.assert_array_equal(family_sums(mirrored), family_sums(planes)[..., ::-1, :])
    # Why codes cannot be mirrored: the slots themselves change places.
    assert (mirrored != planes[:, :, ::-1]).any()


def test_packing_together_is_packing_one_by_one():
    """Over more positions than are mapped in one block; the board comes back as it was."""
    sfens = (SFENS * 4)[:1200]
    packer, board = Packer(), cshogi.Board()
    for sfen in sfens:
        board.set_sfen(sfen)
        key, moves = board.zobrist_hash(), list(board.legal_moves)
        packer.add(board)
        assert board.sfen() == sfen
        assert board.zobrist_hash() == key
        assert list(board.legal_moves) == moves
    codes, offsets = packer.finish()
    assert codes.dtype == np.uint16
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(codes)
    assert len(offsets) == 1201
    # Another board order gives another order of codes, so the planes are compared.
    codes_of_array, offsets_of_array = pack_positions(packed(sfens))
    np.testing.assert_array_equal(offsets, offsets_of_array)
    for i in range(0, 1200, 7):
        alone, _ = pack_positions(position_from_sfen(sfens[i]))
        part = slice(offsets[i], offsets[i + 1])
        np.testing.assert_array_equal(codes_of_array[part], alone)
        np.testing.assert_array_equal(np.sort(codes[part]), np.sort(alone))
        assert len(set(alone.tolist())) == len(alone)
    assert len(packer.finish()[0]) == 0


def test_little_to_pack():
    mated = planes_of("4k4/4G4/4P4/9/9/9/9/9/4K4 w - 1")
    assert own(mated[0]) == squares("5i")
    assert not own(mated[1])
    for codes, offsets in (Packer().finish(), pack_positions(packed(SFENS)[:0])):
        assert len(codes) == 0
        assert offsets.tolist() == [0]
        assert planes_on_host(codes, offsets).shape == (0, 148, 9, 9)


def test_impossible_positions_are_refused():
    crowded = packed([START])
    crowded["hand"][0, 0, 0] = 1  # a nineteenth pawn
    with pytest.raises(GinkgoError):
        pack_positions(crowded)
    kingless = packed([START])
    kingless["board"][0, 44] = 0
    with pytest.raises(GinkgoError):
        pack_positions(kingless)


def test_device_planes_are_the_host_planes():
    import tensorflow as tf

    codes, offsets = pack_positions(packed(SFENS[:100]))
    expected = planes_on_host(codes, offsets)
    padded = np.concatenate([codes, np.full(5000, 65535, np.uint16), np.zeros(77, np.uint16)])
    np.testing.assert_array_equal(planes_on_host(padded, offsets), expected)
    signature = [tf.TensorSpec([None], tf.uint16), tf.TensorSpec([None], tf.int64)]
    steps = [
        planes_on_device,
        tf.function(planes_on_device, input_signature=signature),
        tf.function(planes_on_device, jit_compile=True),
        tf.function(lambda codes, offsets: planes_on_device(codes, offsets, n=100)),
    ]
    for step in steps:
        for values in (codes, padded):
            planes = step(tf.constant(values), tf.constant(offsets))
            np.testing.assert_array_equal(planes.numpy(), expected)
    assert steps[2](tf.constant(codes), tf.constant(offsets)).shape == (100, 148, 9, 9)


def test_workers_do_not_import_tensorflow():
    check = "import ginkgo.features.ginkgo148, sys; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
