"""Correlated trees against their definition, node by node; the holder has all leaves but one, and that plus Delta."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import trees
from tests.he.mpc.transfers import permuted

TREES = 6
RNG = np.random.default_rng(0)
DELTA = RNG.integers(0, 1 << 63, 2, dtype=np.uint64) | np.array([1, 0], np.uint64)


def rows(*shape: int) -> np.ndarray:
    return RNG.integers(0, 1 << 63, (*shape, 2), dtype=np.uint64)


def leaves_of(root: np.ndarray, depth: int) -> np.ndarray:
    """All leaves but for their lowest bits, by the definition."""
    nodes = [root, root ^ DELTA]
    for _ in range(depth - 1):
        mixed = [np.array([x ^ y, x]) for x, y in nodes]
        left = [permuted(s[None], b"s", "half trees")[0] ^ s for s in mixed]
        nodes = [child for node, first in zip(nodes, left, strict=True) for child in (first, node ^ first)]
    return np.array(nodes)


@pytest.mark.parametrize("at_once", [1 << 15, 64])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_all_leaves_but_one(depth, at_once, monkeypatch, aes_kind):
    monkeypatch.setattr(trees, "_AT_ONCE", at_once)
    roots, q, sides = rows(TREES), rows(TREES, depth), RNG.integers(0, 2, (TREES, depth), dtype=np.uint64)
    leaves, held = np.empty((2, TREES, 1 << depth, 2), np.uint64)
    message = trees.make_correlated(leaves, roots, q, DELTA, b"s")
    assert len(message) == trees.correlated_bytes(TREES, depth)
    trees.hold_correlated(held, q ^ sides[..., None] * DELTA, sides, message, b"s")
    clear = np.array([2**64 - 2, 2**64 - 1], np.uint64)
    assert (leaves == np.array([leaves_of(root, depth) for root in roots]) & clear).all()
    hole = ((1 - sides.astype(int)) << np.arange(depth - 1, -1, -1)).sum(1)
    expected = leaves.copy()
    expected[np.arange(TREES), hole] ^= DELTA
    assert (held == expected).all()


def test_other_lengths_are_refused():
    leaves = np.empty((TREES, 4, 2), np.uint64)
    message = trees.make_correlated(leaves, rows(TREES), rows(TREES, 2), DELTA, b"s")
    with pytest.raises(RuleError, match="correlated trees must have the length"):
        trees.hold_correlated(leaves, rows(TREES, 2), np.zeros((TREES, 2), np.uint64), message[1:], b"s")
