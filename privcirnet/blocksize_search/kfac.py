"""Kronecker-factored curvature of the loss in a layer's outputs, for circulant weights fitted to the inputs.

The rise of the loss by a change D of a layer's weight is about one half of::

    Omega = sum over the outputs i of  g_i var(D_i x)

g_i is the squared gradient of a sample's loss in output i, summed over the places of the output and averaged over the
samples; x are the layer's inputs. It takes the curvature to be the product of the inputs' and of the gradients' second
moments, the latter diagonal. D is the rest of the least-squares fit (:mod:`privcirnet.nn.functional.least_squares`), as
the start of a network has it; a bias takes its mean.

Against the diagonal Fisher information it knows how inputs correlate, which is what the fit uses.

Cost: a forward and a backward pass for each batch, (inputs)^2 (places) for the moments, and a fit for each block size.

Source: Martens and Grosse, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature" (ICML 2015);
places as in Grosse and Martens (ICML 2016), Section 3.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from privcirnet.nn.functional.circulant import admissible_block_sizes, expand, project
from privcirnet.nn.functional.least_squares import Moments, fit_rows
from privcirnet.nn.graph import evaluating
from privcirnet.nn.layer_inputs import channel_axis, read_by, some_of

PLACES = 4096
"""Largest number of places of a batch whose inputs are counted; more where a layer has many inputs."""


class OutputCurvature:
    """The moments of layers' inputs and the squared gradients of their outputs, batch by batch.

    Args:
        layers: layers by name, with plain weights and groups = 1; left as they are.
    """

    def __init__(self, layers: Mapping[str, nn.Linear | nn.Conv2d]) -> None:
        self._layers, self._random = layers, torch.Generator().manual_seed(0)
        self._moments = {
            name: Moments.zeros(0, layer.weight[0].numel(), layer.weight.device) for name, layer in layers.items()
        }

    def add(self, model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Count a batch's inputs, and return the squared gradients g of each layer's outputs, (out,) float64, by name.

        Args:
            model: network with the layers; it runs in evaluation mode.
            images: (N, ...).
            labels: classes (N,), or probabilities (N, classes).
        """
        squared_gradients = {
            name: torch.zeros(len(layer.weight), dtype=torch.float64) for name, layer in self._layers.items()
        }

        def counted(name: str, layer: nn.Linear | nn.Conv2d, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            moments, axis = self._moments[name], channel_axis(layer)
            x = read_by(layer, arguments[0].detach()).reshape(-1, len(moments.input_sum))
            (x,) = some_of(max(PLACES, len(moments.input_sum)), self._random, x)
            moments.add(x.float(), x[:, :0].float())

            def squared(gradient: Tensor) -> None:
                squares = gradient.movedim(axis, -1).flatten(0, -2).square().sum(0, dtype=torch.float64)
                squared_gradients[name] += squares.cpu() / len(images)

            output.register_hook(squared)

        hooks = [
            layer.register_forward_hook(lambda module, inputs, output, name=name: counted(name, module, inputs, output))
            for name, layer in self._layers.items()
        ]
        try:
            with evaluating(model), torch.enable_grad():
                images = images.detach().requires_grad_()  # all weights may be frozen
                torch.autograd.grad(cross_entropy(model(images), labels, reduction="sum"), images)
        finally:
            for hook in hooks:
                hook.remove()
        return squared_gradients

    def errors(self, name: str, block_sizes: Sequence[int]) -> dict[int, Tensor]:
        """Return var(D x) of each output of a layer, (out,) float64, by block size.

        A layer that a block size does not divide is padded, and not fitted.
        """
        weight, variances = self._layers[name].weight.detach(), dict[int, Tensor]()
        moments, (out, into) = self._moments[name].through(weight), weight.shape[:2]
        for b in block_sizes:
            divides = bool(admissible_block_sizes(weight.shape, (b,)))
            rows = fit_rows(moments, weight, b, moments.ridge(b))[0] if divides else project(weight, b, pad=True)
            variances[b] = moments.output_errors(weight - expand(rows, b, (out, into))).cpu()
        return variances
