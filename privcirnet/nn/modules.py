"""What an operation of a traced network is, whether it is a module, a function or a method.

What timm and torchvision define is known by name: the package does not import them for it.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.nn.graph import ADDITIONS, is_plain_layer, module_of
from privcirnet.nn.nonpolynomial import FUNCTION_MODULES
from privcirnet.nn.norm import is_frozen_norm

ACTIVATION_MODULES = (
    *FUNCTION_MODULES,
    *(nn.PReLU, nn.RReLU, nn.Threshold, nn.Softsign, nn.LogSigmoid, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink),
)
_ACTIVATION_NAMES = frozenset({"Swish", "Mish", "HardSwish", "HardMish", "PReLU", "GELU", "GELUTanh", "QuickGELU"})
_NOTHING_MODULES = (nn.Identity, _DropoutNd)
_NOTHING_NAMES = frozenset({"DropPath", "StochasticDepth", "DropBlock2d", "stochastic_depth", "drop_block2d"})
_PADS = (nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d, nn.ConstantPad2d)
_MOVE_NAMES = frozenset({"Flatten", "Unflatten", "ChannelShuffle", "PixelShuffle", "PixelUnshuffle", "Permute"})
_FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "activation": (
        *(F.relu, torch.relu, F.relu6, F.leaky_relu, F.prelu, torch.prelu, F.rrelu, F.elu, F.celu, F.selu),
        *(torch.celu, torch.selu, F.softsign, F.logsigmoid, F.hardtanh, F.gelu, F.silu, F.mish),
        *(F.hardswish, F.softplus, F.tanh, torch.tanh),
        *(torch.clamp, torch.clip, torch.clamp_min, torch.clamp_max),
    ),
    "nothing": (F.dropout, F.dropout2d, F.alpha_dropout, torch.dropout),
    "average": (F.avg_pool2d, F.adaptive_avg_pool2d, torch.mean),
    "maximum": (F.max_pool2d, F.adaptive_max_pool2d, torch.max_pool2d, F.max_pool2d_with_indices),
    "move": (
        *(torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze, torch.permute, torch.transpose, torch.unbind),
        *(torch.chunk, torch.split, torch.narrow, torch.movedim, torch.swapaxes, operator.getitem, getattr),
        *(F.channel_shuffle, F.pixel_shuffle, F.pixel_unshuffle, torch.unflatten, torch.flip),
        *(torch.broadcast_to, torch.tile, torch.repeat_interleave),
    ),
    "upsample": (F.interpolate, F.upsample, F.upsample_nearest),
    "pad": (F.pad,),
    "gate": (torch.sigmoid, F.sigmoid, F.hardsigmoid),
    "sum": ADDITIONS,
    "difference": (operator.sub, torch.sub, torch.subtract, torch.rsub),
    "product": (operator.mul, torch.mul, torch.multiply),
    "numbers": (operator.neg, torch.neg, torch.negative, operator.truediv, torch.div, torch.divide),
    "square": (torch.square, operator.pow, torch.pow),
    "concat": (torch.cat, torch.concat, torch.concatenate),
    "stack": (torch.stack,),
    "reduction": (torch.sum, torch.amax, torch.max),
    "gated": (F.glu,),
    "function": (
        *(F.linear, F.conv2d, torch.conv2d, operator.matmul, torch.matmul),
        *(F.batch_norm, torch.batch_norm, F.layer_norm, torch.layer_norm, F.group_norm, torch.group_norm, F.rms_norm),
    ),
}
_METHODS: dict[str, tuple[str, ...]] = {
    "activation": ("relu", "prelu", "tanh", "clamp", "clip", "clamp_min", "clamp_max"),
    "nothing": ("contiguous", "clone", "detach"),
    "average": ("mean",),
    "move": (
        *("flatten", "reshape", "view", "squeeze", "unsqueeze", "unflatten", "permute", "transpose"),
        *("chunk", "split", "unbind", "narrow", "movedim", "swapaxes", "flip"),
        *("expand", "broadcast_to", "repeat", "repeat_interleave", "tile"),
    ),
    "gate": ("sigmoid",),
    "sum": ("add",),
    "difference": ("sub", "subtract", "rsub"),
    "product": ("mul", "multiply"),
    "numbers": ("neg", "negative", "div", "divide"),
    "square": ("square", "pow"),
    "reduction": ("sum", "amax", "max"),
    "function": ("matmul",),
}


def kind_of(graph: fx.GraphModule, node: fx.Node) -> str:
    """Return what a node does.

    Returns:
        "activation", "gate", "nothing", "average", "maximum", "move", "pad", "upsample", "sum", "difference",
        "product", "numbers" (a value with its sign changed, or divided), "square", "concat", "stack", "reduction" (a
        sum or maximum over axes), "gated" (a gated linear unit), "function" (a layer or norm that is no module), "norm"
        (a batch norm, with or without an activation), "layer norm", "layer", "transposed layer", "kept" (this toolkit's
        own modules); "" for all else.
    """
    match node.op:
        case "placeholder" | "output":
            return "kept"
        case "call_module":
            module = module_of(graph, node)
            assert module is not None
            return _kind_of_module(module)
        case "call_function":
            return _in_table(_FUNCTIONS, node.target) or _named_nothing(node.target)
        case "call_method":
            return _in_table(_METHODS, node.target)
        case _:
            return ""


def _kind_of_module(module: nn.Module) -> str:  # noqa: C901, PLR0911, PLR0912
    name = type(module).__name__
    match module:
        case nn.Conv2d() | nn.Linear():
            return "layer" if is_plain_layer(module) else ""
        case _ if isinstance(module, _BatchNorm) or is_frozen_norm(module):
            return "norm"
        case nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
            return "average"
        case nn.MaxPool2d() | nn.AdaptiveMaxPool2d():
            return "maximum"
        case nn.Upsample():
            return "upsample"
        case nn.ConvTranspose2d() if type(module) is nn.ConvTranspose2d:
            return "transposed layer"
        case nn.LayerNorm() | nn.RMSNorm() | nn.GroupNorm() | nn.InstanceNorm2d(track_running_stats=False):
            return "layer norm"
        case nn.GLU():
            return "gated"
        case _ if name in _MOVE_NAMES:
            return "move"
        case _ if name.lower() in ("sigmoid", "hardsigmoid"):
            return "gate"
        case _ if isinstance(module, _NOTHING_MODULES) or name in _NOTHING_NAMES:
            return "nothing"
        case _ if isinstance(module, ACTIVATION_MODULES) or name in _ACTIVATION_NAMES:
            return "activation"
        case _:
            own = type(module).__module__.startswith("privcirnet.nn")
            return "kept" if own else "pad" if isinstance(module, _PADS) else ""


def _named_nothing(target: Any) -> str:
    return "nothing" if getattr(target, "__name__", "") in _NOTHING_NAMES else ""


def _in_table(table: dict[str, tuple[Any, ...]], target: Any) -> str:
    return next((kind for kind, targets in table.items() if target in targets), "")


def named(graph: fx.GraphModule, node: fx.Node) -> str:
    """Return a node's operation as its writer knows it."""
    module = module_of(graph, node)
    if module is not None:
        return type(module).__name__
    return getattr(node.target, "__name__", str(node.target))
