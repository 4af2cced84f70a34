"""Positions, labels and planes against cshogi over positions of random games."""

import random

import cshogi
import numpy as np
import pytest
from cshogi.dlshogi import FEATURES1_NUM, FEATURES2_NUM, make_input_features, make_move_label

from ginkgo.features import dlshogi119, labels, position
from ginkgo.features.position import decode_boards, orient, position_from_sfen, sfen_from_position


def random_positions(count: int, seed: int, max_plies: int = 200) -> list[str]:
    """SFENs met in games of random legal moves, captures and drops preferred now and then."""
    rng = random.Random(seed)
    board, sfens = cshogi.Board(), []
    while len(sfens) < count:
        board.reset()
        for _ in range(max_plies):
            moves = list(board.legal_moves)
            if not moves:
                break
            if rng.random() < 0.3:
                moves = [m for m in moves if cshogi.move_cap(m) or m & 0x4000] or moves
            board.push(rng.choice(moves))
            if rng.random() < 0.2:
                sfens.append(board.sfen())
    return sfens[:count]


SFENS = random_positions(1500, seed=1)


def packed(sfens: list[str]) -> np.ndarray:
    return np.concatenate([position_from_sfen(sfen) for sfen in sfens])


def oracle_planes(sfens: list[str]) -> np.ndarray:
    planes = np.zeros((len(sfens), 119, 9, 9), np.float32)
    board = cshogi.Board()
    for i, sfen in enumerate(sfens):
        board.set_sfen(sfen)
        one = np.zeros((FEATURES1_NUM, 9, 9), np.float32)
        two = np.zeros((FEATURES2_NUM, 9, 9), np.float32)
        make_input_features(board, one, two)
        planes[i, :FEATURES1_NUM], planes[i, FEATURES1_NUM:] = one, two
    return planes


def test_sfen_round_trip():
    assert [sfen_from_position(position_from_sfen(sfen)[0]) for sfen in SFENS] == SFENS


def test_boards_agree_with_cshogi():
    board = cshogi.Board()
    codes, good = decode_boards([sfen.split()[0].encode() for sfen in SFENS])
    assert good.all()
    for row, sfen in zip(codes, SFENS, strict=True):
        board.set_sfen(sfen)
        assert row.tolist() == board.pieces


def test_host_planes_are_dlshogis():
    positions = packed(SFENS)
    planes = dlshogi119.planes_on_host(positions["board"], positions["hand"])
    np.testing.assert_array_equal(planes, oracle_planes(SFENS))


def test_device_planes_are_dlshogis():
    import tensorflow as tf

    positions = packed(SFENS)
    step = tf.function(dlshogi119.planes_on_device)
    planes = step(tf.constant(positions["board"]), tf.constant(positions["hand"])).numpy()
    np.testing.assert_array_equal(planes, oracle_planes(SFENS))


def test_labels_are_dlshogis_and_invertible():
    board, seen = cshogi.Board(), 0
    for sfen in SFENS[:400]:
        board.set_sfen(sfen)
        moves = list(board.legal_moves)
        if not moves:
            continue
        color = np.full(len(moves), board.turn, np.uint8)
        got = labels.labels_from_moves(labels.rotate_moves(np.array(moves), color))
        assert got.tolist() == [make_move_label(move, board.turn) for move in moves]
        mover = position_from_sfen(sfen)[0]
        back = [labels.usi_from_label(label, mover["board"], board.turn) for label in got]
        assert back == [cshogi.move_to_usi(move) for move in moves]
        seen += len(moves)
    assert seen > 10_000


def test_1496_labels_can_occur():
    reachable = set()
    for origin in range(81):
        for to in range(81):
            if labels._CLASS[origin, to] < 0:
                continue
            move_class, rank = int(labels._CLASS[origin, to]), to % 9
            if not (move_class >= 8 and rank < 2):  # an unpromoted knight there is stuck
                reachable.add(81 * move_class + to)
            if rank < 3 or origin % 9 < 3:
                reachable.add(81 * (move_class + 10) + to)
    drops = {
        81 * (20 + piece) + to
        for piece in range(7)
        for to in range(81)
        if to % 9 >= {0: 1, 1: 1, 2: 2}.get(piece, 0)
    }
    assert len(drops) == 531
    assert len(reachable | drops) == 1496


def test_mirror_agrees_with_a_mirrored_sfen():
    def mirrored_sfen(sfen: str) -> str:
        board, *rest = sfen.split()
        ranks = []
        for rank in board.split("/"):
            tokens, plus = [], ""
            for char in rank:
                if char == "+":
                    plus = char
                else:
                    tokens.append(plus + char)
                    plus = ""
            ranks.append("".join(reversed(tokens)))
        return " ".join(["/".join(ranks), *rest])

    mirrored = position.mirror(packed(SFENS[:200]))
    expected = packed([mirrored_sfen(sfen) for sfen in SFENS[:200]])
    np.testing.assert_array_equal(mirrored["board"], expected["board"])
    np.testing.assert_array_equal(position.mirror(mirrored)["board"], packed(SFENS[:200])["board"])
    np.testing.assert_array_equal(
        labels.MIRROR_LABEL[labels.MIRROR_LABEL], np.arange(labels.LABELS)
    )


def test_play_agrees_with_cshogi():
    rng, board = random.Random(3), cshogi.Board()
    for sfen in SFENS[:400]:
        board.set_sfen(sfen)
        moves = list(board.legal_moves)
        if not moves:
            continue
        move = rng.choice(moves)
        before = position_from_sfen(sfen)
        turned = labels.rotate_moves(np.array([move]), before["color"])
        position.play(before["board"], before["hand"], turned)
        board.push(move)
        after = position_from_sfen(board.sfen())
        # The view stays the mover's; the SFEN after the move is the opponent's.
        flipped, hands = orient(after["board"], after["hand"], np.ones(1, np.uint8))
        np.testing.assert_array_equal(before["board"], flipped)
        np.testing.assert_array_equal(before["hand"], hands)
        # The same in Black's view.
        start = position_from_sfen(sfen)
        cells, held = orient(start["board"], start["hand"], start["color"])
        position.play(cells, held, np.array([move], np.int32), start["color"])
        wanted = orient(after["board"], after["hand"], after["color"])
        np.testing.assert_array_equal(cells, wanted[0])
        np.testing.assert_array_equal(held, wanted[1])


def test_is_legal_with_dead_end_is_the_legal_move_list():
    """cshogi's `is_legal` alone lets promotion faults pass; with `dead_end` it is exact."""
    from rsshogi.core import Board

    board, checked = cshogi.Board(), 0
    squares = [labels.usi_square(square) for square in range(81)]
    for sfen in SFENS[:25]:
        board.set_sfen(sfen)
        mover = position_from_sfen(sfen)
        legal = {move.to_usi() for move in Board(sfen).legal_moves()}
        candidates = [a + b + plus for a in squares for b in squares for plus in ("", "+")]
        candidates += [f"{piece}*{to}" for piece in "PLNSBRG" for to in squares]
        for usi in candidates:
            move = board.move_from_usi(usi)
            accepted = bool(move) and board.is_legal(move)
            if accepted:
                turned = labels.rotate_moves(np.array([move]), mover["color"])
                accepted = not labels.dead_end(mover["board"], turned)[0]
            assert accepted == (usi in legal), (sfen, usi)
            checked += accepted
    assert checked > 500


@pytest.mark.parametrize(
    "sfen",
    [
        "",
        "x",
        "4k4/9/9/9/9/9/9/9/4K4 x - 1",
        "4k4/9/9/9/9/9/9/9/4K4 b 0P 1",
        "4k4/9/9/9/9/9/9/9/4K4 b 19P 1",
        "4k4/9/9/9/9/9/9/9/4K5 b - 1",
        "4k4/9/9/9/9/9/9/4K4 b - 1",
        "4k4/9/9/9/9/9/9/9/9 b - 1",
        "4k4/9/9/9/9/9/9/4K4/4K4 b - 1",
        "4k4/9/9/9/9/9/9/9/+4K4 b - 1",
        "4k4/9/9/9/9/9/9/9/3+K5 b - 1",
        "4k4/9/9/9/9/9/9/9/4K4 b P2 1",
        "4k4/9/9/9/9/9/9/9/4K4 b - one",
        "4k4/9/9/9/9/9/9/9/4K4 b - 99999999",
    ],
)
def test_malformed_sfen_is_refused(sfen):
    from ginkgo.errors import GinkgoError

    with pytest.raises(GinkgoError):
        position_from_sfen(sfen)
