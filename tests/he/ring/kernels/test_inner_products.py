import numpy as np
import pytest

from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.inner_products import CHUNK, Terms, moduli
from privcirnet.he.rlwe.kernels.rns import ring
from tests.he.kernel_oracles import primes_of, random_residues

N = 2 * CHUNK


def chunks_of(ciphertexts: np.ndarray, primes: tuple[int, ...]) -> np.ndarray:
    """Ciphertexts (inputs, 2, L, n) as inputs of products."""
    chunks = np.zeros((len(primes) * N // CHUNK, len(ciphertexts), 2, CHUNK), dtype=np.uint64)
    for index, ciphertext in enumerate(ciphertexts):
        inner_products.place(chunks, index, ciphertext, moduli(primes).half)
    return chunks


def split(weights: np.ndarray, primes: tuple[int, ...]) -> np.ndarray:
    own = weights.copy()
    inner_products.split(own, moduli(primes))
    return own


@pytest.mark.parametrize("bits", [(55, 54), (60, 30), (48, 49), (61, 60)])
@pytest.mark.parametrize("largest", [False, True])
def test_sums_of_products_are_exact(bits: tuple[int, ...], largest: bool) -> None:
    """Sums of 1 to 200 products: every remainder of the unrolled loops, and more than fit before a reduction."""
    primes = primes_of(bits, N)
    inputs = random_residues(primes, 5, 2, N, seed=1, largest=largest)
    weights = random_residues(primes, 7, N, seed=2, largest=largest)
    random = np.random.default_rng(3)
    lengths = [1, 2, 3, 4, 5, 6, 7, 8, 63, 64, 65, 66, 67, 68, 131, 200]
    pairs = np.stack([random.integers(0, 5, sum(lengths)), random.integers(0, 7, sum(lengths))], axis=1)
    terms = Terms(pairs, np.array([0, *np.cumsum(lengths)]))
    sums = np.full((len(lengths), 2, len(primes), N), 99, dtype=np.uint64)
    x, w = chunks_of(inputs, primes), split(weights, primes)
    inner_products.multiply_accumulate(sums, x, w, terms, moduli(primes), (0, 1))
    inner_products.multiply_accumulate(sums, x, w, terms, moduli(primes), (1, len(x)))
    for number in range(len(lengths)):
        own = pairs[terms.first[number] : terms.first[number + 1]]
        for half, limb, place in [(0, 0, 0), (1, 0, CHUNK - 1), (0, 1, CHUNK), (1, 1, N - 1)]:
            found = sum(int(inputs[i, half, limb, place]) * int(weights[j, limb, place]) for i, j in own.tolist())
            assert int(sums[number, half, limb, place]) == found % primes[limb]


def test_a_chunk_writes_its_own_words_alone() -> None:
    primes = primes_of((55, 54), N)
    x, w = chunks_of(random_residues(primes, 1, 2, N), primes), split(random_residues(primes, 1, N), primes)
    sums = np.zeros((1, 2, 2, N), dtype=np.uint64)
    terms = Terms(np.zeros((1, 2), dtype=np.int64), np.array([0, 1]))
    inner_products.multiply_accumulate(sums, x, w, terms, moduli(primes), (2, 3))
    assert sums[:, :, 1, :CHUNK].all()
    assert not sums[:, :, 0].any()
    assert not sums[:, :, 1, CHUNK:].any()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_inner_product_starts_where_it_should(count: int) -> None:
    primes = primes_of((55, 54), N)
    inputs, weights = random_residues(primes, 6, 2, N, seed=5), random_residues(primes, count, N, seed=6)
    found = inner_products.inner_product(chunks_of(inputs, primes), 2, split(weights, primes), moduli(primes))
    expected = sum(int(inputs[2 + k, 1, 1, 9]) * int(weights[k, 1, 9]) for k in range(count)) % primes[1]
    assert int(found[1, 1, 9]) == expected


def test_a_ring_that_is_shorter_than_a_chunk() -> None:
    primes = primes_of((55, 54), CHUNK // 2)
    own, few = ring(primes, CHUNK // 2), CHUNK // 2
    ciphertext, weights = random_residues(primes, 2, few, seed=7), random_residues(primes, 1, few, seed=8)
    inputs = own.inputs(1, len(primes))
    own.place(inputs, 0, ciphertext)
    found = inner_products.inner_product(inputs, 0, split(weights, primes), moduli(primes))
    for limb, p in enumerate(primes):
        expected = [int(a) * int(b) % p for a, b in zip(ciphertext[1, limb], weights[0, limb], strict=True)]
        assert found[1, limb].tolist() == expected


def test_add() -> None:
    primes = primes_of((60, 30), N)
    total, term = random_residues(primes, 2, N, seed=7), random_residues(primes, 2, N, largest=True)
    expected = [(total[:, limb] - np.uint64(1)) % np.uint64(p) for limb, p in enumerate(primes)]
    expected = [np.where(total[:, limb] == 0, np.uint64(p - 1), expected[limb]) for limb, p in enumerate(primes)]
    inner_products.add(total, term, moduli(primes).primes)
    assert np.array_equal(total, np.stack(expected, axis=1))
