import numpy as np
import pytest

from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.base_conversion import mod_down_constants
from privcirnet.he.rlwe.kernels import gadget
from privcirnet.he.rlwe.kernels.rns import add_scaled, ring
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import RlweParameters
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
    gadget.divide_coefficients(found, mod_down_constants(primes[-1:], primes))
    for limb, p in enumerate(primes[:-1]):
        assert found[limb].tolist() == [x % p for x in expected]
    assert all(abs(x) <= q // 2 + 1 for x in expected)

    values = gadget.divided(np.stack([forward(polynomial, primes)] * 2), ring(primes, N))
    assert all(np.array_equal(inverse(own, primes[:-1]), found[:-1]) for own in values)


@pytest.mark.parametrize("bits", SETS)
def test_digits_are_lifted_residues_and_the_chain_has_the_same(bits: tuple[int, ...]) -> None:
    """Representatives in [-q/2, q/2)."""
    primes = primes_of(bits, N)
    polynomial, made = random_residues(primes[:-1], N, seed=3), ring(primes, N)
    digits, values = np.empty((2, 3, N), dtype=np.uint64), np.empty((2, 2, N), dtype=np.uint64)
    gadget.hoist(values, digits, np.stack([polynomial] * 2), made)
    assert all(np.array_equal(own, forward(polynomial, primes[:-1])) for own in values)
    for digit in range(2):
        lifted = modular.centered(polynomial[digit], primes[digit])
        expected = forward(np.stack([(lifted % p).astype(np.uint64) for p in primes]), primes)
        inner_products.split(expected[None], made.moduli)
        assert np.array_equal(digits[digit], expected)
    chain = ModulusChain(RlweParameters(N, primes[:-1], primes[-1:]))
    assert np.array_equal(chain.digits(values[1]), digits)


@pytest.mark.parametrize("digit_primes", [1, 2])
def test_digits_times_key_digits_are_the_polynomial_times_p(digit_primes: int) -> None:
    """With key digits without noise under a secret of zero, for all data primes and for fewer."""
    primes = primes_of((45, 46, 47, 50, 55), N)
    chain = ModulusChain(RlweParameters(N, primes[:3], primes[3:], digit_primes))
    parts = chain.parameters.digits(3)
    inputs = chain.ring.inputs(len(parts), 5)
    for number, part in enumerate(parts):
        key = np.zeros((2, 5, N), dtype=np.uint64)
        for limb in part:
            key[0, limb] = primes[3] * primes[4] % primes[limb]
        chain.place(inputs, number, key)
    for level in (3, 2, 1):
        polynomial = random_residues(primes[:level], N, seed=level)
        found = chain.switched(chain.digits(polynomial), inputs)
        assert np.array_equal(found[0], polynomial)
        assert not found[1].any()


@pytest.mark.parametrize("step", [1, 5, 256, 511])
def test_a_rotation_permutes_values(step: int) -> None:
    primes, element = primes_of((55, 48), N), pow(3, step, 2 * N)
    polynomial = random_residues(primes, N, seed=step)
    order, values = gadget.automorphism_index(element, N), forward(polynomial, primes)
    expected = automorphism(integers(polynomial, primes), element)
    rotated = inverse(values[:, order], primes)
    for limb, p in enumerate(primes):
        assert rotated[limb].tolist() == [x % p for x in expected]


def test_add_scaled_is_undone_by_the_division() -> None:
    primes = primes_of((55, 54, 54), N)
    values, total = random_residues(primes[:-1], 2, N, seed=4), np.zeros((2, 3, N), dtype=np.uint64)
    add_scaled(total, values, ring(primes, N))
    for own, wanted in zip(total, values, strict=True):
        gadget.divide_coefficients(own, mod_down_constants(primes[-1:], primes))
        assert np.array_equal(own[:-1], wanted)
