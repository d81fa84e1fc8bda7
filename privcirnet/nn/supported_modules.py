"""The table of torch's modules in this toolkit, with the functions and methods that compute the same.

A new activation is one row of :data:`MODULES`, and its mathematics one in :mod:`he.program.scalar_functions`.
Classes of timm and torchvision are known by name: the package does not import them for it.
"""

import operator
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.he.program.scalar_functions import with_numbers
from privcirnet.nn.activations import Square
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.exact_functions import Centered, SubtractMax, SumChannels, TableFunction
from privcirnet.nn.graph import ADDITIONS, is_plain_layer, module_of
from privcirnet.nn.moves import Concat, HeadProduct, HeadTranspose, Rearrange, SliceChannels, Take, ToTokens
from privcirnet.nn.norm import is_frozen_norm
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.nn.windows import pair

_SLOPE = 0.01
"""Slope of a leaky ReLU: torch's default."""
LEAST_THRESHOLD = 20
"""Threshold from which a softplus is linear; torch's default: the difference is under 2^-28."""
_POLYNOMIAL = "Square or AESPA (model.arguments.activation=aespa)"


class Row(NamedTuple):
    """Properties of a class of modules; a class without a row has that of its base class.

    Attributes:
        kind: kind as :func:`kind_of` returns it, "" for a module that only its class makes one.
        function: name of the function that it computes, in :mod:`privcirnet.he.program.scalar_functions`, or that of a
            module, None where its numbers have no table. It is exact in programs. Subclasses may compute another one.
        calls: functions of torch that compute the same.
        methods: methods of tensors that compute the same, by name.
        limits: values below and above which a rectifier is constant, but for 0.16 of a GELU.
        keeps_step: whether its output is a whole number of its input's steps.
        runs: whether it runs encrypted in any program.
        instead: replacement that runs encrypted.
    """

    kind: str = "kept"
    function: str | Callable[[Any], str | None] = ""
    calls: tuple[Callable[..., Any], ...] = ()
    methods: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    keeps_step: bool = False
    runs: bool | Callable[[Any], bool] = False
    instead: str = ""


def _leaky(module: nn.LeakyReLU) -> str:
    slope = module.negative_slope
    return "leakyrelu" if slope == _SLOPE else with_numbers("leakyrelu", slope)


def _exponential(module: nn.ELU | nn.CELU) -> str | None:
    return with_numbers(type(module).__name__.lower(), module.alpha) if module.alpha > 0 else None


def _softplus(module: nn.Softplus) -> str | None:
    smooth = module.beta > 0 and module.threshold >= LEAST_THRESHOLD
    return with_numbers("softplus", module.beta) if smooth else None


def _activation(function: str | Callable[[Any], str | None], *calls: Callable[..., Any], **more: Any) -> Row:
    return Row("activation", function, calls, instead=_POLYNOMIAL, **more)


def _gate(function: str, *calls: Callable[..., Any], methods: tuple[str, ...] = ()) -> Row:
    return Row("gate", function, calls, methods, instead=_POLYNOMIAL)


_CLAMPS = F.hardtanh, torch.clamp, torch.clip, torch.clamp_min, torch.clamp_max
_LAYER_NORM = Row("layer norm", instead="TokenBatchNorm (model.arguments.norm=batch)")
_OWN, _MOVED = Row(runs=True), Row(runs=True, keeps_step=True)

MODULES: dict[type[nn.Module], Row] = {
    nn.Conv2d: Row("layer", runs=is_plain_layer),
    nn.Linear: Row("layer", runs=is_plain_layer),
    nn.ConvTranspose2d: Row("transposed layer"),
    _BatchNorm: Row("norm"),
    nn.LayerNorm: _LAYER_NORM,
    nn.RMSNorm: Row("layer norm"),
    nn.GroupNorm: Row("layer norm"),
    nn.InstanceNorm2d: Row("layer norm"),
    nn.ReLU: _activation("relu", F.relu, torch.relu, methods=("relu",), limits=(0.0, inf), keeps_step=True),
    nn.ReLU6: _activation("relu6", F.relu6, limits=(0.0, 6.0), keeps_step=True),
    nn.Hardswish: _activation("hardswish", F.hardswish, limits=(-3.0, inf)),
    nn.GELU: _activation(lambda m: "gelu_tanh" if m.approximate == "tanh" else "gelu", F.gelu, limits=(-1.0, inf)),
    nn.SiLU: _activation("silu", F.silu),
    nn.Mish: _activation("mish", F.mish),
    nn.LeakyReLU: _activation(_leaky, F.leaky_relu),
    nn.Sigmoid: _gate("sigmoid", torch.sigmoid, F.sigmoid, methods=("sigmoid",)),
    nn.Hardsigmoid: _gate("hardsigmoid", F.hardsigmoid),
    nn.Tanh: _activation("tanh", F.tanh, torch.tanh, methods=("tanh",)),
    nn.SELU: _activation("selu", F.selu, torch.selu),
    nn.ELU: _activation(_exponential, F.elu),
    nn.CELU: _activation(_exponential, F.celu, torch.celu),
    nn.Softplus: _activation(_softplus, F.softplus),
    nn.Hardtanh: _activation(
        lambda m: with_numbers("hardtanh", m.min_val, m.max_val),
        *_CLAMPS,
        methods=("clamp", "clip", "clamp_min", "clamp_max"),
    ),
    nn.PReLU: Row("activation", calls=(F.prelu, torch.prelu), methods=("prelu",)),
    nn.RReLU: Row("activation", calls=(F.rrelu,)),
    nn.Softsign: Row("activation", calls=(F.softsign,)),
    nn.LogSigmoid: Row("activation", calls=(F.logsigmoid,)),
    **dict.fromkeys((nn.Threshold, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink), Row("activation")),
    nn.GLU: Row("gated", calls=(F.glu,)),
    nn.AvgPool2d: Row("average", calls=(F.avg_pool2d, torch.mean), methods=("mean",), runs=True),
    nn.AdaptiveAvgPool2d: Row(
        "average",
        calls=(F.adaptive_avg_pool2d,),
        instead="quantize(model, images), which makes an AvgPool2d of one over a whole map,",
    ),
    nn.MaxPool2d: Row(
        "maximum",
        calls=(F.max_pool2d, torch.max_pool2d, F.max_pool2d_with_indices),
        keeps_step=True,
        instead="AvgPool2d (privcirnet.polynomial_)",
    ),
    nn.AdaptiveMaxPool2d: Row("maximum", calls=(F.adaptive_max_pool2d,)),
    nn.Upsample: Row("upsample", calls=(F.interpolate, F.upsample, F.upsample_nearest)),
    nn.Identity: Row("nothing", methods=("contiguous", "clone", "detach"), keeps_step=True, runs=True),
    _DropoutNd: Row(
        "nothing", calls=(F.dropout, F.dropout2d, F.alpha_dropout, torch.dropout), keeps_step=True, runs=True
    ),
    nn.Flatten: Row("move", keeps_step=True, runs=lambda m: (m.start_dim, m.end_dim) == (1, -1)),
    **dict.fromkeys((nn.ReflectionPad2d, nn.ReplicationPad2d, nn.CircularPad2d), Row("pad")),
    nn.ConstantPad2d: Row("pad", calls=(F.pad,)),
    SoftmaxAttention: Row(instead="PolynomialAttention (model.arguments.attention=polynomial)"),
    TableFunction: Row(function=lambda m: m.function),
    SubtractMax: Row(keeps_step=True),
    **dict.fromkeys((ActivationQuantizer, Square, Centered, Concat, HeadProduct), _OWN),
    **dict.fromkeys((Rearrange, ToTokens, Take, SliceChannels, HeadTranspose, SumChannels), _MOVED),
}
"""Class -> its row."""

_NAMES: dict[str, str] = {
    **dict.fromkeys(("Swish", "HardSwish", "HardMish", "GELUTanh", "QuickGELU", "Mish", "PReLU", "GELU"), "activation"),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), "gate"),
    **dict.fromkeys(("DropPath", "StochasticDepth", "DropBlock2d", "stochastic_depth", "drop_block2d"), "nothing"),
    **dict.fromkeys(("Unflatten", "ChannelShuffle", "PixelShuffle", "PixelUnshuffle", "Permute", "Flatten"), "move"),
}
"""Name of a class or function of torch or other libraries -> kind."""
_CALLS: dict[str, tuple[Callable[..., Any], ...]] = {
    "move": (
        *(torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze, torch.permute, torch.transpose, torch.unbind),
        *(torch.chunk, torch.split, torch.narrow, torch.movedim, torch.swapaxes, operator.getitem, getattr),
        *(F.channel_shuffle, F.pixel_shuffle, F.pixel_unshuffle, torch.unflatten, torch.flip),
        *(torch.broadcast_to, torch.tile, torch.repeat_interleave),
    ),
    "sum": ADDITIONS,
    "difference": (operator.sub, torch.sub, torch.subtract, torch.rsub),
    "product": (operator.mul, torch.mul, torch.multiply),
    "numbers": (operator.neg, torch.neg, torch.negative, operator.truediv, torch.div, torch.divide),
    "square": (torch.square, operator.pow, torch.pow),
    "concat": (torch.cat, torch.concat, torch.concatenate),
    "stack": (torch.stack,),
    "reduction": (torch.sum, torch.amax, torch.max),
    "normalized": (F.normalize,),
    "roll": (torch.roll,),
    "function": (
        *(F.linear, F.conv2d, torch.conv2d, operator.matmul, torch.matmul),
        *(F.batch_norm, torch.batch_norm, F.layer_norm, torch.layer_norm, F.group_norm, torch.group_norm, F.rms_norm),
    ),
}
"""Kind -> functions without a module."""
_METHODS: dict[str, tuple[str, ...]] = {
    "move": (
        *("flatten", "reshape", "view", "squeeze", "unsqueeze", "unflatten", "permute", "transpose"),
        *("chunk", "split", "unbind", "narrow", "movedim", "swapaxes", "flip"),
        *("expand", "broadcast_to", "repeat", "repeat_interleave", "tile"),
    ),
    "sum": ("add",),
    "difference": ("sub", "subtract", "rsub"),
    "product": ("mul", "multiply"),
    "numbers": ("neg", "negative", "div", "divide"),
    "square": ("square", "pow"),
    "reduction": ("sum", "amax", "max"),
    "roll": ("roll",),
    "function": ("matmul",),
}
"""Kind -> methods without a module."""
_KINDS: dict[Any, str] = {
    **{call: kind for table in (_CALLS, _METHODS) for kind, calls in table.items() for call in calls},
    **{call: row.kind for row in MODULES.values() for call in (*row.calls, *row.methods)},
}
"""Function, or method by name -> kind."""
LIMITS: dict[Any, tuple[float, float]] = {
    rectifier: row.limits
    for kind, row in MODULES.items()
    if row.limits is not None
    for rectifier in (kind, *row.calls, *row.methods)
}
"""Rectifier, as a module or a call -> values below and above which its result is constant; GELU's within 0.16."""
FUNCTIONS = tuple(kind for kind, row in MODULES.items() if row.function and kind is not TableFunction)
"""Activations and gates of torch that run exactly."""


def row_of(module: nn.Module | None) -> Row:
    """Return the row of a module, or of the nearest base class that has one; an empty one for all others."""
    return next((MODULES[kind] for kind in type(module).__mro__ if kind in MODULES), Row(""))


def function_name(module: nn.Module | None) -> str | None:
    """Return the name of an activation's function, with its numbers; None for any other module.

    >>> function_name(nn.ReLU6()), function_name(nn.GELU(approximate="tanh")), function_name(nn.LeakyReLU(0.2))
    ('relu6', 'gelu_tanh', 'leakyrelu(0.2)')
    """
    row = MODULES.get(type(module))  # type: ignore[arg-type]
    if row is None:
        return None
    return row.function(module) if callable(row.function) else row.function or None


def has_table(module: nn.Module | None) -> bool:
    """Return whether an exact program looks an activation up in a table, so that its input is clipped."""
    return function_name(module) not in (None, "relu", "relu6")


def has_exact_form(module: nn.Module | None) -> bool:
    """Return whether a module is an activation, a maximum or a piece of softmax or a layer norm that runs exactly."""
    if isinstance(module, nn.MaxPool2d):
        return type(module) is nn.MaxPool2d and set(pair(module.dilation)) == {1} and not module.return_indices
    return function_name(module) is not None or isinstance(module, SubtractMax)


def is_polynomial(network: nn.Module) -> bool:
    """Return whether a network has no activation, gate or maximum that is no polynomial."""
    return not any(function_name(module) or isinstance(module, nn.MaxPool2d) for module in network.modules())


def runs_encrypted(module: nn.Module | None, nonlinear: str) -> bool:
    """Return whether a module is one that runs encrypted.

    Args:
        nonlinear: "exact" if activations that are no polynomials run by two-party computation; "real" in CKKS.
    """
    runs = row_of(module).runs
    if nonlinear == "real" and isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)):
        return True
    return (nonlinear == "exact" and has_exact_form(module)) or (runs(module) if callable(runs) else runs)


def kind_of(graph: fx.GraphModule, node: fx.Node) -> str:
    """Return the kind of a node's operation.

    Returns:
        "activation", "gate", "nothing", "average", "maximum", "move", "pad", "roll", "upsample", "sum", "difference",
        "product", "numbers" (a value with its sign changed, or divided), "square", "concat", "stack", "reduction" (a
        sum or maximum over axes), "gated" (a gated linear unit), "normalized" (divided by a length), "function" (a
        layer or norm that is no module), "norm" (a batch norm, with or without an activation), "layer norm", "layer",
        "transposed layer", "kept" (this toolkit's own modules); "" for all else.
    """
    match node.op:
        case "placeholder" | "output":
            return "kept"
        case "call_module":
            module = module_of(graph, node)
            assert module is not None
            return _kind_of_module(module)
        case "call_function" | "call_method":
            return _KINDS.get(node.target) or _NAMES.get(getattr(node.target, "__name__", ""), "")
        case _:
            return ""


def _kind_of_module(module: nn.Module) -> str:
    row = row_of(module)
    match module:
        case nn.Conv2d() | nn.Linear():
            return row.kind if is_plain_layer(module) else ""
        case nn.ConvTranspose2d() if type(module) is not nn.ConvTranspose2d:
            return ""
        case nn.InstanceNorm2d(track_running_stats=True):
            return ""
        case _ if is_frozen_norm(module):
            return "norm"
        case _:
            default = "kept" if type(module).__module__.startswith("privcirnet.nn") else ""
            return row.kind or _NAMES.get(type(module).__name__, default)


def named(graph: fx.GraphModule, node: fx.Node) -> str:
    """Return a node's operation as its writer knows it."""
    module = module_of(graph, node)
    if module is not None:
        return type(module).__name__
    return getattr(node.target, "__name__", str(node.target))
