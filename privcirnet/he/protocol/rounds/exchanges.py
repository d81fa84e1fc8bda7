"""The table of operations and their exchanges: the one place for both parties, sizes and reports."""

from collections.abc import Callable
from math import prod
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.rounds.exchange import Exchange
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.protocol.rounds.product import ProductExchange
from privcirnet.he.protocol.rounds.square import SquareExchange

Constructor = Callable[[Any, tuple[int, int, int], Program], Exchange]
"""Function (operation, shape of its result, program) -> exchange."""


def _floor(operation: Any, shape: tuple[int, int, int], program: Program) -> Exchange:
    from privcirnet.he.protocol.rounds.floor import FloorExchange  # it loads the kernels

    return FloorExchange(operation, shape, program.parameters.plain_modulus, source=program.transfers)


def _table(operation: Any, shape: tuple[int, int, int], program: Program) -> Exchange:
    from privcirnet.he.protocol.rounds.table import TableExchange

    entries, t = 1 << operation.index_bits, program.parameters.plain_modulus
    return TableExchange(operation, shape, t, entries, program.transfers)


EXCHANGES: dict[type, Constructor] = {
    op.Linear: lambda operation, shape, program: LinearExchange(operation.layer, operation.stack),
    op.Square: lambda operation, shape, program: SquareExchange(prod(shape), program.parameters.ring_degree),
    op.MatMul: lambda operation, shape, program: ProductExchange(operation),
    op.ExactTruncate: _floor,
    op.ExactReLU: _floor,
    op.ExactTable: _table,
}
"""Exchanges by operations that are not local."""


def exchange_of(node: Node, program: Program) -> Exchange | None:
    """Return the exchange of a node; None if its operation is local (:mod:`mpc.local.shares`)."""
    kind = type(node.operation)
    if node.operation.local:
        return None
    if kind not in EXCHANGES:
        rule, remedy = "an operation that is not local must have an exchange", f"give it a line in {__name__}.EXCHANGES"
        raise RuleError(rule, got=f"{kind.__name__} at node {node.name}", remedy=remedy)
    return EXCHANGES[kind](node.operation, node.shape, program)


def exchanges_of(program: Program) -> dict[str, Exchange]:
    """Return the exchanges of a program by the names of their nodes, in order.

    Raises:
        RuleError: an operation is not local, but has no exchange.
    """
    pairs = ((node.name, exchange_of(node, program)) for node in program.nodes)
    return {name: exchange for name, exchange in pairs if exchange is not None}
