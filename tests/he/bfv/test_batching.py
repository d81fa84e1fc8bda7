import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.ring import modular
from tests.he.kernel_oracles import residues_mod


def slow_evaluate(coefficients: list[int], point: int, t: int) -> int:
    return sum(c * pow(point, i, t) for i, c in enumerate(coefficients)) % t


@pytest.mark.parametrize("n", [2, 8, 64])
def test_slots_are_values_of_the_polynomial(n: int) -> None:
    t = modular.largest_prime(41, 2 * n)
    slots = residues_mod((3, n), t)
    psi = modular.minimal_root(2 * n, t)
    assert psi == min(x for k in range(1, 2 * n, 2) for x in [pow(psi, k, t)])
    for row, coefficients in zip(slots, batching.slots_to_coefficients(slots, t), strict=True):
        for i in range(n // 2):
            exponent = pow(3, i, 2 * n)
            assert slow_evaluate(coefficients.tolist(), pow(psi, exponent, t), t) == row[i]
            assert slow_evaluate(coefficients.tolist(), pow(psi, -exponent, t), t) == row[n // 2 + i]


@pytest.mark.parametrize("n", [2, 8, 64, 4096])
def test_slots_and_coefficients_are_inverse(n: int) -> None:
    t = modular.largest_prime(60, 2 * n)
    values = residues_mod((2, 3, n), t)
    assert (batching.coefficients_to_slots(batching.slots_to_coefficients(values, t), t) == values).all()
    assert (batching.slots_to_coefficients(batching.coefficients_to_slots(values, t), t) == values).all()


@pytest.mark.parametrize(("n", "bits", "plain_bits"), [(4096, (36, 35, 35), 23), (8192, (54, 54, 53, 53), 60)])
def test_batching_is_the_library_s(n: int, bits: tuple[int, ...], plain_bits: int) -> None:
    parameters = choose({1}, plain_bits, n, bits)
    literal = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    literal.set_poly_modulus_degree(n)
    literal.set_coeff_modulus(seal.CoeffModulus.Create(n, list(bits)))
    literal.set_plain_modulus(parameters.plain_modulus)
    encoder, plaintext = seal.BatchEncoder(seal.SEALContext(literal, True, seal.SEC_LEVEL_TYPE.TC128)), seal.Plaintext()
    slots = residues_mod((n,), parameters.plain_modulus)
    encoder.encode(slots.tolist(), plaintext)
    theirs = [plaintext[i] for i in range(plaintext.coeff_count())]
    assert batching.slots_to_coefficients(slots, parameters.plain_modulus).tolist()[: len(theirs)] == theirs


@pytest.mark.parametrize("order", [2, 8, 64])
def test_minimal_root_is_the_smallest_of_its_order(order: int) -> None:
    t = modular.largest_prime(14, 64)
    primitive = [x for x in range(2, t) if pow(x, order // 2, t) == t - 1]
    assert len(primitive) == order // 2
    assert modular.minimal_root(order, t) == min(primitive)


@pytest.mark.parametrize("length", [1, 3, 8, 12])
def test_the_matrices_of_both_directions_are_inverse(length: int) -> None:
    t = modular.largest_prime(20, 24)
    forward, back = (modular.dft_matrix(*_arguments(length, t, inverse), t) for inverse in (False, True))
    assert forward.shape == (length, length)
    root, _ = modular.cyclic_root(length, t, False)
    assert forward.tolist() == [[pow(root, j * k, t) for j in range(length)] for k in range(length)]
    assert (modular.matmul(forward, back, t) == np.eye(length, dtype=np.uint64)).all()


def _arguments(length: int, t: int, inverse: bool) -> tuple[int, int, int]:
    root, scale = modular.cyclic_root(length, t, inverse)
    return root, length, scale


def test_there_is_no_root_of_another_length() -> None:
    with pytest.raises(RuleError, match="must divide t - 1: got length 5, t = 17"):
        modular.cyclic_root(5, 17, False)


@pytest.mark.parametrize("n", [1, 2, 8, 64])
def test_bits_are_reversed(n: int) -> None:
    order = modular.bit_reversed(n)
    width = n.bit_length() - 1
    assert order.tolist() == [int(f"{i:0{width}b}"[::-1], 2) if width else 0 for i in range(n)]
