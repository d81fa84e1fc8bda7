"""The score of a plan: the divergence of a circulant network from the dense one, right after its start or training."""

import copy
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from privcirnet.data.dataset import Examples, some_images
from privcirnet.nn.graph import evaluating
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.passes.convert import circulant_

FITTED = 384
"""Number of images that each plan's network is fitted to."""
_BATCH = 64


class Divergence:
    """The Kullback-Leibler divergence of a dense network's predictions from a circulant one's, fitted without labels.

    Args:
        model: dense network; left as it was.
        data: data with training images: some for the fit, twice as many others for the comparison.
        pad: whether block sizes need not divide.
    """

    def __init__(self, model: nn.Module, data: Examples, *, pad: bool = False) -> None:
        self._dense, self._pad = with_plain_weights(model), pad
        device = next(model.parameters()).device
        images = some_images(data, 3 * FITTED).to(device)
        fitted = max(len(images) // 3, 1)
        self._fitted, self._others = images[:fitted], images[fitted:] if len(images) > 1 else images
        self._wanted = self._predicted(self._dense)

    def __call__(self, block_sizes: Mapping[str, int], train_: Callable[[nn.Module], object] = lambda _: None) -> float:
        """Return the divergence of a plan, in nats; that of the dense network is 0.

        Args:
            train_: function that trains the circulant network in place.
        """
        if all(b == 1 for b in block_sizes.values()):
            return 0.0
        model = circulant_(copy.deepcopy(self._dense), block_sizes, images=self._fitted, pad=self._pad)
        train_(model)
        divergence = kl_div(self._predicted(model), self._wanted, log_target=True, reduction="batchmean")
        return float(divergence) if divergence.isfinite() else float("inf")

    @torch.no_grad()
    def _predicted(self, model: nn.Module) -> Tensor:
        """Return logarithms of the predicted probabilities, (N, classes)."""
        with evaluating(model):
            return torch.cat([model(part).flatten(1).double().log_softmax(1) for part in self._others.split(_BATCH)])
