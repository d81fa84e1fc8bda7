from fractions import Fraction

import numpy as np
import pytest

from privcirnet.he.params.noise import noise_bits
from privcirnet.he.ring import modular, sampling

T = modular.largest_prime(41, 16384)


def chi_square(values: np.ndarray, buckets: int, t: int) -> float:
    """Of the counts in intervals of [0, t); about its degrees of freedom, +- a few square roots of twice that."""
    ends = [-(-i * t // buckets) for i in range(buckets + 1)]
    counts = np.histogram(values, np.array(ends, dtype=np.uint64))[0]
    expected = np.diff(np.array(ends, dtype=np.float64)) * len(values) / t
    return float(((counts - expected) ** 2 / expected).sum())


def limit(buckets: int) -> float:
    """Ten standard deviations over the mean of chi-square: never by chance."""
    return buckets + 10 * np.sqrt(2 * buckets)


@pytest.mark.parametrize(
    "t", [3, 257, 512, 683, (1 << 20) + 7, (1 << 41) + (1 << 40), modular.largest_prime(60, 16384)]
)
def test_uniform_has_no_bias(t: int) -> None:
    buckets = min(t, 64)
    values = sampling.uniform((50000,), t)
    assert values.dtype == np.uint64
    assert int(values.max()) < t
    assert chi_square(values, buckets, t) < limit(buckets)


@pytest.mark.parametrize("t", [683, (1 << 41) + (1 << 40)])
def test_a_reduction_in_place_of_rejection_would_be_seen(t: int) -> None:
    """At two thirds or three quarters of a power of two it would double the weight of the low numbers."""
    words = np.random.default_rng(0).integers(0, 1 << t.bit_length(), 50000, dtype=np.uint64)
    assert chi_square(words % np.uint64(t), 64, t) > 3 * limit(64)


def test_uniform_shapes_and_freshness() -> None:
    first, second = sampling.uniform((3, 4, 5), T), sampling.uniform((3, 4, 5), T)
    assert first.shape == (3, 4, 5)
    assert (first != second).sum() > 50
    assert sampling.uniform((0, 3), T).shape == (0, 3)
    assert sampling.uniform((), T).shape == ()
    assert not sampling.uniform((9,), 1).any()


@pytest.mark.parametrize("bits", [1, 47, 48, 95, 96, 119])
def test_samples_are_uniform_in_their_range(bits: int) -> None:
    primes = (281474976546817, 281474976317441, 281474975662081)
    residues = sampling.flood(bits, primes, 4000)
    assert residues.shape == (3, 4000)
    assert all((residues[i] < p).all() for i, p in enumerate(primes))
    values = [_lift([int(r) for r in column], primes) for column in residues.T]
    assert all(-(1 << bits) <= v < 1 << bits for v in values)
    mean = Fraction(sum(2 * v + 1 for v in values), 2 * len(values) << bits)
    assert abs(mean) < Fraction(1, 10), "5 standard errors of a uniform mean are 0.046"
    assert len({v < 0 for v in values}) == 2
    assert max(map(abs, values)) > (1 << bits) * 0.99 or bits == 1


def _lift(residues: list[int], primes: tuple[int, ...]) -> int:
    """The signed integer of least absolute value with these residues."""
    modulus = primes[0] * primes[1] * primes[2]
    total = sum(r * (modulus // p) * pow(modulus // p, -1, p) for r, p in zip(residues, primes, strict=True)) % modulus
    return total - modulus if total > modulus // 2 else total


def test_the_flood_is_forty_bits_over_the_noise_bound() -> None:
    assert sampling.FLOODING_BITS == 40
    assert noise_bits(8192, 46, 1) == 66
