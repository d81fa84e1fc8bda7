import numpy as np
import pytest

from privcirnet.he.engines.interface import client_engine, server_engine
from privcirnet.he.params.parameters import (
    choose,
)
from privcirnet.he.params.sizes import message_bytes, reply_bits, reply_primes
from privcirnet.he.ring import sampling


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
def test_message_bytes_are_those_of_real_messages(n: int, bits: tuple[int, ...], plain_bits: int) -> None:
    parameters = choose({1}, plain_bits, n, bits)
    client, server = client_engine("tenseal", parameters), server_engine("tenseal", parameters)
    slots = sampling.uniform((n,), parameters.plain_modulus)
    up = client.encrypt(slots)
    keys = server.load_keys(client.public_keys([]), [])
    down = server.reply(server.receive(up), keys)
    assert (len(up), len(down)) == message_bytes(parameters)
    assert np.array_equal(client.decrypt(down), slots)


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
