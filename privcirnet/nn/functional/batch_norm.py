"""Batch norms: statistics of several processes' images and of blocks of channels, and norms folded into weights.

Images of a batch may be spread over processes. With n_r values, mean m_r and variance v_r in process r and n = sum n_r
(Chan et al., 1979)::

    m = sum n_r m_r / n        v = sum n_r (v_r + (m_r - m)^2) / n

Unlike sums of squares, this takes no difference of large numbers. A process without images adds nothing. It costs two
sums over the processes, of as many values as there are means. AESPA needs :func:`power_means` instead of variances;
:func:`pooled_means` pools them in one sum.

In evaluation a batch norm is y = s x + (beta - s m) with s = gamma / sqrt(v + eps), so behind a linear map it becomes::

    weight' = s * weight        bias' = s * (bias - m) + beta

Row c of the weight is scaled by s[c]: a block stays circulant exactly when s is constant over the block's b rows. Hence
gamma, beta, m and v are shared by each block of b channels, which has M = b N H W values: m is the average of the
channels' means; v is the average of their variances and of their means' squared distances from m (law of total
variance). Given the channels' own statistics, both directions of :func:`block_norm` are ordinary batch norm passes with
constants, in any memory format::

    dbeta = sum dy        dgamma = sum dy x^        dx = gamma / sqrt(v + eps) (dy - dbeta / M - x^ dgamma / M)

Here x^ = (x - m) / sqrt(v + eps), and the sums go over the block. dx is a batch norm pass over dy and one addition.
Reshaping x to (N, C / b, b H, W) gives the same result, but copies x and its gradient when channels are innermost.
For bfloat16 values all statistics and constants are float32, as in torch's own mixed batch norm. If other processes
hold images of the same batch, the statistics and both sums of the backward pass include them. It costs two passes over
x forward, three backward (four of bfloat16).

Source: PrivCirNet (NeurIPS 2024), Section 3.4. Departure: see `block_variance`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm

from privcirnet.errors import RuleError

Total = Callable[[Tensor], Tensor]
"""Sum of a tensor over the processes that hold the images of one batch."""


def pooled(mean: Tensor, var: Tensor, count: int, total: Total) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean, variance and count over all processes; differentiable if ``total`` is.

    Args:
        mean: mean of this process's values, (F,); anything finite if there are none.
        var: their biased variance, (F,); anything finite if there are none.
        count: number of values in each of the F sets in this process.

    Returns:
        The mean (F,), the biased variance (F,), and the count () over all processes.

    >>> one = torch.ones(1)
    >>> mean, var, count = pooled(one, one, 4, lambda here: 2 * here)  # two processes with the same values
    >>> mean.item(), var.item(), count.item()
    (1.0, 1.0, 8.0)
    """
    sums = total(torch.cat([mean * count, mean.new_tensor([count])]))
    everywhere, counted = sums[:-1] / sums[-1], sums[-1]
    return everywhere, total((var + (mean - everywhere).square()) * count) / counted, counted


def pooled_means(means: Tensor, count: int, total: Total) -> Tensor:
    """Return the means over all processes, from each process's own; differentiable if ``total`` is.

    Args:
        means: means of this process's values, of any shape; may be NaN if there are none.

    Returns:
        The means, of the shape of ``means``.
    """
    sums = total(torch.cat([(means.nan_to_num() * count).flatten(), means.new_tensor([count])]))
    return (sums[:-1] / sums[-1]).view_as(means)


def power_means(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the means of x, x^2 and x^4 over all axes but one; differentiable.

    Cost: three passes forward and one backward. Nothing but x is kept. Variances by torch.var would copy and keep more.

    Args:
        x: values, with C channels along ``axis``.

    Returns:
        Three tensors (C,), in float64 if x is, else in float32.

    >>> [m.tolist() for m in power_means(torch.tensor([[1.0, 2.0], [3.0, 2.0]]), 1)]
    [[2.0, 2.0], [5.0, 4.0], [41.0, 16.0]]
    """
    return _PowerMeans.apply(x, axis)  # type: ignore[no-any-return]


class _PowerMeans(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        ctx.save_for_backward(x)
        ctx.axis = axis % x.ndim
        axes = [i for i in range(x.ndim) if i != ctx.axis]
        wide = _wide(x)
        square = wide * wide
        first, second = wide.mean(axes), square.mean(axes)
        return first, second, square.square_().mean(axes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        count = x.numel() // x.shape[ctx.axis]
        shape = [1] * x.ndim
        shape[ctx.axis] = -1
        first, second, fourth = (g.reshape(shape) / count for g in gradients)
        wide = _wide(x)
        return (wide * wide).mul_(4 * fourth).add_(2 * second).mul_(wide).add_(first).to(x.dtype), None


def _wide(x: Tensor) -> Tensor:
    """Return values in which powers can be summed: float32, or float64 if they are."""
    return x if x.dtype == torch.float64 else x.float()


def fold_batch_norm(  # noqa: PLR0913, PLR0917 - the arguments are batch norm's own
    weight: Tensor, bias: Tensor | None, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Fold a batch norm into the linear map before it.

    Works on a dense weight with C = out, and equally on the stored rows of a block-circulant one with C = out / b when
    the batch norm is shared by each block: scaling a block's first row scales the block. Computed in float64 and
    rounded once.

    Args:
        weight: Dense weight or rows, (C, in, *kernel).
        bias: Bias of the linear map, (C * r,) for some r: r = 1 beside a dense weight, r = b beside rows, whose bias
            may differ within a block; None for zero.
        gamma: Scale, (C,).
        beta: Shift, (C,).
        mean: Running mean, (C,).
        var: Running variance, (C,), non-negative.

    Returns:
        The new weight, of the shape and dtype of `weight`, and the new bias, of the shape of `bias`, or (C,) for None.

    >>> one = torch.ones(1)
    >>> fold_batch_norm(torch.tensor([[2.0]]), None, gamma=3 * one, beta=one, mean=one, var=4 * one, eps=0.0)
    (tensor([[3.]]), tensor([-0.5000]))
    """
    channels = gamma.numel()
    if weight.shape[0] != channels or (bias is not None and bias.numel() % channels):
        raise RuleError(
            "a batch norm must have the channels of the weight it is folded into",
            got=f"{channels} for a weight of {weight.shape[0]}",
            remedy="give one value for each leading row of the weight",
        )
    scale = gamma.double() / (var.double() + eps).sqrt()
    old = torch.zeros_like(beta) if bias is None else bias
    scales, shifts, means = (
        v.repeat_interleave(old.numel() // channels) for v in (scale, beta.double(), mean.double())
    )
    new = scales * (old.double() - means) + shifts
    folded = weight.double() * scale.reshape(-1, *[1] * (weight.ndim - 1))
    return folded.to(weight.dtype), new.to(old.dtype)


def scale_inputs(weight: Tensor, scale: Tensor, groups: int = 1) -> Tensor:
    """Return the weight of the linear map x -> W (scale x), computed in float64 and rounded once.

    Args:
        weight: Dense weight, or the stored rows of a block-circulant one when the scale is shared by each block,
            (rows, C / groups, *kernel).
        scale: Factor of each input channel, (C,).
        groups: Channel groups: every rows / groups rows read the next C / groups channels.

    Returns:
        The new weight, of the shape and dtype of `weight`.

    >>> scale_inputs(torch.ones(1, 2), torch.tensor([2.0, 3.0]))
    tensor([[2., 3.]])
    >>> scale_inputs(torch.ones(2, 1), torch.tensor([2.0, 3.0]), groups=2)
    tensor([[2.],
            [3.]])
    """
    factors = scale.double().reshape(groups, -1).repeat_interleave(weight.shape[0] // groups, dim=0)
    wide = weight.double() * factors.reshape(*factors.shape, *[1] * (weight.ndim - 2))
    return wide.to(weight.dtype)


def check_channels(channels: int, block_size: int) -> None:
    """Raise unless channels can be cut into blocks of b."""
    if block_size < 1 or channels % block_size:
        raise RuleError(
            "block size must divide the number of channels",
            got=f"{block_size} for {channels}",
            remedy="use the block size of the layer before",
        )


def block_mean(values: Tensor, block_size: int) -> Tensor:
    """Average each run of b channels (PrivCirNet, Section 3.4).

    Args:
        values: One number for each channel, (C,).

    Returns:
        (C / b,).

    Raises:
        RuleError: b does not divide C.

    >>> block_mean(torch.tensor([1.0, 3.0, 5.0, 7.0]), block_size=2)
    tensor([2., 6.])
    """
    check_channels(values.shape[0], block_size)
    return values.reshape(-1, block_size).mean(1)


def block_variance(mean: Tensor, var: Tensor, block_size: int) -> Tensor:
    """Return the variance of each block of b channels taken together: (C / b,).

    By the law of total variance it is the mean of the variances plus the variance of the means. The paper takes the
    plain mean of the variances; that is too small wherever the means differ within a block, and it is not what a batch
    norm shared by the block measures during training.

    Args:
        mean: Mean of each channel, (C,).
        var: Variance of each channel, (C,).

    Raises:
        RuleError: b does not divide C.

    >>> block_variance(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 4.0]), block_size=2)
    tensor([4.])
    """
    centre = block_mean(mean, block_size).repeat_interleave(block_size)
    return block_mean(var + (mean - centre).square(), block_size)


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
