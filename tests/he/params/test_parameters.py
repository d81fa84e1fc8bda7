import dataclasses

import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.engines.interface import client_engine
from privcirnet.he.params.noise import (
    check_noise,
    fitting_plain_bits,
)
from privcirnet.he.params.parameters import (
    MAX_PLAIN_BITS,
    NARROW_COEFFICIENT_BITS,
    NARROW_RING_DEGREE,
    Parameters,
    choose,
    coefficient_primes,
)
from privcirnet.he.params.security import MAX_LOG_Q
from privcirnet.he.ring import modular
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters

GOOD = choose({9, 17}, 41)


@pytest.mark.parametrize("n", INSECURE_RING_DEGREES)
def test_toy_parameters_are_refused_by_the_package(n: int) -> None:
    toy = insecure_parameters(n)
    with pytest.raises(RuleError, match=f"ring degree must be in the 128-bit table: got {n}"):
        Parameters(toy.ring_degree, toy.coefficient_bits, toy.plain_modulus)
    with pytest.raises(RuleError, match="128-bit table"):
        dataclasses.replace(toy)
    with pytest.raises(RuleError, match="128-bit table"):
        choose({1}, 41, n)


@pytest.mark.parametrize(
    "t",
    [
        *(65538 * 8192 + 1, GOOD.plain_modulus + 2, modular.largest_prime(41, 8192 + 2)),
        *(modular.largest_prime(61, 16384), -16383, 1, 0, 10**400),
    ],
    ids=["composite", "even-ish", "not 1 mod 2n", "61 bits", "negative", "one", "zero", "huge"],
)
def test_bad_plain_modulus(t: int) -> None:
    with pytest.raises(RuleError, match="must be a prime of at most 60 bits that is 1 mod 2n"):
        Parameters(8192, GOOD.coefficient_bits, t)


def test_choose_carries_every_length() -> None:
    assert GOOD.plain_bits == 41
    assert all((GOOD.plain_modulus - 1) % length == 0 for length in (2 * 8192, 9, 17))
    with pytest.raises(RuleError, match="at most 60 bits: got 61 bits"):
        choose({9}, 61)
    with pytest.raises(RuleError, match="no 20-bit prime that is 1 mod"):
        choose({9, 17}, 20)


@pytest.mark.parametrize(
    ("n", "bits"), [(4096, (36, 35, 35)), (8192, (54, 54, 53, 53)), (16384, (50, 40, 50, 40, 50)), (2048, (27, 26))]
)
def test_coefficient_primes_are_the_library_s(n: int, bits: tuple[int, ...]) -> None:
    assert coefficient_primes(n, bits) == {m.value() for m in seal.CoeffModulus.Create(n, list(bits))}


@pytest.mark.parametrize("plain_bits", [53, 54])
def test_plain_modulus_is_no_prime_of_q(plain_bits: int) -> None:
    """Without an odd transform length the largest prime of that size is one of q's."""
    taken = modular.largest_prime(plain_bits, 2 * 8192)
    with pytest.raises(RuleError, match=f"must not be a prime of q: got {taken}"):
        Parameters(8192, GOOD.coefficient_bits, taken)
    chosen = choose({1, 8}, plain_bits)
    assert chosen.plain_modulus < taken
    assert client_engine("tenseal", chosen).parameters == chosen


def test_narrow_parameters_are_as_wide_as_they_can_be() -> None:
    """The special prime is the shortest there is; the library takes it, and refuses one bit more in all."""
    n, bits = NARROW_RING_DEGREE, NARROW_COEFFICIENT_BITS
    assert sum(bits) == MAX_LOG_Q[n]
    assert fitting_plain_bits(bits, 16) == 30
    assert fitting_plain_bits((60, 60, 60, 34), 10) == MAX_PLAIN_BITS
    parameters = choose({1}, 30, n, bits)
    assert client_engine("tenseal", parameters).parameters == parameters
    assert coefficient_primes(n, bits) >= {40961}
    with pytest.raises(RuleError, match="no 15-bit prime that is 1 mod 8192"):
        modular.largest_prime(15, 2 * n)
    for wrong in ((48, 42, 15), (48, 19, 16), (61, 20, 16), (48,)):
        with pytest.raises(RuleError, match="primes of 20 to 60 bits, the special prime 16 to 60"):
            Parameters(n, wrong, parameters.plain_modulus)
    check_noise(parameters, 16, "conv1")
    with pytest.raises(RuleError, match=r"got 1 bits in layer conv1"):
        check_noise(parameters, 17, "conv1")
