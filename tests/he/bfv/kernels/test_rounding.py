"""Compiled rounding of replies against Python's integers."""

from math import prod

import numpy as np
import pytest

from privcirnet.he.bfv.kernels import reply as compiled
from tests.he.kernel_oracles import primes_of, random_residues
from tests.he.wire_oracles import lengthen, shorten

N, COUNT = 1024, 203
CASES = [
    ((54,), 49),
    ((54,), 54),
    ((48, 48), 60),
    ((48, 48), 64),
    ((48, 48), 65),
    ((60, 60), 70),
    ((30, 30, 29), 66),
    ((41,), 33),
    ((60, 60), 98),
]
"""Bits of the primes and of a coefficient: less than a word, a word, more."""


def edges(primes: tuple[int, ...]) -> np.ndarray:
    """Residues of numbers near 0, q / 2 and q, and of random ones."""
    q = prod(primes)
    some = [0, 1, 2, q // 2 - 1, q // 2, q // 2 + 1, q - 2, q - 1]
    own = np.array([[x % p for x in some] for p in primes], dtype=np.uint64)
    return np.concatenate([own, random_residues(primes, 1, COUNT - len(some))[0]], axis=1)


@pytest.mark.parametrize(("bits", "k"), CASES)
def test_compiled_bytes_and_residues_are_the_oracles(bits: tuple[int, ...], k: int) -> None:
    primes = primes_of(bits, N)
    words, form = edges(primes), compiled.rounding_tables(primes, k)
    message = compiled.pack(words, form)
    assert message == shorten(words, primes, k)
    assert len(message) == -(-COUNT * k // 8)
    assert (compiled.unpack(message, form, COUNT) == lengthen(message, primes, k, COUNT)).all()


@pytest.mark.parametrize(("bits", "k"), CASES)
def test_any_bytes_have_residues(bits: tuple[int, ...], k: int) -> None:
    """Those of the other party need not be what rounding makes."""
    primes, random = primes_of(bits, N), np.random.default_rng(0)
    for message in (random.bytes(-(-COUNT * k // 8)), b"\xff" * -(-COUNT * k // 8)):
        words = compiled.unpack(message, compiled.rounding_tables(primes, k), COUNT)
        assert (words < np.array(primes, dtype=np.uint64)[:, None]).all()
        assert (words == lengthen(message, primes, k, COUNT)).all()


@pytest.mark.parametrize(("bits", "k"), CASES)
def test_what_is_lost(bits: tuple[int, ...], k: int) -> None:
    """At most half of q / 2^k, and one more half for the way back; nothing if k bits hold q with one to spare."""
    primes = primes_of(bits, N)
    q, words = prod(primes), edges(primes)
    units = [q // p * pow(q // p, -1, p) for p in primes]
    again = lengthen(shorten(words, primes, k), primes, k, COUNT)
    before, after = (sum(r.astype(object) * u for r, u in zip(w, units, strict=True)) % q for w in (words, again))
    lost = [min(d, q - d) for d in (before - after) % q]
    assert max(lost) <= (q >> (k + 1)) + 1
    everything = lengthen(shorten(words, primes, q.bit_length() + 1), primes, q.bit_length() + 1, COUNT)
    assert (everything == words).all()
