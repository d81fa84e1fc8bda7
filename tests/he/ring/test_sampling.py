import hashlib
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.sampling import stream
from tests.he import sampling_oracles

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


PRIMES = (281474976546817, 281474976317441, 281474975662081)


@pytest.mark.parametrize("bits", [1, 47, 62, 63, 95, 119, 126, 127])
def test_floods_are_sums_of_three_uniform_integers(bits: int) -> None:
    residues = sampling_oracles.flood(bits, PRIMES, 4000, stream())
    assert residues.shape == (3, 4000)
    assert all((residues[i] < p).all() for i, p in enumerate(PRIMES))
    values = np.array([_lift([int(r) for r in column], PRIMES) / 2**bits for column in residues.T])
    assert abs(values).max() <= 1.5
    if bits > 1:
        assert abs(values.mean()) < 0.04, "five standard errors"
        assert abs(values.var() - 0.25) < 0.03, "seven standard errors of a variance of 3 / 12"
        assert abs(values).max() > 1.2, "once in 2^40 floods of 4000 it is not"


def test_ternary_numbers_are_uniform_and_drawn_until_they_suffice() -> None:
    counts = np.bincount(sampling_oracles.ternary(30000, stream()).astype(np.int64))
    assert abs(counts - 10000).max() < 700, "eight deviations"
    assert len(counts) == 3
    given = iter([np.array([2**64 - 1], dtype=np.uint64), np.array([0b01_11_10], dtype=np.uint64)])
    assert sampling_oracles.ternary(3, lambda count: next(given)).tolist() == [2, 1, 0]


def test_errors_are_binomial() -> None:
    """Of SEAL's deviation; every value has its bit pattern."""
    values = sampling_oracles.errors(20000, stream()).astype(np.int64) - 21
    assert abs(values.mean()) < 0.15
    assert abs(values.var() - 10.5) < 0.6
    half = (1 << 21) - 1
    chosen = np.array([0, half, half << 21, half << 21 | half, 1, 1 << 20, 1 << 21, 1 << 41, 1 << 42], dtype=np.uint64)
    assert (sampling_oracles.errors(9, lambda count: chosen).astype(np.int64) - 21).tolist() == [
        0,
        21,
        -21,
        0,
        1,
        1,
        -1,
        -1,
        0,
    ]


def summed(width: int) -> np.ndarray:
    """Probabilities of the sum of three uniform integers in [0, width)."""
    one = np.full(width, 1 / width)
    return np.convolve(np.convolve(one, one), one)


def hellinger(p: np.ndarray, shift: int) -> float:
    """Squared Hellinger distance of a distribution from itself moved by some integers."""
    zeros = np.zeros(shift)
    roots = [np.sqrt(np.concatenate(parts)) for parts in ((p, zeros), (zeros, p))]
    return float(((roots[0] - roots[1]) ** 2).sum() / 2)


@pytest.mark.parametrize("width", [256, 1024])
def test_a_shift_is_hidden_as_the_fisher_information_says(width: int) -> None:
    """Twice as far is twice as many bits, which the hard edges of one uniform integer do not give."""
    found = [hellinger(summed(width), shift) * 8 * (width / shift) ** 2 for shift in (1, 2, 8)]
    assert all(4 < value <= sampling._FISHER for value in found)
    edges = [hellinger(np.full(width, 1 / width), shift) * width for shift in (1, 2, 8)]
    assert edges == pytest.approx([1, 2, 8])


@pytest.mark.parametrize(("count", "noise"), [(1 << 17, 66), (1 << 24, 66), (1, 40), (1 << 17, 30)])
def test_distance_of_an_image(count: int, noise: int) -> None:
    """By the formula in exact numbers; below 2^-62 the upper digits of two parts bind."""
    shift = Fraction(2**noise, 2**110) + Fraction(1, 2**62)
    distance = math.sqrt(sampling._FISHER * count) * float(shift) / 2
    assert sampling.image_distance_bits([(count, noise)], 110) == pytest.approx(-math.log2(distance))
    halves = [(count - count // 2, noise), (count // 2, noise)]
    assert sampling.image_distance_bits(halves, 110) == sampling.image_distance_bits([(count, noise)], 110)
    assert sampling.image_distance_bits([], 110) == math.inf


def _lift(residues: list[int], primes: tuple[int, ...]) -> int:
    """The signed integer of least absolute value with these residues."""
    modulus = primes[0] * primes[1] * primes[2]
    total = sum(r * (modulus // p) * pow(modulus // p, -1, p) for r, p in zip(residues, primes, strict=True)) % modulus
    return total - modulus if total > modulus // 2 else total


def test_words_are_aes_in_counter_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block with the cipher alone; what is drawn later goes on where it ended."""
    key = hashlib.sha256(b"key").digest()
    monkeypatch.setattr(os, "urandom", lambda size: key[:size])
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    blocks = b"".join(cipher.update(i.to_bytes(16, "big")) for i in range(300))
    words = stream()
    found = np.concatenate([words(1), words(0), words(2), words(500)])
    assert found.tobytes() == blocks[: 8 * 503]


def test_every_stream_is_another_one() -> None:
    first, second = (stream()(1000) for _ in range(2))
    assert (first != second).all()
    assert abs(np.bitwise_count(first).mean() - 32) < 1, "eight deviations of a mean of 1000"
