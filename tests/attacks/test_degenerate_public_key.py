"""A client sends a public key of zeros, so that the encryption of zero that should hide a reply hides nothing.

The second polynomial of a bare reply is a function of the weights and of what the client sent. Under a key (0, 0) it
comes back with a small error added, and tells a right guess of the weights from a wrong one. So no client chooses the
second polynomial of its key: it sends a seed, and the server makes a uniform polynomial of it, whatever the seed is.
"""

import numpy as np
import pytest

from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv.engines import engine_of
from tests.he.bfv.test_circuit_privacy import LAYER, PARAMETERS, PRIMES, Game, KernelGame


@pytest.mark.parametrize("engine", ["kernel", "tenseal"])
def test_a_key_of_zeros_hides_as_well_as_any(engine: str) -> None:
    server, steps = engine_of(engine).server(PARAMETERS), LAYER.column_steps
    game = KernelGame(server) if isinstance(server, kernel.KernelServer) else Game(server)
    good, size = game.sender.public_keys(steps), len(game.sender.public_keys([]))
    game.keys = server.load_keys(bytes(size) + good[size:], steps)
    first, second, bare = (
        np.frombuffer(game.masks_polynomial(ciphertext), dtype=np.uint64).reshape(3, -1)
        for ciphertext in (game.reply(1), game.reply(1), game.result(1))
    )
    prime = np.int64(PRIMES[0])
    for one, other in ((first, bare), (second, bare), (first, second)):
        moved = (one[0].astype(np.int64) - other[0].astype(np.int64)) % prime
        assert (np.minimum(moved, prime - moved) > 1 << 40).mean() > 0.99, "no small error is all there is"
