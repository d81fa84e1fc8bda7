"""Compact bytes by kernels: the same as numpy makes, and nothing beyond their ends."""

from collections.abc import Callable

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels import wire_bytes
from privcirnet.he.rlwe.wire_bytes import WireFormat
from tests.he import wire_oracles as slow

Unpack = Callable[[bytes, tuple[int, ...], tuple[int, ...]], Residues]

BITS = [(8,), (37, 36), (48, 45, 16), (55, 55, 54), (60, 17, 61, 24, 32)]


def modulus(bits: tuple[int, ...]) -> WireFormat:
    return WireFormat(tuple(modular.largest_prime(b, 2) for b in bits), 8)


def residues(primes: tuple[int, ...], count: int) -> Residues:
    """Random ones; the first and the last are the largest."""
    rng = np.random.default_rng(count)
    made = np.stack([rng.integers(0, p, count, dtype=np.uint64) for p in primes])
    made[:, [0, -1]] = np.array(primes, dtype=np.uint64)[:, None] - np.uint64(1)
    return made


def test_golden_bytes() -> None:
    """17 bits, then 8; prime by prime, the lowest bits first; zeros fill the last byte."""
    modulus = WireFormat((65537, 251), 2)
    rows = np.array([[1, 65536], [2, 250]], dtype=np.uint64)
    message = wire_bytes.pack(rows, modulus.bits)
    assert modulus.bits == (17, 8)
    assert int.from_bytes(message, "little") == 1 + (65536 << 17) + (2 << 34) + (250 << 42)
    assert len(message) == 7 == modulus.compact_size(1) == modulus.coefficients_size(2)
    assert wire_bytes.unpack(message, (65537, 251), modulus.bits).tolist() == rows.tolist()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [1, 2, 7, 8, 1001])
def test_as_numpy_packs(bits: tuple[int, ...], count: int) -> None:
    made = modulus(bits)
    rows, widths = residues(made.primes, count), made.bits
    message = wire_bytes.pack(rows, widths)
    assert message == slow.pack(rows, widths)
    assert (wire_bytes.unpack(message, made.primes, widths) == rows).all()
    assert (slow.unpack(message, made.primes, widths) == rows).all()


def test_only_a_residues_bits_count_and_rows_may_be_strided() -> None:
    rows = np.random.default_rng(0).integers(0, 2**64, (2, 30), dtype=np.uint64)[:, ::3]
    assert wire_bytes.pack(rows, (37, 40)) == slow.pack(rows, (37, 40))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_at_any_address(kind: type) -> None:
    made = modulus((55, 55, 54))
    rows = residues(made.primes, 9)
    message = wire_bytes.pack(rows, (55, 55, 54))
    for shift in range(8):
        padded = kind(b"x" * shift + message)
        assert (wire_bytes.unpack(padded[shift:], made.primes, (55, 55, 54)) == rows).all()


@pytest.mark.parametrize("prime", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 50, -1])
def test_a_residue_that_is_not_under_its_prime(prime: int, place: int) -> None:
    made = modulus((48, 45, 16))
    rows, widths = residues(made.primes, 101), made.bits
    rows[prime, place] = made.primes[prime]
    message = wire_bytes.pack(rows, widths)
    with pytest.raises(RuleError) as theirs:
        slow.unpack(message, made.primes, widths)
    with pytest.raises(RuleError, match="every residue must be under its prime: got one that is not") as ours:
        wire_bytes.unpack(message, made.primes, widths)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("unpack", [slow.unpack, wire_bytes.unpack], ids=["numpy", "compiled"])
def test_a_length_that_is_no_whole_number_of_coefficients(unpack: Unpack) -> None:
    with pytest.raises(RuleError, match="74 bits for each coefficient: got 31"):
        unpack(bytes(31), (7, 7), (37, 37))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [1, 3, 8, 9])
def test_nothing_is_read_or_written_beyond_the_ends(
    bits: tuple[int, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels' own Python, in which numpy refuses a place outside an array."""
    for kernel in ("pack_into", "unpack_into"):
        monkeypatch.setattr(wire_bytes, kernel, getattr(wire_bytes, kernel).__wrapped__)
    made = modulus(bits)
    rows, widths = residues(made.primes, count), made.bits
    message = wire_bytes.pack(rows, widths)
    assert message == slow.pack(rows, widths)
    assert (wire_bytes.unpack(message, made.primes, widths) == rows).all()


def test_the_word_after_the_last_is_not_written() -> None:
    """In machine code: 3 residues of 7 bytes are 21 bytes, so the third word is the last."""
    rows, guarded = residues((97,), 3), np.full(5, 12345, dtype=np.uint64)
    wire_bytes.pack_into(guarded[:3], rows, np.array([56], dtype=np.uint64))
    assert guarded[3:].tolist() == [12345, 12345]
