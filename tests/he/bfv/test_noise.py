import functools
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.bfv import seal as tenseal
from privcirnet.he.bfv.noise import (
    ZERO_NOISE_BITS,
    check_noise,
    fresh_noise_bits,
    largest_plain_bits,
    noise_bits,
    noise_budget,
    special_prime_lack,
    square_noise_bits,
)
from privcirnet.he.bfv.parameters import (
    DEFAULT_COEFFICIENT_BITS,
    MAX_PLAIN_BITS,
    WIDE_COEFFICIENT_BITS,
    Parameters,
    ParameterSet,
    choose,
)
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import SETS, switched_bits
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.ring import sampling
from privcirnet.he.ring.sampling import FLOODING_BITS
from tests.he.layer_examples import paper_layer

GOOD = choose({9, 17}, 41)
LOCAL = LINKS["local"]


@functools.cache
def bench(plain_bits: int, n: int, bits: tuple[int, ...]) -> tuple[int, dict[int, int], int]:
    """(t, measured budgets by number of products, budget of a rounded reply): plain use of the library, which checks
    the table of 2018.

    Slots everywhere uniform: rotate, m products with dense plaintexts, sum, rotate.
    """
    parameters = choose({1}, plain_bits, n, bits, "2018")
    t, own = parameters.plain_modulus, tenseal._Context(parameters)
    literal = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    literal.set_poly_modulus_degree(n)
    literal.set_coeff_modulus(seal.CoeffModulus.Create(n, list(bits)))
    literal.set_plain_modulus(t)
    context = seal.SEALContext(literal, True, seal.SEC_LEVEL_TYPE.TC128)
    keygen = seal.KeyGenerator(context)
    public, galois = seal.PublicKey(), seal.GaloisKeys()
    keygen.create_public_key(public)
    keygen.create_galois_keys([3], galois)
    encoder, evaluator = seal.BatchEncoder(context), seal.Evaluator(context)
    decryptor = seal.Decryptor(context, keygen.secret_key())

    def encode() -> object:
        plaintext = seal.Plaintext()
        encoder.encode(sampling.uniform((n,), t).tolist(), plaintext)
        return plaintext

    def apply(operation: object, *arguments: object) -> object:
        result = seal.Ciphertext(context)
        operation(*arguments, result)
        return result

    fresh = seal.Ciphertext(context)
    seal.Encryptor(context, public).encrypt(encode(), fresh)
    rotated = apply(evaluator.transform_to_ntt, apply(evaluator.apply_galois, fresh, 3, galois))
    budgets, total = {}, None
    for count in range(1, 65):
        factor = encode()
        evaluator.transform_to_ntt_inplace(factor, list(context.first_parms_id()))
        product = apply(evaluator.multiply_plain, rotated, factor)
        total = product if total is None else apply(evaluator.add, total, product)
        if count in (1, 16, 64):
            result = apply(evaluator.apply_galois, apply(evaluator.transform_from_ntt, total), 3, galois)
            budgets[count] = decryptor.invariant_noise_budget(result)
    switched = apply(evaluator.mod_switch_to, result, list(own.reply_level.parms_id))
    message = tenseal.compact_reply(own.save(switched), own.reply_level, own.replies)
    rounded = own.load(seal.Ciphertext(context), tenseal.expand_reply(message, own.reply_level, own.replies))
    return t, budgets, decryptor.invariant_noise_budget(rounded)


@pytest.mark.parametrize("n", [8192, 16384])
@pytest.mark.parametrize("plain_bits", [41, 46, 50, 55, 60])
def test_noise_model_is_safe_and_sharp(plain_bits: int, n: int) -> None:
    bits = DEFAULT_COEFFICIENT_BITS if n == 8192 else WIDE_COEFFICIENT_BITS
    check_noise_model(plain_bits, n, bits)


@pytest.mark.parametrize("candidate", SETS[1:], ids=str)
def test_noise_model_holds_for_every_candidate_set(candidate: ParameterSet) -> None:
    bits = candidate.coefficient_bits
    check_noise_model(largest_plain_bits(candidate.ring_degree, bits, 1), candidate.ring_degree, bits)


@pytest.mark.parametrize("bits", [(60, 60, 60, 38), (55, 55, 54, 20)], ids=str)
def test_noise_model_knows_a_short_special_prime(bits: tuple[int, ...]) -> None:
    """Without its lack the model promises 40 bits of flooding where 23 and 10 are left.

    The budget of one product is a bit more or less once in twenty times, so that one is the median of five.
    """
    lack, runs = special_prime_lack(bits), [bench.__wrapped__(41, 8192, bits)[1] for _ in range(5)]
    for products, found in ((products, found) for measured in runs for products, found in measured.items()):
        predicted = sum(bits[:-1]) - 41 - noise_bits(8192, 41, products, lack) - 1
        assert found - 8 <= predicted <= found
    blind = sum(bits[:-1]) - 41 - noise_bits(8192, 41, 1) - 1
    assert blind > statistics.median(measured[1] for measured in runs) + 16


def test_the_lack_counts_where_something_is_rotated() -> None:
    parameters = Parameters(8192, (55, 55, 54, 20), GOOD.plain_modulus)
    turned, still = (
        paper_layer(LinearShape.gemm(256, 192, 576), 8, 8192),
        cheapest_layer(LinearShape(16, 16, 8, 8, 3, 1, 1, groups=8), 1, replace(COUNTED, ring_degree=8192), LOCAL),
    )
    assert turned.rotations
    assert not still.rotations
    for layer, lack in ((turned, 34), (still, 0)):
        assert layer.noise_bits(parameters) == layer.noise_bits(GOOD) + lack
    with pytest.raises(RuleError, match=r"got -\d+ bits in layer conv1"):
        check_noise(parameters, turned.noise_bits(parameters), "conv1")
    assert special_prime_lack((48, 45, 16)) == 31
    assert all(special_prime_lack(s.coefficient_bits) == 0 for s in SETS)


def test_no_bound_is_under_the_noise_of_an_encryption_of_zero() -> None:
    """Ten deviations of what every reply adds: a sum of 2n products of deviation sqrt(10.5) and numbers up to 1."""
    assert [math.ceil(math.log2(10 * math.sqrt(10.5 * 2 * n))) for n in (4096, 8192, 16384)] == [12, 13, 13]
    assert ZERO_NOISE_BITS == 13
    assert fresh_noise_bits(0, 1) == 14
    assert fresh_noise_bits(20, 1) == 25, "where there is more, it does not count"


@pytest.mark.parametrize("plain_bits", [41, 50, 60])
def test_noise_of_a_square_is_under_its_bound(plain_bits: int) -> None:
    """Fresh ciphertexts times dense plaintexts; flooding rests on this bound. Measured: 3 bits under it."""
    parameters = choose({1}, plain_bits)
    client, server = tenseal.TensealClient(parameters), tenseal.TensealServer(parameters)
    slots = [sampling.uniform((8192,), parameters.plain_modulus) for _ in range(4)]
    products = server.multiply_all(server.receive_all([client.encrypt(x) for x in slots], None), np.stack(slots))
    budget = min(client._decryptor.invariant_noise_budget(product) for product in products)
    noise = sum(parameters.coefficient_bits[:-1]) - budget - 1 - plain_bits
    assert square_noise_bits(parameters) - 5 <= noise < square_noise_bits(parameters)


def check_noise_model(plain_bits: int, n: int, bits: tuple[int, ...]) -> None:
    """Measured before flooding, so with that many bits more; the flooding's size rests on this bound."""
    t, measured, after_switch = bench(plain_bits, n, bits)
    parameters = Parameters(n, bits, t)
    for products, budget in measured.items():
        bound = noise_bits(n, plain_bits, products)
        predicted = noise_budget(parameters, bound) + FLOODING_BITS + 1
        assert predicted <= budget
        assert predicted >= budget - 8
    assert after_switch >= 1, "half of the room; flooding takes a fifth of it"
    assert min(switched_bits(parameters), measured[64]) - 1 <= after_switch <= switched_bits(parameters) + 4


def test_noise_check_and_largest_plain_bits_agree() -> None:
    for products in (1, 16, 64, 1000, 100000):
        bits = largest_plain_bits(8192, GOOD.coefficient_bits, products)
        check_noise(choose({1}, bits), noise_bits(8192, bits, products), "layer")
        if bits < MAX_PLAIN_BITS:
            with pytest.raises(RuleError, match=rf"bits in layer conv1 with a {bits + 1}-bit plain modulus"):
                check_noise(choose({1}, bits + 1), noise_bits(8192, bits + 1, products), "conv1")
    assert largest_plain_bits(8192, (54, 54, 53, 53), 1) == 48
    assert largest_plain_bits(16384, WIDE_COEFFICIENT_BITS, 16) == 60
    with pytest.raises(RuleError, match="must leave 2 bits of noise budget: got none"):
        largest_plain_bits(4096, (36, 36), 1)


def test_the_special_prime_is_compared_with_the_longest_data_prime():
    """Digits are as large as the longest one, wherever it stands."""
    assert {special_prime_lack(bits) for bits in [(60, 45, 38), (45, 60, 38), (45, 60, 45, 38)]} == {21}
