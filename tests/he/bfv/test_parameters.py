import dataclasses

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.noise import (
    check_noise,
    fitting_plain_bits,
)
from privcirnet.he.bfv.parameters import (
    MAX_PLAIN_BITS,
    NARROW_COEFFICIENT_BITS,
    NARROW_RING_DEGREE,
    Parameters,
    choose,
    coefficient_primes,
    message_bytes,
    reply_bits,
    reply_primes,
)
from privcirnet.he.ring import modular, sampling
from privcirnet.he.rlwe.parameters import MAX_LOG_Q
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters

GOOD = choose({9, 17}, 41)


@pytest.mark.parametrize("n", INSECURE_RING_DEGREES)
def test_toy_parameters_are_refused_by_the_package(n: int) -> None:
    toy = insecure_parameters(n)
    with pytest.raises(RuleError, match=f"ring degree must be in the 128-bit table: got {n}"):
        Parameters(toy.ring_degree, toy.coefficient_bits, toy.plain_modulus)
    with pytest.raises(RuleError, match="128-bit table"):
        dataclasses.replace(toy)
    with pytest.raises(RuleError, match="128-bit table"):
        choose({1}, 41, n)


@pytest.mark.parametrize(
    "t",
    [
        *(65538 * 8192 + 1, GOOD.plain_modulus + 2, modular.largest_prime(41, 8192 + 2)),
        *(modular.largest_prime(61, 16384), -16383, 1, 0, 10**400),
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


@pytest.mark.parametrize(
    ("n", "bits"), [(4096, (36, 35, 35)), (8192, (54, 54, 53, 53)), (16384, (50, 40, 50, 40, 50)), (2048, (27, 26))]
)
def test_coefficient_primes_are_the_library_s(n: int, bits: tuple[int, ...]) -> None:
    assert coefficient_primes(n, bits) == {m.value() for m in seal.CoeffModulus.Create(n, list(bits))}


@pytest.mark.parametrize("plain_bits", [53, 54])
def test_plain_modulus_is_no_prime_of_q(plain_bits: int) -> None:
    """Without an odd transform length the largest prime of that size is one of q's."""
    taken = modular.largest_prime(plain_bits, 2 * 8192)
    with pytest.raises(RuleError, match=f"must not be a prime of q: got {taken}"):
        Parameters(8192, GOOD.coefficient_bits, taken)
    chosen = choose({1, 8}, plain_bits)
    assert chosen.plain_modulus < taken
    assert engine_of("tenseal").client(chosen).parameters == chosen


def test_narrow_parameters_are_as_wide_as_they_can_be() -> None:
    """The special prime is the shortest there is; the library takes it, and refuses one bit more in all."""
    n, bits = NARROW_RING_DEGREE, NARROW_COEFFICIENT_BITS
    assert sum(bits) == MAX_LOG_Q[n]
    assert fitting_plain_bits(bits, 16) == 30
    assert fitting_plain_bits((60, 60, 60, 34), 10) == MAX_PLAIN_BITS
    parameters = choose({1}, 30, n, bits)
    assert engine_of("tenseal").client(parameters).parameters == parameters
    assert coefficient_primes(n, bits) >= {40961}
    with pytest.raises(RuleError, match="no 15-bit prime that is 1 mod 8192"):
        modular.largest_prime(15, 2 * n)
    for wrong in ((48, 42, 15), (48, 19, 16), (61, 20, 16), (48,)):
        with pytest.raises(RuleError, match="primes of 20 to 60 bits, the special prime 16 to 60"):
            Parameters(n, wrong, parameters.plain_modulus)
    check_noise(parameters, 16, "conv1")
    with pytest.raises(RuleError, match=r"got 1 bits in layer conv1"):
        check_noise(parameters, 17, "conv1")


@pytest.mark.parametrize(
    ("n", "bits", "plain_bits"),
    [
        (8192, (54, 54, 53, 53), 24),
        (8192, (54, 54, 53, 53), 37),
        (8192, (54, 54, 53, 53), 48),
        (8192, (43, 43, 43, 43, 42), 41),
        (16384, (48, 48, 48, 48, 49), 60),
    ],
)
@pytest.mark.parametrize(("engine", "seed"), [("kernel", 32), ("tenseal", 64)])
def test_message_bytes_are_those_of_real_messages(
    n: int, bits: tuple[int, ...], plain_bits: int, engine: str, seed: int
) -> None:
    parameters = choose({1}, plain_bits, n, bits)
    client, server = engine_of(engine).parties(parameters)
    slots = sampling.uniform((n,), parameters.plain_modulus)
    (up,), keys = client.encrypt_all(slots[None]), server.load_keys(client.public_keys([]), [])
    (down,) = server.reply_all(server.receive_all([up], None), np.zeros((1, n), dtype=np.uint64), keys)
    assert (len(up), len(down)) == message_bytes(parameters, seed)
    assert np.array_equal(client.decrypt_all([down])[0], slots)


def test_reply_primes() -> None:
    assert reply_primes((54, 54, 53, 53), 44) == 1
    assert reply_primes((54, 54, 53, 53), 45) == 2
    assert reply_primes((40, 60), 60) == 1


def test_reply_bits() -> None:
    """Those of t and a margin; of a reply with one prime no more than it has."""
    assert reply_bits((54, 54, 53, 53), 45) == (50, 55)
    assert reply_bits((54, 54, 53, 53), 44) == (49, 54)
    assert reply_bits((40, 60), 60) == (40, 40)
    assert reply_bits((54, 54, 53, 53), 45).octets(8192, 3) == 19 + 8192 * 55 // 8
