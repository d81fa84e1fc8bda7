"""Requests from known randomness, word for word, against SEAL's formula in Python's integers."""

import numpy as np
import pytest

from privcirnet.he.bfv import batching
from privcirnet.he.bfv.kernels import encryption, plaintexts
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import secret_key, uniform, wire_bytes
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.rlwe.wire_bytes import WireFormat
from tests.he.kernel_oracles import errors, negacyclic, primes_of

N, SEED = 1024, bytes(range(1, 33))
SETS = pytest.mark.parametrize(("bits", "plain_bits"), [((54, 53, 53), 41), ((60, 59, 20), 60), ((48, 42, 16), 28)])
"""Data primes, then the special one."""


def setting(
    bits: tuple[int, ...], plain_bits: int
) -> tuple[WireFormat, int, encryption.EncryptionTables, Residues, list[int]]:
    """(data primes, t, form, secret key, its coefficients)."""
    primes = primes_of(bits, N)
    t, modulus = modular.largest_prime(plain_bits, 2 * N, frozenset(primes)), WireFormat(primes[:-1], N)
    all_primes = ring(primes, N)
    form = encryption.encryption_tables(all_primes.tables, plaintexts.plain(t, modulus.primes, N), modulus)
    ternary = np.random.default_rng(1).integers(0, 3, N, dtype=np.uint64)
    return modulus, t, form, secret_key.prepared(ternary, all_primes), [int(x) - 1 for x in ternary]


def random_words(seed: int) -> Residues:
    words = np.random.default_rng(seed).integers(0, 2**64, N, dtype=np.uint64)
    words[:2] = (1 << 21) - 1, ((1 << 21) - 1) << 21  # 21 and -21
    return words


def slow(
    modulus: WireFormat, t: int, secret: list[int], drawn: secret_key.EncryptionRandomness, slots: Residues
) -> Residues:
    """-(a s + e) + floor((q m + (t + 1) / 2) / t) under each prime."""
    q, message = 1, batching.slots_to_coefficients(slots, t).tolist()
    for p in modulus.primes:
        q *= p
    words, noise = uniform.expanded(drawn.seed, modulus), errors(drawn.error)
    rows = []
    for p, row in zip(modulus.primes, words.tolist(), strict=True):
        product = negacyclic(row, secret, p)
        terms = zip(product, noise, message, strict=True)
        rows.append([(-(x + e) + (q * m + (t + 1) // 2) // t) % p for x, e, m in terms])
    return np.array(rows, dtype=np.uint64)


@SETS
@pytest.mark.parametrize("kept", [None, np.array([0, 3, 500, N - 1])], ids=["whole", "kept"])
def test_a_request_is_seal_s_formula(
    bits: tuple[int, ...], plain_bits: int, kept: Integers | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    modulus, t, form, key, secret = setting(bits, plain_bits)
    slots = np.random.default_rng(2).integers(0, t, N, dtype=np.uint64)
    slots[:2] = 0, t - 1
    drawn = secret_key.EncryptionRandomness(SEED, random_words(3))
    wanted = slow(modulus, t, secret, drawn, slots)
    monkeypatch.setattr(secret_key, "draw", lambda count: drawn)
    message = encryption.encrypt(key, slots, form, kept)
    assert message[-32:] == SEED
    assert not drawn.error.any(), "zeroed"
    found = wire_bytes.unpack(message[:-32], modulus.primes, modulus.bits)
    assert np.array_equal(found, wanted if kept is None else wanted[:, kept])
