import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he.program.operations import Add, Square, SumPool
from privcirnet.he.program.rearrangement import Flatten
from privcirnet.he.protocol import shares
from privcirnet.he.ring import modular, sampling

T = modular.largest_prime(41, 16384)


def truncate(y: int, r: int, bits: int, t: int = T) -> int:
    """Both parties' truncations of y shared as (y - r, r), put together."""
    server = np.array([r], dtype=np.uint64)
    client = modular.residues([y - r], t)
    parts = shares.truncate_client(client, bits, t), shares.truncate_server(server, bits)
    return int(modular.centered(modular.add(*parts, t), t)[0])


def wraps(y: int, r: int, t: int = T) -> bool:
    return not 0 <= y - r + t < t


@given(st.integers(-(2**36), 2**36), st.integers(0, T - 1), st.integers(1, 36))
def test_truncation_formula(y: int, r: int, bits: int) -> None:
    """floor(y / 2^f), plus 1 exactly where y mod 2^f > r mod 2^f plus t's own part; never anything else.

    With y = y_c - t + r over the integers the sum is floor(r / 2^f) - floor((t - y_c) / 2^f), t - y_c = r - y.
    """
    if wraps(y, r):
        return
    found = truncate(y, r, bits)
    assert found == (r >> bits) - (r - y >> bits)
    assert found == (y >> bits) + (y % (1 << bits) > r % (1 << bits))
    assert found in (y >> bits, -(-y >> bits))


@pytest.mark.parametrize("bits", [1, 4])
def test_every_value_and_mask_of_a_small_modulus(bits: int) -> None:
    """Exhaustive: right within one unit if and only if the shares do not wrap, and wraps are (|y| + 1) / t rare."""
    t, bound = 257, 60
    masks = np.arange(t, dtype=np.uint64)
    server = shares.truncate_server(masks, bits)
    for y in range(-bound, bound + 1):
        client = shares.truncate_client(modular.residues(y - masks.astype(np.int64), t), bits, t)
        found = modular.centered(modular.add(client, server, t), t)
        wrong = (found != y >> bits) & (found != -(-y >> bits))
        wrapped = np.array([wraps(y, r, t) for r in range(t)])
        assert not (wrong & ~wrapped).any()
        assert wrong.sum() <= wrapped.sum() <= abs(y) + 1
        assert not wrapped[bound + 1 : t - bound + 1].any()
    assert wraps(bound, bound, t)
    assert wraps(-bound, t - bound + 1, t)


@pytest.mark.parametrize("y", ["bound", "-bound", 0])
@pytest.mark.parametrize(("t", "bound"), [(257, 20), (257, 127), (97, 48), (T, 2**38)])
def test_bounded_masks_never_wrap(t: int, bound: int, y: int | str) -> None:
    """At the extremes, over masks that meet both their own ends."""
    value = {"bound": bound, "-bound": -bound}.get(y, 0)
    masks = sampling.bounded((20000,), bound, t)
    assert masks.min() >= bound + 1
    assert masks.max() <= t - bound
    if t < 300:
        assert (masks.min(), masks.max()) == (bound + 1, t - bound)
    client = modular.subtract(modular.residues(np.full(20000, value), t), masks, t)
    for bits in (1, 3, 5):
        parts = shares.truncate_client(client, bits, t), shares.truncate_server(masks, bits)
        found = modular.centered(modular.add(*parts, t), t)
        assert set(found.tolist()) <= {value >> bits, -(-value >> bits)}


OPERATIONS = {
    "add": (Add(), 2, lambda x, y: x + y),
    "pool": (SumPool(2), 1, lambda x: x[:, :4, :4].reshape(3, 2, 2, 2, 2).sum(axis=(2, 4))),
    "flatten": (Flatten(), 1, lambda x: x.reshape(-1, 1, 1)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_local_operations_commute_with_sharing(name: str) -> None:
    operation, arity, clear = OPERATIONS[name]
    random = np.random.default_rng(0)
    values = [random.integers(-1000, 1000, (3, 5, 4)) for _ in range(arity)]
    masks = [sampling.uniform((3, 5, 4), T) for _ in range(arity)]
    others = [modular.subtract(modular.residues(v, T), r, T) for v, r in zip(values, masks, strict=True)]
    parts = [shares.local(operation, part, T) for part in (masks, others)]
    assert (modular.centered(modular.add(*parts, T), T) == clear(*values)).all()


def test_squares_are_not_local() -> None:
    with pytest.raises(AssertionError, match="not local"):
        shares.local(Square(), [sampling.uniform((3,), T)], T)
