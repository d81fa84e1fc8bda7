"""An audit of an inference: both parties' shares are added and every step is checked against the interpreter.

Only a harness that runs both parties can do this. The demo and the tests use it to check that the encrypted result is
right. Every operation's result must equal the interpreter's exactly, on the values that went in. Only a truncation may
differ by one unit: it must be the floor or the ceiling of the exact quotient.
"""

from collections.abc import Mapping

from privcirnet.he.layers.integer import Values
from privcirnet.he.program.interpreter import apply
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Truncate
from privcirnet.he.program.program import Program
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


def reconstruct(
    program: Program, client: Mapping[str, Residues], server: Mapping[str, Residues | None]
) -> dict[str, Values]:
    """Return the integer values of every node by name.

    Args:
        client: the client's shares by node.
        server: the server's shares by node; None for zero.
    """
    t = program.parameters.plain_modulus
    values: dict[str, Values] = {}
    for node in program.nodes:
        server_share = server[node.name]
        whole = client[node.name] if server_share is None else modular.add(client[node.name], server_share, t)
        values[node.name] = modular.centered(whole, t)
    return values


def wrong_nodes(program: Program, values: Mapping[str, Values]) -> list[str]:
    """Return the names of the nodes whose value does not follow from their inputs' values.

    Returns:
        names in the program's order; none if the inference was right.
    """
    return [node.name for node in program.nodes if node.inputs and not _follows(program, node, values)]


def _follows(program: Program, node: Node, values: Mapping[str, Values]) -> bool:
    arguments = [values[source] for source in node.inputs]
    if isinstance(node.operation, Truncate):
        floor = arguments[0] >> node.operation.bits
        ceiling = -(-arguments[0] >> node.operation.bits)
        return bool(((values[node.name] == floor) | (values[node.name] == ceiling)).all())
    return bool((apply(node.operation, arguments, program.weights.get(node.name)) == values[node.name]).all())
