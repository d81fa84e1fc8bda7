import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular

PRIMES = [2, 3, 5, 7, 97, 65537, (1 << 31) - 1, (1 << 32) - 5, (1 << 32) + 15, (1 << 60) - 93, (1 << 61) - 1]
"""Small, around the 32-bit seam of the upper half, and the largest that is carried: 2^61 - 1 is prime."""


@st.composite
def operands(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    """A modulus of any size, prime or not, and residues with the ends over-represented."""
    t = draw(st.sampled_from(PRIMES) | st.integers(2, (1 << modular.MAX_BITS) - 1))
    residue = st.sampled_from([0, t - 1, t // 2, min(t - 1, (1 << 32) - 1)]) | st.integers(0, t - 1)
    pairs = draw(st.lists(st.tuples(residue, residue), min_size=1, max_size=20))
    return t, [a for a, _ in pairs], [b for _, b in pairs]


def array(values: list[int]) -> modular.Residues:
    return np.array(values, dtype=np.uint64)


@given(operands())
def test_sums_and_products_equal_integers(case: tuple[int, list[int], list[int]]) -> None:
    t, a, b = case
    pairs = list(zip(a, b, strict=True))
    assert modular.add(array(a), array(b), t).tolist() == [(x + y) % t for x, y in pairs]
    assert modular.subtract(array(a), array(b), t).tolist() == [(x - y) % t for x, y in pairs]
    assert modular.multiply(array(a), array(b), t).tolist() == [x * y % t for x, y in pairs]
    quotients = modular.constant_quotients(array(b), t)
    assert quotients.tolist() == [(y << 64) // t for y in b]
    assert modular.multiply_constant(array(a), array(b), quotients, t).tolist() == [x * y % t for x, y in pairs]


@given(operands(), st.integers(1, 4), st.integers(1, 3))
def test_matrix_products_equal_integers(case: tuple[int, list[int], list[int]], rows: int, columns: int) -> None:
    t, a, b = case
    left = array([a] * rows)
    right = array([b] * columns).T
    expected = sum(x * y for x, y in zip(a, b, strict=True)) % t
    assert modular.matmul(left, right, t).tolist() == [[expected] * columns] * rows


@pytest.mark.parametrize("terms", [511, 512, 513, 1100])
def test_long_matrix_products_are_exact(terms: int) -> None:
    """The largest residues: every part of 21 bits is full, and the sums are taken in several runs."""
    t = (1 << 61) - 1
    largest = np.full((2, 3, terms), t - 1, dtype=np.uint64)
    assert (modular.matmul(largest, largest.swapaxes(1, 2), t) == terms).all()


def test_a_quotient_that_is_two_too_small() -> None:
    """Golden: found by search; one correction after the Barrett estimate is not enough."""
    a, b, t = 90985556078, 119645535010, 137801891595
    assert modular.multiply(array([a]), array([b]), t).tolist() == [a * b % t]


@given(st.integers(0, 2**64 - 1), operands())
def test_a_constant_may_multiply_any_word(word: int, case: tuple[int, list[int], list[int]]) -> None:
    t, _, constants = case
    quotients = modular.constant_quotients(array(constants), t)
    words = array([word] * len(constants))
    assert modular.multiply_constant(words, array(constants), quotients, t).tolist() == [
        w * word % t for w in constants
    ]


@given(st.sampled_from(PRIMES[1:]), st.lists(st.integers(-(2**62), 2**62), min_size=1))
def test_signed_values_and_residues(t: int, values: list[int]) -> None:
    found = modular.residues(values, t)
    assert found.dtype == np.uint64
    assert found.tolist() == [v % t for v in values]
    signed = modular.centered(found, t).tolist()
    assert all(2 * abs(s) < t and (s - v) % t == 0 for s, v in zip(signed, values, strict=True))


def test_shapes_survive_and_inputs_stay() -> None:
    a = np.arange(6, dtype=np.uint64).reshape(2, 3)
    before = a.copy()
    for result in (modular.add(a, a, 7), modular.multiply(a, a, 7), modular.constant_quotients(a, 7)):
        assert result.shape == (2, 3)
        assert result is not a
    assert (a == before).all()


def slow_is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))


def test_primes_against_trial_division() -> None:
    assert [n for n in range(5000) if modular.is_prime(n)] == [n for n in range(5000) if slow_is_prime(n)]
    assert modular.is_prime((1 << 61) - 1)
    # Carmichael numbers, the least composite that fools the bases 2, 3, 5, 7, and squares of primes.
    for composite in (561, 41041, 825265, 3215031751, 65537**2, ((1 << 31) - 1) ** 2, (1 << 61) - 3):
        assert not modular.is_prime(composite)


@pytest.mark.parametrize(("bits", "multiple"), [(8, 4), (14, 128), (17, 17 * 128), (41, 16384), (60, 16384 * 17 * 9)])
def test_largest_prime(bits: int, multiple: int) -> None:
    prime = modular.largest_prime(bits, multiple)
    assert prime.bit_length() == bits
    assert prime % multiple == 1
    assert modular.is_prime(prime)
    assert not any(modular.is_prime(n) for n in range(prime + multiple, 1 << bits, multiple))


def test_moduli_that_do_not_exist() -> None:
    with pytest.raises(RuleError, match="2 to 61 bits: got 62"):
        modular.largest_prime(62, 16384)
    with pytest.raises(RuleError, match="2 to 61 bits: got 0"):
        modular.largest_prime(0, 16384)
    with pytest.raises(RuleError, match="no 15-bit prime that is 1 mod 16384"):
        modular.largest_prime(15, 16384)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6, 8, 9, 17, 72, 306])
def test_roots_have_their_order(order: int) -> None:
    t = modular.largest_prime(40, 8 * 9 * 17)
    root = modular.root_of_unity(order, t)
    assert next(k for k in range(1, order + 1) if pow(root, k, t) == 1) == order


def test_no_root_where_the_order_does_not_divide() -> None:
    with pytest.raises(RuleError, match=r"must divide t - 1: got length 5, t = 17"):
        modular.root_of_unity(5, 17)
