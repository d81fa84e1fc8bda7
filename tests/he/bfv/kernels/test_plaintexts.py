import numpy as np
import pytest

from privcirnet.he.bfv import batching
from privcirnet.he.bfv.kernels import plaintexts
from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import ntt
from tests.he.kernel_oracles import forward, integers, primes_of, random_residues

N = 1024
CASES = [((55, 54), 41), ((60, 60), 60), ((48, 45), 30), ((30, 31), 45)]


def setting(bits: tuple[int, ...], plain_bits: int) -> tuple[tuple[int, ...], int, plaintexts.Plain]:
    primes, t = primes_of(bits, N), modular.largest_prime(plain_bits, 2 * N, frozenset(primes_of(bits, N)))
    return primes, t, plaintexts.plain(t, primes, N)


@pytest.mark.parametrize(("bits", "plain_bits"), CASES)
def test_coefficients_are_those_of_the_clear_transform(bits: tuple[int, ...], plain_bits: int) -> None:
    _, t, constants = setting(bits, plain_bits)
    slots = random_residues((t,), N)[0]
    assert np.array_equal(plaintexts.coefficients(slots, constants), batching.slots_to_coefficients(slots, t))


@pytest.mark.parametrize(("bits", "plain_bits"), CASES)
@pytest.mark.parametrize("largest", [False, True])
def test_a_factor_is_the_centred_lift(bits: tuple[int, ...], plain_bits: int, largest: bool) -> None:
    primes, t, constants = setting(bits, plain_bits)
    coefficients = random_residues((t,), N, seed=1, largest=largest)[0]
    slots = batching.coefficients_to_slots(coefficients, t)
    found = np.empty((2, N), dtype=np.uint64)
    plaintexts.factor(found, slots, constants, ntt.tables(primes, N))
    lifted = [[x % p for x in modular.centered(coefficients, t).tolist()] for p in primes]
    assert np.array_equal(found, forward(np.array(lifted, dtype=np.uint64), primes))


@pytest.mark.parametrize(("bits", "plain_bits"), CASES[:3])
@pytest.mark.parametrize("largest", [False, True])
def test_what_is_added_is_q_m_over_t_rounded(bits: tuple[int, ...], plain_bits: int, largest: bool) -> None:
    primes, t, constants = setting(bits, plain_bits)
    q = primes[0] * primes[1]
    coefficients = random_residues((t,), N, seed=2, largest=largest)[0]
    coefficients[:3] = 0, 1, t - 1
    before = random_residues(primes, N, seed=3)
    after = before.copy()
    plaintexts.add(after, batching.coefficients_to_slots(coefficients, t), constants)
    added = (after + np.array(primes, dtype=np.uint64)[:, None] - before) % np.array(primes, dtype=np.uint64)[:, None]
    # SEAL's: m floor(q / t) + floor((m (q mod t) + floor((t + 1) / 2)) / t), which is q m / t to the nearest integer
    expected = [m * (q // t) + (m * (q % t) + (t + 1) // 2) // t for m in coefficients.tolist()]
    assert [x % q for x in integers(added, primes)] == [x % q for x in expected]
    assert all(abs(x * t - q * m) <= t // 2 + 1 for x, m in zip(expected, coefficients.tolist(), strict=True))
