"""Resampling of maps: values that are copied, averages of rows and columns with weights of each place, and maxima.

An interpolation, or an adaptive average whose windows have several sizes, is R X C^T of each channel X, with constant
matrices R and C. Rows and columns in turn become the channels of a linear layer with constant weights. A maximum over
windows of several sizes becomes one over windows side by side of a map in which some rows and columns stand twice.
"""

from math import prod

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.agreement import agree
from privcirnet.nn.moves import Rearrange
from privcirnet.nn.supported_modules import named
from privcirnet.passes.surgery import padding
from privcirnet.passes.surgery.edit import ONE_MORE, TWO_MORE, GraphEditor, Replacement, path_of, shape_of


def upsample(edit: GraphEditor, node: fx.Node) -> None:
    """Replace an interpolation: one that copies values by moves, others by linear layers."""
    source = node.all_input_nodes[0]
    numbers = torch.arange(prod(shape_of(source)[1:])).reshape(1, *shape_of(source)[1:]).double()
    if (resized := edit.compute(node, numbers)).ndim != 4 or not torch.equal(resized, resized.round()):
        if not resample(edit, node):
            edit.cannot(node, "upsample maps (N, C, H, W)")
        return
    try:
        move = Rearrange.like(
            lambda x: edit.compute(node, x.double()).long(), shape_of(source)[1:], channels_last=False
        )
    except RuleError:  # a scale that is no integer: some values are copied more often than others
        padding.pad(edit, node)
        return
    edit.changes.append(Replacement(path_of(node), named(edit.graph, node), "Move"))
    edit.put_for(node, edit.insert(node, edit.free(node.name), move, (source,)))


def resample(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether an operation averages rows and columns; put linear layers in its place if it does."""
    source, after = node.all_input_nodes[0], shape_of(node)
    shape = shape_of(source)
    if len(shape) != 4 or len(after) != 4 or shape[:2] != after[:2]:
        return False
    rows, columns = _weights(edit, node)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(edit.like)
    if not agree(rows @ x @ columns.T, edit.compute(node, x), 1e-5):
        return False
    axes = [(axis, weights) for axis, weights in ((3, columns), (2, rows)) if not _is_identity(weights)]
    current, size = source, list(shape[1:])
    for axis, weights in axes:
        current = _along(edit, node, current, size, axis, weights)
        size[axis - 1] = len(weights)
    effect = TWO_MORE if len(axes) > 1 else ONE_MORE
    edit.changes.append(Replacement(path_of(node), named(edit.graph, node), "Linear", effect))
    edit.put_for(node, current)
    return True


def _weights(edit: GraphEditor, node: fx.Node) -> tuple[Tensor, Tensor]:
    """Return the matrices of rows and of columns, (H', H) and (W', W), of an operation whose weights sum up to 1."""
    height, width = shape_of(node.all_input_nodes[0])[2:]
    rows = torch.eye(height).to(edit.like)[:, None, :, None].expand(-1, 1, -1, width)
    columns = torch.eye(width).to(edit.like)[:, None, None].expand(-1, 1, height, -1)
    return edit.compute(node, rows)[:, 0, :, 0].T, edit.compute(node, columns)[:, 0, 0].T


def _is_identity(weights: Tensor) -> bool:
    return weights.shape[0] == weights.shape[1] and torch.allclose(weights, torch.eye(len(weights)).to(weights))


def _along(edit: GraphEditor, node: fx.Node, source: fx.Node, size: list[int], axis: int, weights: Tensor) -> fx.Node:
    """Return a map whose rows (axis 2) or columns (axis 3) are weighted sums of another's."""
    name, before = edit.free(f"{path_of(node)}_{'rows' if axis == 2 else 'columns'}"), tuple(size)
    turned = [length for place, length in enumerate(size, 1) if place != axis]
    layer = nn.Linear(*weights.T.shape, bias=False).requires_grad_(False)
    layer.weight.copy_(weights)
    places = Rearrange.like(lambda x: x.movedim(axis, -1).flatten(1, 2), before, channels_last=True)
    back = Rearrange.like(
        lambda x: x.unflatten(1, turned).movedim(-1, axis), (places.after[0], len(weights)), channels_last=False
    )
    for part, module, after in (
        ("places", places, places.after),
        ("", layer, (places.after[0], len(weights))),
        ("map", back, back.after),
    ):
        source = edit.insert(source, edit.free(f"{name}_{part}".rstrip("_")), module, (source,))
        source.meta["shape"] = (shape_of(node)[0], *after)
    return source


def maximum(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether an operation is an adaptive maximum; put moves and a max pool in its place if it is."""
    source, after = node.all_input_nodes[0], shape_of(node)
    shape = shape_of(source)
    if len(shape) != 4 or len(after) != 4 or shape[:2] != after[:2]:
        return False
    (rows, down), (columns, right) = (_windows(*sizes) for sizes in zip(shape[2:], after[2:], strict=True))
    pool = nn.MaxPool2d((down, right) if down != right else down)

    def repeated(x: Tensor) -> Tensor:
        return x[:, :, rows][..., columns]

    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(edit.like)
    if not torch.equal(pool(repeated(x)), edit.compute(node, x)):
        return False
    larger = padding.padded(edit, node, repeated)
    if larger is not None:
        call = edit.insert(larger, edit.free(f"{path_of(node)}_maximum"), pool, (larger,))
        call.meta["shape"] = after
        edit.changes.append(Replacement(path_of(node), named(edit.graph, node), "Move, Concat and MaxPool2d"))
        edit.put_for(node, call)
    return True


def _windows(size: int, count: int) -> tuple[list[int], int]:
    """Return the places of windows that cover an axis, the last of shorter ones again, and the places of each.

    >>> _windows(5, 3)
    ([0, 1, 1, 1, 2, 3, 3, 4, 4], 3)
    """
    ends = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    longest = max(end - first for first, end in ends)
    return [min(first + step, end - 1) for first, end in ends for step in range(longest)], longest
