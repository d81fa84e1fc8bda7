"""Single layers: their dimensions, and their weights and constants as integers."""

import numpy as np
import torch
from torch import Tensor, nn

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.encodings.integer import Values
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.program import bounds
from privcirnet.he.program.program import NO_ROWS, Weights
from privcirnet.nn.quantizers import quantizer_of

Shape = tuple[int, int, int]


def linear_shape(module: nn.Conv2d | nn.Linear, input_shape: Shape, name: str) -> LinearShape:
    """Return a layer's dimensions on an input (C, H, W); a linear layer's is (C, T, 1), of T tokens or one.

    Args:
        module: the layer.
        input_shape: (C, H, W).
        name: of the layer, for the error.

    Raises:
        RuleError: a convolution that is dilated, not square, or not padded with zeros, or a linear layer on a map.
    """
    channels, height, width = input_shape
    if isinstance(module, nn.Linear):
        if (channels, width) != (module.in_features, 1):
            got = f"{name} on {input_shape}"
            raise RuleError("a linear layer must follow a flatten or tokens", got=got, remedy="flatten first")
        return LinearShape.gemm(height, channels, module.out_features)
    kernel, stride, padding = module.kernel_size, module.stride, module.padding
    square = kernel[0] == kernel[1] and stride[0] == stride[1] and not isinstance(padding, str)
    plain = module.dilation == (1, 1) and module.padding_mode == "zeros"
    if not (square and plain and padding[0] == padding[1]):
        raise RuleError(
            "a convolution must be square, with no dilation and zero padding",
            got=f"{name}: Conv2d({module.extra_repr()})",
            remedy="replace it by such a convolution",
        )
    sizes = module.out_channels, kernel[0], stride[0], int(padding[0]), module.groups
    return LinearShape(height, width, channels, *sizes)


def weight_log_step(module: nn.Module, name: str) -> int:
    """Return log2 of the step of a layer's weights.

    Args:
        module: the layer.
        name: of the layer, for the error.

    Raises:
        RuleError: they are not quantized.
    """
    quantizer = quantizer_of(module)
    if quantizer is None:
        raise RuleError("weights must be quantized before lowering", got=name, remedy="run the qat stage of train.py")
    return int(quantizer.log_step)


@torch.no_grad()
def integer_weights(module: nn.Conv2d | nn.Linear, b: int, log_step: int, name: str) -> Weights:
    """Return the stored rows of a circulant layer and its bias, both as integers.

    Args:
        module: the layer, quantized.
        b: block size.
        log_step: log2 of the unit of the bias.
        name: of the layer, for the error.
    """
    dense = module.weight.double() * 2.0 ** -weight_log_step(module, name)
    rows = dense[::b].round().to(torch.int64)
    rows = rows.reshape(*rows.shape[:2], *(module.kernel_size if isinstance(module, nn.Conv2d) else (1, 1)))
    none = torch.zeros(dense.shape[0])
    bias = integer_bias(none if module.bias is None else module.bias, log_step, name)
    return Weights(np.ascontiguousarray(rows.numpy()), bias)


def constants(bias: Tensor, log_step: int, name: str) -> Weights:
    """Return what a product or tokens add, as integers.

    Args:
        bias: real constants.
        log_step: log2 of their unit.
        name: of the layer, for the error.
    """
    return Weights(NO_ROWS, integer_bias(bias, log_step, name))


@torch.no_grad()
def integer_bias(bias: Tensor, log_step: int, name: str) -> Values:
    """Return a bias as integers.

    Args:
        bias: real constants.
        log_step: log2 of their unit.
        name: of the layer, for the error.

    Raises:
        DoesNotFit: it is out of bounds.
    """
    exact = bias.double() * 2.0**-log_step
    if exact.abs().max() >= 2.0**bounds.MAX_BOUND_BITS:
        raise DoesNotFit(
            f"a bias must be under 2^{bounds.MAX_BOUND_BITS} steps",
            got=f"{bias.abs().max().item():g} with a step of 2^{log_step} at {name}",
            remedy="train the layer further if its weights are nearly zero, or use fewer squares in a row",
        )
    return np.ascontiguousarray(exact.round().to(torch.int64).numpy())
