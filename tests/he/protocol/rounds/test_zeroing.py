"""Shares of which nothing follows are zeroed, and no others: a server that nobody audits has the same logits."""

from collections.abc import Callable, Sequence
from unittest.mock import patch

import numpy as np
import pytest

from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties import server as served
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.ring.modular import Residues
from privcirnet.runs import interactive
from tests.he.networks import attention, bottleneck, network, random_image, residual_of_the_image


def test_whose_results_are_not_needed_after_a_node() -> None:
    program = network()
    found = served.last_uses(program.nodes)
    order = [node.name for node in program.nodes]
    for node, names in found.items():
        for name in names:
            users = [each.name for each in program.nodes if name in each.inputs]
            assert max(users, key=order.index) == node
    assert sorted(name for names in found.values() for name in names) == sorted(set(order) - {program.output.name})


def test_views_of_a_share_keep_it() -> None:
    share, other = np.arange(1, 5, dtype=np.uint64), np.arange(1, 5, dtype=np.uint64)
    held = {"first": share, "view": share.reshape(2, 2), "other": other, "zero": None}
    served.zero(held, ["first", "other", "zero"])
    assert held.keys() == {"first", "view"}
    assert share.all()
    assert not other.any()


@pytest.mark.parametrize("make", [network, bottleneck, attention, residual_of_the_image])
def test_a_server_that_nobody_watches_zeroes_what_it_has_used(make: Callable[[], Program]) -> None:
    program, taken, zeroed = make(), dict[str, Residues | None](), list[Residues | None]()

    served_zero = served.zero

    def forget(held: dict[str, Residues | None], names: Sequence[str]) -> None:
        taken.update({name: None if (share := held[name]) is None else share.copy() for name in names})
        before = [held[name] for name in names]
        served_zero(held, names)
        zeroed.extend(share for name, share in zip(names, before, strict=True) if name not in held)

    server = Server(program, "cleartext", watched=False)
    client = Client(server.greeting(), "cleartext")
    with server.session(client.keys()) as session, patch.object(served, "zero", forget):
        prepare(client, session)
        run(client, session, random_image(program))
        assert not client.waited
        found = interactive.reconstruct(program, client.shares, {**taken, **session.shares})
        assert interactive.wrong_nodes(program, found) == []
        assert zeroed
        assert not any(share.any() for share in zeroed if share is not None)
        assert program.output.name in session.shares
