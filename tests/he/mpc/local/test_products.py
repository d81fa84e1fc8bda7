"""Products of shares against Python's integers, and the two halves of a prepared one."""

import numpy as np
import pytest

from privcirnet.he.mpc.local import products
from privcirnet.he.program.interpreter import as_weights
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads

MODULI = [modular.largest_prime(bits, 2) for bits in (4, 20, 41, 54, 60, 61)]
SIZES = [(1, 1, 1, 1), (2, 5, 3, 4), (1, 64, 65, 70), (3, 7, 1, 130), (4, 65, 20, 1)]


def residues(shape: tuple[int, ...], t: int, seed: int) -> Residues:
    found = np.random.default_rng(seed).integers(0, t, shape, dtype=np.uint64)
    found.reshape(-1)[:2] = np.array([t // 2, t // 2 + 1], dtype=np.uint64)[: found.size]
    return found


def python_product(left: np.ndarray, right: np.ndarray, groups: int) -> np.ndarray:
    """As the operation says, in Python's integers."""
    a = left.astype(object).reshape(groups, -1, left.shape[1])
    weight = as_weights(right.astype(object), groups)[:, :, 0, 0].reshape(groups, right.shape[1], -1)
    return np.concatenate([w @ x for w, x in zip(weight, a, strict=True)])[:, :, None]


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("size", SIZES)
def test_product(t: int, size: tuple[int, int, int, int]) -> None:
    groups, k, a, b = size
    left, right = residues((groups * k, a, 1), t, 0), residues((groups * k, b, 1), t, 1)
    plus = residues((groups * b, a, 1), t, 2)
    wanted = python_product(left, right, groups)
    assert (products.product(left, right, groups, t) == wanted % t).all()
    with threads.using(3):
        assert (products.product(left, right, groups, t, plus) == (wanted + plus) % t).all()


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("k", [1, 100, 12_000])
def test_the_largest_numbers_in_every_place(t: int, k: int) -> None:
    for left, right in ((t // 2, t // 2), (t // 2 + 1, t // 2), (t - 1, t - 1), (t // 2 + 1, t // 2 + 1)):
        share = [np.full((k, 2, 1), value, dtype=np.uint64) for value in (left, right)]
        assert (products.product(*share, 1, t) == k * left * right % t).all()


def test_the_shares_add_up_to_the_product() -> None:
    t, groups, k, a, b = MODULI[3], 2, 5, 6, 7
    shapes = (groups * k, a, 1), (groups * k, b, 1), (groups * b, a, 1)
    values = [np.random.default_rng(9).integers(-1000, 1000, shape) for shape in shapes[:2]]
    own = [residues(shape, t, i) for i, shape in enumerate(shapes)]
    offline_shares = [residues(shape, t, i + 5) for i, shape in enumerate(shapes[:2])]
    other = [modular.subtract(modular.residues(x, t), c, t) for x, c in zip(values, own[:2], strict=True)]
    d = [modular.subtract(s, offline_share, t) for s, offline_share in zip(other, offline_shares, strict=True)]
    v_c = residues(shapes[2], t, 8)
    together = [modular.add(c, offline_share, t) for c, offline_share in zip(own[:2], offline_shares, strict=True)]
    v_s = modular.subtract(products.product(*together, groups, t), v_c, t)
    e = products.answer(*own[:2], *d, groups, t, modular.subtract(v_c, own[2], t))
    terms = modular.subtract(v_s, products.product(*offline_shares, groups, t), t)
    share = products.finish(*other, e, groups, t, terms)
    found = modular.centered(modular.add(share, own[2], t), t)
    assert (found == python_product(*values, groups)).all()
