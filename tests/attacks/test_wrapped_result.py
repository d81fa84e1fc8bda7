"""A wrong result passes for a right one: a mask wrapped around t by chance, or a server wants it to.

A value that wraps in a truncation is off by t / 2^f. What follows spreads that over all bits of t, while right results
have few of them, which the program says. A client refuses wider ones. It first asks for all that is left of the image:
a server that can make results fail must not see that one did (SECURITY.md).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from privcirnet.he.mpc.local import shares
from privcirnet.he.program.program import ImpossibleResultError, Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.server import Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.runs.answers import answers
from tests.he.networks import attention, network, random_image
from tests.he.parties import parties

PROGRAMS: dict[str, Callable[[], Program]] = {
    "network": network,
    "attention": attention,
}


@contextmanager
def wrapped(which: int, up: bool) -> Iterator[None]:
    """One value of a truncation is off by t / 2^f, as if its mask had wrapped."""
    original, count = shares.truncate_client, iter(range(1000))

    def truncate(share, bits, t):
        found = original(share, bits, t)
        if next(count) == which:
            off = np.uint64(t >> bits)
            found.reshape(-1)[0] = (found.reshape(-1)[0] + (off if up else np.uint64(t) - off)) % np.uint64(t)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares, "truncate_client", truncate)
        yield


class Recorder:
    """A session, and the position of each request."""

    def __init__(self, session: Session) -> None:
        self._session, self.positions = session, list[int]()

    def handle(self, message: bytes) -> bytes:
        self.positions.append(wire.position_of(message))
        return self._session.handle(message)


CASES = [
    *(("network", which) for which in range(3)),
    ("attention", 2),
]
"""Truncations whose first value has a part in the result."""


@pytest.mark.parametrize(("name", "which"), CASES)
@pytest.mark.parametrize("up", [False, True], ids=["down", "up"])
def test_a_value_that_wrapped_is_noticed_and_the_server_is_not_told(name: str, which: int, up: bool) -> None:
    program = PROGRAMS[name]()
    client, session = parties(program, "cleartext")
    recorder, image = Recorder(session), random_image(program)
    run(client, recorder, image)
    honest, recorder.positions = recorder.positions, []
    with (
        wrapped(which, up),
        pytest.raises(ImpossibleResultError, match=r"must have at most \d+ bits, or the result is wrong"),
    ):
        run(client, recorder, image)
    assert recorder.positions == honest
    run(client, recorder, image)


def test_a_batch_goes_on_behind_a_refused_result() -> None:
    program = network()
    images = [random_image(program, seed) for seed in range(3)]
    with wrapped(4, True):
        found = [*answers(*parties(program, "cleartext"), images)]
    assert [bool(answer.refused) for answer in found] == [False, True, False]
