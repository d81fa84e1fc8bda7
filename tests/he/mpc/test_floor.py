"""Exact floor and ReLU against integers: all x of a small modulus, edges of large ones, and the sizes that plans say."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.floor import (
    ExactFloor,
    client_numbers,
    client_offline,
    client_online,
    client_planes,
    server_ahead,
    server_numbers,
    server_online,
    server_planes,
)
from privcirnet.he.mpc.gadgets import numbers_of
from privcirnet.he.program.exact import MOST_BITS, MOST_HIGH_BITS
from tests.he.mpc.transfers import both, converse

SMALL = 12289
LARGE = (167772161, 998244353, 4293918721, 8589475841, 1099510054913, 1152921504606830593)
CLIENT, SERVER = both()


def share(x: np.ndarray, t: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random shares, with the edges of the client's among them."""
    client = rng.integers(0, t, x.size, dtype=np.uint64)
    client[:4] = [0, 1, t - 1, t // 2]
    return client, ((x % t).astype(np.uint64) + np.uint64(t) - client) % np.uint64(t)


def messages(
    floor: ExactFloor, client: np.ndarray, server: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, list[list[bytes]]]:
    """The server's share of the results, and the parts of all messages in order, but empty ones."""
    said: list[list[bytes]] = []
    ahead = client_offline(floor, client, CLIENT), server_ahead(floor, client.size, SERVER)
    kept, other = converse(*ahead, said)
    assert kept.planes.shape == (sum(client_planes(floor)), client.size // 64)
    assert other.planes.shape == (sum(server_planes(floor)), client.size // 64)
    assert kept.numbers.shape == (client_numbers(floor), client.size)
    assert other.numbers.shape == (server_numbers(floor), client.size)
    found, _ = converse(server_online(floor, other, server), client_online(floor, kept, w), said)
    return found, [parts for parts in said if parts]


def computed(floor: ExactFloor, x: np.ndarray, seed: int = 0) -> np.ndarray:
    """The results, mod m."""
    rng = np.random.default_rng(seed)
    padded = np.resize(x, -(-x.size // 64) * 64)
    client, server = share(padded, floor.t, rng)
    w = rng.integers(0, floor.m, padded.size, dtype=np.uint64)
    result, _ = messages(floor, client, server, w)
    return ((result + w) % np.uint64(floor.m))[: x.size]


def bound(t: int, f: int) -> int:
    return (t - 1) // 8 >> f << f


@pytest.mark.parametrize(
    ("f", "most"),
    [
        *((f, 0) for f in (0, 1, 3, 5, 8)),
        (0, 1),
        (0, 96),
        (0, 6143),
        (1, 3),
        (3, 31),
        (3, 96),
        (5, 12),
        (8, 1),
        (8, 23),
    ],
)
def test_relu_and_clip_of_every_value(f, most):
    half = (SMALL - 3) // 2
    x = np.arange((most << f) - half, half + 1)
    assert (computed(ExactFloor(SMALL, f, SMALL, most=most), x, f) == (x >> f).clip(0, most or None)).all()


def test_clip_of_every_share():
    """At values around both ends, with every share of the client's."""
    for x in (-5000, -1, 0, 7, 767, 768, 769, 6143):
        floor, client = ExactFloor(SMALL, 3, SMALL, most=96), np.resize(np.arange(SMALL, dtype=np.uint64), 12352)
        server = (np.uint64(x % SMALL) + np.uint64(SMALL) - client) % np.uint64(SMALL)
        result, _ = messages(floor, client, server, np.zeros_like(client))
        assert (result == min(max(x >> 3, 0), 96)).all()


@pytest.mark.parametrize("f", [0, 1, 3, 5, 8])
def test_floor_of_every_value(f):
    limit = bound(SMALL, f)
    x = np.arange(-limit, limit + 1)
    assert (computed(ExactFloor(SMALL, f, SMALL, limit), x, f) == (x >> f) % SMALL).all()


def edges(low: int, high: int, f: int, most: int = 0) -> np.ndarray:
    near = [s * (k << f) + e for s in (1, -1) for k in (1, 2, 7, most) for e in (-1, 0, 1)]
    wide = np.random.default_rng(f).integers(low, high + 1, 300)
    return np.array([v for v in [low, low + 1, high, high - 1, 0, 1, -1, *near] if low <= v <= high] + list(wide))


@pytest.mark.parametrize("t", LARGE)
@pytest.mark.parametrize("f", [0, 7, 11, 13])
def test_edges_of_large_moduli(t, f):
    if t % (2 << f) != 1:
        pytest.skip("t is not 1 mod 2^(f + 1)")
    limit = bound(t, f)
    for m in (t, 256):
        x = edges(-min(limit, m // 2 << f), min(limit, m // 2 << f) - 1, f)
        assert (computed(ExactFloor(t, f, m, limit), x) == (x >> f) % m).all()
    if ((t >> f + 1) + 1).bit_length() <= MOST_HIGH_BITS:
        x = edges(-(t - 3) // 2, (t - 3) // 2, f)
        for m in (t, 256):
            assert (computed(ExactFloor(t, f, m), x) == (np.maximum(x, 0) >> f) % m).all()
            for most in (1, 192, 255):
                x = edges((most << f) - (t - 3) // 2, (t - 3) // 2, f, most)
                assert (computed(ExactFloor(t, f, m, most=most), x) == (x >> f).clip(0, most)).all()


LARGEST = 998244353
SHAPES = [
    ExactFloor(LARGEST, 7, 256, 1 << 20),
    *(ExactFloor(LARGEST, f, LARGEST, most=m) for f in (0, 7) for m in (0, 1, 192)),
]


@pytest.mark.parametrize("floor", SHAPES)
def test_messages_have_the_sizes_that_the_plan_says(floor):
    x = np.arange(192)
    _, sent = messages(floor, *share(x, floor.t, np.random.default_rng(0)), np.zeros(192, np.uint64))
    sizes = [8 * sum(map(len, parts)) // 192 for parts in (sent[0][1:], sent[1][1:], *sent[2:])]
    assert sizes == [*floor.ahead_bits(), *map(sum, floor.online_bits())]


@pytest.mark.parametrize(("f", "limit", "most"), [(3, 0, 0), (0, 0, 0), (3, 1024, 0), (3, 0, 96), (0, 0, 7)])
def test_every_message_is_uniform(f, limit, most):
    """Of one input and one pair of shares, over all transfers and masks: no bit or residue is likelier than others."""
    floor = ExactFloor(SMALL, f, SMALL, limit, most)
    x = np.full(1 << 14, -77)
    client = np.full(x.size, 4321, np.uint64)
    server = ((x - client.astype(np.int64)) % SMALL).astype(np.uint64)
    w = np.random.default_rng(0).integers(0, SMALL, x.size, dtype=np.uint64)
    _, sent = messages(floor, client, server, w)
    own = [sent[0][1:], sent[1][1:], *sent[2:]]  # without extensions
    rows = [[np.frombuffer(part, np.uint64).reshape(-1, x.size // 64) for part in message] for message in own]
    width, clip = floor.width, len(rows[1][0]) - floor.clips * floor.width
    rows[1:2], rows[6:] = [[rows[1][0][:clip], rows[1][0][clip:]]], [[rows[6][0][width:], rows[6][0][:width]]]
    for plane in np.concatenate([planes for planes, *_ in rows]):
        assert abs(np.unpackbits(plane.view(np.uint8)).sum() - x.size / 2) < 5 * (x.size / 4) ** 0.5
    expected = x.size * np.bincount(np.arange(SMALL) // (SMALL // 63), minlength=64) / SMALL
    parts = np.concatenate([part.reshape(-1, width, x.size // 64) for _, *parts in rows for part in parts])
    for number in parts:
        counts = np.bincount(numbers_of(number, SMALL) // np.uint64(SMALL // 63), minlength=64)
        assert ((counts - expected) ** 2 / expected).sum() < 130, "chi-square of 63 degrees"


@pytest.mark.parametrize("twice", [True, False])
def test_what_serves_twice_tells_which_bits_differ(twice):
    """The server's digits of two images, which one piece of prepared work would hide by the same choices."""
    floor, values = ExactFloor(SMALL, 3, SMALL, most=96), 1 << 12
    client = np.zeros(values, np.uint64)
    made = [converse(client_offline(floor, client, CLIENT), server_ahead(floor, values, SERVER))[1] for _ in "ab"]
    images = zip([made[0], made[0] if twice else made[1]], (4321, 1234), strict=True)
    one, two = (next(server_online(floor, piece, np.full(values, share, np.uint64))) for piece, share in images)
    planes = np.frombuffer(one[0], np.uint8) ^ np.frombuffer(two[0], np.uint8)
    lowest = np.unpackbits(planes.reshape(-1, values // 8)[: floor.low[0].bits], axis=1).mean(1)
    assert all(share in (0, 1) for share in lowest) == twice


@pytest.mark.parametrize("wrong", ["numbers", "length"])
def test_other_messages_are_refused(wrong):
    floor = ExactFloor(SMALL, 3, SMALL, 1024)
    client, server = client_offline(floor, np.zeros(64, np.uint64), CLIENT), server_ahead(floor, 64, SERVER)
    next(server)
    tables, offers = client.send(server.send(next(client)))
    message, match = (
        (b"\xff" * len(offers), "under their modulus") if wrong == "numbers" else (offers[8:], "have the length")
    )
    with pytest.raises(RuleError, match=match):
        server.send([tables, message])


def test_digits_hold_what_programs_may_have():
    t = (1 << MOST_HIGH_BITS + 2) - (1 << 20) + 1
    assert len(ExactFloor(t, 1, t).high) == 8
    assert len(ExactFloor(t, MOST_BITS, t, 1 << MOST_BITS).low) == 4
    with pytest.raises(ValueError, match="41 bits are more than 8 digits hold"):
        _ = ExactFloor(2 * t - 1, 1, 2 * t - 1).high


def test_shapes_that_would_not_be_exact_are_refused():
    with pytest.raises(ValueError, match="t must be 1 mod"):
        ExactFloor(SMALL, 12, SMALL)
    for wrong in (1 << 11, 1023):
        with pytest.raises(ValueError, match="multiple of 2\\^3 under t / 8"):
            ExactFloor(SMALL, 3, SMALL, wrong)
    for shape in ((SMALL, 1 << 10, 96), (SMALL, 0, 768), (64, 0, 64), (SMALL, 0, -1)):
        with pytest.raises(ValueError, match="must clip under its modulus and t / 2, not at"):
            ExactFloor(SMALL, 3, *shape)
