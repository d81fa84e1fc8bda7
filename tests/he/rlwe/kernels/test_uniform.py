"""What a seed stands for, against the cipher's own stream and Python's integers."""

import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.rlwe.kernels import uniform
from privcirnet.he.rlwe.wire_bytes import WireFormat
from tests.he.kernel_oracles import prime_under, primes_of

SEED, OTHER = bytes(range(7, 39)), bytes(range(8, 40))
MASK = (1 << 64) - 1


def stream(seed: bytes, words: int) -> list[int]:
    """AES-256 in counter mode from zero, its key the seed."""
    octets = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update(bytes(8 * words))
    return [int.from_bytes(octets[at : at + 8], "little") for at in range(0, len(octets), 8)]


def slow(seed: bytes, modulus: WireFormat) -> list[list[int]]:
    n, words = modulus.ring_degree, stream(seed, 1 << 17)
    following, rows = iter(words[len(modulus.primes) * n :]), list[list[int]]()
    for j, p in enumerate(modulus.primes):
        limit, row = (1 << 64) // p * p, words[j * n : (j + 1) * n]
        rows.append([next(w for w in itertools.chain([word], following) if w < limit) % p for word in row])
    return rows


REJECTING = tuple(prime_under(2**64 / fraction, 8) for fraction in (8.9, 8.5, 17.9))
"""They reject up to a ninth of the words."""
SETS = {
    "seal's": WireFormat(primes_of((54, 54, 53), 8192), 8192),
    "wide": WireFormat(primes_of((60, 48), 16384), 16384),
    "small": WireFormat((97, 12289), 8),
    **{f"rejecting {n}": WireFormat(REJECTING, n) for n in (8, 512, 8192)},
}


@pytest.mark.parametrize("modulus", SETS.values(), ids=SETS)
def test_a_seed_stands_for_the_words_of_the_cipher(modulus: WireFormat) -> None:
    """Pieces of the stream, and spare words that are too few at first, make no difference."""
    found = uniform.expanded(SEED, modulus)
    assert found.tolist() == slow(SEED, modulus)
    assert np.array_equal(uniform.expanded(SEED, modulus), found)
    assert (uniform.expanded(OTHER, modulus) != found).any()


def reduced(word: int, p: int, spare: int) -> int | None:
    target = np.empty((1, 1), dtype=np.uint64)
    enough = uniform.reduce(target, np.array([word, spare], dtype=np.uint64), uniform.bounds((p,)))
    return int(target[0, 0]) if enough else None


def test_words_on_both_sides_of_the_limit() -> None:
    p = prime_under(2**64 / 17.9, 8)
    limit = (1 << 64) // p * p
    for word, expected in ((0, 0), (p - 1, p - 1), (p, 0), (limit - 1, p - 1), (limit, 5), (MASK, 5)):
        assert reduced(word, p, 5) == expected
    assert reduced(MASK, p, MASK) is None


@pytest.mark.parametrize("p", [17, 97, REJECTING[0]])
def test_residues_are_uniform(p: int) -> None:
    """As many intervals as a small prime has residues, or 64: ten deviations of chi-square."""
    parts = min(p, 64) if p > 97 else p
    found = uniform.expanded(SEED, WireFormat((p,), 1 << 16))[0].astype(object) * parts // p
    counts, mean = np.bincount(found.astype(np.int64), minlength=parts), (1 << 16) / parts
    assert ((counts - mean) ** 2 / mean).sum() < parts - 1 + 10 * (2 * (parts - 1)) ** 0.5
