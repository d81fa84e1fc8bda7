"""A client gets two replies that are hidden by the same random numbers, and takes one off the other.

So it is where a snapshot of a server's machine is resumed twice, or a generator's state is shared by mistake: what a
process holds is then the same. A reply's randomness must not come from there.
"""

import random
import ssl

import numpy as np
import pytest

from privcirnet.he.bfv.kernels import reply
from privcirnet.he.bfv.parameters import ordered_primes
from privcirnet.he.rlwe.kernels.rns import ring

N, PRIMES = 4096, ordered_primes(4096, (36, 35, 35))


def test_the_same_process_state_gives_other_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "RAND_bytes", lambda size: random.Random(0).randbytes(size))
    drawn = []
    for _ in range(2):
        np.random.seed(0)
        random.seed(0)
        drawn.append(reply.draw(40, ring(PRIMES, N)))
    for name in ("secret", "error"):
        assert (getattr(drawn[0], name) != getattr(drawn[1], name)).mean() > 0.99
    assert (drawn[0].flood.digits != drawn[1].flood.digits).mean() > 0.99
