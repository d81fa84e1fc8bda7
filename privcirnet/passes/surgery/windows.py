"""Windows over a map: pools, and image sizes that fit them.

Pools and means of a map become averages over windows side by side, or convolutions with constant weights. Where the
present image size does not fit a forward or its pools, another is searched.
"""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.graph import module_of
from privcirnet.nn.moves import Rearrange
from privcirnet.nn.supported_modules import kind_of, named
from privcirnet.nn.windows import Zeros, average_of, divisor_of, pair, reach_of, with_zeros
from privcirnet.passes.shape_tracing import trace_at
from privcirnet.passes.surgery.edit import ONE_MORE, TRAIN, TWO_MORE, GraphEditor, arguments_of, path_of, shape_of
from privcirnet.passes.surgery.resampling import resample

_OVERLAP = "use pools whose windows are all of one size"
_OF_MAPS = "average over the two axes of a map"
_KINDS: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "avg_pool2d": (
        nn.AvgPool2d,
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    "max_pool2d": (nn.MaxPool2d, ("kernel_size", "stride", "padding", "dilation", "ceil_mode")),
}
"""Name of a function -> module that does the same, and names of its arguments behind the first."""


def pool(edit: GraphEditor, node: fx.Node, average: bool) -> None:
    """Replace a pool by an average over windows side by side, so that its sums are sums of shares, where one has them.

    An average with other windows is a convolution with constant weights, exactly. A maximum is replaced by an average.

    Args:
        average: whether it averages; else it takes the largest.
    """
    before, after = shape_of(node.all_input_nodes[0]), shape_of(node)
    if len(before) == 3 and after in ((before[0], before[2]), (before[0], 1, before[2])) and average:
        _mean_of_tokens(edit, node)
        return
    window = window_of(edit.graph, node)
    if edit.module(node) is window and isinstance(window, nn.AvgPool2d) and divisor_of(window):
        return
    if len(before) != 4 or len(after) not in (2, 4) or before[:2] != after[:2]:
        edit.cannot(node, _OF_MAPS)
        return
    side = side_of(before, after)
    if len(after) == 4 and _computes(edit, node, nn.Identity()):
        edit.skip(node)
    elif side and average and _computes(edit, node, average_of(side)):
        _averaged(edit, node, side, "")
    elif average and named(edit.graph, node) == "mean":
        edit.cannot(node, _OF_MAPS)
    elif side and side != (1, 1) and not average:
        _averaged(edit, node, side, TRAIN)
    elif window is None:
        _of_several_windows(edit, node, average)
    elif isinstance(window, nn.MaxPool2d) and divisor_of(window):
        edit.replace(node, average_of(pair(window.kernel_size)), TRAIN)
    else:
        _convolve(edit, node, window, average)


def _of_several_windows(edit: GraphEditor, node: fx.Node, average: bool) -> None:
    """Replace an average over windows of several sizes; note a problem where a pool is anything else."""
    if not (average and resample(edit, node)):
        edit.cannot(node, f"pools must divide their maps: {edit.other_size() or _OVERLAP}")


def window_of(graph: fx.GraphModule, node: fx.Node) -> nn.AvgPool2d | nn.MaxPool2d | None:
    """Return the pool that a node is, as a module or as a function; None if it does not say its windows."""
    module = module_of(graph, node)
    if module is not None:
        return module if type(module) in (nn.AvgPool2d, nn.MaxPool2d) else None  # type: ignore[return-value]
    if (name := named(graph, node)) not in _KINDS:
        return None
    kind, names = _KINDS[name]
    arguments = arguments_of(node, *names, behind=1)
    options = {name: value for name, value in arguments.items() if name in names and value is not None}
    return kind(**options)  # type: ignore[return-value]


def side_of(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, int] | None:
    """Return rows and columns of windows side by side that give a map of this size; None if there are none.

    Args:
        before: shape (N, C, H, W) of the map.
        after: shape of the result, (N, C, H, W), or (N, C) for a mean.
    """
    height, width = after[2:] if len(after) == 4 else (1, 1)
    rows, columns = before[2] // height, before[3] // width
    return (rows, columns) if (rows * height, columns * width) == before[2:] else None


def _averaged(edit: GraphEditor, node: fx.Node, side: tuple[int, int], effect: str) -> None:
    """Let an average take a node's place, and flatten it if the node gave a vector."""
    after, call = shape_of(node), edit.replace(node, average_of(side), effect)
    if len(after) == 2:
        edit.append(call, edit.free(f"{path_of(call)}_flatten"), nn.Flatten())
        call.meta["shape"] = (*after, 1, 1)


def _convolve(edit: GraphEditor, node: fx.Node, window: nn.AvgPool2d | nn.MaxPool2d, average: bool) -> None:
    """Let a convolution with constant weights take a pool's place.

    Where windows reach over the edges, an average may divide by fewer: a second layer then scales each place.
    """
    before, after = shape_of(node.all_input_nodes[0]), shape_of(node)
    layer = _sums(window, before, after).to(edit.like)
    ones = torch.ones(before).to(edit.like)
    factors = (edit.compute(node, ones) / layer(ones))[0, 0].detach()
    alike = torch.allclose(factors, torch.ones_like(factors))
    call = edit.replace(node, layer, TRAIN if not average else ONE_MORE if alike else TWO_MORE)
    if average and not alike:
        _scale_places(edit, call, factors)


def _sums(window: nn.AvgPool2d | nn.MaxPool2d, before: tuple[int, ...], after: tuple[int, ...]) -> nn.Conv2d:
    """Return the convolution that averages over the windows of a pool, with zeros outside of the map."""
    dilation = window.dilation if isinstance(window, nn.MaxPool2d) else 1
    channels, kernel, padding = before[1], pair(window.kernel_size), pair(window.padding)
    layer = nn.Conv2d(channels, channels, kernel, window.stride, dilation=dilation, groups=channels, bias=False)
    layer.requires_grad_(False)
    divisor = getattr(window, "divisor_override", None) or kernel[0] * kernel[1]
    nn.init.constant_(layer.weight, 1 / divisor)
    bottom, right = (  # with ceil_mode, the last windows may reach further
        max((after[2 + i] - 1) * layer.stride[i] + reach - before[2 + i] - padding[i], 0)
        for i, reach in enumerate(reach_of(layer))
    )
    return with_zeros(layer, Zeros(padding[0], bottom, padding[1], right))


def _scale_places(edit: GraphEditor, node: fx.Node, factors: Tensor) -> None:
    """Multiply each place of a map by a constant: places become the channels of a depthwise convolution."""
    shape, (height, width) = shape_of(node), factors.shape
    count, channels = height * width, shape[1]
    layer = nn.Conv2d(count, count, 1, groups=count, bias=False).requires_grad_(False)
    layer.weight.copy_(factors.reshape(layer.weight.shape))
    first = Rearrange.like(lambda x: x.flatten(2).mT[..., None], shape[1:], channels_last=False)
    back = Rearrange.like(
        lambda x: x[..., 0].mT.unflatten(2, (height, width)), (count, channels, 1), channels_last=False
    )
    places = first.after
    for name, module, after in (("places", first, places), ("scaled", layer, places), ("map", back, shape[1:])):
        node = edit.append(node, edit.free(f"{path_of(node)}_{name}"), module)
        node.meta["shape"] = (shape[0], *after)


def _mean_of_tokens(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a mean over T tokens by one over a map of T rows."""
    source = node.all_input_nodes[0]
    _, tokens, channels = shape_of(source)
    x = torch.rand(2, tokens, channels)
    if not torch.allclose(edit.compute(node, x).flatten(1), x.mean(1), atol=1e-5):
        edit.cannot(node, "average over all tokens")
        return
    first = edit.insert(source, edit.free(f"{node.name}_map"), Rearrange.to_map(channels, tokens, 1), (source,))
    first.meta["shape"] = (2, channels, tokens, 1)
    node.replace_input_with(source, first)
    node.meta["shape"] = (2, channels)
    _averaged(edit, node, (tokens, 1), "")


def _computes(edit: GraphEditor, node: fx.Node, module: nn.Module) -> bool:
    """Return whether a node and a module agree on random values."""
    x = torch.rand(shape_of(node.all_input_nodes[0]))
    computed, expected = module(x), edit.compute(node, x)
    return computed.numel() == expected.numel() and torch.allclose(
        computed.reshape(expected.shape), expected, atol=1e-5
    )


_USUAL = (32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 299, 320, 384)
_NEAR = 16
"""Number of sides above the present one that are tried, too: pools that round up want odd ones."""


def other_size(model: nn.Module, images: Tensor) -> str:
    """Return, as a remedy, a size that would do, a larger one if there is one. Only shapes are computed.

    Sizes in proportion are tried first, then squares.

    Args:
        images: images of a size that does not, (N, C, H, W).

    Returns:
        "" if the network runs at no other size.
    """
    try:
        shapes = copy.deepcopy(model).to("meta")
    except RuntimeError:  # something that torch cannot copy
        return ""
    remedy = ""
    for size in _sizes(*images.shape[-2:]):
        fits = _fits(shapes, images.shape[1], size)
        if fits:
            return f"use images of {size[0]} x {size[1]}"
        remedy = remedy if fits is None else "no usual image size would do, use pools whose windows are all of one size"
    return remedy


def _sizes(height: int, width: int) -> Iterator[tuple[int, int]]:
    if height != width:
        yield from ((side, max(1, round(side * width / height))) for side in _sides(height))
    yield from ((side, side) for side in _sides(width))


def _sides(current: int) -> Iterator[int]:
    yield from (side for side in _USUAL if current < side <= 2 * current)
    yield from range(current + 1, current + 1 + _NEAR)
    yield from (side for side in _USUAL if side > 2 * current)
    yield from (side for side in reversed(_USUAL) if side < current)


def _fits(model: nn.Module, channels: int, size: tuple[int, int]) -> bool | None:
    """Return whether all pools have windows of one size; None if the forward fails."""
    try:
        graph = trace_at(model, torch.zeros(2, channels, *size, device="meta"))
    except RuleError:
        return None
    pools = (node for node in graph.graph.nodes if kind_of(graph, node) in ("average", "maximum"))
    return all(window_of(graph, node) or _divides(node) for node in pools)


def _divides(node: fx.Node) -> bool:
    before, after = (value.meta.get("shape") or () for value in (node.all_input_nodes[0], node))
    return len(before) != 4 or len(after) not in (2, 4) or side_of(before, after) is not None
