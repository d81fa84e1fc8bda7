import pytest

from privcirnet.errors import RuleError
from privcirnet.he.params.parameters import (
    Parameters,
    choose,
)
from privcirnet.he.params.security import MAX_LOG_Q

GOOD = choose({9, 17}, 41)


@pytest.mark.parametrize(("n", "limit"), [(1024, 27), (2048, 54), (4096, 109), (8192, 218), (16384, 438), (32768, 881)])
def test_security_table(n: int, limit: int) -> None:
    """Homomorphic encryption standard (2018), table 1: ternary secret, 128 bits, classical."""
    assert MAX_LOG_Q[n] == limit
    count = -(-(limit + 1) // 60)
    bits = (60,) * (count - 1) + (limit + 1 - 60 * (count - 1),)
    with pytest.raises(RuleError, match=rf"at most {limit} at ring degree {n} for 128-bit security: got {limit + 1}"):
        choose({1}, 41, n, bits)


@pytest.mark.parametrize("bits", [(50,), (), (61, 50), (19, 50)])
def test_primes_must_be_sane(bits: tuple[int, ...]) -> None:
    with pytest.raises(RuleError, match="two or more primes of 20 to 60 bits"):
        Parameters(8192, bits, GOOD.plain_modulus)
