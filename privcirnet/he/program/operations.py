"""All operations of a program, one namespace; its last statement is their registration.

    from privcirnet.he.program import operations as op

    Node("y", op.Square(), ("x",), shape, log_step)

Linear layers, squares, products of two values and client-aided functions cost a message each way. All others are local:
each party applies them to its share.
"""

from privcirnet.he.program.exact import ExactTruncate
from privcirnet.he.program.local import Add, Concat, Input, Plus, Scale, SumPool, Times, Truncate
from privcirnet.he.program.nonpolynomial import ClientAided
from privcirnet.he.program.operation import Operation, register
from privcirnet.he.program.rearrangement import Channels, Flatten, Gather, Take, Tokens, Transpose
from privcirnet.he.program.rounds import Linear, Product, Square

__all__ = [
    "Add",
    "Channels",
    "ClientAided",
    "Concat",
    "ExactTruncate",
    "Flatten",
    "Gather",
    "Input",
    "Linear",
    "Operation",
    "Plus",
    "Product",
    "Scale",
    "Square",
    "SumPool",
    "Take",
    "Times",
    "Tokens",
    "Transpose",
    "Truncate",
]

register(Input, Linear, Truncate, Scale, Square, ClientAided, Add, Times, Plus, Concat, SumPool, Product)
register(ExactTruncate, Flatten, Tokens, Take, Channels, Transpose, Gather)
