"""Randomness of replies: how much is drawn, that it is fresh, and what is done where it does not suffice."""

import ssl

import numpy as np
import pytest

from privcirnet.he.engines import kernel
from privcirnet.he.engines.kernels import reply
from privcirnet.he.engines.kernels.ring import ring
from privcirnet.he.params.parameters import choose, ordered_primes
from privcirnet.he.ring.sampling import FLOODING_BITS

N, PRIMES = 4096, ordered_primes(4096, (37, 36, 36))


def test_every_reply_has_draws_of_its_own() -> None:
    first, second = (reply.draw(20, ring(PRIMES, N)) for _ in range(2))
    for one, other in ((first.secret, second.secret), (first.error, second.error)):
        assert (one != other).mean() > 0.99
    assert (first.flood.digits != second.flood.digits).mean() > 0.99


def test_draws_are_parts_of_one_stream_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(ssl, "RAND_bytes", lambda size: asked.append(size) or bytes(size))
    reply.draw(20, ring(PRIMES, N))
    digits = (20 + FLOODING_BITS) // 64 + 1
    assert sorted(asked) == sorted([8 * N // 16, 8 * N, 8 * digits * N])


def test_a_secret_whose_words_fall_short_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done with the result before: the second reply is the right one."""
    parameters = choose({1}, 23, N, (37, 36, 36))
    server, extended, drawn = kernel.KernelServer(parameters), ring(PRIMES, N), []
    original = reply.draw

    def draw(bits: int, extended: object) -> reply.Draws:
        found = original(bits, server._extended)
        drawn.append(found)
        return found._replace(secret=np.full_like(found.secret, 2**64 - 1)) if len(drawn) == 1 else found

    monkeypatch.setattr(reply, "draw", draw)
    values = np.arange(2 * 2 * N, dtype=np.uint64).reshape(2, 2, N)
    key = reply.PublicKey.build(extended, values % np.array(PRIMES[:2], dtype=np.uint64)[:, None])
    slots = np.arange(N, dtype=np.uint64)
    message = reply.reply(values.copy(), key, slots, 20, server._form)
    assert len(drawn) == 2
    monkeypatch.setattr(reply, "draw", lambda bits, extended: drawn[1])
    assert reply.reply(values.copy(), key, slots, 20, server._form) == message
