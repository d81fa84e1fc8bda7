from collections.abc import Iterator

import numpy as np
import pytest

from privcirnet.he.bfv import seal
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, choose
from privcirnet.he.rlwe.parameters import MAX_LOG_Q, galois_element
from tests.he.pairs import PARAMETERS, N, X, pair


def test_rotation_turns_both_rows_left() -> None:
    client, server, keys = pair("tenseal")
    rotated = client.decrypt(
        server.reply(server.turn(server.receive(client.encrypt(X)), galois_element(256, N), keys), keys)
    )
    rows = X.reshape(2, -1)
    assert (rotated == np.concatenate([rows[0, 256:], rows[0, :256], rows[1, 256:], rows[1, :256]])).all()


def test_encryption_is_fresh_every_time() -> None:
    client, server, keys = pair("tenseal")
    first, second = client.encrypt(X), client.encrypt(X)
    assert first != second
    assert first[-SEAL_SEED_BYTES:] != second[-SEAL_SEED_BYTES:]
    assert server.reply(server.receive(first), keys) != server.reply(server.receive(second), keys)
    other = engine_of("tenseal").client(PARAMETERS)
    assert not np.array_equal(other.decrypt(server.reply(server.receive(first), keys)), X)


def test_the_library_refuses_what_the_twin_refuses() -> None:
    client, server, keys = pair("tenseal")
    c = server.receive(client.encrypt(X))
    for broken in (
        lambda: server.turn(server.to_ntt(c), galois_element(1, N), keys),
        lambda: server.add(server.to_ntt(c), c),
        lambda: server.multiply(c, server.encode(np.zeros(N, dtype=np.uint64))),
    ):
        with pytest.raises((RuntimeError, ValueError)):
            broken()


def files(context: object) -> Iterator[bytes]:
    for path in context._file.parent.iterdir():  # type: ignore[attr-defined]
        yield path.read_bytes()


def test_no_secret_key_is_written_and_the_folder_goes_away() -> None:
    client = seal.TensealClient(PARAMETERS)
    folder = client._context._file.parent
    assert folder.stat().st_mode & 0o077 == 0
    secret = client._keys.secret_key()
    client.public_keys([1])
    client.encrypt(X)
    written = list(files(client._context))
    secret.save(str(client._context._file))
    (own,) = files(client._context)
    assert all(len(item) != len(own) for item in written)
    del client, secret
    assert not folder.exists()


@pytest.mark.parametrize(("n", "bits"), [(4096, (36, 35, 35)), (8192, (60, 60, 60, 34)), (16384, (60,) * 6 + (48, 22))])
def test_library_agrees_on_security(n: int, bits: tuple[int, ...]) -> None:
    """What Parameters accepts at the very limit, the library's own 128-bit check, by the older table, accepts."""
    assert sum(bits) == MAX_LOG_Q[n]
    assert engine_of("tenseal").server(choose({1}, 20, n, bits)).parameters.ring_degree == n
