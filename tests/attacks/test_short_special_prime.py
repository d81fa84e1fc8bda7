"""A client reads weights out of the noise of replies whose flooding is too small for it.

Key switching adds noise that grows as the special prime falls behind the data primes, and products carry it on. Whoever
floods by a bound without it leaves the client that much less than the 40 bits that were promised.
"""

import dataclasses

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.protocol.parties.server import Server
from tests.he.networks import network


@pytest.mark.parametrize("bits", [(60, 60, 60, 38), (55, 55, 54, 20)], ids=str)
def test_a_server_refuses_a_set_whose_special_prime_is_too_short(bits: tuple[int, ...]) -> None:
    """tests/he/bfv/test_noise.py measures the noise of both sets."""
    program = network()
    short = choose({2, 4, 5}, 48, 8192, bits, table="2018")
    with pytest.raises(RuleError, match=r"noise budget: got .* in layer first with a 48-bit"):
        Server(dataclasses.replace(program, parameters=short), "cleartext")
