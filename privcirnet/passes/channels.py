"""The steps of images: one for all channels, or finer ones for channels of other units.

An image's channels may be in several units: a table's columns, an elevation beside a reflectance. With one step for
all, the small ones round to nothing. A channel c that is 2^k times as small as the largest gets a step that is 2^k
times as fine: with x_c = 2^-k x'_c, W x = (2^-k W_c) x'_c, so the factor goes into the weights that read the channel
before these are quantized, and x' has one step. The factors are public, as the range of pixels is.
"""

import torch
from torch import Tensor, fx, nn

from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.batch_norm import scale_inputs
from privcirnet.nn.functional.quantize import log_step_for
from privcirnet.nn.graph import module_of
from privcirnet.nn.moves import Rearrange

INPUT_BITS = 9
"""Bits of images whose step is chosen: enough for 8 bits over a range that is no power of two."""
ALIKE = 2
"""log2 of how much smaller than the largest channel others may be: the colours of pictures keep one step."""
_FINEST = 40
"""log2 of how much finer than the coarsest step another one may be."""


def input_step_for(images: Tensor) -> int:
    """Return log2 of the coarsest step that keeps images of 8 bits, however they are normalized.

    It is the finest with which the images have :data:`INPUT_BITS` bits, or a coarser one of which they are multiples.

    Args:
        images: finite, of any shape.

    >>> import torch
    >>> input_step_for(torch.arange(256) / 255), input_step_for(torch.tensor([0.0, 0.5, 0.75])), input_step_for(
    ...     torch.tensor([-2.1, 2.6])
    ... )
    (-8, -2, -6)
    """
    step = log_step_for(images.abs().max().item(), INPUT_BITS, signed=bool((images < 0).any()))
    while images.any() and not (images * 2.0 ** -(step + 1) % 1).any():
        step += 1
    return step


@torch.no_grad()
def scale_channels_(graph: fx.GraphModule, images: Tensor) -> Tensor | None:
    """Give the layers that read images the factors of their channels' steps.

    Args:
        graph: fused network, not quantized; changed in place.
        images: (N, C, H, W).

    Returns:
        log2 of each channel's factor, (C,), for the quantizer of the images; None, and nothing changed, where channels
        are alike, or anything but layers with dense weights reads them.
    """
    coarsest, nonzero = input_step_for(images), [channel for channel in images.transpose(0, 1) if channel.any()]
    if not nonzero or min(map(input_step_for, nonzero)) >= coarsest - ALIKE:
        return None
    steps = [input_step_for(channel) if channel.any() else coarsest for channel in images.transpose(0, 1)]
    exponents = (torch.tensor(steps) - coarsest).clamp(-_FINEST, 0)
    factors = torch.exp2(exponents.double()).view(-1, *[1] * (images.dim() - 2)).expand(images.shape[1:])
    source = next(node for node in graph.graph.nodes if node.op == "placeholder")
    readers = _readers(graph, source, factors[None])
    if readers is None:
        return None
    for layer, scale in readers:
        layer.weight.copy_(scale_inputs(layer.weight, scale.to(layer.weight.device), getattr(layer, "groups", 1)))
    return exponents.to(torch.int8)


def _readers(
    graph: fx.GraphModule, node: fx.Node, factors: Tensor
) -> list[tuple[nn.Conv2d | nn.Linear, Tensor]] | None:
    """Return the layers that read a node, with the factor of each of their inputs; None if anything else does."""
    readers: list[tuple[nn.Conv2d | nn.Linear, Tensor]] = []
    for user in node.users:
        module = module_of(graph, user)
        if isinstance(module, nn.Flatten | nn.Identity | Rearrange):
            further = _readers(graph, user, module(factors))
            if further is None:
                return None
            readers += further
            continue
        if not isinstance(module, nn.Conv2d | nn.Linear) or block_size_of(module) > 1:
            return None
        rows = factors[0].flatten(1).mT if isinstance(module, nn.Conv2d) else factors[0].reshape(-1, factors.shape[-1])
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            return None
        readers.append((module, rows[0]))
    return readers
