"""The field of 2^128 elements against GHASH, which is OpenSSL's."""

import os

import numpy as np

from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.ot.ciphers import check_point, linear_check

KEY = bytes(range(16))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty(2, np.uint64)
    blocks.field_product(out, a, b)
    return out


def ghash(rows: np.ndarray) -> np.ndarray:
    column = rows.reshape(-1)
    first, zero = linear_check(KEY, [column, np.zeros_like(column)])
    return first ^ zero


def random_blocks(count: int) -> np.ndarray:
    return np.frombuffer(os.urandom(16 * count), np.uint64).reshape(count, 2)


def test_products_are_those_of_ghash():
    h = check_point(KEY)
    for a in random_blocks(20):
        assert (product(product(a, h), h) == ghash(a)).all()
    for a, b in zip(random_blocks(20), random_blocks(20), strict=True):
        assert (product(a, b) == product(b, a)).all()


def test_a_combination_is_a_polynomial_in_x():
    rows, out = random_blocks(128), np.empty(2, np.uint64)
    blocks.combination(out, rows)
    powers, one = [np.zeros(2, np.uint64) for _ in rows], np.uint64(1)
    for i, power in enumerate(powers):
        power[i // 64] = one << np.uint64(i % 64 // 8 * 8 + 7 - i % 8)
    assert (out == np.bitwise_xor.reduce([product(*pair) for pair in zip(rows, powers, strict=True)])).all()


def test_weights_are_ghash_of_ones_at_the_leaves():
    rng, trees, depth = np.random.default_rng(0), 5, 4
    for _ in range(20):
        sides = rng.integers(0, 2, (trees, depth), dtype=np.uint64)
        message = np.zeros((trees, 1 << depth, 2), np.uint64)
        leaf = ((1 - sides.astype(int)) << np.arange(depth - 1, -1, -1)).sum(1)
        message[np.arange(trees), leaf, 0] = 0x80
        out = np.empty(2, np.uint64)
        blocks.weights(out, check_point(KEY), sides)
        assert (out == ghash(message)).all()
