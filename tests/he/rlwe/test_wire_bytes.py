"""The format of residues on the wire; the compiled functions are compared with these in kernels/test_wire_bytes.py."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.rlwe import wire_bytes
from privcirnet.he.rlwe.wire_bytes import Modulus

PRIMES = (65537, 251)


def test_golden_bytes() -> None:
    """17 bits take three bytes, 8 bits one; prime by prime, little-endian."""
    modulus = Modulus(PRIMES, 2)
    rows = np.array([[1, 65536], [2, 250]], dtype=np.uint64)
    message = wire_bytes.pack(rows, modulus.widths)
    assert modulus.widths == (3, 1)
    assert message == bytes.fromhex("010000 000001 02 fa")
    assert len(message) == modulus.compact_size(1) == modulus.coefficients_size(2)
    assert wire_bytes.unpack(message, PRIMES, modulus.widths).tolist() == rows.tolist()


@pytest.mark.parametrize("message", ["010001 02", "010000 fb"])
def test_a_residue_that_is_not_under_its_prime(message: str) -> None:
    with pytest.raises(RuleError, match="every residue must be under its prime"):
        wire_bytes.unpack(bytes.fromhex(message), PRIMES, (3, 1))


def test_lengths_are_checked() -> None:
    wire_bytes.check_length(bytes(5), 5)
    with pytest.raises(RuleError, match="length that the parameters fix: got 5 bytes where 6 are due"):
        wire_bytes.check_length(bytes(5), 6)
    wire_bytes.check_keys_length(bytes(5), 2, 3)
    with pytest.raises(RuleError, match="must begin with its public key: got 1 bytes"):
        wire_bytes.check_keys_length(bytes(1), 2, 3)
    with pytest.raises(RuleError, match="got 2 bytes where 3 are due"):
        wire_bytes.check_keys_length(bytes(4), 2, 3)
