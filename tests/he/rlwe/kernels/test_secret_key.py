"""The secret key and Galois keys' digits against their definitions in Python's integers."""

import numpy as np
import pytest

from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import Words
from privcirnet.he.rlwe import switch_keys
from privcirnet.he.rlwe.kernels import secret_key, uniform, wire_bytes
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import RlweParameters
from privcirnet.he.rlwe.wire_bytes import WireFormat
from tests.he.kernel_oracles import automorphism, errors, integers, inverse, negacyclic, primes_of

N, SEED = 1024, bytes(range(2, 34))
PRIMES = primes_of((54, 53, 53), N)
MODULUS, RING = WireFormat(PRIMES, N), ring(PRIMES, N)


def coefficients(key: Residues) -> list[int]:
    return integers(inverse(key[0], PRIMES), PRIMES)


def test_a_secret_is_ternary_and_uniform_and_another_one_each_time() -> None:
    """Under all primes the same. Of 30 keys each value has a third, +- eight deviations."""
    keys = [coefficients(secret_key.generate(RING)) for _ in range(30)]
    values, counts = np.unique(keys, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    assert abs(counts - 10 * N).max() < 8 * np.sqrt(30 * N * 2 / 9)
    assert len({tuple(key) for key in keys}) == 30


def test_words_have_their_quotients() -> None:
    key = secret_key.generate(RING)
    for words, quotients, p in zip(*key.tolist(), PRIMES, strict=True):
        assert quotients == [(word << 64) // p for word in words]


def test_a_secret_is_drawn_until_it_suffices_and_its_words_are_zeroed(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0).integers(0, 2**64, N, dtype=np.uint64)
    given = [np.full(64, 2**64 - 1, dtype=np.uint64), random[:64].copy()]
    waiting = iter(given)

    def stream() -> Words:
        return lambda count: next(waiting)

    monkeypatch.setattr(secret_key, "stream", stream)
    found = coefficients(secret_key.generate(RING))
    fields = [word >> shift & 3 for word in random[:64].tolist() for shift in range(0, 64, 2)]
    assert found == [field - 1 for field in fields if field < 3][:N]
    assert not any(words.any() for words in given)


@pytest.mark.parametrize("step", [1, 5, 300])
def test_keys_digits_are_their_definition(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the kernel's order, with the inverse automorphism applied."""
    chain, element = ModulusChain(RlweParameters(N, PRIMES[:-1], PRIMES[-1:])), pow(3, step, 2 * N)
    key = secret_key.generate(chain.ring)
    secret, drawn = coefficients(key), []

    def draw(count: int) -> secret_key.EncryptionRandomness:
        drawn.append(
            secret_key.EncryptionRandomness(SEED, np.random.default_rng(7).integers(0, 2**64, N, dtype=np.uint64))
        )
        return drawn[-1]

    monkeypatch.setattr(secret_key, "draw", draw)
    noise, message = errors(draw(N).error), switch_keys.make_named(chain, 2, key, element)
    assert not any(own.error.any() for own in drawn[1:]), "zeroed"
    order = chain.order(element)  # place of each value
    rotated, words = automorphism(secret, element), uniform.expanded(SEED, MODULUS)
    for digit, part in enumerate((message[: len(message) // 2], message[len(message) // 2 :])):
        assert part[-32:] == SEED
        both = wire_bytes.unpack(part[:-32], PRIMES, MODULUS.bits), words
        found, a = (inverse(np.ascontiguousarray(own[:, order]), PRIMES).tolist() for own in both)
        for limb, p in enumerate(PRIMES):
            factor = PRIMES[-1] if limb == digit else 0
            terms = zip(negacyclic(a[limb], secret, p), noise, rotated, strict=True)
            assert found[limb] == [(-(x + e) + factor * r) % p for x, e, r in terms]
