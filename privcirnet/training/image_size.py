"""Smaller images in the first epochs: a convolutional network learns most from them, in a fraction of the time.

A side is the whole one times a share, rounded to a multiple of the product of the network's strides. The average over
the whole last map is then one over a smaller map; the pool has its own size again after each epoch, so what is measured
and saved knows nothing of it.

Source: progressive resizing as in Tan and Le, "EfficientNetV2" (ICML 2021), Section 4.
Departures: regularization stays the same, and the last quarter of the epochs has whole images, the last one at least.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.graph import evaluating

GROWING = 0.75
"""Share of the epochs in which images are smaller."""


def smaller_epochs(epochs: int) -> float:
    """Return how many epochs come before those that see whole images; the last one always does.

    Args:
        epochs: of the whole run.

    >>> [smaller_epochs(epochs) for epochs in (1, 2, 4, 6)]
    [0, 1, 3.0, 4.5]
    """
    return min(GROWING * epochs, epochs - 1)


class GrowingImages:
    """The sizes of a network's images from epoch to epoch.

    Args:
        model: ends in an average over its whole last map; changed only in :meth:`of_epoch`.
        image: one image as the network reads it, (1, C, S, S).
        smallest: share of the side in the first epoch.
        epochs: of the whole run.

    Raises:
        RuleError: the network does not end in such an average; transformers do not.
    """

    def __init__(self, model: nn.Module, image: Tensor, smallest: float, epochs: int) -> None:
        self._pool, self._last = _whole_average(model, image)
        self._stride = image.shape[-1] // self._last
        self._smallest, self._growing = smallest, smaller_epochs(epochs)
        self._map = self._last

    def side(self, epoch: int) -> int:
        """Return the side of the images of an epoch, in pixels.

        Args:
            epoch: from 0.
        """
        return self._stride * self._last_map(epoch)

    def _last_map(self, epoch: int) -> int:
        grown = min(1.0, epoch / self._growing) if self._growing > 0 else 1.0
        share = self._smallest + (1 - self._smallest) * grown
        return min(max(1, round(share * self._last)), self._last)

    @contextmanager
    def of_epoch(self, epoch: int) -> Iterator[None]:
        """Let the network read the images of an epoch.

        Args:
            epoch: from 0.

        Yields:
            Nothing; the network reads whole images again afterwards.
        """
        whole = self._pool.kernel_size, self._pool.stride
        self._map = self._last_map(epoch)
        self._pool.kernel_size = self._pool.stride = self._map
        try:
            yield
        finally:
            self._map = self._last
            self._pool.kernel_size, self._pool.stride = whole

    def __call__(self, images: Tensor) -> Tensor:
        """Resize images to the size of the epoch, bilinear with antialias.

        Args:
            images: real, (N, C, S, S).

        Returns:
            (N, C, s, s); the images themselves while they are whole.
        """
        if self._map == self._last:
            return images
        return F.interpolate(images, self._stride * self._map, mode="bilinear", antialias=True)


def _whole_average(model: nn.Module, image: Tensor) -> tuple[nn.AvgPool2d, int]:
    """Return the pool over the whole last map, and the map's side."""
    sides: dict[nn.AvgPool2d, int] = {}

    def see(pool: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(pool, nn.AvgPool2d)
        if pool.kernel_size in (side := inputs[0].shape[-1], (side, side)):
            sides[pool] = side

    hooks = [m.register_forward_pre_hook(see) for m in model.modules() if isinstance(m, nn.AvgPool2d)]
    try:
        with evaluating(model), torch.no_grad():
            model(image)
    finally:
        for hook in hooks:
            hook.remove()
    if len(sides) != 1 or image.shape[-1] % next(iter(sides.values())):
        got = f"{len(sides)} averages over a whole map"
        remedy = "use it for convolutional networks, with recipe.smallest_image=0 for others"
        raise RuleError("recipe.smallest_image needs a network that ends in one average", got=got, remedy=remedy)
    return next(iter(sides.items()))
