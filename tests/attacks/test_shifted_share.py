"""A client reads the classifier from its answers. It works, and breaks no cryptography (the attack of MUSE and SIMC).

The attacker follows the protocol up to the classifier's input, of which both parties hold a share. To its own share it
adds 2^k at one place. The classifier is linear, so the answer has 2^k times a column of its weights on top. Between the
largest right answer and t there is room for several columns in one image.
"""

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from privcirnet.he.layers.integer import Values, expand_rows
from privcirnet.he.mpc.local import shares
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target, plan_program
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import ExactTruncate
from privcirnet.he.program.program import ImpossibleResultError, Network, Program
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from tests.attacks.hostile import ShiftingClient
from tests.he.networks import network, random_image
from tests.he.parties import parties, protocol

INPUTS = 32
"""Of the classifier, which has ten outputs."""
WEIGHT_BITS = 6
"""Of the network's weights, sign included, one to spare."""


def wide(program: Program) -> int:
    """Bits of the largest logit, sign left out."""
    return bounds.value_bits(bounds.prove(program)["head"])


def steal(program: Program, places: list[int]) -> tuple[Values, int]:
    """The classifier's weights from shifts by 2^place, one column for each place in an image; and how many images."""
    server = Server(program, "cleartext")
    client, found = ShiftingClient(server.greeting(), "cleartext"), np.zeros((10, INPUTS), dtype=np.int64)
    client.target, images = "head", range(0, INPUTS, len(places))
    with server.session(client.keys()) as session:
        for first in images:
            columns = range(first, min(first + len(places), INPUTS))
            client.shift = np.zeros(INPUTS, dtype=np.int64)
            client.shift[columns] = [1 << place for place in places[: len(columns)]]
            answer = client.ask(session, random_image(program))
            for column, place in zip(columns, places, strict=False):
                unit = 1 << place
                digits = (answer + unit // 2) // unit
                found[:, column] = (digits + (1 << WEIGHT_BITS - 1)) % (1 << WEIGHT_BITS) - (1 << WEIGHT_BITS - 1)
                answer = answer - found[:, column] * unit
    return found, len(images)


@pytest.fixture
def packed() -> list[int]:
    """As many places as there are between the largest logit and t."""
    program = network()
    first, last = wide(program) + 1, program.parameters.plain_bits - 1 - WEIGHT_BITS
    return [*range(first, last, WEIGHT_BITS)]


def honest(program: Program) -> Values:
    return protocol(program, "cleartext", random_image(program)).logits.reshape(-1)


def weights() -> Values:
    return expand_rows(network().weights["head"].rows, 2).reshape(10, INPUTS)


def test_a_client_reads_every_weight_of_the_classifier(packed: list[int]) -> None:
    found, images = steal(network(), packed)
    assert (found == weights()).all()
    assert images == 11


def classifying(monkeypatch: pytest.MonkeyPatch, shifts: Callable[[Node], Values | int]) -> tuple[Client, Session]:
    """Parties of the network with its class as the answer; the client adds to its shares of what it computes alone."""
    target, local = (
        Target(COUNTED, LINKS["local"], truncation="exact", answer="top1"),
        shares.local_client,
    )

    def shifted(known: Program, node: Node, arguments: list[Residues]) -> Residues:
        t = known.parameters.plain_modulus
        added = np.broadcast_to(shifts(node), node.shape).astype(np.int64)
        return modular.add(local(known, node, arguments), modular.residues(added, t), t)

    monkeypatch.setattr(shares, "local_client", shifted)
    return parties(plan_program(Network(network().nodes, network().weights), target).program, "cleartext")


def test_a_class_alone_tells_one_comparison_of_each_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that adds to its share of a logit finds by bisection how far the logit is from the largest one."""
    logits, shift = honest(network()), 0
    asked, low, high = logits.argmin(), 0, 1 << wide(network()) + 1
    of_it = np.eye(10, dtype=np.int64)[asked].reshape(-1, 1, 1) << 4  # four bits are for places
    client, session = classifying(monkeypatch, lambda node: of_it * shift if node.inputs == ("head",) else 0)
    for _ in range(8):
        shift = (low + high) // 2
        won = run(client, session, random_image(client.program))[0][asked].item()
        low, high = (low, shift) if won else (shift, high)
    assert low < logits.max() - logits[asked] <= high == low + (1 << wide(network()) + 1 - 8)


def test_adding_to_the_winner_tells_its_place_and_a_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the truncation that takes its place out: a ReLU there would give all of it away."""
    shift, last = 0, 9
    client, session = classifying(monkeypatch, lambda node: shift if node.name == cut.inputs[0] else 0)
    cut = next(node for node in reversed(client.program.nodes) if isinstance(node.operation, ExactTruncate))
    t = client.program.parameters.plain_modulus
    for shift in np.random.default_rng(0).integers(0, t, 8).tolist():
        with suppress(
            ImpossibleResultError
        ):  # or another class: the client is given four bits of the number, and one more
            run(client, session, random_image(client.program))
        share = client.shares[client.program.output.name], session.shares[client.program.output.name]
        number = modular.add(*share, t).item()
        assert any((last + shift - number + carry * (t // 32) * 16) % t < 16 for carry in (-1, 0, 1))
