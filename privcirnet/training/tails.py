"""A penalty that keeps a row of squares from exploding: on images whose values are far above the usual.

A square amplifies large values. In a deep network an image whose values are a few times the usual in one square can be
a thousand times it some squares later, and no batch statistics can scale it back in evaluation. So in training such
images cost::

    penalty = mean over the images of  sum over the squares of  max(0, log(peak / (limit rms)))^2

peak is the largest absolute input of a square on the image. rms is the root mean square of the square's inputs over the
batch, taken as a constant. Because of the logarithm, extreme images do not dominate the gradient. The
penalty also limits the range that eight bits must cover.

Cost: two passes over the inputs of every square, and a third backward.

Source: after the activation regularization of PILLAR (Diaa et al., "Fast and Private Inference of Deep Neural Networks
by Co-designing Activation Functions", USENIX Security 2024), which penalizes what leaves a fixed interval by its power.
"""

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from privcirnet import distributed
from privcirnet.nn.activations import Aespa, Square


class Tails:
    """An observer of the inputs of a network's squares while it trains.

    Args:
        model: with AESPA or square activations; others cost nothing.
        limit: peaks up to this many root mean squares are free.
    """

    def __init__(self, model: nn.Module, limit: float) -> None:
        self.limit = limit
        self._peaks: list[Tensor] = []
        self._squares: list[Tensor] = []
        squares = [module for module in model.modules() if isinstance(module, Square | Aespa)]
        self._handles: list[RemovableHandle] = [module.register_forward_pre_hook(self._see) for module in squares]

    def penalty(self) -> Tensor | float:
        """Return the penalty of the batch just seen (this process's images), then forget it; 0 without squares."""
        if not self._peaks:
            return 0.0
        peaks, squares = torch.stack(self._peaks), torch.stack(self._squares)
        self._peaks, self._squares = [], []
        sums = distributed.total(squares)
        rms = (sums[:, 0] / sums[:, 1]).sqrt().unsqueeze(1)
        over = (peaks / (self.limit * rms)).clamp_min(1.0).log()
        return over.square().sum(0).mean()

    def detach(self) -> None:
        """Stop observing."""
        for handle in self._handles:
            handle.remove()

    def _see(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        (x,) = inputs
        if not module.training:
            return
        of_image = tuple(range(1, x.ndim))
        self._peaks.append(torch.maximum(x.amax(of_image), -x.amin(of_image)))
        size = torch.linalg.vector_norm(x.detach(), dtype=torch.promote_types(x.dtype, torch.float32))
        self._squares.append(torch.stack([size.square(), torch.full_like(size, x.numel())]))
