"""Single layers: their dimensions, and their weights and constants as integers."""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.shape import LinearShape, Window
from privcirnet.he.program import bounds
from privcirnet.he.program.limits import MAX_LENGTH, MAX_TAPS
from privcirnet.he.program.operation import NO_ROWS, Weights
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import project
from privcirnet.nn.quantizers import quantizer_of
from privcirnet.nn.windows import reach_of, zeros_around

Shape = tuple[int, int, int]


def linear_shape(module: nn.Conv2d | nn.Linear, input_shape: Shape, name: str) -> LinearShape:
    """Return a layer's dimensions on an input (C, H, W); a linear layer's is (C, T, 1), of T tokens or one.

    Args:
        input_shape: (C, H, W).
    """
    channels, height, width = input_shape
    if isinstance(module, nn.Linear):
        if (channels, width) != (module.in_features, 1):
            got = f"{name} on {input_shape}"
            raise RuleError("a linear layer must follow a flatten or tokens", got=got, remedy="flatten first")
        return LinearShape.gemm(height, channels, module.out_features)
    return LinearShape.convolution(input_shape, module.out_channels, _frame(module, name).windows, module.groups)


class _Frame(NamedTuple):
    """A kernel that holds a convolution's own, with zeros between its weights, and around them where it pads by more.

    Attributes:
        windows: windows along the rows and along the columns.
        first: row and column of the first weight.
    """

    windows: tuple[Window, Window]
    first: tuple[int, int]


def _frame(module: nn.Conv2d, name: str) -> _Frame:
    """Return the smallest kernel that does the same, longer than the zeros beside the map."""
    zeros = zeros_around(module)
    if zeros is None:
        rule, got = "a convolution must pad with zeros", f"{name}: Conv2d({module.extra_repr()})"
        raise RuleError(rule, got=got, remedy="give quantize(model, images), which makes one of all others")
    windows, first = list[Window](), list[int]()
    for reach, stride, (ahead, behind) in zip(reach_of(module), module.stride, (zeros[:2], zeros[2:]), strict=True):
        before, after = max(0, behind - reach + 1), max(0, ahead - reach + 1)
        windows.append(Window(reach + before + after, stride, ahead + before, behind + after))
        first.append(before)
    sizes = [window.kernel for window in windows]
    if max(sizes) > MAX_LENGTH or prod(sizes) > MAX_TAPS:
        rule = f"a kernel must have at most {MAX_LENGTH} rows and columns, and {MAX_TAPS} weights, with all its zeros"
        got = f"{sizes[0]} x {sizes[1]} for {name}: Conv2d({module.extra_repr()})"
        raise RuleError(rule, got=got, remedy="use smaller kernels, or several one after the other")
    return _Frame((windows[0], windows[1]), (first[0], first[1]))


def weight_log_step(module: nn.Module, name: str) -> int:
    """Return log2 of the step of a layer's weights."""
    quantizer = quantizer_of(module)
    if quantizer is None:
        raise RuleError("weights must be quantized before lowering", got=name, remedy="run the qat stage of train.py")
    return int(quantizer.log_step)


Numbers = Callable[[nn.Conv2d | nn.Linear, int, str], tuple[int, Weights, int]]
"""(layer, log2 of its input's step, name) -> the weights' block size, the weights, log2 of the result's step."""


@torch.no_grad()
def quantized(module: nn.Conv2d | nn.Linear, log_step: int, name: str) -> tuple[int, Weights, int]:
    """Return integers in units of the quantizer's step, see :data:`Numbers`.

    Raises:
        DoesNotFit: the bias is out of bounds.
        RuleError: the weights are not quantized.
    """
    b, weight_step = block_size_of(module), weight_log_step(module, name)
    none = torch.zeros(module.weight.shape[0])
    bias = integer_bias(none if module.bias is None else module.bias, log_step + weight_step, name)
    return (
        b,
        Weights(integer_rows(module.weight.double() * 2.0**-weight_step, module, b, name), bias),
        log_step + weight_step,
    )


@torch.no_grad()
def real(module: nn.Conv2d | nn.Linear, log_step: int, name: str) -> tuple[int, Weights, int]:
    """Return real weights, see :data:`Numbers`; circulant ones are dense here."""
    weight = module.weight.double()
    rows = _framed(weight, module, name) if isinstance(module, nn.Conv2d) else weight[..., None, None]
    bias = torch.zeros(len(weight)) if module.bias is None else module.bias
    return 1, Weights(rows.numpy(), bias.double().numpy() * 2.0**-log_step), log_step


def integer_rows(weight: Tensor, module: nn.Conv2d | nn.Linear, block_size: int, name: str) -> Values:
    """Return the stored rows of a circulant layer: the first row of each block row, ``shape.weight_shape(b)``.

    The rows of a padded layer are read from the weight: the network's stored rows have no quantizer.

    Args:
        weight: weight of the layer, in units of its step, (out, in, *kernel).
    """
    rows = project(weight.round(), block_size, pad=True).to(torch.int64)
    rows = _framed(rows, module, name) if isinstance(module, nn.Conv2d) else rows[..., None, None]
    return np.ascontiguousarray(rows.numpy())


def _framed(rows: Tensor, module: nn.Conv2d, name: str) -> Tensor:
    """Put the weights of a convolution where they are in the kernel of its program."""
    frame = _frame(module, name)
    framed = rows.new_zeros(*rows.shape[:2], *(window.kernel for window in frame.windows))
    (top, left), (down, right) = frame.first, module.dilation
    height, width = module.kernel_size
    framed[:, :, top : top + down * height : down, left : left + right * width : right] = rows
    return framed


def constants(bias: Tensor, log_step: int, name: str) -> Weights:
    """Return the constants that a product or tokens add, as integers; ``log_step``: log2 of their unit."""
    return Weights(NO_ROWS, integer_bias(bias, log_step, name))


@torch.no_grad()
def integer_bias(bias: Tensor, log_step: int, name: str) -> Values:
    """Return a bias as integers; ``log_step``: log2 of their unit."""
    exact = bias.double() * 2.0**-log_step
    if exact.abs().max() >= 2.0**bounds.MAX_BOUND_BITS:
        raise DoesNotFit(
            f"a bias must be under 2^{bounds.MAX_BOUND_BITS} steps",
            got=f"{bias.abs().max().item():g} with a step of 2^{log_step} at {name}",
            remedy="train the layer further if its weights are nearly zero, or use fewer squares in a row",
        )
    return np.ascontiguousarray(exact.round().to(torch.int64).numpy())
