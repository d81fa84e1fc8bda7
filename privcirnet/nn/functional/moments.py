"""Mean and variance of a batch whose images are spread over several processes, from each process's own.

With n_r values, mean m_r and variance v_r in process r and n = sum n_r (Chan et al., 1979)::

    m = sum n_r m_r / n        v = sum n_r (v_r + (m_r - m)^2) / n

Unlike sums of squares, this takes no difference of large numbers. A process without images adds nothing.

Cost: two sums over the processes, of as many values as there are means.

AESPA needs :func:`power_means` instead of variances; :func:`pooled_means` pools them in one sum.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
