"""Layers and norms that are written as functions of parameters and buffers become modules of their own."""

from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from privcirnet.nn.modules import named
from privcirnet.passes.surgery.edit import GraphEditor, shape_of, source_of, values_of
from privcirnet.passes.surgery.reductions import call

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
    arguments: dict[str, Any] = dict(zip(_NAMES[named(edit.graph, node)], node.args, strict=False)) | node.kwargs
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
