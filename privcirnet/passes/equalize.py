"""Equalization of channels, of images and between layers of a fused network, so that one step suits all of them.

A channel c that one layer makes and only one other reads may be made u_c times as large if the other's weights for it
are made u_c times as small; behind a square, the first layer's weights take sqrt(u_c). The network computes what it
did, but values have one step, and so have the weights of an output: where one channel has thirty times the values of
the others, the weights that read it round to zero.
With y_c the channel's largest value in the median image and w_c the largest weight that reads it, u_c = sqrt(w_c / y_c)
makes both sqrt(w_c y_c), so neither the values nor the weights of a channel are smaller than it matters.

Channels of a circulant block share a factor, so the layers on both sides stay circulant. A channel that nothing reads,
or that is zero or exploded in the median image, keeps its size.

Source: Data-Free Quantization through Weight Equalization and Bias Correction (Nagel et al., ICCV 2019, Section 4.1).
Departures: squares are homogeneous of degree two, not one as ReLU; values are balanced with the weights that read them,
not the weights of both layers with each other, because values have one step per tensor as well; whole blocks share a
factor.
"""

from typing import NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.batch_norm import scale_inputs
from privcirnet.nn.functional.quantize import log_step_for
from privcirnet.nn.graph import module_of
from privcirnet.nn.moves import Rearrange
from privcirnet.passes.ranges import by_channel, show_values

ROUNDS = 3
"""Number of rounds: a layer between two others is scaled from both sides, so factors settle in a few."""


class _Pair(NamedTuple):
    """Two layers of which the second alone reads the first."""

    first: nn.Conv2d | nn.Linear
    second: nn.Conv2d | nn.Linear
    squared: bool
    value: str
    """name of the node that the second reads."""

    @property
    def block(self) -> int:
        return max(block_size_of(self.first), block_size_of(self.second))

    @property
    def groups(self) -> int:
        """Groups of the second: 1, or as many as it has channels."""
        return self.second.groups if isinstance(self.second, nn.Conv2d) else 1


@torch.no_grad()
def equalize_(graph: fx.GraphModule, images: Tensor) -> fx.GraphModule:
    """Return the graph, channels scaled between layers so that quantization costs less; outputs stay, up to rounding.

    Args:
        graph: result of :func:`privcirnet.passes.fuse.fuse`, in evaluation mode; changed in place.
        images: network inputs, (N, C, H, W), on which channels are measured.
    """
    pairs = _pairs(graph)
    peaks = _channel_peaks(graph, images, {pair.value for pair in pairs})
    for _ in range(ROUNDS):
        for pair in pairs:
            peaks[pair.value] = peaks[pair.value] * _balance_(pair, peaks[pair.value])
    return graph


def _pairs(graph: fx.GraphModule) -> list[_Pair]:
    pairs = []
    for node in graph.graph.nodes:
        first, value = module_of(graph, node), node
        if not isinstance(first, nn.Conv2d | nn.Linear) or len(node.users) != 1:
            continue
        squared = isinstance(module_of(graph, next(iter(node.users))), Square)
        if squared:
            value = next(iter(node.users))
        reader = next(iter(value.users)) if len(value.users) == 1 else None
        second = module_of(graph, reader) if reader else None
        if isinstance(second, nn.Conv2d | nn.Linear) and _fit(first, second):
            pairs.append(_Pair(first, second, squared, value.name))
    return pairs


def _fit(first: nn.Conv2d | nn.Linear, second: nn.Conv2d | nn.Linear) -> bool:
    """Return whether the second layer reads each channel of the first by itself or all of them at once."""
    if isinstance(second, nn.Conv2d) and second.groups not in (1, len(second.weight)):
        return False
    return isinstance(first, nn.Conv2d) == isinstance(second, nn.Conv2d)


def _balance_(pair: _Pair, peaks: Tensor) -> Tensor:
    """Scale a pair's channels; return the factors of the values between, (C,)."""
    weight = pair.second.weight if pair.groups > 1 else pair.second.weight.transpose(0, 1)
    read = _by_block(weight.abs().flatten(1).amax(1), pair.block)
    block_peaks = _by_block(peaks, pair.block)
    usable = (read > 0) & (block_peaks > 0) & block_peaks.isfinite()
    factors = torch.where(usable, read / block_peaks, 1.0).sqrt()
    factors = torch.where(usable, factors / factors[usable].log().mean().exp(), 1.0)
    factors = factors.repeat_interleave(pair.block)[: len(peaks)].to(pair.first.weight)
    rows = factors.sqrt() if pair.squared else factors
    _set_weight(pair.first, pair.first.weight * rows.view(-1, *[1] * (pair.first.weight.dim() - 1)))
    if pair.first.bias is not None:
        pair.first.bias.mul_(rows)
    _set_weight(pair.second, scale_inputs(pair.second.weight, 1 / factors, pair.groups))
    return factors


def _by_block(values: Tensor, block: int) -> Tensor:
    """Return the largest value of each block of channels, of which the last may be shorter."""
    return torch.stack([part.amax() for part in values.split(block)])


def _set_weight(layer: nn.Module, weight: Tensor) -> None:
    if parametrize.is_parametrized(layer, "weight"):
        layer.weight = weight  # type: ignore[assignment]
    else:
        layer.weight.copy_(weight)  # type: ignore[operator]


def _channel_peaks(graph: fx.GraphModule, images: Tensor, names: set[str]) -> dict[str, Tensor]:
    """Return each channel's largest absolute value in the median image, (C,), by node name."""
    peaks: dict[str, list[Tensor]] = {}

    def look(name: str, values: Tensor) -> None:
        if name in names:
            peaks.setdefault(name, []).append(by_channel(values.abs()).amax(2))

    show_values(graph, images, look)
    return {name: torch.cat(parts).nan_to_num(nan=torch.inf).median(0).values for name, parts in peaks.items()}


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

    An image's channels may be in several units: a table's columns, an elevation beside a reflectance. With one step for
    all, the small ones round to nothing. A channel c that is 2^k times as small as the largest gets a step that is 2^k
    times as fine: with x_c = 2^-k x'_c, W x = (2^-k W_c) x'_c, so the factor goes into the weights that read the
    channel before these are quantized, and x' has one step. The factors are public, as the range of pixels is.

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
