import numpy as np
import pytest

from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.ring import modular
from privcirnet.runs import interactive
from tests.he.networks import network, random_image

Shares = tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray | None]]


@pytest.fixture(scope="module")
def inference() -> Shares:
    program = network()
    server = Server(program, "cleartext")
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    run(client, session, random_image(program))
    return program, {node.name: client.shares[node.name] for node in program.nodes}, session.shares


def wrong(program: Program, client: dict[str, np.ndarray], server: dict[str, np.ndarray | None]) -> list[str]:
    return interactive.wrong_nodes(program, interactive.reconstruct(program, client, server))


def test_an_honest_inference_has_no_wrong_node(inference: Shares) -> None:
    assert wrong(*inference) == []


@pytest.mark.parametrize("name", [node.name for node in network().nodes])
@pytest.mark.parametrize("by", [1, 2, 1 << 40])
def test_one_tampered_value_is_seen(inference: Shares, name: str, by: int) -> None:
    """At the node itself or where its value goes."""
    program, client, server = inference
    t = program.parameters.plain_modulus
    changed = client[name].copy()
    changed.reshape(-1)[-1:] = modular.add(changed.reshape(-1)[-1:], np.uint64([by]), t)
    found = wrong(program, {**client, name: changed}, server)
    readers = [node.name for node in program.nodes if name in node.inputs]
    assert found
    assert set(found) <= {name, *readers}


@pytest.mark.parametrize("name", [node.name for node in network().nodes[1:]])
def test_each_node_is_checked_by_itself(inference: Shares, name: str) -> None:
    """A wrong value from which everything after it follows rightly is seen at its own node, and only there."""
    program, client, server = inference
    values = interactive.reconstruct(program, client, server)
    for node in program.nodes:
        if node.name == name:
            values[name] = values[name] + 3
        elif node.inputs:
            arguments = [values[source] for source in node.inputs]
            values[node.name] = apply(node.operation, arguments, program.weights.get(node.name))
    assert interactive.wrong_nodes(program, values) == [name]


def test_the_other_party_s_shares_count_too(inference: Shares) -> None:
    program, client, server = inference
    own = server["second"]
    assert own is not None
    assert "second" in wrong(program, client, {**server, "second": own[::-1].copy()})


def test_a_truncation_may_be_off_by_its_unit_only(inference: Shares) -> None:
    program, client, server = inference
    values = interactive.reconstruct(program, client, server)
    exact = values["second"]
    for result, right in (
        (exact >> 4, True),
        (-(-exact >> 4), True),
        ((exact >> 4) - 1, False),
        ((exact >> 4) + 2, False),
    ):
        assert ("second_t" not in interactive.wrong_nodes(program, {**values, "second_t": result})) == right
