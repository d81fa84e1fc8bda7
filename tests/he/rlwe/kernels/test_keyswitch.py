import numpy as np
import pytest

from privcirnet.he.ring.kernels import ntt
from privcirnet.he.rlwe.kernels import keyswitch
from tests.he.kernel_oracles import automorphism, forward, integers, inverse, primes_of, random_residues

N = 1024
SETS = [(55, 54, 54), (48, 45, 16), (60, 60, 60)]


@pytest.mark.parametrize("bits", SETS)
@pytest.mark.parametrize("largest", [False, True])
def test_division_rounds(bits: tuple[int, ...], largest: bool) -> None:
    """Nearest integer to a / P, in coefficients and in the kernel's order."""
    primes = primes_of(bits, N)
    polynomial = random_residues(primes, N, seed=1, largest=largest)
    divisor, q = primes[-1], primes[0] * primes[1]
    expected = [(x + divisor // 2) // divisor for x in integers(polynomial, primes)]
    found = polynomial.copy()
    keyswitch.divide_coefficients(found, keyswitch.division(primes))
    for limb, p in enumerate(primes[:-1]):
        assert found[limb].tolist() == [x % p for x in expected]
    assert all(abs(x) <= q // 2 + 1 for x in expected)

    values = forward(polynomial, primes)
    rest = polynomial[-1].copy()
    for limb in range(2):
        keyswitch.divide_values(values[limb], rest, ntt.tables(primes, N), keyswitch.division(primes), limb)
    assert np.array_equal(inverse(values[:-1], primes[:-1]), found[:-1])


@pytest.mark.parametrize("bits", SETS)
def test_digits_are_lifted_residues(bits: tuple[int, ...]) -> None:
    primes = primes_of(bits, N)
    polynomial = random_residues(primes[:-1], N, seed=3)
    digits = np.empty((2, 3, N), dtype=np.uint64)
    values = forward(polynomial, primes[:-1])
    for limb in range(3):
        keyswitch.decompose(digits, polynomial, values, ntt.tables(primes, N), limb)
    for digit in range(2):
        lifted = np.stack([polynomial[digit] % np.uint64(p) for p in primes])
        assert np.array_equal(digits[digit], forward(lifted, primes))


@pytest.mark.parametrize("step", [1, 5, 256, 511])
def test_a_rotation_permutes_values(step: int) -> None:
    primes = primes_of((55, 48), N)
    polynomial = random_residues(primes, N, seed=step)
    order, values = keyswitch.rotation(step, N), forward(polynomial, primes)
    expected = automorphism(integers(polynomial, primes), pow(3, step, 2 * N))
    rotated = inverse(values[:, order], primes)
    for limb, p in enumerate(primes):
        assert rotated[limb].tolist() == [x % p for x in expected]


def test_add_permuted() -> None:
    (p,) = primes = primes_of((55,), N)
    source, total = random_residues(primes, N, seed=1)[0], random_residues(primes, N, seed=2)[0]
    order = np.random.default_rng(3).permutation(N)
    expected = (total + source[order]) % np.uint64(p)
    keyswitch.add_permuted(total, source, order, np.uint64(p))
    assert np.array_equal(total, expected)


def test_add_scaled_is_undone_by_the_division() -> None:
    primes = primes_of((55, 54, 54), N)
    values, division = random_residues(primes[:-1], N, seed=4), keyswitch.division(primes)
    total = np.zeros((3, N), dtype=np.uint64)
    for limb in range(2):
        keyswitch.add_scaled(total[limb], values[limb], division, limb)
    keyswitch.divide_coefficients(total, division)
    assert np.array_equal(total[:-1], values)
