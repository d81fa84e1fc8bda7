import json
from dataclasses import replace

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import (
    Parameters,
    choose,
)
from privcirnet.he.program import manifest
from privcirnet.he.rlwe.parameters import MAX_LOG_Q, TABLES
from tests.he.networks import network

GOOD = choose({9, 17}, 41)
PAPERS = (43, 43, 44, 44, 44)
"""SEAL's default at n = 8192, 218 bits."""


@pytest.mark.parametrize(
    ("n", "limit"), [(1024, 26), (2048, 53), (4096, 106), (8192, 214), (16384, 430), (32768, 868), (65536, 1747)]
)
def test_security_table(n: int, limit: int) -> None:
    """Security guidelines (2024, eprint 2024/463): ternary secret, 128 bits, classical."""
    assert MAX_LOG_Q[n] == limit
    count = -(-(limit + 1) // 60)
    bits = (60,) * (count - 1) + (limit + 1 - 60 * (count - 1),)
    with pytest.raises(RuleError, match=rf"at most {limit} at ring degree {n} for 128-bit security: got {limit + 1}"):
        choose({1}, 41, n, bits)


@pytest.mark.parametrize(("n", "limit"), [(1024, 27), (2048, 54), (4096, 109), (8192, 218), (16384, 438), (32768, 881)])
def test_the_papers_table_has_to_be_asked_for(n: int, limit: int) -> None:
    """Homomorphic encryption standard (2018), table 1. It is never what parameters are checked by unless it is named."""
    assert TABLES["2018"][n] == limit > MAX_LOG_Q[n]
    with pytest.raises(RuleError, match=r"at most 214 at ring degree 8192 .*: got 218 bits"):
        Parameters(8192, PAPERS, GOOD.plain_modulus)
    of_the_papers = Parameters(8192, PAPERS, GOOD.plain_modulus, "2018")
    assert of_the_papers.log_q == 218
    with pytest.raises(RuleError, match="at most 218 at ring degree 8192"):
        choose({1}, 41, 8192, (43, 44, 44, 44, 44), "2018")


def test_no_program_brings_the_papers_table_along() -> None:
    program = replace(network(), parameters=choose({2, 4, 5}, 46, 8192, PAPERS, "2018"))
    data = manifest.to_dict(program)
    assert "2018" not in json.dumps(data["parameters"])
    for forged in ({}, {"table": "2018"}):
        with pytest.raises(RuleError, match="at most 214"):
            manifest.from_dict(data | {"parameters": data["parameters"] | forged})


@pytest.mark.parametrize("bits", [(50,), (), (61, 50), (19, 50)])
def test_primes_must_be_sane(bits: tuple[int, ...]) -> None:
    with pytest.raises(RuleError, match="two or more primes of 20 to 60 bits"):
        Parameters(8192, bits, GOOD.plain_modulus)
