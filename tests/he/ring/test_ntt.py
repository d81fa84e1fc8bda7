import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.engines import cyclic
from privcirnet.he.params.parameters import choose
from privcirnet.he.ring import batching, modular, roots

LENGTHS = (1, 2, 3, 5, 6, 8, 9, 12, 15, 16, 17, 33)
T = modular.largest_prime(61, 16 * 9 * 5 * 11 * 17)


def random_residues(shape: tuple[int, ...], t: int, seed: int = 0) -> modular.Residues:
    residues = np.random.default_rng(seed).integers(0, t, shape, dtype=np.uint64)
    residues.reshape(-1)[: min(3, residues.size)] = t - 1
    return residues


def slow_cyclic(x: list[int], t: int) -> list[int]:
    """y[k] = sum_j x[j] w^(j k), w of order N."""
    root = modular.root_of_unity(len(x), t)
    return [sum(v * pow(root, j * k, t) for j, v in enumerate(x)) % t for k in range(len(x))]


def slow_convolution(x: list[int], y: list[int], t: int) -> list[int]:
    n = len(x)
    return [sum(x[j] * y[(k - j) % n] for j in range(n)) % t for k in range(n)]


@pytest.mark.parametrize("length", LENGTHS)
def test_cyclic_equals_the_sum(length: int) -> None:
    x = random_residues((length,), T)
    assert cyclic.cyclic(x, 0, T).tolist() == slow_cyclic(x.tolist(), T)


@pytest.mark.parametrize("length", LENGTHS)
def test_largest_values_do_not_overflow(length: int) -> None:
    x = np.full((length, 3), T - 1, dtype=np.uint64)
    assert cyclic.cyclic(x, 0, T)[:, 1].tolist() == slow_cyclic([T - 1] * length, T)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("sizes", [(9, 8, 5), (17, 3, 16), (5, 17, 300)])
def test_each_axis_alone(sizes: tuple[int, ...], axis: int) -> None:
    t = modular.largest_prime(61, 16 * 9 * 5 * 17 * 25)
    x = random_residues(sizes, t)
    before = x.copy()
    found = np.moveaxis(cyclic.cyclic(x, axis, t), axis, -1)
    source = np.moveaxis(x, axis, -1)
    for index in ((0, 0), (-1, -1), (2, 1)):
        assert found[index].tolist() == slow_cyclic(source[index].tolist(), t)
    assert (x == before).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_inverse(length: int) -> None:
    x = random_residues((4, length, 7), T)
    assert (cyclic.cyclic(cyclic.cyclic(x, 1, T), 1, T, inverse=True) == x).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_convolution_theorem(length: int) -> None:
    x, y = random_residues((length,), T, 1), random_residues((length,), T, 2)
    product = modular.multiply(cyclic.cyclic(x, 0, T), cyclic.cyclic(y, 0, T), T)
    assert cyclic.cyclic(product, 0, T, inverse=True).tolist() == slow_convolution(x.tolist(), y.tolist(), T)


def test_golden_vector() -> None:
    """Mod 17: 2^4 = 16 has order 2 only, so the fourth root is 3^4 = 13."""
    assert modular.root_of_unity(4, 17) == 13
    assert cyclic.cyclic(np.uint64([1, 2, 3, 4]), 0, 17).tolist() == [10, 6, 15, 7]


def test_length_must_divide() -> None:
    with pytest.raises(RuleError, match="must divide t - 1: got length 7"):
        cyclic.cyclic(np.zeros((2, 7), dtype=np.uint64), 1, T)


def slow_evaluate(coefficients: list[int], point: int, t: int) -> int:
    return sum(c * pow(point, i, t) for i, c in enumerate(coefficients)) % t


@pytest.mark.parametrize("n", [2, 8, 64])
def test_slots_are_values_of_the_polynomial(n: int) -> None:
    t = modular.largest_prime(41, 2 * n)
    slots = random_residues((3, n), t)
    psi = roots.minimal_root(2 * n, t)
    assert psi == min(x for k in range(1, 2 * n, 2) for x in [pow(psi, k, t)])
    for row, coefficients in zip(slots, batching.slots_to_coefficients(slots, t), strict=True):
        for i in range(n // 2):
            exponent = pow(3, i, 2 * n)
            assert slow_evaluate(coefficients.tolist(), pow(psi, exponent, t), t) == row[i]
            assert slow_evaluate(coefficients.tolist(), pow(psi, -exponent, t), t) == row[n // 2 + i]


@pytest.mark.parametrize("n", [2, 8, 64, 4096])
def test_slots_and_coefficients_are_inverse(n: int) -> None:
    t = modular.largest_prime(60, 2 * n)
    values = random_residues((2, 3, n), t)
    assert (batching.coefficients_to_slots(batching.slots_to_coefficients(values, t), t) == values).all()
    assert (batching.slots_to_coefficients(batching.coefficients_to_slots(values, t), t) == values).all()


@pytest.mark.parametrize("n", [2, 8, 32])
def test_coefficients_become_values_at_the_slots_points(n: int) -> None:
    t = modular.largest_prime(41, 2 * n)
    coefficients, psi = random_residues((n,), t), roots.minimal_root(2 * n, t)
    exponents = [pow(3, i, 2 * n) for i in range(n // 2)]
    wanted = [slow_evaluate(coefficients.tolist(), pow(psi, sign * e, t), t) for sign in (1, -1) for e in exponents]
    assert batching.coefficients_to_slots(coefficients, t).tolist() == wanted


def test_product_of_slots_is_negacyclic_product_of_coefficients() -> None:
    t, n = modular.largest_prime(20, 16), 8
    first, second = random_residues((n,), t, 1), random_residues((n,), t, 2)
    slow = [0] * n
    for i, a in enumerate(first.tolist()):
        for j, b in enumerate(second.tolist()):
            slow[(i + j) % n] = (slow[(i + j) % n] + (a * b if i + j < n else -a * b)) % t
    slots = modular.multiply(batching.coefficients_to_slots(first, t), batching.coefficients_to_slots(second, t), t)
    assert batching.slots_to_coefficients(slots, t).tolist() == slow


@pytest.mark.parametrize(("n", "bits", "plain_bits"), [(4096, (37, 36, 36), 23), (8192, (55, 55, 54, 54), 60)])
def test_batching_is_the_library_s(n: int, bits: tuple[int, ...], plain_bits: int) -> None:
    parameters = choose({1}, plain_bits, n, bits)
    literal = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    literal.set_poly_modulus_degree(n)
    literal.set_coeff_modulus(seal.CoeffModulus.Create(n, list(bits)))
    literal.set_plain_modulus(parameters.plain_modulus)
    encoder, plaintext = seal.BatchEncoder(seal.SEALContext(literal, True, seal.SEC_LEVEL_TYPE.TC128)), seal.Plaintext()
    slots = random_residues((n,), parameters.plain_modulus)
    encoder.encode(slots.tolist(), plaintext)
    theirs = [plaintext[i] for i in range(plaintext.coeff_count())]
    assert batching.slots_to_coefficients(slots, parameters.plain_modulus).tolist()[: len(theirs)] == theirs
