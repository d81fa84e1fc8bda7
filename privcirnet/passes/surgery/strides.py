"""Convolutions with two strides, or a loss of more rows than columns: replaced by one stride and a choice of places.

Encodings know square kernels with one stride and as many zeros on each side. A kernel with more rows than columns, or
with other zeros on one side than on another, is one of those with zeros in it (:mod:`privcirnet.passes.lower.layers`),
as long as it loses as many rows as columns. If it does not, more zeros around the map and a smaller stride give all
results of the original, and more. A :class:`Rearrange` takes those, which costs nothing. Norms and activations behind
it see the same values as before.
"""

from math import gcd

from torch import Tensor, fx, nn

from privcirnet.nn.moves import Rearrange
from privcirnet.nn.zeros import Zeros, reach_of, with_zeros, zeros_around
from privcirnet.passes.surgery.changes import Replacement
from privcirnet.passes.surgery.edit import GraphEditor, path_of, shape_of


def square(edit: GraphEditor, node: fx.Node) -> None:
    """Make a convolution square as :func:`make_square` does, and report it."""
    conv = edit.module(node)
    assert isinstance(conv, nn.Conv2d)
    if after := make_square(edit, node):
        edit.changes.append(Replacement(path_of(node), f"Conv2d of stride {conv.stride}", after))


def make_square(edit: GraphEditor, node: fx.Node) -> str:
    """Give a convolution one stride, and zeros around its map with which it loses as many rows as columns.

    Args:
        node: a convolution that pads with zeros. It is left as it was if it is square already.

    Returns:
        Description of its new form; "" if it is as it was.
    """
    conv = edit.module(node)
    assert isinstance(conv, nn.Conv2d)
    zeros, reach = zeros_around(conv), reach_of(conv)
    if zeros is None:
        return ""
    lost = reach[0] - zeros.top - zeros.bottom, reach[1] - zeros.left - zeros.right
    rows, columns = shape_of(node)[2:]
    strides = [length for length, size in zip(conv.stride, (rows, columns), strict=True) if size > 1] or [
        conv.stride[0]
    ]
    stride = gcd(*strides)  # one result along an axis comes with any stride
    if lost[0] == lost[1] and len(set(conv.stride)) == 1:
        return ""
    if edit.calls(node.target) > 1:
        edit.cannot(node, "give each use of a convolution that is not square its own module")
        return ""
    ahead = (
        _ahead(zeros.top, zeros.bottom, lost[0] - min(lost), stride),
        _ahead(zeros.left, zeros.right, lost[1] - min(lost), stride),
    )
    behind = [length - min(lost) - first for length, first in zip(lost, ahead, strict=True)]
    wider = with_zeros(conv, zeros.plus(Zeros(ahead[0], behind[0], ahead[1], behind[1])))
    wider.stride = (stride, stride)
    edit.graph.set_submodule(path_of(node), wider)
    size = [(side - min(lost)) // stride + 1 for side in shape_of(node.all_input_nodes[0])[2:]]
    change = f"Conv2d of stride {stride}"
    if size != [rows, columns]:
        down, right = (length // stride for length in ahead)
        step_down, step_right = (max(1, length // stride) for length in conv.stride)

        def take(x: Tensor) -> Tensor:
            return x[:, :, down::step_down, right::step_right][:, :, :rows, :columns]

        move = Rearrange.like(take, (conv.out_channels, *size), channels_last=False)
        edit.append(node, edit.free(f"{path_of(node)}_own"), move)
        node.meta["shape"] = (*shape_of(node)[:2], *size)
        change += " and Move"
    return change


def _ahead(first: int, last: int, more: int, stride: int) -> int:
    """Return how many of further zeros go ahead of a map: whole strides that keep the widest side narrowest.

    Args:
        first: zeros ahead of the map.
        last: zeros behind it.
        more: further zeros.
    """
    return min(range(0, more + 1, stride), key=lambda ahead: max(first + ahead, last + more - ahead))
