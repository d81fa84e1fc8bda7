import functools

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv import seal
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, ReplyBits, ReplyFormat, choose
from privcirnet.he.ring import sampling

PARAMETERS = choose({1}, 23, 4096, (36, 35, 35))
N, T = PARAMETERS.ring_degree, PARAMETERS.plain_modulus
SLOTS = sampling.uniform((N,), T)


@functools.cache
def engines() -> tuple[seal.TensealClient, seal.TensealServer]:
    return seal.TensealClient(PARAMETERS), seal.TensealServer(PARAMETERS)


def test_seeded_ciphertext_round_trip() -> None:
    client, _ = engines()
    context = client._context
    payload = context.save(client._encryptor.encrypt_symmetric(context.encode(SLOTS)))
    message = seal.compact(payload, context.data_level)
    assert len(message) == context.data_level.compact_size(1) + SEAL_SEED_BYTES
    assert seal.expand(message, context.data_level, ntt=False) == payload


def test_a_reply_comes_back_but_for_what_is_rounded_away() -> None:
    client, server = engines()
    context = server._context
    level, bits = context.reply_level, context.replies.bits
    switched = server._apply(
        server._evaluator.mod_switch_to, server.receive(client.encrypt(SLOTS)), list(level.parms_id)
    )
    payload = context.save(switched)
    message = seal.compact_reply(payload, level, context.replies)
    assert len(message) == N * (bits.first + bits.second) // 8
    before, after = (
        seal._words(p, level)[0].astype(object) for p in (payload, seal.expand_reply(message, level, context.replies))
    )
    (q,) = level.primes
    for polynomial, k in enumerate(bits):
        lost = (before[polynomial] - after[polynomial]) % q
        assert max(min(x, q - x) for x in lost.reshape(-1)) <= (q >> (k + 1)) + 1
    everything = ReplyFormat(level, ReplyBits(q.bit_length() + 1, q.bit_length() + 1))
    assert seal.expand_reply(seal.compact_reply(payload, level, everything), level, everything) == payload


def test_keys_round_trip() -> None:
    client, _ = engines()
    context, elements = client._context, [3, 9, 27]
    payload = context.save(client._keys.create_galois_keys(elements))
    digits = len(context.data_level.primes)
    message = seal.compact_keys(payload, context.key_level, digits)
    assert len(message) < len(payload) - 8 * N
    assert seal.expand_keys(message, context.key_level, digits, elements) == payload
    with pytest.raises(RuleError, match="the plan's rotations fix"):
        seal.expand_keys(message, context.key_level, digits, elements[:2])


def test_file_header() -> None:
    assert seal.wrap(b"abc", (4, 3)) == bytes.fromhex("5ea1 10 04 03 00 0000 1300000000000000") + b"abc"
    assert seal.unwrap(seal.wrap(b"abc", (4, 3))) == b"abc"
