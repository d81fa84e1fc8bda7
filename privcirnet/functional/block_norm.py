"""Batch normalization with statistics shared by blocks of channels, at the cost of an ordinary one.

Over a block of b channels, M = b N H W numbers: mean m = average of the channels' means, variance v = average of their
variances and squared distances from m (law of total variance), y = gamma (x - m) / sqrt(v + eps) + beta. With the
channels' own statistics at hand both directions are ordinary batch norm passes with constants, in any memory format::

    dbeta = sum dy        dgamma = sum dy x^        dx = gamma / sqrt(v + eps) (dy - dbeta / M - x^ dgamma / M)

x^ = (x - m) / sqrt(v + eps), sums over the block. Reshaping x to (N, C / b, b H, W) gives the same, but copies x and
its gradient when channels are innermost.

Cost: forward two passes over x, backward three.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm

from privcirnet.functional.fusion import block_mean, block_variance


class _BlockNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, b: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        means, variances = torch.ops.aten.batch_norm_update_stats(x, None, None, 0.0)
        mean, var = block_mean(means, b), block_variance(means, variances, b)
        full = [value.repeat_interleave(b) for value in (mean, var, gamma, beta)]
        ctx.save_for_backward(x, *full[:3])
        ctx.b, ctx.eps = b, eps
        ctx.mark_non_differentiable(mean, var)
        return batch_norm(x, *full, training=False, eps=eps), mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, mean, var, gamma = ctx.saved_tensors
        inputs = gradients[0].contiguous(memory_format=_format(x)), x, gamma, mean, var, None, None, False, ctx.eps
        dx, dgamma, dbeta = torch.ops.aten.native_batch_norm_backward(*inputs, [True, True, True])
        dgamma, dbeta = (value.reshape(-1, ctx.b).sum(1) for value in (dgamma, dbeta))
        share = 1 / (ctx.b * x.shape[0] * x.shape[2] * x.shape[3])
        factor = (var + ctx.eps).rsqrt()
        slope = gamma * factor.square() * share * dgamma.repeat_interleave(ctx.b)
        offset = gamma * factor * share * dbeta.repeat_interleave(ctx.b) - slope * mean
        shape = (1, -1, 1, 1)
        return dx.addcmul_(x, slope.reshape(shape), value=-1).sub_(offset.reshape(shape)), dgamma, dbeta, None, None


def block_norm(x: Tensor, gamma: Tensor, beta: Tensor, b: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize a batch by its own statistics over blocks of b channels.

    Args:
        x: (N, C, H, W), float32 or float64, in any memory format.
        gamma: scale of each block, (C / b,).
        beta: shift, likewise.
        b: block size.
        eps: what is added to the variance.

    Returns:
        y like x, and the mean and (biased) variance of each block, (C / b,), which carry no gradient.

    >>> y, mean, var = block_norm(torch.randn(4, 8, 2, 2), torch.ones(2), torch.zeros(2), b=4, eps=0.0)
    >>> y.shape, mean.shape, var.shape
    (torch.Size([4, 8, 2, 2]), torch.Size([2]), torch.Size([2]))
    """
    return _BlockNorm.apply(x, gamma, beta, b, eps)  # type: ignore[return-value]


def _format(x: Tensor) -> torch.memory_format:
    innermost = x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if innermost and not x.is_contiguous() else torch.contiguous_format
