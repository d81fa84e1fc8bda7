"""A trained network to the integers of leveled BFV, and to a program with a plan and parameters."""

from copy import deepcopy
from fractions import Fraction
from functools import partial

import numpy as np
import torch
from torch import fx, nn

from papers.falcon2020.config import Falcon2020Config
from papers.falcon2020.planning.exact_network import exact_network_of
from papers.falcon2020.planning.plans import fastest
from papers.falcon2020.protocol.leveled_program import LeveledProgram
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.program.operation import Weights
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Network
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.quantize import log_step_for
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import check_operations
from privcirnet.passes.lower.builder import ProgramBuilder
from privcirnet.passes.lower.layers import integer_rows


def leveled_program(config: Falcon2020Config, network: nn.Module, data: ImageData) -> LeveledProgram:
    """Return the leveled program of a trained network.

    Args:
        network: of linear layers with a square (or AESPA) between each two, not quantized; left as it was.

    Raises:
        RuleError: the network has something else, is quantized, or none of the plans is for it.
        DoesNotFit: it is deeper, or its values are larger, than any parameters carry.
    """
    if isinstance(network, fx.GraphModule):
        rule, remedy = "a leveled program is made of a network before the qat stage", "give init=outputs/finetune"
        raise RuleError(rule, got="a quantized network", remedy=remedy)
    shift = max(data.levels.bit_length() - config.pixel_bits, 0)
    source, log_step = Input(0, data.levels >> shift), data.log_step + shift
    lowered = lower_exact(deepcopy(network).double(), data.shape, source, log_step, config.weight_bits)
    name, plan, parameters = fastest(exact_network_of(lowered), config.planners, config.engine_of_parameters)
    return LeveledProgram(lowered, name, parameters, shift, plan)


def lower_exact(
    model: nn.Module, input_shape: tuple[int, int, int], source: Input, input_log_step: int, weight_bits: int = 8
) -> Network:
    """Return the integer network of a trained one that is not quantized; nothing is rounded in it but weights.

    Args:
        model: with squares or AESPA; left as it was.
        input_shape: (C, H, W) of an image.
        source: range of a pixel as an integer.
        input_log_step: real pixel = integer x 2^input_log_step.

    Raises:
        RuleError: the network has something else, or is quantized already.
    """
    graph = fuse(model)
    check_operations(graph, "")
    builder = ProgramBuilder(graph, source, input_shape, input_log_step, partial(_rounded, weight_bits))
    for node in graph.graph.nodes:
        builder.visit(node)
    return Network(tuple(builder.nodes.values()), builder.weights)


@torch.no_grad()
def _rounded(bits: int, module: nn.Conv2d | nn.Linear, log_step: int, name: str) -> tuple[int, Weights, int]:
    """Return weights rounded to a power-of-two step of the layer's own, see :data:`passes.lower.layers.Numbers`.

    A network of squares does not feel 8 bits. Circulant weights stay circulant. Biases are Python integers in units of
    the result's step, which is so fine that nothing is lost.
    """
    b, weight = block_size_of(module), module.weight.double()
    own = log_step_for(weight.abs().max().item(), bits)
    bias = np.zeros(len(weight), dtype=object)
    if module.bias is not None:
        bias[:] = [round(Fraction(value) * Fraction(2) ** -(log_step + own)) for value in module.bias.double().tolist()]
    return b, Weights(integer_rows(weight * 2.0**-own, module, b, name), bias), log_step + own
