"""A program in words: the computation of each module of the network, and whether it is polynomial or exact."""

from collections.abc import Sequence
from math import prod

from privcirnet.he.program.exact import ExactReLU, ExactStep
from privcirnet.he.program.interactive_ops import Linear
from privcirnet.he.program.local import AssertRange, Truncate
from privcirnet.he.program.operation import Node, Operation
from privcirnet.he.program.table import ExactTable

HEADINGS = "layer", "computes", "values", "how"


def described(nodes: Sequence[Node]) -> list[tuple[str, str, str, str]]:
    """Return a row for each module and each of its exchanges or truncations, in order; columns: :data:`HEADINGS`.

    Repeated work of a module, such as the maxima of a pool, is one row.
    """
    counts = dict[tuple[str, str, str], int]()
    maxima = {node.module for node in nodes if isinstance(node.operation, AssertRange)}
    for node in nodes:
        operation = node.operation
        if isinstance(operation, Truncate) or not operation.local:
            takes_maxima = isinstance(operation, ExactReLU) and not operation.bits and node.module in maxima
            computes = "maximum" if takes_maxima else _computes(operation)
            row = node.module or node.name, computes, _how(operation)
            counts[row] = counts.get(row, 0) + prod(node.shape)
    return [(module, computes, f"{values:,}", how) for (module, computes, how), values in counts.items()]


def _computes(operation: Operation) -> str:
    match operation:
        case Linear(layer):
            of = layer.shape
            name = f"{of.kernel} x {of.kernel} {'depthwise' if of.kind == 'depthwise' else 'convolution'}"
            block = f", b = {layer.block_size}" if layer.block_size > 1 else ""
            return f"{'linear' if of.kind == 'gemm' else name}, {of.in_channels} -> {of.out_channels}{block}"
        case ExactTable(function=function):
            return function
        case ExactStep(title=title):
            return title.removeprefix("exact ")
        case _:
            return "truncation" if isinstance(operation, Truncate) else operation.kind


def _how(operation: Operation) -> str:
    if isinstance(operation, ExactStep):
        return "exact"
    if isinstance(operation, Truncate):
        return "at random"
    return "encrypted" if isinstance(operation, Linear) else "polynomial"
