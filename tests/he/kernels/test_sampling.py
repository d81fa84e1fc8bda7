"""The samplers against Python integers on the same words, their distributions, and that all primes agree."""

import math
import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he import flooding, modular
from privcirnet.he.kernels import sampling, seeds
from privcirnet.he.modular import Residues

SEED = bytes(range(100, 164))
PRIMES = tuple(modular.largest_prime(bits, 2) for bits in (55, 61, 17, 60, 59))
N = 8192


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system gives :data:`SEED` where 64 bytes are asked for, else the words of that seed."""

    def given(size: int) -> bytes:
        return SEED if size == 64 else seeds.stream(SEED, size // 8).tobytes()

    monkeypatch.setattr(os, "urandom", given)


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
    words = seeds.stream(SEED, N // 16).tolist()
    fields = [word >> shift & 3 for word in words for shift in range(0, 64, 2)]
    oracle = [field - 1 for field in fields if field < 3][:N]
    assert integers(sampling.ternary(PRIMES, N)) == oracle


def test_ternary_is_uniform() -> None:
    """Two degrees of freedom: over 18 once in 8000 seeds."""
    values = integers(sampling.ternary(PRIMES, N))
    assert len(values) == N
    assert chi_square(values, dict.fromkeys((-1, 0, 1), N / 3)) < 18


def test_ternary_takes_more_words_where_the_first_do_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two words of candidates 3 only, then 3, 2, 1, 0, 3 from the lowest bits."""
    words = np.array([2**64 - 1, 2**64 - 1, 0b11_00_01_10_11, 0], dtype=np.uint64)
    asked = []
    monkeypatch.setattr(seeds, "stream", lambda seed, count: asked.append(count) or words[:count])
    assert integers(sampling.ternary(PRIMES, 4)) == [1, 0, -1, -1]
    assert asked == [1, 2, 4]


def test_the_last_candidate_of_a_word_counts_only_if_it_is_not_3() -> None:
    for last, enough in ((0, True), (2, True), (3, False)):
        word = np.array([last << 62 | (1 << 62) - 1], dtype=np.uint64)
        assert sampling._fields(word, np.empty(1, dtype=np.uint64)) is enough


def test_centered_binomial_from_the_words() -> None:
    words, half = seeds.stream(SEED, 1000).tolist(), (1 << 21) - 1
    oracle = [(word & half).bit_count() - (word >> 21 & half).bit_count() for word in words]
    assert integers(sampling.centered_binomial(PRIMES, 1000)) == oracle


@pytest.mark.parametrize(("word", "value"), [((1 << 21) - 1, 21), (((1 << 21) - 1) << 21, -21), (0, 0), (2**64 - 1, 0)])
def test_the_largest_errors(word: int, value: int) -> None:
    words = np.array([word], dtype=np.uint64)
    sampling._differences(words)
    assert words.tolist() == [21 + value]


def test_centered_binomial_is_binomial() -> None:
    """20 degrees of freedom, values beyond 10 taken together: over 60 once in 140 000 seeds."""
    values = [max(-10, min(10, value)) for value in integers(sampling.centered_binomial(PRIMES, N))]
    expected = dict.fromkeys(range(-10, 11), 0.0)
    for ones in range(43):
        expected[max(-10, min(10, ones - 21))] += N * math.comb(42, ones) / 2**42
    assert chi_square(values, expected) < 60
    assert math.isclose(np.std(values), math.sqrt(10.5), rel_tol=0.03)


@pytest.mark.parametrize("bits", [0, 1, 40, 63, 64, 126, 127, 128, 190, 191])
def test_flooding_from_the_words(bits: int) -> None:
    """At 63, 127 and 191 bits the highest word is used whole; at 64 and 128 only one bit of it."""
    count = bits // 64 + 1
    words = seeds.stream(SEED, count * 100).reshape(count, 100)
    oracle = [sum(int(w) << 64 * i for i, w in enumerate(column)) % 2 ** (bits + 1) - 2**bits for column in words.T]
    made = sampling.flooding(bits, PRIMES, 100)
    assert integers(made) == oracle
    assert (made == flooding.sample(bits, PRIMES, 100)).all()


def test_flooding_is_uniform() -> None:
    """16 equal parts of the range, 15 degrees of freedom: over 50 once in 80 000 seeds."""
    values = integers(sampling.flooding(100, PRIMES, N))
    assert -(2**100) <= min(values) < 0 <= max(values) < 2**100
    assert chi_square([value >> 97 for value in values], dict.fromkeys(range(-8, 8), N / 16)) < 50


@pytest.mark.parametrize("bits", [-1, 192])
def test_flooding_has_three_words(bits: int) -> None:
    with pytest.raises(RuleError, match=f"flooding noise must have 0 to 191 bits: got {bits}"):
        sampling.flooding(bits, PRIMES, 8)


SAMPLERS: list[Callable[[], Residues]] = [
    lambda: sampling.ternary(PRIMES, 4096),
    lambda: sampling.centered_binomial(PRIMES, 4096),
    lambda: sampling.flooding(130, PRIMES, 4096),
]


@pytest.mark.parametrize("sample", SAMPLERS, ids=["ternary", "binomial", "flooding"])
def test_every_call_asks_for_one_fresh_seed(sample: Callable[[], Residues], monkeypatch: pytest.MonkeyPatch) -> None:
    sample()  # compiled: names of the compiler's files are random too
    asked = []
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or bytes([len(asked)]) * size)
    first, second = sample(), sample()
    assert asked == [64, 64]
    assert (first != second).any()
    assert (first < np.array(PRIMES, dtype=np.uint64)[:, None]).all()
    assert (second < np.array(PRIMES, dtype=np.uint64)[:, None]).all()
