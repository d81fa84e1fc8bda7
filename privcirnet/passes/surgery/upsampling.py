"""Upsampling: nearest neighbours become moves, transposed convolutions become convolutions and a move."""

from itertools import product
from math import prod

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.modules import named
from privcirnet.nn.moves import Rearrange
from privcirnet.passes.surgery import pads
from privcirnet.passes.surgery.changes import Replacement
from privcirnet.passes.surgery.edit import GraphEditor, path_of, shape_of


def upsample(edit: GraphEditor, node: fx.Node) -> None:
    """Replace an interpolation that copies values."""
    source = node.all_input_nodes[0]
    numbers = torch.arange(prod(shape_of(source)[1:])).reshape(1, *shape_of(source)[1:]).double()
    if (resized := edit.compute(node, numbers)).ndim != 4 or not torch.equal(resized, resized.round()):
        edit.cannot(node, 'upsample maps with mode="nearest"')
        return
    try:
        move = Rearrange.like(
            lambda x: edit.compute(node, x.double()).long(), shape_of(source)[1:], channels_last=False
        )
    except RuleError:  # a scale that is no integer: some values are copied more often than others
        pads.pad(edit, node)
        return
    edit.changes.append(Replacement(path_of(node), named(edit.graph, node), "Move"))
    edit.put_for(node, edit.insert(node, edit.free(node.name), move, (source,)))


def transpose(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a transposed convolution of stride s by a convolution that gives all s x s phases, and their places.

    Row s i + r of the result takes tap t of row i + (r + p - t) / s, for each t that makes this an integer.
    """
    conv, (_, out, *after) = edit.module(node), shape_of(node)
    assert isinstance(conv, nn.ConvTranspose2d)
    if conv.padding_mode != "zeros":
        edit.cannot(node, "pad a transposed convolution with zeros")
        return
    before, (down, right) = shape_of(node.all_input_nodes[0])[2:], conv.stride
    taps = [_taps(*axis) for axis in zip(conv.stride, conv.padding, conv.dilation, conv.kernel_size, strict=True)]
    counts = [-(-size // s) for size, s in zip(after, conv.stride, strict=True)]
    last = max(offset for axis in taps for _, _, offset in axis)
    first = max(-offset for axis in taps for _, _, offset in axis)
    around = max(first, *(count - size + last for count, size in zip(counts, before, strict=True)), 0)
    layer = nn.Conv2d(
        *(conv.in_channels, out * down * right, around + last + 1),
        padding=around,
        groups=conv.groups,
        bias=conv.bias is not None,
    )
    with torch.no_grad():
        kernels = conv.weight.unflatten(0, (conv.groups, -1)).transpose(1, 2).flatten(0, 1)
        phases = layer.weight.zero_().unflatten(0, (out, down, right))
        for (r, row, below), (c, column, beside) in product(*taps):
            phases[:, r, c, :, around + below, around + beside] = kernels[:, :, row, column]
        if conv.bias is not None:
            layer.bias.copy_(conv.bias.repeat_interleave(down * right))  # type: ignore[union-attr]
    for parameter in layer.parameters():
        parameter.requires_grad_(conv.weight.requires_grad)
    call = edit.replace(node, layer, "")
    call.meta["shape"] = (shape_of(node)[0], out * down * right, *(axis + around - last for axis in before))

    def joined(x: Tensor) -> Tensor:
        x = x[:, :, : counts[0], : counts[1]].unflatten(1, (out, down, right))
        return x.permute(0, 1, 4, 2, 5, 3).flatten(4).flatten(2, 3)

    for function in (joined, lambda x: x[:, :, : after[0], : after[1]]):
        move = Rearrange.like(function, shape_of(call)[1:], channels_last=False)
        if move.after != shape_of(call)[1:]:
            call = edit.append(call, edit.free(f"{path_of(call)}_joined"), move)
            call.meta["shape"] = (shape_of(call)[0], *move.after)


def _taps(stride: int, padding: int, dilation: int, kernel: int) -> list[tuple[int, int, int]]:
    """Return the phases r of an axis with each weight that they take, and the offset from i of its value."""
    all_taps = ((r, tap, r + padding - dilation * tap) for r, tap in product(range(stride), range(kernel)))
    return [(r, tap, distance // stride) for r, tap, distance in all_taps if distance % stride == 0]
