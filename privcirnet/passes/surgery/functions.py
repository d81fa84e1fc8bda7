"""Layers, norms, activations, gates and max pools that are written as functions become modules of their own.

Layers and norms are functions of parameters and buffers; activations, gates and maxima run exactly
(he.nonlinear=exact).
"""

from collections.abc import Iterator
from math import inf, log, prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from privcirnet.nn.moves import Concat, Rearrange
from privcirnet.nn.supported_modules import FUNCTIONS, LEAST_THRESHOLD, kind_of, named
from privcirnet.passes.surgery import resampling
from privcirnet.passes.surgery.arithmetic import call
from privcirnet.passes.surgery.edit import (
    ONE_MORE,
    GraphEditor,
    Replacement,
    arguments_of,
    path_of,
    shape_of,
    source_of,
    values_of,
)
from privcirnet.passes.surgery.layout import channels_last
from privcirnet.passes.surgery.windows import side_of, window_of

_NAMES: dict[str, tuple[str, ...]] = {
    "linear": ("input", "weight", "bias"),
    "matmul": ("input", "other"),
    "conv2d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "batch_norm": ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
    "group_norm": ("input", "num_groups", "weight", "bias", "eps"),
}
"""Name of a function -> names of its arguments."""


def as_modules(edit: GraphEditor, node: fx.Node) -> list[fx.Node]:
    """Replace a function by a module that has copies of its constants, or note that there is none.

    Returns:
        The module's node, if there is one, which is left to replace.
    """
    arguments = arguments_of(node, *_NAMES[named(edit.graph, node)])
    source = arguments.pop("input", None)
    module = None
    if isinstance(source, fx.Node) and values_of(node) == [source]:
        arguments = {
            key: map_arg(value, lambda constant: constant.meta["constant"]) for key, value in arguments.items()
        }
        module = _module(named(edit.graph, node), arguments, shape_of(source))
    if module is None:
        edit.cannot(node, "let layers and norms have weights that depend on no image")
        return []
    return [edit.replace(node, module, "")]


def gated(edit: GraphEditor, node: fx.Node) -> list[fx.Node]:
    """Replace a gated linear unit by its halves, a gate and their product.

    Returns:
        The nodes that are left to replace.
    """
    source, module = source_of(node), edit.module(node)
    shape = shape_of(source)
    argument = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", -1)
    dim = module.dim if isinstance(module, nn.GLU) else argument
    assert isinstance(dim, int)
    after, half = shape_of(node), shape[dim] // 2
    values, gates = (call(edit, node, torch.narrow, (source, dim, first, half), after) for first in (0, half))
    gate = call(edit, node, torch.sigmoid, (gates,), after)
    product = call(edit, node, torch.mul, (values, gate), after)
    edit.put_for(node, product)
    return [gate, product]


def normalized(edit: GraphEditor, node: fx.Node) -> list[fx.Node]:
    """Replace a division of vectors by their lengths by an RMS norm over their axis.

    Returns:
        The norm's node, if there is one, which is left to replace.
    """
    arguments = arguments_of(node, "input", "p", "dim", "eps")
    dim, shape = arguments.get("dim", 1), shape_of(source_of(node))
    if arguments.get("p", 2) != 2 or not isinstance(dim, int) or dim % len(shape) == 0:
        edit.cannot(node, "normalize vectors by their Euclidean lengths, along one axis")
        return []
    norm = nn.RMSNorm(shape[dim], eps=arguments.get("eps", 1e-12) ** 2 / shape[dim])
    nn.init.constant_(norm.weight, shape[dim] ** -0.5).requires_grad_(False)
    return [edit.replace(_over_last_axis(edit, node, norm.to(edit.like), dim), norm, "")]


def softmax(edit: GraphEditor, node: fx.Node, dim: int) -> None:
    """Replace a softmax along an axis by one of tokens."""
    if dim % len(shape_of(node)) == 0:
        edit.cannot(node, "take the softmax of the values of an image")
        return
    module = nn.Softmax(-1)
    edit.replace(_over_last_axis(edit, node, module, dim), module, "")


def _over_last_axis(edit: GraphEditor, node: fx.Node, module: nn.Module, dim: int) -> fx.Node:
    """Return the node of a module on tokens, or a vector, that takes a node's place along one axis."""
    moved = tuple(torch.empty(shape_of(node), device="meta").movedim(dim, -1).shape)
    whole = moved if len(moved) < 3 else (moved[0], prod(moved[1:-1]), moved[-1])

    def along(x: Tensor) -> Tensor:
        return module(x)

    along.__name__ = named(edit.graph, node)
    last = call(edit, node, torch.movedim, (source_of(node), dim, -1), moved)
    last = call(edit, node, torch.reshape, (last, whole), whole)
    inside = call(edit, node, along, (last,), whole)
    back = call(edit, node, torch.reshape, (inside, moved), moved)
    edit.put_for(node, call(edit, node, torch.movedim, (back, -1, dim), shape_of(node)))
    return inside


def _module(name: str, arguments: dict[str, Any], shape: tuple[int, ...]) -> nn.Module | None:
    """Return the module of a function with constants; None if it is none."""
    weight, bias = arguments.pop("weight", None), arguments.pop("bias", None)
    tensors = {"weight": weight, "bias": bias}
    match name:
        case "matmul":
            tensors["weight"] = arguments["other"].T if arguments["other"].ndim == 2 else None
            module: nn.Module | None = nn.Linear(*arguments["other"].shape) if arguments["other"].ndim == 2 else None
        case "linear":
            module = nn.Linear(weight.shape[1], weight.shape[0])
        case "conv2d":
            groups = arguments.get("groups", 1)
            module = nn.Conv2d(weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), **arguments)
        case "batch_norm" if not arguments.pop("training", False) and arguments["running_mean"] is not None:
            kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
            module = kind(shape[1], eps=arguments.get("eps", 1e-5))
            module.running_mean, module.running_var = (
                arguments[key].detach() for key in ("running_mean", "running_var")
            )
        case "layer_norm":
            module = nn.LayerNorm(arguments.pop("normalized_shape"), **arguments)
        case "rms_norm":
            module = nn.RMSNorm(arguments.pop("normalized_shape"), **arguments)
        case "group_norm":
            module = nn.GroupNorm(arguments.pop("num_groups"), shape[1], **arguments)
        case _:
            return None
    for key, value in tensors.items() if module else ():
        parameter = None if value is None else nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
        if hasattr(module, key) or parameter is not None:
            setattr(module, key, parameter)
    return module


_KNOWN = (
    f"{', '.join(kind.__name__ for kind in FUNCTIONS)}, PReLU, and max pools without dilation; a Softplus needs a "
    f"threshold of {LEAST_THRESHOLD} or more, an ELU or CELU an alpha over 0"
)
_FAR = 2.0**20
"""Argument at which an activation has its values far from zero."""


def keep(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a node by the module that computes the same, or note that there is none."""
    shape = shape_of(source_of(node))
    values = torch.linspace(-9.1, 7.3, prod(shape)).to(edit.like)  # few of them, yet no two functions agree on all
    values = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(0))].reshape(shape)
    expected = edit.compute(node, values.clone())
    if (matching := next((form for form in _forms(edit, node) if _alike(form(values), expected)), None)) is not None:
        if type(edit.module(node)) is not type(matching) or edit.calls(node.target) > 1:  # each has a name
            edit.replace(node, matching, "")
    elif slopes := _slopes(edit, node, values, expected):
        _sloped(edit, node, *slopes)
    elif kind_of(edit.graph, node) != "maximum" or not resampling.maximum(edit, node):
        edit.cannot(node, f"replace it by polynomial_, or use one of {_KNOWN}")


def _slopes(edit: GraphEditor, node: fx.Node, values: Tensor, expected: Tensor) -> tuple[Tensor, ...]:
    """Return each channel's slope of negative values if a node is a ReLU with slopes, such as a PReLU; else nothing."""
    if expected.shape != values.shape or channels_last(edit, node):
        return ()
    slopes = -edit.compute(node, torch.full_like(values, -1.0)).movedim(1, 0).flatten(1)[:, 0]
    places = slopes.view(-1, *[1] * (values.ndim - 2))
    return (slopes,) if _alike(values.clamp(min=0) + places * values.clamp(max=0), expected) else ()


def _sloped(edit: GraphEditor, node: fx.Node, slopes: Tensor) -> None:
    """Replace a ReLU with slopes of channels: a x + (1 - a) relu(x), by a convolution of two channels each."""
    source, count, path = source_of(node), len(slopes), path_of(node)
    relu = edit.insert(source, edit.free(f"{path}_relu"), nn.ReLU(), (source,))
    joined = edit.insert(relu, edit.free(f"{path}_joined"), Concat(), (source, relu))
    pairs = Rearrange.like(
        lambda x: x.unflatten(1, (2, count)).transpose(1, 2).flatten(1, 2),
        (2 * count, *shape_of(source)[2:]),
        channels_last=False,
    )
    moved = edit.insert(joined, edit.free(f"{path}_pairs"), pairs, (joined,))
    layer = nn.Conv2d(2 * count, count, 1, groups=count, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([slopes, 1 - slopes], 1)[:, :, None, None])
    edit.changes.append(Replacement(path, named(edit.graph, node), "ReLU and Conv2d", ONE_MORE))
    edit.put_for(node, edit.insert(moved, edit.free(f"{path}_slopes"), layer, (moved,)))


def _at(edit: GraphEditor, node: fx.Node, value: float) -> float:
    like = torch.full(shape_of(source_of(node)), value).to(edit.like)
    return edit.compute(node, like).flatten()[0].item()


def _with_numbers(at_minus_one: float, at_zero: float, low: float, high: float) -> Iterator[nn.Module]:
    """Yield the parametrized activations that have these values at -1, at 0 and far from it."""
    yield nn.LeakyReLU(-at_minus_one)
    if -_FAR < low < 0:
        yield nn.ELU(-low)
        yield nn.CELU(-low)
    if at_zero > 0:
        yield nn.Softplus(log(2) / at_zero)
    if low < high:
        yield nn.Hardtanh(-inf if low == -_FAR else low, inf if high == _FAR else high)


def _alike(computed: Tensor, expected: Tensor) -> bool:
    return computed.shape == expected.shape and torch.allclose(computed, expected, atol=1e-6)


def _forms(edit: GraphEditor, node: fx.Node) -> Iterator[nn.Module]:
    """Yield the modules that a node may be: activations and gates, or max pools that give its shape."""
    before, after = shape_of(source_of(node)), shape_of(node)
    if kind_of(edit.graph, node) != "maximum":
        yield from (kind() for kind in FUNCTIONS)
        yield nn.GELU("tanh")
        yield from _with_numbers(*(_at(edit, node, value) for value in (-1.0, 0.0, -_FAR, _FAR)))
        return
    if len(before) != 4 or len(after) != 4:
        return
    if isinstance(module := edit.module(node), nn.MaxPool2d):
        yield nn.MaxPool2d(module.kernel_size, module.stride, module.padding, ceil_mode=module.ceil_mode)
    elif isinstance(window := window_of(edit.graph, node), nn.MaxPool2d):
        yield nn.MaxPool2d(window.kernel_size, window.stride, window.padding, ceil_mode=window.ceil_mode)
    if side := side_of(before, after):
        yield nn.MaxPool2d(side if side[0] != side[1] else side[0])
