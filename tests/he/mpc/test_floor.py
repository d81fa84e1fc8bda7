"""Exact floor and ReLU against integers: all x of a small modulus, edges of large ones, and the sizes that plans say."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.floor import Floor
from privcirnet.he.mpc.floor_parties import (
    client_ahead,
    client_numbers,
    client_online,
    client_planes,
    server_ahead,
    server_numbers,
    server_online,
    server_planes,
)
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
    floor: Floor, client: np.ndarray, server: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, list[list[bytes]]]:
    """The server's share of the results, and the parts of all messages in order, but empty ones."""
    said: list[list[bytes]] = []
    ahead = client_ahead(floor, client, CLIENT), server_ahead(floor, client.size, SERVER)
    kept, other = converse(*ahead, said)
    assert kept.planes.shape == (sum(client_planes(floor)), client.size // 64)
    assert other.planes.shape == (sum(server_planes(floor)), client.size // 64)
    assert kept.numbers.shape == (client_numbers(floor), client.size)
    assert other.numbers.shape == (server_numbers(floor), client.size)
    found, _ = converse(server_online(floor, other, server), client_online(floor, kept, w), said)
    return found, [parts for parts in said if parts]


def computed(floor: Floor, x: np.ndarray, seed: int = 0) -> np.ndarray:
    """The results, mod m."""
    rng = np.random.default_rng(seed)
    padded = np.resize(x, -(-x.size // 64) * 64)
    client, server = share(padded, floor.t, rng)
    w = rng.integers(0, floor.m, padded.size, dtype=np.uint64)
    result, _ = messages(floor, client, server, w)
    return ((result + w) % np.uint64(floor.m))[: x.size]


def bound(t: int, f: int) -> int:
    return (t - 1) // 8 >> f << f


@pytest.mark.parametrize("f", [0, 1, 3, 5, 8])
def test_relu_of_every_value(f):
    half = (SMALL - 3) // 2
    x = np.arange(-half, half + 1)
    assert (computed(Floor(SMALL, f, SMALL), x, f) == np.maximum(x, 0) >> f).all()


@pytest.mark.parametrize("f", [0, 1, 3, 5, 8])
def test_floor_of_every_value(f):
    limit = bound(SMALL, f)
    x = np.arange(-limit, limit + 1)
    assert (computed(Floor(SMALL, f, SMALL, limit), x, f) == (x >> f) % SMALL).all()


def edges(low: int, high: int, f: int) -> np.ndarray:
    near = [s * (k << f) + e for s in (1, -1) for k in (1, 2, 7) for e in (-1, 0, 1)]
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
        assert (computed(Floor(t, f, m, limit), x) == (x >> f) % m).all()
    if ((t >> f + 1) + 1).bit_length() <= MOST_HIGH_BITS:
        x = edges(-(t - 3) // 2, (t - 3) // 2, f)
        for m in (t, 256):
            assert (computed(Floor(t, f, m), x) == (np.maximum(x, 0) >> f) % m).all()


SHAPES = [Floor(998244353, 7, 998244353), Floor(998244353, 0, 998244353), Floor(998244353, 7, 256, 1 << 20)]


@pytest.mark.parametrize("floor", SHAPES)
def test_messages_have_the_sizes_that_the_plan_says(floor):
    x = np.arange(192)
    _, sent = messages(floor, *share(x, floor.t, np.random.default_rng(0)), np.zeros(192, np.uint64))
    sizes = [8 * sum(map(len, parts)) // 192 for parts in (sent[0][1:], sent[1][1:], *sent[2:])]
    assert sizes == [*floor.ahead_bits(), *map(sum, floor.online_bits())]


@pytest.mark.parametrize(("f", "limit"), [(3, 0), (0, 0), (3, 1024)])
def test_every_message_is_uniform(f, limit):
    """Bits of each message of one input and one pair of shares, over all transfers and masks: none is likelier."""
    floor = Floor(SMALL, f, SMALL, limit)
    x = np.full(1 << 14, -77)
    client = np.full(x.size, 4321, np.uint64)
    server = ((x - client.astype(np.int64)) % SMALL).astype(np.uint64)
    w = np.random.default_rng(0).integers(0, SMALL, x.size, dtype=np.uint64)
    _, sent = messages(floor, client, server, w)
    for message in (sent[0][1], sent[1][1], sent[2][0], sent[3][0]):  # later ones hold residues, whose top bits are not
        planes = np.frombuffer(message, np.uint64).reshape(-1, x.size // 64)
        ones = np.unpackbits(planes.view(np.uint8), axis=1).sum(1)
        assert (abs(ones - x.size / 2) < 5 * (x.size / 4) ** 0.5).all()


@pytest.mark.parametrize("wrong", ["numbers", "length"])
def test_other_messages_are_refused(wrong):
    floor = Floor(SMALL, 3, SMALL, 1024)
    client, server = client_ahead(floor, np.zeros(64, np.uint64), CLIENT), server_ahead(floor, 64, SERVER)
    next(server)
    tables, offers = client.send(server.send(next(client)))
    message, match = (
        (b"\xff" * len(offers), "under their modulus") if wrong == "numbers" else (offers[8:], "have the length")
    )
    with pytest.raises(RuleError, match=match):
        server.send([tables, message])


def test_digits_hold_what_programs_may_have():
    t = (1 << MOST_HIGH_BITS + 2) - (1 << 20) + 1
    assert len(Floor(t, 1, t).high) == 8
    assert len(Floor(t, MOST_BITS, t, 1 << MOST_BITS).low) == 4
    with pytest.raises(ValueError, match="41 bits are more than 8 digits hold"):
        _ = Floor(2 * t - 1, 1, 2 * t - 1).high


def test_shapes_that_would_not_be_exact_are_refused():
    with pytest.raises(ValueError, match="t must be 1 mod"):
        Floor(SMALL, 12, SMALL)
    for wrong in (1 << 11, 1023):
        with pytest.raises(ValueError, match="multiple of 2\\^3 under t / 8"):
            Floor(SMALL, 3, SMALL, wrong)
