"""Compact bytes by kernels: the same as ``sealfile`` makes with numpy, and nothing beyond their ends."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.engines import sealfile
from privcirnet.he.engines.kernels import wire_bytes
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues

BITS = [(8,), (37, 36), (48, 45, 16), (55, 55, 54), (60, 17, 61, 24, 32)]


def level(bits: tuple[int, ...]) -> sealfile.Level:
    return sealfile.Level(tuple(modular.largest_prime(b, 2) for b in bits), 8, (0, 0, 0, 0), (4, 0))


def residues(primes: tuple[int, ...], count: int) -> Residues:
    """Random ones; the first and the last are the largest."""
    rng = np.random.default_rng(count)
    made = np.stack([rng.integers(0, p, count, dtype=np.uint64) for p in primes])
    made[:, [0, -1]] = np.array(primes, dtype=np.uint64)[:, None] - np.uint64(1)
    return made


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [1, 2, 7, 8, 1001])
def test_as_sealfile_packs(bits: tuple[int, ...], count: int) -> None:
    made = level(bits)
    rows, widths = residues(made.primes, count), tuple(made.widths)
    message = wire_bytes.pack(rows, widths)
    assert message == sealfile._pack(rows, made)
    assert (wire_bytes.unpack(message, made.primes, widths) == rows).all()
    assert (sealfile._unpack(message, made) == rows).all()


def test_only_a_residues_bytes_count_and_rows_may_be_strided() -> None:
    made = level((37, 36))
    rows = np.random.default_rng(0).integers(0, 2**64, (2, 30), dtype=np.uint64)[:, ::3]
    assert wire_bytes.pack(rows, (5, 5)) == sealfile._pack(rows, made)


def test_no_coefficients() -> None:
    assert wire_bytes.pack(np.empty((2, 0), dtype=np.uint64), (5, 5)) == b""
    assert wire_bytes.unpack(b"", (7, 7), (5, 5)).shape == (2, 0)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_at_any_address(kind: type) -> None:
    made = level((55, 55, 54))
    rows = residues(made.primes, 9)
    message = wire_bytes.pack(rows, (7, 7, 7))
    for shift in range(8):
        padded = kind(b"x" * shift + message)
        assert (wire_bytes.unpack(padded[shift:], made.primes, (7, 7, 7)) == rows).all()


@pytest.mark.parametrize("prime", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 50, -1])
def test_a_residue_that_is_not_under_its_prime(prime: int, place: int) -> None:
    made = level((48, 45, 16))
    rows, widths = residues(made.primes, 101), tuple(made.widths)
    rows[prime, place] = made.primes[prime]
    message = wire_bytes.pack(rows, widths)
    with pytest.raises(RuleError) as theirs:
        sealfile._unpack(message, made)
    with pytest.raises(RuleError, match="every residue must be under its prime: got one that is not") as ours:
        wire_bytes.unpack(message, made.primes, widths)
    assert str(ours.value) == str(theirs.value)


def test_a_length_that_is_no_whole_number_of_coefficients() -> None:
    with pytest.raises(RuleError, match="a message must hold 10 bytes for each coefficient: got 31 bytes"):
        wire_bytes.unpack(bytes(31), (7, 7), (5, 5))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [1, 3, 8, 9])
def test_nothing_is_read_or_written_beyond_the_ends(
    bits: tuple[int, ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the kernels' own Python, in which numpy refuses a place outside an array."""
    for kernel in ("pack_into", "unpack_into"):
        monkeypatch.setattr(wire_bytes, kernel, getattr(wire_bytes, kernel).__wrapped__)
    made = level(bits)
    rows, widths = residues(made.primes, count), tuple(made.widths)
    message = wire_bytes.pack(rows, widths)
    assert message == sealfile._pack(rows, made)
    assert (wire_bytes.unpack(message, made.primes, widths) == rows).all()


def test_the_word_after_the_last_is_not_written() -> None:
    """In machine code: 3 residues of 7 bytes are 21 bytes, so the third word is the last."""
    rows, guarded = residues((97,), 3), np.full(5, 12345, dtype=np.uint64)
    wire_bytes.pack_into(guarded[:3], rows, np.array([56], dtype=np.uint64))
    assert guarded[3:].tolist() == [12345, 12345]
