"""Values in a subring: the polynomials are those in X^k, products stay there, and nonsense elsewhere is taken out."""

import numpy as np
import pytest

from privcirnet.he.bfv import batching
from privcirnet.he.layers import subring
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues

N = 64
T = modular.largest_prime(30, 2 * N)
COUNTS = [1, 2, 3, 4, 5, 16, 31, 33, 64, 65, 150]


def values(count: int, seed: int = 0) -> Residues:
    return np.random.default_rng(seed).integers(0, T, count, dtype=np.uint64)


@pytest.mark.parametrize("count", COUNTS)
def test_only_kept_coefficients_are_there(count: int) -> None:
    slots, kept = subring.spread(values(count), N), subring.kept(count, N)
    assert len(slots) == len(kept) == -(-count // N)
    for coefficients, places in zip(batching.slots_to_coefficients(slots, T), kept, strict=True):
        assert not np.delete(coefficients, places).any()
        assert len(places) < 2 * max(count, 3)
        assert coefficients[places].any()


@pytest.mark.parametrize("count", COUNTS)
def test_products_from_kept_coefficients_alone(count: int) -> None:
    """With anything at the other coefficients, as after decryption without them."""
    a, b = values(count), values(count, 1)
    products = modular.multiply(subring.spread(a, N), subring.spread(b, N), T)
    polynomials = values(products.size, 2).reshape(products.shape)
    for row, exact, places in zip(
        polynomials, batching.slots_to_coefficients(products, T), subring.kept(count, N), strict=True
    ):
        row[places] = exact[places]
    found = subring.collect(batching.coefficients_to_slots(polynomials, T), count, T)
    assert np.array_equal(found, modular.multiply(a, b, T))


def test_every_slot_without_a_value_takes_the_fill() -> None:
    fill = values(N + 8, 3)
    first, second = subring.spread(values(N + 5), N, fill)
    assert np.array_equal(first, values(N + 5)[:N])
    kept = second.reshape(2, 8, 4)
    assert (kept == kept[:, :1]).all()
    held = kept[:, 0].reshape(-1)
    assert np.array_equal(held[:5], values(N + 5)[N:])
    assert np.array_equal(held[5:], fill[N + 5 :])


def test_sizes_are_powers_of_two_that_hold_the_values() -> None:
    assert [subring.sizes(count, 8192) for count in (1, 4, 5, 256, 257)] == [[4], [4], [8], [256], [512]]
    assert subring.sizes(3 * 8192 + 64, 8192) == [8192, 8192, 8192, 64]
