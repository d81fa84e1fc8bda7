"""A trained network becomes the integer network of leveled inference: weights rounded, nothing between layers.

There are no activation quantizers to train with. A layer's weights are rounded to its own power-of-two step, which a
network of squares with 8 bits does not feel; circulant weights stay circulant. Biases are rounded to the step of what
they are added to, which is so fine that nothing is lost.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.functional.quantize import log_step_for
from privcirnet.he.program.exact import LeveledLayer, LeveledNetwork
from privcirnet.he.program.operations import Input
from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.graph import module_of
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower.layers import Shape, integer_rows, linear_shape
from privcirnet.passes.lower.supported import check_operations


class LoweredLeveled(NamedTuple):
    """An integer network and what its results mean.

    Attributes:
        log_step: real logit = result x 2^log_step.
    """

    network: LeveledNetwork
    log_step: int


def lower_leveled(
    model: nn.Module, input_shape: Shape, source: Input, input_log_step: int, weight_bits: int = 8
) -> LoweredLeveled:
    """Return the integer network of a trained one.

    Args:
        model: of linear layers with a square (or AESPA) between each two; left as it was.
        input_shape: (C, H, W) of an image.
        source: range of a pixel as an integer.
        input_log_step: real pixel = integer x 2^input_log_step.

    Raises:
        RuleError: the network has something else, or is quantized already.
    """
    graph = fuse(model)
    check_operations(graph, "")
    layers: list[LeveledLayer] = []
    shape, log_step, squared = input_shape, input_log_step, True
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        match module := module_of(graph, node):
            case nn.Conv2d() | nn.Linear() if squared:
                layer, log_step = _layer(module, shape, log_step, weight_bits, str(node.target))
                layers.append(layer)
                shape, squared = layer.shape.output_shape, False
            case Square() if not squared:
                log_step, squared = 2 * log_step, True
            case nn.Flatten():
                shape = int(np.prod(shape)), 1, 1
            case nn.Identity() | nn.Dropout():
                pass
            case _:
                rule = "a leveled network must be linear layers with one square between each two"
                got, remedy = f"{node.target}", "infer it with the interactive protocol"
                raise RuleError(rule, got=got, remedy=remedy)
    if squared:
        rule, remedy = "a leveled network must end in a linear layer", "add one"
        raise RuleError(rule, got=f"{len(layers)} layers", remedy=remedy)
    image = None if layers[0].shape.input_shape == input_shape else input_shape
    return LoweredLeveled(LeveledNetwork(tuple(layers), source.low, source.high, image), log_step)


@torch.no_grad()
def _layer(
    module: nn.Conv2d | nn.Linear, input_shape: Shape, log_step: int, weight_bits: int, name: str
) -> tuple[LeveledLayer, int]:
    """A layer of integers, and log2 of the step of its results."""
    shape, b, weight = linear_shape(module, input_shape, name), block_size_of(module), module.weight.double()
    weight_step = log_step_for(weight.abs().max().item(), weight_bits)
    rows, step = integer_rows(weight * 2.0**-weight_step, module, b, name), log_step + weight_step
    bias = np.zeros(shape.out_channels, dtype=object)
    if module.bias is not None:
        bias[:] = [round(Fraction(value) * Fraction(2) ** -step) for value in module.bias.double().tolist()]
    return LeveledLayer(name, shape, b, rows, bias), step
