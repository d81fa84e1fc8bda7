"""Parameters: security, the chain of scales, digits and the choice among them."""

import math

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ckks.parameters import CkksParameters, choose, levels_of
from privcirnet.he.rlwe.parameters import MAX_LOG_Q
from tests.he.ckks_toys import insecure_ckks


@pytest.mark.parametrize("n", [8192, 16384, 32768, 65536])
def test_the_deepest_chains_are_secure_and_one_level_more_is_not(n):
    levels = levels_of(n)
    parameters = CkksParameters(n, levels)
    assert parameters.log_q == math.prod(parameters.rlwe.primes).bit_length() <= MAX_LOG_Q[n]
    with pytest.raises(RuleError, match=rf"log2 q must be at most {MAX_LOG_Q[n]} at ring degree {n}"):
        CkksParameters(n, levels + 1)


@pytest.mark.parametrize(("n", "levels", "scale_bits"), [(65536, 30, 42), (32768, 15, 40), (1024, 30, 30)])
def test_scales_follow_from_the_primes_and_stay(n, levels, scale_bits):
    parameters = insecure_ckks(levels, 3, scale_bits, n)
    assert len(set(parameters.rlwe.primes)) == len(parameters.rlwe.primes)
    assert all(prime % (2 * n) == 1 for prime in parameters.rlwe.primes)
    for level in range(levels, 0, -1):
        scale = parameters.scales[level] ** 2 / parameters.data_primes[level]
        assert scale == parameters.scales[level - 1]
        assert abs(math.log2(scale) - scale_bits) < 0.01


@pytest.mark.parametrize("digit_primes", [1, 2, 3, 6])
def test_special_primes_outweigh_every_digit(digit_primes):
    parameters = insecure_ckks(5, digit_primes)
    p, digits = math.prod(parameters.special_primes), parameters.digits(5)
    assert math.prod(sum(digits, ())) == math.prod(parameters.data_primes)
    assert p >= 2 * max(map(math.prod, digits))
    assert math.prod(parameters.special_primes[:-1]) < 2 * max(map(math.prod, digits))
    assert parameters.key_bytes == len(digits) * 2 * len(parameters.rlwe.primes) * 1024 * 8


def test_the_quickest_secure_digits_are_chosen_and_their_keys_must_fit():
    """Longer digits are quicker and have smaller keys, until P takes the bits that security leaves."""
    assert (choose(32768, 6).digit_primes, choose(32768, 12).digit_primes, choose(32768, 18).digit_primes) == (7, 7, 1)
    shorter = CkksParameters(32768, 12, digit_primes=2)
    assert choose(32768, 12).switch_rows < shorter.switch_rows
    assert choose(32768, 12).key_bytes < shorter.key_bytes
    with pytest.raises(RuleError, match=r"40 keys must fit keys_gb = 0.1: got .* GB"):
        choose(32768, 12, keys=40, keys_gb=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale_bits": 60}, "scale_bits must be 25 to 59: got 60"),
        ({"first_bits": 40}, "first_bits must be 41 to 60: got 40"),
        ({"digit_primes": 9}, "digit_primes must be 1 to 4: got 9"),
        ({"ring_degree": 3000}, "the ring degree must be in the 128-bit table"),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(RuleError, match=message):
        CkksParameters(**({"ring_degree": 16384, "levels": 3} | changes))
