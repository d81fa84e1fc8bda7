"""All operations of a program, one namespace; its last statement is their registration.

    from privcirnet.he.program import operations as op

    Node("y", op.Square(), ("x",), shape, log_step)

Linear layers, squares and products of two values cost a message each way, exact steps two, tables three. Maxima are
made of those. All others are local: each party applies them to its share.
"""

from privcirnet.he.program.exact import ExactReLU, ExactTruncate
from privcirnet.he.program.local import (
    Add,
    Center,
    Concat,
    Input,
    Plus,
    Scale,
    SumChannels,
    SumPool,
    Times,
    Truncate,
    Within,
)
from privcirnet.he.program.maxima import BelowMax, MaxPool, Top1
from privcirnet.he.program.operation import Operation, register
from privcirnet.he.program.rearrangement import Channels, Flatten, Gather, Sampled, Take, Tokens, Transpose
from privcirnet.he.program.rounds import Linear, Product, Square
from privcirnet.he.program.table import ExactTable

__all__ = [
    "Add",
    "BelowMax",
    "Center",
    "Channels",
    "Concat",
    "ExactReLU",
    "ExactTable",
    "ExactTruncate",
    "Flatten",
    "Gather",
    "Input",
    "Linear",
    "MaxPool",
    "Operation",
    "Plus",
    "Product",
    "Sampled",
    "Scale",
    "Square",
    "SumChannels",
    "SumPool",
    "Take",
    "Times",
    "Tokens",
    "Top1",
    "Transpose",
    "Truncate",
    "Within",
]

register(Input, Linear, Truncate, Scale, Square, Add, Times, Plus, Concat, SumPool, SumChannels, Center, Product)
register(ExactTruncate, ExactReLU, ExactTable, Flatten, Tokens, Take, Channels, Transpose, Gather, Sampled, Within)
