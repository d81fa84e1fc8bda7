"""What a layer in clear is said to do is what it does."""

import numpy as np
import pytest

from privcirnet.he.bfv.parameters import ParameterSet
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local.matrix_products import MatrixProducts, matrices
from privcirnet.he.mpc.rectifier import shape_of
from privcirnet.he.planning.cost import MESSAGE_BYTE, block_products, clear_work, online_cost, online_seconds
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.plan_program import scaled
from privcirnet.he.planning.profile import COUNTED, ONLINE, Profile
from privcirnet.he.program.operations import ExactReLU, Square, Truncate
from privcirnet.he.ring import modular

T = modular.largest_prime(54, 2)


@pytest.mark.parametrize("b", [1, 2, 3, 6, 8, 12, 16, 32])
def test_products_of_a_block(b: int) -> None:
    rows = np.arange(b, dtype=np.int64).reshape(1, b, 1, 1)
    assert block_products(b) == sum(piece.size for piece in matrices(rows, b, b // (b & -b), 1))


@pytest.mark.parametrize(
    ("shape", "b"),
    [
        (LinearShape(6, 5, 16, 24), 8),
        (LinearShape(7, 7, 8, 16, 3, 2, 1), 4),
        (LinearShape(4, 4, 8, 8, 3, 1, 1, groups=2), 1),
        (LinearShape.gemm(5, 12, 6), 6),
    ],
)
def test_products_of_a_layer_are_those_of_its_matrices(shape: LinearShape, b: int) -> None:
    layer = MatrixProducts(shape, b, np.ones(shape.weight_shape(b), dtype=np.int64), T)
    digits, positions = layer._split.count, np.prod(shape.output_shape[1:])
    assert digits == 2
    assert clear_work(shape, b).weights == layer.bytes // 8
    assert clear_work(shape, b).products == digits * positions * layer.bytes // 8
    assert clear_work(shape, b).values == clear_work(shape, 1).values


def test_windows_count_where_there_are_some() -> None:
    one, three = (clear_work(LinearShape(8, 8, 4, 4, kernel, 1, kernel // 2), 1) for kernel in (1, 3))
    assert one.values == 2 * (256 + 256)
    assert three.values == one.values + 2 * 9 * 256
    depthwise = clear_work(LinearShape(8, 8, 4, 4, 3, 1, 1, groups=4), 1)
    assert depthwise[1:] == (one.values, 0, 9 * 4, 2 * 9 * 256)


RELU = ExactReLU(3, 1 << 12)
FLOOR = shape_of(RELU, (1 << 59) + 1)


@pytest.mark.parametrize(
    ("operation", "sent", "trips"),
    [(Square(), 2 * 60 / 8, 1), (RELU, sum(map(sum, FLOOR.online_bits())) / 8, 2), (Truncate(3), 0, 0)],
)
def test_messages_take_their_bytes_and_round_trips(operation, sent: float, trips: int) -> None:
    found = online_cost(operation, (2, 10, 10), COUNTED, NetworkLink(bandwidth=1e3, round_trip=1.0))
    assert (found.server, found.network) == pytest.approx((200 * sent * MESSAGE_BYTE, 0.2 * sent + trips))


def test_seconds_are_a_sum_over_the_work() -> None:
    shape, each = LinearShape(4, 4, 16, 16), dict(zip(ONLINE, (0.5, 1e-3, 1e-6, 1e-5, 1e-4), strict=True))
    profile = Profile("now", 8192, COUNTED.coefficient_bits, COUNTED.seconds | each)
    work = clear_work(shape, 8)
    assert online_seconds(shape, 8, profile) == pytest.approx(
        0.5 + 1e-3 * work.values + 1e-6 * work.products + 1e-5 * work.weights
    )
    wide = scaled(profile, ParameterSet(16384, (48, 48, 48, 48, 49)))
    assert [wide.seconds[name] for name in ONLINE] == [0.5, 1e-3, 1e-6, 1e-5, 1e-4]  # no ciphertext has a part in it
    assert wide.seconds["rotate"] > profile.seconds["rotate"]
