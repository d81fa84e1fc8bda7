"""Mutated messages of oblivious transfers, in thousands: their checks refuse them, and nothing else happens."""

import copy
from functools import partial
from random import Random

import pytest

from privcirnet.he.mpc.ot import base, softspoken
from privcirnet.he.mpc.ot.session import K
from tests.he.mpc.transfers import pair, silent_pair
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import refused
from tests.he.protocol.mutations import Honest

TRANSFERS = 192
CHANGING = {"_rows", "_spent", "_leaves"}
"""What a party changes as it goes on."""
MUTATIONS = {
    **{"points": 400, "point": 400, "setup": 160, "extension": 800},
    **{"offer": 800, "check": 800, "proof": 800},
}

MOST = {"points": 0.2, "point": 0.2, "setup": 0.5, "extension": 0.1, "offer": 0.3, "check": 1, "proof": 0}
"""Share that may be taken: points that are others; a guess at one bit of a path, of the side that it leaves, or at four
bits of Delta; of a check, which is answered by a hash, all of the right length."""


@pytest.fixture(scope="module")
def steps():
    """By kind: an honest message, and what takes another one in its place from the same state each time."""
    chooser = base.BaseOtReceiver([0, 1, 1], b"session")
    _, point = base.send(chooser.message, 3, b"session")
    hello = softspoken.Sender(K, b"session")
    begun, setup = again(hello), softspoken.Receiver(hello.hello, K, b"session").setup
    sender, receiver = pair()
    _, extension = receiver.extend(TRANSFERS)
    recorded = sender._next(softspoken._rows(TRANSFERS) // 64)
    extending = again(sender, _next=lambda _: recorded.copy())
    with pytest.MonkeyPatch.context() as patch:
        offering, answering = silent_pair(patch)
        before = again(answering)
        offer = offering.offer()
        waiting = again(offering)
        check = answering.answer(offer)
        expecting = again(answering)
        yield {
            "points": (chooser.message, lambda m: base.send(m, 3, b"session")),
            "point": (point, chooser.keys),
            "setup": (setup, lambda m: begun().begin(m)),
            "extension": (extension, lambda m: extending().extend(TRANSFERS, m)),
            "offer": (offer, lambda m: (party := before()).finish(waiting().prove(party.answer(m)))),
            "check": (check, lambda m: waiting().prove(m)),
            "proof": (offering.prove(check), lambda m: expecting().finish(m)),
        }


def again(party, **others):
    """A function that returns the party as it is now, which its own copying refuses; ``others``: attributes."""

    def copied():
        other = object.__new__(type(party))
        other.__dict__ |= {name: copy.deepcopy(value) if name in CHANGING else value for name, value in state.items()}
        return other

    state = {name: copy.deepcopy(value) if name in CHANGING else value for name, value in vars(party).items()} | others
    return copied


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutated_messages(kind, steps):
    """What is taken has the length that is due, and passes a check or is unchecked: see :data:`MOST`."""
    honest, take = steps[kind]
    take(honest)
    others, taken = [message for message, _ in steps.values() if message is not honest], 0
    count = mutations.due(MUTATIONS)[kind]
    for seed in range(count):
        message = mutations.message(Honest(honest, [], [], others), Random(f"{kind} {seed}"))
        if not refused(partial(take, message)):
            assert len(message) == len(honest)
            taken += message != honest
    assert taken <= count * MOST[kind]
