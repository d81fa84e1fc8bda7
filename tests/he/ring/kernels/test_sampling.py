"""The samplers against Python integers on the same words, their distributions, and that all primes agree."""

import math
from collections import Counter

import numpy as np
import pytest

from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import sampling
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import stream
from privcirnet.he.system.jit import jit
from tests.he import sampling_oracles as slow

SEED = bytes(range(100, 132))
PRIMES = tuple(modular.largest_prime(bits, 2) for bits in (55, 61, 17, 60, 59))
N = 8192


def words(count: int) -> Residues:
    """The same words every time, in place of a stream."""
    return stream(SEED)(count)


def ternary(words: Residues, count: int) -> list[int]:
    draws = np.empty(count, dtype=np.uint64)
    assert sampling.ternary(words, draws)
    return [int(draw) - 1 for draw in draws]


@jit
def binomials(words: Residues) -> Residues:
    found = np.empty_like(words)
    for i in range(words.size):
        found[i] = sampling.binomial(words[i])
    return found


def flooded(bits: int, count: int) -> Residues:
    """Flooding noise added to zeros: residues, (primes, count)."""
    flood, found = sampling.flooding(bits, PRIMES, count, words), np.zeros((len(PRIMES), count), dtype=np.uint64)
    for limb, p in enumerate(PRIMES):
        sampling.add_flood(found[limb], flood, limb, np.uint64(p))
    return found


def integers(residues: Residues) -> list[int]:
    """The integers of least absolute value that have these residues, which under every prime must be the same."""
    total = math.prod(PRIMES)
    weights = [total // p * pow(total // p, -1, p) for p in PRIMES]
    lifted = (sum(w * r for w, r in zip(weights, column, strict=True)) % total for column in residues.T.tolist())
    return [value - total if value > total // 2 else value for value in lifted]


def chi_square(values: list[int], expected: dict[int, float]) -> float:
    counts = Counter(values)
    assert set(counts) <= set(expected)
    return sum((counts[value] - mean) ** 2 / mean for value, mean in expected.items())


def test_ternary_from_the_words() -> None:
    drawn = words(sampling.ternary_words(N))
    fields = [word >> shift & 3 for word in drawn.tolist() for shift in range(0, 64, 2)]
    assert ternary(drawn, N) == [field - 1 for field in fields if field < 3][:N]
    assert (slow.ternary(N, words).astype(int) - 1).tolist() == ternary(drawn, N)


def test_ternary_is_uniform() -> None:
    """Two degrees of freedom: over 18 once in 8000 seeds."""
    values = ternary(words(sampling.ternary_words(N)), N)
    assert chi_square(values, dict.fromkeys((-1, 0, 1), N / 3)) < 18


def test_ternary_says_where_the_words_do_not_suffice() -> None:
    """A word of candidates 3 only, then 3, 2, 1, 0, 3 from the lowest bits."""
    words = np.array([2**64 - 1, 0b11_00_01_10_11, 0], dtype=np.uint64)
    assert ternary(words, 4) == [1, 0, -1, -1]
    assert not sampling.ternary(words[:1], np.empty(1, dtype=np.uint64))
    for last, enough in ((0, True), (2, True), (3, False)):
        word = np.array([last << 62 | (1 << 62) - 1], dtype=np.uint64)
        assert sampling.ternary(word, np.empty(1, dtype=np.uint64)) is enough


def test_errors_from_the_words() -> None:
    half = (1 << 21) - 1
    extremes = np.array([half, half << 21, 0, 2**64 - 1], dtype=np.uint64)
    drawn = np.append(words(1000), extremes)
    oracle = [21 + (word & half).bit_count() - (word >> 21 & half).bit_count() for word in drawn.tolist()]
    assert binomials(drawn).tolist() == oracle
    assert oracle[-4:] == [42, 0, 21, 21]
    assert sampling.BINOMIAL == slow.ERROR_BITS


def test_errors_are_binomial() -> None:
    """20 degrees of freedom, values beyond 10 taken together: over 60 once in 140 000 seeds."""
    values = [max(-10, min(10, int(value) - 21)) for value in binomials(words(N))]
    expected = dict.fromkeys(range(-10, 11), 0.0)
    for ones in range(43):
        expected[max(-10, min(10, ones - 21))] += N * math.comb(42, ones) / 2**42
    assert chi_square(values, expected) < 60


@pytest.mark.parametrize("bits", [1, 40, 61, 62, 63, 64, 125, 126, 127, 150, 191, 200])
def test_flooding_from_the_words(bits: int) -> None:
    """The lower digits are of the first part, at 126 and 190 bits whole words; the highest 62 bits of three are added."""
    low, top = max(bits - 62, 0), min(bits, 62)
    lower = -(-low // 64)
    drawn = words((lower + 3) * 100).reshape(lower + 3, 100).tolist()
    oracle = []
    for column in zip(*drawn, strict=True):
        rest = sum(word << 64 * i for i, word in enumerate(column[:lower])) % (1 << low)
        tops = sum(word >> 64 - top for word in column[lower:])
        oracle.append((tops << low) + rest - (3 * 2**bits // 2 - 2**low))
    assert integers(flooded(bits, 100)) == oracle
    assert (flooded(bits, 100) == slow.flood(bits, PRIMES, 100, words)).all()
    assert max(map(abs, oracle)) <= 1.5 * 2**bits


def test_flooding_is_a_sum_of_three_uniform_numbers() -> None:
    """12 equal parts of the range, 11 degrees of freedom: over 45 once in 200 000 seeds."""
    values = integers(flooded(100, N))
    parts = [min(int((value / 2**100 + 1.5) * 4), 11) for value in values]

    def below(x: float) -> float:
        return sum((-1) ** k * math.comb(3, k) * (x - k) ** 3 for k in range(4) if x > k) / 6

    assert chi_square(parts, {i: N * (below((i + 1) / 4) - below(i / 4)) for i in range(12)}) < 45
