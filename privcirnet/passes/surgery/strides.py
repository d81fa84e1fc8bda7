"""Convolutions with two strides, or that lose more rows than columns: one with one stride, of which places are taken.

Encodings know square convolutions. More padding and a smaller stride give all results that were asked for, and others.
A :class:`Move` takes those, which costs nothing. Norms and activations behind it see the same values as before.
"""

import copy
from math import gcd

from torch import Tensor, fx, nn

from privcirnet.nn.moves import Move
from privcirnet.passes.surgery.changes import Change
from privcirnet.passes.surgery.edit import Edit, path_of, shape_of


def square(edit: Edit, node: fx.Node) -> None:
    """Give a convolution one stride, and a padding with which it loses as many rows as columns.

    Args:
        node: a convolution. It is left as it was if it is square already, or loses an odd number of rows more.
    """
    conv = edit.module(node)
    assert isinstance(conv, nn.Conv2d)
    if isinstance(conv.padding, str):
        return
    pads = [int(each) for each in conv.padding]
    reach = [dilation * (size - 1) + 1 for dilation, size in zip(conv.dilation, conv.kernel_size, strict=True)]
    lost = [size - 2 * pad for size, pad in zip(reach, pads, strict=True)]
    more = [(each - min(lost)) // 2 for each in lost]
    if (lost[0] - lost[1]) % 2 or (not any(more) and len(set(conv.stride)) == 1):
        return
    if sum(each.target == node.target for each in edit.graph.graph.nodes) > 1:
        edit.cannot(node, "give each use of a convolution with two strides its own module")
        return
    stride = gcd(*conv.stride, *more)
    made = copy.copy(conv)  # its parameters are those of the network's own
    made.stride, made.padding = (stride, stride), tuple(pad + each for pad, each in zip(pads, more, strict=True))
    rows, columns = shape_of(node)[2:]
    down, right = (each // stride for each in more)
    step_down, step_right = (each // stride for each in conv.stride)

    def own(x: Tensor) -> Tensor:
        return x[:, :, down::step_down, right::step_right][:, :, :rows, :columns]

    size = [
        (side + 2 * pad - each) // stride + 1
        for side, pad, each in zip(shape_of(node.all_input_nodes[0])[2:], made.padding, reach, strict=True)
    ]
    edit.graph.set_submodule(path_of(node), made)
    move = Move.like(own, (conv.out_channels, *size), channels_last=False)
    edit.append(node, edit.free(f"{path_of(node)}_own"), move)
    node.meta["shape"] = (*shape_of(node)[:2], *size)
    edit.changes.append(Change(path_of(node), f"Conv2d of stride {conv.stride}", f"Conv2d of stride {stride} and Move"))
