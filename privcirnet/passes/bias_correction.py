"""Bias correction: quantized layers get the channel means that the layers before quantization had.

Rounded weights shift each channel by much the same amount in all images, and squares make shifts grow from layer to
layer. A layer's mean error is added to its bias, from the first layer to the last, each with the layers before it
corrected.

Source: Data-Free Quantization through Weight Equalization and Bias Correction (Nagel et al., ICCV 2019, Section 4.2 and
Appendix D). Departure: a channel's shift is the median over images of its mean, not the mean, so that an image which
explodes in a row of squares does not count.
"""

import torch
from torch import Tensor, fx, nn

from privcirnet.nn.graph import module_of
from privcirnet.passes.ranges import by_channel

IMAGES = 256
"""Largest number of images, which run together."""


@torch.no_grad()
def correct_biases_(graph: fx.GraphModule, fused: fx.GraphModule, images: Tensor) -> fx.GraphModule:
    """Return a quantized network with the biases of its layers corrected; a layer without one is left as it is.

    Args:
        graph: result of :func:`privcirnet.passes.quantize.quantize`, in evaluation mode; changed in place.
        fused: network that it was made from; left as it was.
        images: network inputs, (N, C, H, W).
    """
    means = _Means(fused)
    means.run(images[:IMAGES])
    _Corrector(graph, means.means).run(images[:IMAGES])
    return graph


class _Means(fx.Interpreter):
    """An interpreter that keeps each layer's channel means of each image, (N, C), by node name."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph)
        self._graph = graph
        self.means: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> object:
        result = super().run_node(n)
        layer = module_of(self._graph, n)
        if isinstance(layer, nn.Conv2d | nn.Linear) and isinstance(result, Tensor):
            self.means[n.name] = _means(layer, result)
        return result


class _Corrector(fx.Interpreter):
    """An interpreter that adds each layer's error to its bias and goes on with the corrected values."""

    def __init__(self, graph: fx.GraphModule, means: dict[str, Tensor]) -> None:
        super().__init__(graph)
        self._graph, self._wanted = graph, means

    def run_node(self, n: fx.Node) -> object:
        result, layer = super().run_node(n), module_of(self._graph, n)
        if not isinstance(layer, nn.Conv2d | nn.Linear) or not isinstance(result, Tensor) or layer.bias is None:
            return result
        off = (self._wanted[n.name] - _means(layer, result)).nan_to_num(0.0, 0.0, 0.0).median(0).values
        before = layer.bias.clone()
        layer.parametrizations["bias"].original.add_(off)  # type: ignore[index, union-attr]
        moved = layer.bias - before
        return result + (moved.view(-1, 1, 1) if isinstance(layer, nn.Conv2d) else moved)


def _means(layer: nn.Module, values: Tensor) -> Tensor:
    """Return the channel means of each image, (N, C)."""
    if isinstance(layer, nn.Linear):
        values = values.reshape(len(values), -1, values.shape[-1])
    return by_channel(values).mean(2)
