"""Messages to ciphertexts, against their parts one by one."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels import uniform
from privcirnet.he.rlwe.kernels.wire_bytes import pack
from privcirnet.he.rlwe.wire_bytes import WireFormat
from tests.he.kernel_oracles import prime_under

N, SEED = 1024, bytes(range(32))


SEAL_S = WireFormat((prime_under(2**50, N), prime_under(2**36, N)), N)
REJECTING = WireFormat((prime_under(2**64 / 17.9, N), prime_under(2**64 / 17.7, N)), N)
"""Their multiples leave out one word in 20."""


def received(modulus: WireFormat, rows: Residues) -> Residues:
    message = pack(rows, modulus.bits) + SEED
    target = np.empty((2, *rows.shape), dtype=np.uint64)
    uniform.receive(target, message, np.arange(N), modulus)
    return target


@pytest.mark.parametrize("modulus", [SEAL_S, REJECTING], ids=["seal", "rejecting"])
def test_the_parts_together(modulus: WireFormat) -> None:
    random = np.random.default_rng(0)
    rows = np.stack([random.integers(0, p, N, dtype=np.uint64) for p in modulus.primes])
    target = received(modulus, rows)
    assert np.array_equal(target[0], rows)
    assert np.array_equal(target[1], uniform.expanded(SEED, modulus))


def test_a_residue_that_is_not_under_its_prime() -> None:
    rows = np.zeros((2, N), dtype=np.uint64)
    rows[1, -1] = SEAL_S.primes[1]
    with pytest.raises(RuleError, match="every residue must be under its prime"):
        received(SEAL_S, rows)
