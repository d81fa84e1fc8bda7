"""Callbacks of the loop: parts that observe a network, add to its loss, and leave nothing behind."""

from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn


class Callback:
    """A part of a training run; each method does nothing unless a kind of part says otherwise."""

    def epoch(self, number: int) -> AbstractContextManager[object]:
        """Return a context in which an epoch trains."""
        return nullcontext()

    def show(self, images: Tensor) -> None:
        """See the images that the network sees next; ``images``: this process's, real, (N, C, S, S)."""

    def penalty(self) -> Tensor | float:
        """Return the penalty on the images just seen (this process's mean), then forget them."""
        return 0.0

    def beside(self, model: nn.Module) -> AbstractContextManager[object]:
        """Return a context in which the statistics of another network, such as an average of weights, are measured."""
        return nullcontext()

    def detach(self) -> None:
        """Give the network back as it was."""
