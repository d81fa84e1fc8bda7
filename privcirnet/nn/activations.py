"""Activations that encrypted inference can evaluate."""

from typing import Self

import torch
from torch import Tensor, nn

from privcirnet.nn.functional.batch_norm import Total, block_mean, check_channels, pooled_means
from privcirnet.nn.functional.polynomial import aespa_square, batch_square, scaled_square


class Square(nn.Module):
    """The activation x -> x^2, elementwise; one multiplication for each value.

    >>> import torch
    >>> Square()(torch.tensor([-2.0, 3.0]))
    tensor([4., 9.])
    """

    def forward(self, x: Tensor) -> Tensor:
        return x * x


AESPA_SHARED = ("log_gamma", "running_var", "running_square_var")
"""Names of an AESPA's tensors with one value for each block."""


class Aespa(nn.Module):
    """AESPA, a square whose scale and shift follow the statistics of its input (:mod:`..functional.polynomial`).

    In training the statistics are those of the batch; in evaluation they are running averages, as in a batch norm. Use
    :class:`Aespa2d` or :class:`Aespa1d`.

    Args:
        block_size: b; statistics and gamma are shared by each block of b channels, so that a circulant layer into which
            they are folded stays circulant.

    Raises:
        RuleError: b does not divide C.
    """

    axis: int
    """axis of the channels."""
    total: Total | None = None
    """sums over the processes that hold images of the batch; None: this one holds them all."""

    def __init__(self, num_features: int, block_size: int = 1, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        check_channels(num_features, block_size)
        self.num_features, self.block_size, self.eps, self.momentum = num_features, block_size, eps, momentum
        self.log_gamma = nn.Parameter(torch.zeros(num_features // block_size))
        self.running_var: Tensor
        self.running_square_var: Tensor
        self.register_buffer("running_var", torch.ones(num_features // block_size))
        self.register_buffer("running_square_var", 2 * torch.ones(num_features // block_size))

    def forward(self, x: Tensor) -> Tensor:
        """Return (scale (x + shift))^2: values of the shape of x.

        Args:
            x: values whose channels lie along :attr:`axis`.
        """
        if not self.training:
            return scaled_square(x, *self._spread(*self.coefficients(*self._running())), self.axis)
        count = x.numel() // self.num_features

        def of_means(means: Tensor, log_gamma: Tensor) -> tuple[Tensor, Tensor]:
            return self._spread(*aespa_square(log_gamma.exp(), *self._measured(means, count), self.eps))

        return batch_square(x, self.log_gamma, of_means, self.axis)

    def coefficients(self, var: Tensor, square_var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scale and shift of each block: (scale, shift), each (C / b,).

        Args:
            var: variance of x, (C / b,).
            square_var: variance of x^2, (C / b,).
        """
        return aespa_square(self.log_gamma.exp(), var, square_var, self.eps)

    def shared_by(self, block_size: int) -> Self:
        """Return the same activation with its values averaged over each block of b channels.

        Args:
            block_size: b; divides C.

        Raises:
            RuleError: b does not divide C.
        """
        shared = type(self)(self.num_features, block_size, self.eps, self.momentum)
        shared = shared.to(self.log_gamma).train(self.training)
        with torch.no_grad():
            for name in AESPA_SHARED:
                full = getattr(self, name).repeat_interleave(self.block_size)
                getattr(shared, name).copy_(block_mean(full, block_size))
        shared.log_gamma.requires_grad_(self.log_gamma.requires_grad)
        return shared

    def _running(self) -> tuple[Tensor, Tensor]:
        return self.running_var, self.running_square_var

    def _spread(self, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factor and summand of the values of each channel, (C,) each."""
        if self.block_size == 1:
            return scale, scale * shift
        return scale.repeat_interleave(self.block_size), (scale * shift).repeat_interleave(self.block_size)

    def _measured(self, means: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the variances of x and x^2 over the batch, by block, and move the running averages towards them.

        Args:
            means: means of x, x^2 and x^4 over this process's values, (3, C).
        """
        powers = means if self.block_size == 1 else means.reshape(3, -1, self.block_size).mean(2)
        if self.total:
            powers = pooled_means(powers, count, self.total)
        mean, second, fourth = powers.unbind()
        variances = second - mean.square(), fourth - second.square()
        with torch.no_grad():
            for running, value in zip(self._running(), variances, strict=True):
                running.lerp_(value.detach().to(running.dtype), self.momentum)
        return variances

    def extra_repr(self) -> str:
        return f"{self.num_features}, block_size={self.block_size}, eps={self.eps}"


class Aespa2d(Aespa):
    """:class:`Aespa` of maps (N, C, H, W).

    >>> Aespa2d(8, block_size=4)(torch.randn(2, 8, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    axis = 1


class Aespa1d(Aespa):
    """:class:`Aespa` of values with channels last, (N, C) or (N, tokens, C).

    >>> Aespa1d(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    axis = -1
