import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular, roots


@pytest.mark.parametrize("order", [2, 8, 64])
def test_minimal_root_is_the_smallest_of_its_order(order: int) -> None:
    t = modular.largest_prime(14, 64)
    primitive = [x for x in range(2, t) if pow(x, order // 2, t) == t - 1]
    assert len(primitive) == order // 2
    assert roots.minimal_root(order, t) == min(primitive)


@pytest.mark.parametrize("length", [1, 3, 8, 12])
def test_the_matrices_of_both_directions_are_inverse(length: int) -> None:
    t = modular.largest_prime(20, 24)
    forward, back = (roots.powers(*_arguments(length, t, inverse), t) for inverse in (False, True))
    assert forward.shape == (length, length)
    root, _ = roots.cyclic_root(length, t, False)
    assert forward.tolist() == [[pow(root, j * k, t) for j in range(length)] for k in range(length)]
    assert (modular.matmul(forward, back, t) == np.eye(length, dtype=np.uint64)).all()


def _arguments(length: int, t: int, inverse: bool) -> tuple[int, int, int]:
    root, scale = roots.cyclic_root(length, t, inverse)
    return root, length, scale


def test_there_is_no_root_of_another_length() -> None:
    with pytest.raises(RuleError, match="must divide t - 1: got length 5, t = 17"):
        roots.cyclic_root(5, 17, False)


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_bits_are_reversed(n: int) -> None:
    order = roots.bit_reversed(n)
    width = n.bit_length() - 1
    assert order.tolist() == [int(f"{i:0{width}b}"[::-1], 2) if width else 0 for i in range(n)]
