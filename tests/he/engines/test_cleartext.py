import numpy as np
import pytest

from privcirnet.errors import RuleError
from tests.he.engines.pairs import N, X, Y, pair


def test_clear_text_twin_is_as_strict_as_the_library() -> None:
    client, server, keys = pair("cleartext")
    c = server.receive(client.encrypt(X))
    with pytest.raises(RuntimeError, match="rotation by 5 needs a key"):
        server.rotate(c, 5, keys)
    for broken in (
        lambda: server.rotate(server.to_ntt(c), 1, keys),
        lambda: server.multiply(server.to_ntt(c), server.encode(Y)),
        lambda: server.multiply(c, server.encode_factor(Y)),
        lambda: server.add(server.to_ntt(c), c),
        lambda: server.add_plain(server.to_ntt(c), server.encode(Y)),
        lambda: server.add_plain(c, server.encode_factor(Y)),
        lambda: server.multiply(c, server.encode(np.zeros(N, dtype=np.uint64))),
        lambda: server.reply(server.to_ntt(c), keys),
    ):
        with pytest.raises(RuntimeError, match=r"form|transparent"):
            broken()


@pytest.mark.parametrize(
    ("message", "match"), [(b"", "n words"), (bytes(8 * N - 1), "n words"), (bytes([255]) * 8 * N, "mod t")]
)
def test_clear_text_messages_are_checked(message: bytes, match: str) -> None:
    client, server, _ = pair("cleartext")
    for take in (client.decrypt, server.receive):
        with pytest.raises(RuleError, match=match):
            take(message)
