"""All operations of a program, one namespace, their registration, and a program in words.

    from privcirnet.he.program import operations as op

    Node("y", op.Square(), ("x",), shape, log_step)

Linear layers, squares and products of two values cost a message each way, exact steps two, tables three. Maxima are
made of those. All others are local: each party applies them to its share.
"""

from collections.abc import Sequence
from math import prod

from privcirnet.he.program.arithmetic import (
    Add,
    AssertRange,
    Center,
    Concat,
    Input,
    Linear,
    MatMul,
    MulConstant,
    Plus,
    Scale,
    Square,
    SumChannels,
    SumPool,
    Truncate,
)
from privcirnet.he.program.exact import ExactReLU, ExactStep, ExactTruncate, MaxPool, SubtractMax, Top1
from privcirnet.he.program.lookup_table import ExactTable
from privcirnet.he.program.operation import Node, Operation, register
from privcirnet.he.program.rearrangement import AsStrided, Flatten, Sampled, SliceChannels, Take, Tokens, Transpose

__all__ = [
    "Add",
    "AsStrided",
    "AssertRange",
    "Center",
    "Concat",
    "ExactReLU",
    "ExactTable",
    "ExactTruncate",
    "Flatten",
    "Input",
    "Linear",
    "MatMul",
    "MaxPool",
    "MulConstant",
    "Operation",
    "Plus",
    "Sampled",
    "Scale",
    "SliceChannels",
    "Square",
    "SubtractMax",
    "SumChannels",
    "SumPool",
    "Take",
    "Tokens",
    "Top1",
    "Transpose",
    "Truncate",
]

register(Input, Linear, Truncate, Scale, Square, Add, MulConstant, Plus, Concat, SumPool, SumChannels, Center, MatMul)
register(
    ExactTruncate,
    ExactReLU,
    ExactTable,
    Flatten,
    Tokens,
    Take,
    SliceChannels,
    Transpose,
    AsStrided,
    Sampled,
    AssertRange,
)


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
            name = f"{of.kernels[0]} x {of.kernels[1]} {'depthwise' if of.kind == 'depthwise' else 'convolution'}"
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
        return f"exact, of {operation.integer_bits} bits" if operation.rectifies and operation.bound else "exact"
    if isinstance(operation, Truncate):
        return "at random"
    return "encrypted" if isinstance(operation, Linear) else "polynomial"
