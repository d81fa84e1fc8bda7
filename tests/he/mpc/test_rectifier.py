"""Exact floor and ReLU against integers: all x of a small modulus, edges of large ones, and the sizes that plans say."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc import rectifier as rectifiers
from privcirnet.he.mpc import truncation as truncations
from privcirnet.he.mpc.gadgets import numbers_of
from privcirnet.he.mpc.rectifier import Rectifier
from privcirnet.he.mpc.truncation import Floor
from privcirnet.he.program.exact import MOST_BEYOND, MOST_BITS
from privcirnet.he.protocol.rounds.exact import turns_of
from tests.he.mpc.transfers import both, converse

Shape = Rectifier | Floor
SMALL = 12289
LARGE = (167772161, 998244353, 4293918721, 8589475841, 1099510054913, 1152921504606830593)
CLIENT, SERVER = both()


def share(x: np.ndarray, t: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random shares, with the edges of the client's among them."""
    client = rng.integers(0, t, x.size, dtype=np.uint64)
    client[:4] = [0, 1, t - 1, t // 2]
    return client, ((x % t).astype(np.uint64) + np.uint64(t) - client) % np.uint64(t)


def messages(
    floor: Shape, client: np.ndarray, server: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, list[list[bytes]]]:
    """The server's share of the results, and the parts of all messages in order, but empty ones."""
    said: list[list[bytes]] = []
    turns = turns_of(floor)
    ahead = turns.client_ahead(floor, client, CLIENT), turns.server_ahead(floor, client.size, SERVER)
    kept, other = converse(*ahead, said)
    assert kept.planes.shape == (sum(turns.client_planes(floor)), client.size // 64)
    assert other.planes.shape == (sum(turns.server_planes(floor)), client.size // 64)
    assert kept.numbers.shape == (turns.client_numbers(floor), client.size)
    assert other.numbers.shape == (turns.server_numbers(floor), client.size)
    found, _ = converse(turns.server_online(floor, other, server), turns.client_online(floor, kept, w), said)
    return found, [parts for parts in said if parts]


def computed(floor: Shape, x: np.ndarray, seed: int = 0) -> np.ndarray:
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
        *((0, most) for most in (3, 8, 9, 96, 104)),
        *((1, most) for most in (2, 4, 240)),
        *((3, most) for most in (1, 7, 31, 40, 96, 120)),
        *((5, most) for most in (6, 12, 31)),
    ],
)
def test_relu_and_clip_of_every_value(f, most):
    """All that k bits hold, with shares around every edge."""
    floor = Rectifier(SMALL, f, SMALL, bits=11 - f, most=most)
    x = np.arange(-(1 << 10), 1 << 10)
    assert (computed(floor, x, f) == (x >> f).clip(0, most or None)).all()


@pytest.mark.parametrize("f", [0, 1, 3, 5, 8])
def test_relu_of_every_value_by_all_bits(f):
    """Where t - 1 has too few factors of two for the low bits."""
    floor, half = Rectifier(SMALL, f, SMALL, bits=13 - f), (SMALL - 3) // 2
    x = np.arange(-half, half + 1)
    assert not floor.low
    assert (computed(floor, x, f) == np.maximum(x >> f, 0)).all()


@pytest.mark.parametrize(
    "floor",
    [Rectifier(SMALL, 3, SMALL, bits=bits, most=most) for bits, most in ((8, 0), (9, 0), (8, 96))],
    ids=["ReLU", "ReLU by all bits", "clip"],
)
def test_relu_and_clip_of_every_share(floor):
    """At values around both ends, with every share of the client's."""
    for x in (-1024, -8, -1, 0, 7, 767, 768, 769, 1023):
        client = np.resize(np.arange(SMALL, dtype=np.uint64), 12352)
        server = (np.uint64(x % SMALL) + np.uint64(SMALL) - client) % np.uint64(SMALL)
        result, _ = messages(floor, client, server, np.zeros_like(client))
        assert (result == np.clip(x >> 3, 0, floor.most or None)).all()


@pytest.mark.parametrize("f", [0, 1, 3, 5, 8])
def test_floor_of_every_value(f):
    limit = bound(SMALL, f)
    x = np.arange(-limit, limit + 1)
    assert len(Floor(SMALL, f, SMALL, limit).online_bits()) == 2, "one trip"
    assert (computed(Floor(SMALL, f, SMALL, limit), x, f) == (x >> f) % SMALL).all()


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
        assert (computed(Floor(t, f, m, limit), x) == (x >> f) % m).all()
    twos = (t - 1 & 1 - t).bit_length() - 2 - f  # bits of a rounded value that the low bits tell
    for m in (t, 256):
        for bits in {min(twos, 16), twos + 1} - {0, 1}:
            limit = 1 << f + bits - 1
            x = edges(-limit, min(limit, m << f) - 1, f)
            assert (computed(Rectifier(t, f, m, bits=bits), x) == np.maximum(x, 0) >> f).all()
            fitting = range(1 << max(0, bits - 1 - MOST_BEYOND), 1 << bits - 1 if bits <= twos else 0)
            for most in {1, 24, 192, 255} & {*fitting}:
                x = edges(-limit, limit - 1, f, most)
                assert (computed(Rectifier(t, f, m, bits=bits, most=most), x) == (x >> f).clip(0, most)).all()


def test_sums_of_a_long_carry_fit_a_word():
    """A floor by 23 bits adds 25 numbers, which t of 60 bits lets a word hold only 15 of."""
    t, f = 1152921504204193793, 23
    x = edges(-bound(t, f), bound(t, f) - 1, f)
    assert (computed(Floor(t, f, t, bound(t, f)), x) == (x >> f) % t).all()


LARGEST = 998244353
SHAPES = [
    *(Floor(LARGEST, f, m, 1 << 20) for f in (0, 7, 13, 19) for m in (LARGEST, 256)),
    Rectifier(LARGEST, 7, LARGEST, bits=18),
    Rectifier(LARGEST, 0, LARGEST, bits=25),
    *(
        Rectifier(LARGEST, f, m, bits=12, most=most)
        for f in (0, 7)
        for m in (LARGEST, 256)
        for most in (0, 24, 192, 255)
    ),
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
    floor = Floor(SMALL, f, SMALL, limit) if limit else Rectifier(SMALL, f, SMALL, 8, most)
    x = np.full(1 << 14, -77)
    client = np.full(x.size, 4321, np.uint64)
    server = ((x - client.astype(np.int64)) % SMALL).astype(np.uint64)
    w = np.random.default_rng(0).integers(0, SMALL, x.size, dtype=np.uint64)
    _, sent = messages(floor, client, server, w)
    own = [sent[0][1:], sent[1][1:], *sent[2:]]  # without extensions
    rows = [[np.frombuffer(part, np.uint64).reshape(-1, x.size // 64) for part in message] for message in own]
    width, offers = floor.width, len(floor.lift.choices) if limit else floor.clips  # which the server sends ahead
    planes, (last,) = len(rows[1][0]) - offers * width, rows[-1]
    rows[1:2] = [[rows[1][0][:planes], rows[1][0][planes:]]]
    rows[-1] = [last[:-width], last[-width:]] if limit else [last[width:], last[:width]]
    for plane in np.concatenate([part for part, *_ in rows]):
        assert abs(np.unpackbits(plane.view(np.uint8)).sum() - x.size / 2) < 5 * (x.size / 4) ** 0.5
    expected = x.size * np.bincount(np.arange(SMALL) // (SMALL // 63), minlength=64) / SMALL
    parts = np.concatenate([part.reshape(-1, width, x.size // 64) for _, *parts in rows for part in parts])
    for number in parts:
        counts = np.bincount(numbers_of(number, SMALL) // np.uint64(SMALL // 63), minlength=64)
        assert ((counts - expected) ** 2 / expected).sum() < 130, "chi-square of 63 degrees"


@pytest.mark.parametrize("twice", [True, False])
def test_what_serves_twice_tells_which_bits_differ(twice):
    """The server's digits of two images, which one piece of prepared work would hide by the same choices."""
    floor, values = Rectifier(SMALL, 3, SMALL, bits=8, most=96), 1 << 12
    client = np.zeros(values, np.uint64)
    ahead = rectifiers.client_ahead, rectifiers.server_ahead
    made = [converse(ahead[0](floor, client, CLIENT), ahead[1](floor, values, SERVER))[1] for _ in "ab"]
    images = zip([made[0], made[0] if twice else made[1]], (4321, 1234), strict=True)
    online = rectifiers.server_online
    one, two = (next(online(floor, piece, np.full(values, share, np.uint64))) for piece, share in images)
    planes = np.frombuffer(one[0], np.uint8) ^ np.frombuffer(two[0], np.uint8)
    lowest = np.unpackbits(planes.reshape(-1, values // 8)[: floor.digits[0].bits], axis=1).mean(1)
    assert all(share in (0, 1) for share in lowest) == twice


@pytest.mark.parametrize("wrong", ["numbers", "length"])
def test_other_messages_are_refused(wrong):
    floor = Floor(SMALL, 3, SMALL, 1024)
    client = truncations.client_ahead(floor, np.zeros(64, np.uint64), CLIENT)
    server = truncations.server_ahead(floor, 64, SERVER)
    next(server)
    tables, offers = client.send(server.send(next(client)))
    message, match = (
        (b"\xff" * len(offers), "under their modulus") if wrong == "numbers" else (offers[8:], "have the length")
    )
    with pytest.raises(RuleError, match=match):
        server.send([tables, message])


def test_transfers_of_steps():
    """ReLU and clip of rounded values of 12 bits with their sign, of 9 bits, and of values that are not rounded."""
    t = 113246209
    shapes = [{"f": 7, "bits": 12}, {"f": 7, "bits": 9}, {"f": 0, "bits": 10}, {"f": 7, "bits": 12, "most": 255}]
    shapes += [{"f": 7, "bits": 12, "most": 192}]
    assert [Rectifier(t=t, m=t, **shape).transfers for shape in shapes] == [37, 29, 16, 41, 49]
    assert [Floor(t, f, t, 1 << 20).transfers for f in (2, 7, 11, 17)] == [5, 13, 17, 29]


def test_every_length_has_a_circuit():
    """The most that a program may ask for, and no more."""
    for bits in (2, 20, 38):
        assert Rectifier((1 << 60) + 1, MOST_BITS, 256, bits=bits).transfers
    assert Floor((1 << 60) + 1, MOST_BITS, 256, 1 << MOST_BITS).transfers
    assert Rectifier((1 << 60) + 1, 7, 256, bits=8 + MOST_BEYOND, most=192).transfers
    with pytest.raises(ValueError, match="no clip at 192 takes 18 bits"):
        _ = Rectifier((1 << 60) + 1, 7, 256, bits=9 + MOST_BEYOND, most=192).transfers


def test_shapes_that_would_not_be_exact_are_refused():
    with pytest.raises(ValueError, match="t must be 1 mod"):
        Rectifier(SMALL, 12, SMALL, bits=9)
    for wrong in (1 << 11, 1023, 0):
        with pytest.raises(ValueError, match="multiple of 2\\^3 under t / 8"):
            Floor(SMALL, 3, SMALL, wrong)
    with pytest.raises(ValueError, match="t must be 1 mod 2\\^13"):
        Rectifier(SMALL, 3, SMALL, bits=9, most=96)
    for shape in ((SMALL, 128), (64, 64), (SMALL, -1)):
        with pytest.raises(ValueError, match="must clip under its modulus and 2\\^7, not at"):
            Rectifier(SMALL, 3, shape[0], bits=8, most=shape[1])


@pytest.mark.parametrize("t", [97, 193, *(pytest.param(t, marks=pytest.mark.slow) for t in (257, 769))])
def test_every_value_with_every_share(t):
    """All x that k bits hold times all shares of the client's, for every f and k that t carries, with clips.

    The argument's proof by exhaustion: with 769 five million pairs in 20 seconds.
    """
    twos = (t - 1 & 1 - t).bit_length() - 1
    for f, bits in ((shift, width) for shift in range(twos) for width in range(2, twos - shift)):
        limit = min(1 << f + bits - 1, (t - 1) // 2)
        for most in (0, 1, 2, 3, 5, 6):
            if most >= 1 << bits - 1:
                continue
            x, client = (side.reshape(-1) for side in np.meshgrid(np.arange(-limit, limit), np.arange(t)))
            x, client = (np.resize(side, -(-x.size // 64) * 64) for side in (x, client.astype(np.uint64)))
            server = (x - client.astype(np.int64)).astype(np.int64) % t
            floor = Rectifier(t, f, t, bits=bits, most=most)
            found, _ = messages(floor, client, server.astype(np.uint64), np.zeros_like(client))
            assert (found == (x >> f).clip(0, most or None)).all(), floor


@pytest.mark.parametrize("t", [97, 193, pytest.param(769, marks=pytest.mark.slow)])
def test_every_floor_with_every_share(t):
    """All |x| up to t / 8 times all shares of the client's, for every f that t carries, mod t and mod 16."""
    twos = (t - 1 & 1 - t).bit_length() - 1
    for f, m in ((f, m) for f in range(twos) for m in (t, 16)):
        if not (limit := bound(t, f)):
            continue
        x, client = (side.reshape(-1) for side in np.meshgrid(np.arange(-limit, limit + 1), np.arange(t)))
        x, client = (np.resize(side, -(-x.size // 64) * 64) for side in (x, client.astype(np.uint64)))
        server = (x - client.astype(np.int64)) % t
        found, _ = messages(Floor(t, f, m, limit), client, server.astype(np.uint64), np.zeros_like(client))
        assert (found == (x >> f) % m).all(), (f, m)
