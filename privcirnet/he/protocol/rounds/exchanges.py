"""Which operations take a round, and of which kind: the one place that says so for both parties, sizes and reports."""

from collections.abc import Callable
from math import prod
from typing import Any

from privcirnet.he.program import operations as op
from privcirnet.he.program.program import Node, Program
from privcirnet.he.protocol.rounds.client_aided import ClientAidedExchange
from privcirnet.he.protocol.rounds.exchange import Exchange
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.product import ProductExchange
from privcirnet.he.protocol.rounds.square import SquareExchange
from privcirnet.he.schemes.bfv.parameters import Parameters

Constructor = Callable[[Any, tuple[int, int, int], Parameters], Exchange]
"""(operation, shape of its result, parameters) -> exchange."""

EXCHANGES: dict[type, Constructor] = {
    op.Linear: lambda operation, shape, parameters: LinearExchange(operation.layer, operation.stack),
    op.Square: lambda operation, shape, parameters: SquareExchange(prod(shape), parameters.ring_degree),
    op.Product: lambda operation, shape, parameters: ProductExchange(operation),
    op.ClientAided: lambda operation, shape, parameters: ClientAidedExchange(operation, prod(shape)),
}
"""Operations that take a round."""

LOCAL: tuple[type, ...] = (
    *(op.Input, op.Truncate, op.Scale, op.Add, op.Concat, op.SumPool),
    *(op.Flatten, op.Tokens, op.Take, op.Channels, op.Transpose, op.Gather),
)
"""Operations that each party does alone (:mod:`mpc.local.shares`)."""


def exchange_of(node: Node, parameters: Parameters) -> Exchange | None:
    """Return the exchange of a node; None if its operation is local.

    Raises:
        TypeError: the operation is in neither table.
    """
    kind = type(node.operation)
    if kind in EXCHANGES:
        return EXCHANGES[kind](node.operation, node.shape, parameters)
    if kind in LOCAL:
        return None
    raise TypeError(f"node {node.name}: an operation must be in EXCHANGES or LOCAL of {__name__}: got {kind.__name__}")


def exchanges_of(program: Program) -> dict[str, Exchange]:
    """Return the exchanges of a program by the names of their nodes, in order.

    Args:
        program: with or without weights.

    Raises:
        TypeError: an operation is in neither table.
    """
    found = ((node.name, exchange_of(node, program.parameters)) for node in program.nodes)
    return {name: exchange for name, exchange in found if exchange is not None}
