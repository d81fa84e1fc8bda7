import dataclasses
import functools

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.engines import tenseal
from privcirnet.he.engines.interface import client_engine, server_engine
from privcirnet.he.params.noise import (
    MIN_NOISE_BUDGET,
    check_noise,
    fitting_plain_bits,
    largest_plain_bits,
    noise_bits,
    noise_budget,
    square_noise_bits,
)
from privcirnet.he.params.parameters import (
    DEFAULT_COEFFICIENT_BITS,
    MAX_PLAIN_BITS,
    NARROW_COEFFICIENT_BITS,
    NARROW_RING_DEGREE,
    WIDE_COEFFICIENT_BITS,
    Parameters,
    choose,
    coefficient_primes,
)
from privcirnet.he.params.security import MAX_LOG_Q
from privcirnet.he.params.sizes import message_bytes, reply_primes
from privcirnet.he.planning.chooser import SETS
from privcirnet.he.planning.noise_budget import ParameterSet, switched_bits
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.sampling import FLOODING_BITS
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters

GOOD = choose({9, 17}, 41)
REPLY_SWITCH_BITS = 12


@pytest.mark.parametrize("n", INSECURE_RING_DEGREES)
def test_toy_parameters_are_refused_by_the_package(n: int) -> None:
    toy = insecure_parameters(n)
    with pytest.raises(RuleError, match=f"ring degree must be in the 128-bit table: got {n}"):
        Parameters(toy.ring_degree, toy.coefficient_bits, toy.plain_modulus)
    with pytest.raises(RuleError, match="128-bit table"):
        dataclasses.replace(toy)
    with pytest.raises(RuleError, match="128-bit table"):
        choose({1}, 41, n)


@pytest.mark.parametrize(("n", "limit"), [(1024, 27), (2048, 54), (4096, 109), (8192, 218), (16384, 438), (32768, 881)])
def test_security_table(n: int, limit: int) -> None:
    """Homomorphic encryption standard (2018), table 1: ternary secret, 128 bits, classical."""
    assert MAX_LOG_Q[n] == limit
    count = -(-(limit + 1) // 60)
    bits = (60,) * (count - 1) + (limit + 1 - 60 * (count - 1),)
    with pytest.raises(RuleError, match=rf"at most {limit} at ring degree {n} for 128-bit security: got {limit + 1}"):
        choose({1}, 41, n, bits)


@pytest.mark.parametrize("bits", [(50,), (), (61, 50), (19, 50)])
def test_primes_must_be_sane(bits: tuple[int, ...]) -> None:
    with pytest.raises(RuleError, match="two or more primes of 20 to 60 bits"):
        Parameters(8192, bits, GOOD.plain_modulus)


@pytest.mark.parametrize(
    "t",
    [
        65538 * 8192 + 1,
        GOOD.plain_modulus + 2,
        modular.largest_prime(41, 8192 + 2),
        modular.largest_prime(61, 16384),
        -16383,
        1,
        0,
        10**400,
    ],
    ids=["composite", "even-ish", "not 1 mod 2n", "61 bits", "negative", "one", "zero", "huge"],
)
def test_bad_plain_modulus(t: int) -> None:
    with pytest.raises(RuleError, match="must be a prime of at most 60 bits that is 1 mod 2n"):
        Parameters(8192, GOOD.coefficient_bits, t)


def test_choose_carries_every_length() -> None:
    assert GOOD.plain_bits == 41
    assert all((GOOD.plain_modulus - 1) % length == 0 for length in (2 * 8192, 9, 17))
    with pytest.raises(RuleError, match="at most 60 bits: got 61 bits"):
        choose({9}, 61)
    with pytest.raises(RuleError, match="no 20-bit prime that is 1 mod"):
        choose({9, 17}, 20)


@functools.cache
def bench(plain_bits: int, n: int, bits: tuple[int, ...]) -> tuple[int, dict[int, int], int]:
    """(t, measured budgets by number of products, budget of a switched reply): plain use of the library.

    Slots everywhere uniform: rotate, m products with dense plaintexts, sum, rotate.
    """
    t = choose({1}, plain_bits, n, bits).plain_modulus
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
    data = context.first_context_data()
    while len(data.parms().coeff_modulus()) > reply_primes(bits, plain_bits):
        data = data.next_context_data()
    switched = apply(evaluator.mod_switch_to, result, list(data.parms_id()))
    return t, budgets, decryptor.invariant_noise_budget(switched)


@pytest.mark.parametrize("n", [8192, 16384])
@pytest.mark.parametrize("plain_bits", [41, 46, 50, 55, 60])
def test_noise_model_is_safe_and_sharp(plain_bits: int, n: int) -> None:
    bits = DEFAULT_COEFFICIENT_BITS if n == 8192 else WIDE_COEFFICIENT_BITS
    check_noise_model(plain_bits, n, bits)


@pytest.mark.parametrize("candidate", SETS[1:], ids=str)
def test_noise_model_holds_for_every_candidate_set(candidate: ParameterSet) -> None:
    bits = candidate.coefficient_bits
    check_noise_model(largest_plain_bits(candidate.ring_degree, bits, 1), candidate.ring_degree, bits)


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
        predicted = noise_budget(parameters, bound) + FLOODING_BITS
        assert predicted <= budget
        assert predicted >= budget - 8
    assert after_switch >= MIN_NOISE_BUDGET - 2
    assert min(switched_bits(parameters), measured[64]) - 1 <= after_switch <= switched_bits(parameters) + 4


def test_noise_check_and_largest_plain_bits_agree() -> None:
    for products in (1, 16, 64, 1000, 100000):
        bits = largest_plain_bits(8192, GOOD.coefficient_bits, products)
        check_noise(choose({1}, bits), noise_bits(8192, bits, products), "layer")
        if bits < MAX_PLAIN_BITS:
            with pytest.raises(RuleError, match=rf"bits in layer conv1 with a {bits + 1}-bit plain modulus"):
                check_noise(choose({1}, bits + 1), noise_bits(8192, bits + 1, products), "conv1")
    assert largest_plain_bits(8192, (55, 55, 54, 54), 1) == 48
    assert largest_plain_bits(16384, WIDE_COEFFICIENT_BITS, 16) == 60
    with pytest.raises(RuleError, match="must leave 6 bits of noise budget: got none"):
        largest_plain_bits(4096, (36, 36), 1)


@pytest.mark.parametrize(
    ("n", "bits", "plain_bits"),
    [
        (8192, (55, 55, 54, 54), 24),
        (8192, (55, 55, 54, 54), 37),
        (8192, (55, 55, 54, 54), 48),
        (8192, (43, 43, 44, 44, 44), 41),
        (16384, (48, 48, 48, 48, 49), 60),
    ],
)
def test_message_bytes_are_those_of_real_messages(n: int, bits: tuple[int, ...], plain_bits: int) -> None:
    parameters = choose({1}, plain_bits, n, bits)
    client, server = client_engine("tenseal", parameters), server_engine("tenseal", parameters)
    slots = sampling.uniform((n,), parameters.plain_modulus)
    up = client.encrypt(slots)
    keys = server.load_keys(client.public_keys([]), [])
    down = server.reply(server.receive(up), keys, noise_bits(n, plain_bits, 1))
    assert (len(up), len(down)) == message_bytes(parameters)
    assert np.array_equal(client.decrypt(down), slots)


@pytest.mark.parametrize(
    ("n", "bits"), [(4096, (37, 36, 36)), (8192, (55, 55, 54, 54)), (16384, (50, 40, 50, 40, 50)), (2048, (27, 27))]
)
def test_coefficient_primes_are_the_library_s(n: int, bits: tuple[int, ...]) -> None:
    assert coefficient_primes(n, bits) == {m.value() for m in seal.CoeffModulus.Create(n, list(bits))}


@pytest.mark.parametrize("plain_bits", [54, 55])
def test_plain_modulus_is_no_prime_of_q(plain_bits: int) -> None:
    """Without an odd transform length the largest prime of that size is one of q's."""
    taken = modular.largest_prime(plain_bits, 2 * 8192)
    with pytest.raises(RuleError, match=f"must not be a prime of q: got {taken}"):
        Parameters(8192, GOOD.coefficient_bits, taken)
    chosen = choose({1, 8}, plain_bits)
    assert chosen.plain_modulus < taken
    assert client_engine("tenseal", chosen).parameters == chosen


def test_narrow_parameters_are_as_wide_as_they_can_be() -> None:
    """The special prime is the shortest there is; the library takes it, and refuses one bit more in all."""
    n, bits = NARROW_RING_DEGREE, NARROW_COEFFICIENT_BITS
    assert sum(bits) == MAX_LOG_Q[n]
    assert fitting_plain_bits(bits, 16) == 30
    assert fitting_plain_bits((60, 60, 60, 38), 10) == MAX_PLAIN_BITS
    parameters = choose({1}, 30, n, bits)
    assert client_engine("tenseal", parameters).parameters == parameters
    assert coefficient_primes(n, bits) >= {40961}
    with pytest.raises(RuleError, match="no 15-bit prime that is 1 mod 8192"):
        modular.largest_prime(15, 2 * n)
    for wrong in ((48, 45, 15), (48, 19, 16), (61, 20, 16), (48,)):
        with pytest.raises(RuleError, match="primes of 20 to 60 bits, the special prime 16 to 60"):
            Parameters(n, wrong, parameters.plain_modulus)
    check_noise(parameters, 16, "conv1")
    with pytest.raises(RuleError, match=r"got 5.0 bits in layer conv1"):
        check_noise(parameters, 17, "conv1")


def test_reply_primes() -> None:
    assert reply_primes((55, 55, 54, 54), 45) == 1
    assert reply_primes((55, 55, 54, 54), 46) == 2
    assert reply_primes((40, 60), 60) == 1
