"""Cross-layer equalization of a fused network: channels are scaled so that one step per tensor suits all of them.

A channel c that one layer makes and only one other reads may be made u_c times as large if the other's weights for it
are made u_c times as small; behind a square, the first layer's weights take sqrt(u_c). The network computes what it
did, but a tensor has one step: where one channel has thirty times the values of the others, its weights round to zero.
With y_c the channel's largest value in the median image and w_c the largest weight that reads it, u_c = sqrt(w_c / y_c)
makes both sqrt(w_c y_c), so neither the values nor the weights of a channel are smaller than it matters.

Channels of a circulant block share a factor, so the layers on both sides stay circulant.

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
from privcirnet.nn.graph import module_of

ROUNDS = 3
"""A layer between two others is scaled from both sides, so factors settle in a few rounds."""
_BATCH = 32
"""Images that run together."""


class _Pair(NamedTuple):
    """Two layers of which the second alone reads the first."""

    first: nn.Conv2d | nn.Linear
    second: nn.Conv2d | nn.Linear
    squared: bool
    value: fx.Node
    """that the second reads."""

    @property
    def block(self) -> int:
        return max(block_size_of(self.first), block_size_of(self.second))

    @property
    def depthwise(self) -> bool:
        return isinstance(self.second, nn.Conv2d) and self.second.groups > 1


@torch.no_grad()
def equalize_(graph: fx.GraphModule, images: Tensor) -> fx.GraphModule:
    """Scale the channels between pairs of layers so that quantization costs less; outputs stay, up to rounding.

    Args:
        graph: from :func:`privcirnet.nn.fuse.fuse`, in evaluation mode; changed in place.
        images: network inputs, (N, C, H, W), that say how large channels are.

    Returns:
        `graph` itself.
    """
    pairs = _pairs(graph)
    peaks = _channel_peaks(graph, images, [pair.value for pair in pairs])
    for _ in range(ROUNDS):
        for pair in pairs:
            peaks[pair.value] = peaks[pair.value] * _balance_(pair, peaks[pair.value])
    return graph


def _pairs(graph: fx.GraphModule) -> list[_Pair]:
    found = []
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
            found.append(_Pair(first, second, squared, value))
    return found


def _fit(first: nn.Conv2d | nn.Linear, second: nn.Conv2d | nn.Linear) -> bool:
    """Return whether the second layer reads each channel of the first by itself or all of them at once."""
    if isinstance(second, nn.Conv2d) and second.groups not in (1, len(second.weight)):
        return False
    return isinstance(first, nn.Conv2d) == isinstance(second, nn.Conv2d)


def _balance_(pair: _Pair, peaks: Tensor) -> Tensor:
    """Scale a pair's channels; return the factors of the values between, (C,)."""
    weight = pair.second.weight if pair.depthwise else pair.second.weight.transpose(0, 1)
    read = _by_block(weight.abs().flatten(1).amax(1), pair.block)
    made = _by_block(peaks, pair.block)
    usable = (read > 0) & (made > 0) & made.isfinite()
    factors = torch.where(usable, read / made, 1.0).sqrt()
    factors /= factors.log().mean().exp()
    factors = factors.repeat_interleave(pair.block)[: len(peaks)].to(pair.first.weight)
    rows = factors.sqrt() if pair.squared else factors
    _set_weight(pair.first, pair.first.weight * _shaped(rows, pair.first.weight, 0))
    if pair.first.bias is not None:
        pair.first.bias.mul_(rows)
    _set_weight(pair.second, pair.second.weight / _shaped(factors, pair.second.weight, 0 if pair.depthwise else 1))
    return factors


def _by_block(values: Tensor, block: int) -> Tensor:
    """Return the largest value of each block of channels, of which the last may be shorter."""
    return torch.stack([part.amax() for part in values.split(block)])


def _shaped(factors: Tensor, weight: Tensor, dim: int) -> Tensor:
    shape = [1] * weight.dim()
    shape[dim] = len(factors)
    return factors.view(shape)


def _set_weight(layer: nn.Module, weight: Tensor) -> None:
    if parametrize.is_parametrized(layer, "weight"):
        layer.weight = weight  # type: ignore[assignment]
    else:
        layer.weight.copy_(weight)  # type: ignore[operator]


def _channel_peaks(graph: fx.GraphModule, images: Tensor, values: list[fx.Node]) -> dict[fx.Node, Tensor]:
    """Return each channel's largest absolute value in the median image, (C,), by node."""
    found: dict[fx.Node, list[Tensor]] = {node: [] for node in values}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if n in found and isinstance(result, Tensor):
                channels = result if result.dim() == 4 else result.movedim(-1, 1)
                found[n].append(channels.abs().flatten(2).amax(2) if channels.dim() > 2 else channels.abs())
            return result

    recorder = Recorder(graph)
    for part in images.split(_BATCH):
        recorder.run(part)
    return {node: torch.cat(parts).nan_to_num(nan=torch.inf).median(0).values for node, parts in found.items()}
