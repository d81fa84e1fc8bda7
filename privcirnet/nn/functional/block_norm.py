"""Batch normalization with statistics shared by blocks of channels, at the cost of an ordinary one.

A block of b channels has M = b N H W values. Its mean m is the average of the channels' means; its variance v is the
average of their variances and of their means' squared distances from m (law of total variance). The output is
y = gamma (x - m) / sqrt(v + eps) + beta. Given the channels' own statistics, both directions are ordinary batch norm
passes with constants, in any memory format::

    dbeta = sum dy        dgamma = sum dy x^        dx = gamma / sqrt(v + eps) (dy - dbeta / M - x^ dgamma / M)

Here x^ = (x - m) / sqrt(v + eps), and the sums go over the block. dx is a batch norm pass over dy and one addition.
Reshaping x to (N, C / b, b H, W) gives the same result, but copies x and its gradient when channels are innermost.
For bfloat16 values all statistics and constants are float32, as in torch's own mixed batch norm.

If other processes hold images of the same batch, the statistics and both sums of the backward pass include them.

Cost: two passes over x forward, three backward (four of bfloat16).
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm

from privcirnet.nn.functional.fusion import block_mean, block_variance
from privcirnet.nn.functional.moments import Total, pooled

_EPS = 2.0**-20
"""Positive eps for torch: with a variance of 1 - _EPS the sum is exactly 1."""


class _BlockNorm(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917
        ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, block_size: int, eps: float, total: Total | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, var, count = _statistics(x, block_size)
        if total:
            mean, var, count = pooled(mean, var, count, total)
        full = [value.repeat_interleave(block_size) for value in (mean, var, gamma, beta)]
        ctx.save_for_backward(x, *full[:3])
        ctx.block_size, ctx.eps, ctx.total, ctx.count = block_size, eps, total, count
        unbiased = var * (count / (count - 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return batch_norm(x, *full, training=False, eps=eps), mean, unbiased

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        x, mean, var, gamma = ctx.saved_tensors
        dy = gradients[0].contiguous(memory_format=_format(x))
        sums = _sums(dy, x, gamma, mean, var, ctx.eps)
        dgamma, dbeta = (value.reshape(-1, ctx.block_size).sum(1) for value in sums)
        both = torch.stack([dgamma, dbeta])
        of_gamma, of_beta = (ctx.total(both) if ctx.total else both) / ctx.count
        factor = (var + ctx.eps).rsqrt()
        slope = gamma * factor.square() * of_gamma.repeat_interleave(ctx.block_size)
        offset = slope * mean - gamma * factor * of_beta.repeat_interleave(ctx.block_size)
        dx = _scaled(dy, gamma * factor, offset)
        if x.dtype == slope.dtype:
            dx.addcmul_(x, slope.reshape(1, -1, 1, 1), value=-1)
        else:
            dx.add_(_scaled(x, -slope, torch.zeros_like(slope)))
        return dx, dgamma, dbeta, None, None, None


def block_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, block_size: int, eps: float, total: Total | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize a batch by its own statistics over blocks of b channels.

    Args:
        x: (N, C, H, W), in any memory format; N may be 0 if other processes hold images.
        gamma: scale of each block, (C / b,); float32, or float64 if x is.
        beta: shift of each block, (C / b,).
        total: sums over the processes that hold images of the batch; None if x is the whole batch.

    Returns:
        y of the shape of x, and the mean and the unbiased variance of each block, (C / b,), which carry no gradient.

    >>> y, mean, var = block_norm(torch.randn(4, 8, 2, 2), torch.ones(2), torch.zeros(2), block_size=4, eps=0.0)
    >>> y.shape, mean.shape, var.shape
    (torch.Size([4, 8, 2, 2]), torch.Size([2]), torch.Size([2]))
    """
    return _BlockNorm.apply(x, gamma, beta, block_size, eps, total)  # type: ignore[return-value]


def _sums(dy: Tensor, x: Tensor, gamma: Tensor, mean: Tensor, var: Tensor, eps: float) -> list[Tensor]:
    """Return each channel's part of dgamma and dbeta, (C,)."""
    if not x.numel():  # torch's kernel divides by the number of images
        return [torch.zeros_like(gamma), torch.zeros_like(gamma)]
    mask, unsaved = [False, True, True], mean.new_empty(0)  # as in evaluation; CUDA's kernel wants a tensor
    gradients = torch.ops.aten.native_batch_norm_backward(dy, x, gamma, mean, var, unsaved, unsaved, False, eps, mask)
    return list(gradients[1:])


def _scaled(x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Scale and shift channels by a batch norm of mean 0 and variance 1, the one pass fit for both memory formats."""
    var = torch.full_like(scale, 1 - _EPS)
    return batch_norm(x, torch.zeros_like(scale), var, scale, offset, training=False, eps=_EPS)


def _statistics(x: Tensor, block_size: int) -> tuple[Tensor, Tensor, int]:
    """Return the mean, the biased variance and the number of values of each block; zeros if there are none."""
    blocks, count = x.shape[1] // block_size, block_size * x.shape[0] * x.shape[2] * x.shape[3]
    wide = torch.promote_types(x.dtype, torch.float32)
    if not count:
        return x.new_zeros(blocks, dtype=wide), x.new_zeros(blocks, dtype=wide), 0
    if torch.compiler.is_compiling():  # it knows no update_stats, and fuses this one
        variances, means = torch.var_mean(x.to(wide), (0, 2, 3), correction=0)
    else:
        unused = x.new_zeros(x.shape[1], dtype=wide)  # running statistics, whose type the new ones take
        means, variances = torch.ops.aten.batch_norm_update_stats(x, unused, unused.clone(), 0.0)
    return block_mean(means, block_size), block_variance(means, variances, block_size), count


def _format(x: Tensor) -> torch.memory_format:
    innermost = x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if innermost and not x.is_contiguous() else torch.contiguous_format
