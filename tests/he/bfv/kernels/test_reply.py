"""Randomness of replies: how much is drawn, that it is fresh, and what is done where it does not suffice."""

import os

import numpy as np
import pytest

from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv.kernels import reply
from privcirnet.he.bfv.parameters import choose, ordered_primes
from privcirnet.he.ring import sampling
from privcirnet.he.ring.sampling import Words
from privcirnet.he.rlwe.kernels.rns import ring
from tests.he import sampling_oracles

N, PRIMES = 4096, ordered_primes(4096, (36, 35, 35))


def test_every_reply_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 bytes of the operating system's generator are all that it takes; the same key gives the same draws."""
    keys, original = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: keys.append(original(size)) or keys[-1])
    drawn = [reply.draw(100, ring(PRIMES, N)) for _ in range(3)]
    assert [len(key) for key in keys] == [32] * 3
    assert len(set(keys)) == 3
    monkeypatch.setattr(os, "urandom", lambda size: keys[0])
    again = reply.draw(100, ring(PRIMES, N))
    for own, same, other in zip(again[:2], drawn[0][:2], drawn[1][:2], strict=True):
        assert np.array_equal(own, same)
        assert not np.array_equal(own, other)
    assert np.array_equal(again.flood.digits, drawn[0].flood.digits)


def test_draws_are_parts_of_one_stream_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counting() -> Words:
        return lambda count: asked.append(count) or np.zeros(count, dtype=np.uint64)

    monkeypatch.setattr(reply, "stream", counting)
    reply.draw(100, ring(PRIMES, N))
    assert sorted(asked) == sorted([N // 16, N, 4 * N])


def test_a_secret_whose_words_fall_short_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done with the result before: the second reply is the right one."""
    parameters = choose({1}, 23, N, (36, 35, 35))
    server, extended, drawn = kernel.KernelServer(parameters), ring(PRIMES, N), []
    original = reply.draw

    def draw(bits: int, extended: object) -> reply.ReplyRandomness:
        found = original(bits, server._ring)
        drawn.append(found)
        return found._replace(secret=np.full_like(found.secret, 2**64 - 1)) if len(drawn) == 1 else found

    monkeypatch.setattr(reply, "draw", draw)
    values = np.arange(2 * 2 * N, dtype=np.uint64).reshape(2, 2, N)
    key = reply.PublicKey.build(extended, values % np.array(PRIMES[:2], dtype=np.uint64)[:, None])
    slots = np.arange(N, dtype=np.uint64)
    message = reply.reply(values.copy(), key, slots, server._form)
    assert len(drawn) == 2
    monkeypatch.setattr(reply, "draw", lambda bits, extended: drawn[1])
    assert reply.reply(values.copy(), key, slots, server._form) == message


def test_every_coefficient_has_an_error_of_its_own() -> None:
    """Under a public key of zeros, what hides a reply's second polynomial is the error alone: the oracle's, word by word."""
    server, extended = kernel.KernelServer(choose({1}, 23, N, (36, 35, 35))), ring(PRIMES, N)
    draws, made = reply.draw(server._form.flood, server._ring), np.zeros((2, 2, N), dtype=np.uint64)
    key = reply.PublicKey.build(extended, np.zeros((2, 2, N), dtype=np.uint64))
    assert reply._hiding(made, key.plain, draws, server._form.extended)
    errors = sampling_oracles.errors(N, lambda count: draws.error).astype(object) - sampling.ERROR_BITS
    for limb, p in enumerate(PRIMES[:2]):
        assert np.array_equal(made[1, limb].astype(object), errors % p)
