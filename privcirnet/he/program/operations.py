"""All operations of a program, one namespace; its last statement is their registration.

    from privcirnet.he.program import operations as op

    Node("y", op.Square(), ("x",), shape, log_step)

Linear layers, squares and products of two values cost a message each way, exact steps two, tables three. Maxima are
made of those. All others are local: each party applies them to its share.
"""

from privcirnet.he.program.exact import ExactReLU, ExactTruncate
from privcirnet.he.program.interactive_ops import Linear, MatMul, Square
from privcirnet.he.program.local import (
    Add,
    AssertRange,
    Center,
    Concat,
    Input,
    MulConstant,
    Plus,
    Scale,
    SumChannels,
    SumPool,
    Truncate,
)
from privcirnet.he.program.maxima import MaxPool, SubtractMax, Top1
from privcirnet.he.program.operation import Operation, register
from privcirnet.he.program.rearrangement import AsStrided, Flatten, Sampled, SliceChannels, Take, Tokens, Transpose
from privcirnet.he.program.table import ExactTable

__all__ = [
    "Add",
    "SubtractMax",
    "Center",
    "SliceChannels",
    "Concat",
    "ExactReLU",
    "ExactTable",
    "ExactTruncate",
    "Flatten",
    "AsStrided",
    "Input",
    "Linear",
    "MaxPool",
    "Operation",
    "Plus",
    "MatMul",
    "Sampled",
    "Scale",
    "Square",
    "SumChannels",
    "SumPool",
    "Take",
    "MulConstant",
    "Tokens",
    "Top1",
    "Transpose",
    "Truncate",
    "AssertRange",
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
