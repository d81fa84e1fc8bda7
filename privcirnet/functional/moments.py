"""Mean and variance of a batch whose images lie with several processes, from each process's own.

With n_r numbers, mean m_r and variance v_r in process r and n = sum n_r (Chan et al., 1979)::

    m = sum n_r m_r / n        v = sum n_r (v_r + (m_r - m)^2) / n

No difference of large numbers is taken, as it would be with sums of squares. A process without images adds nothing.

Cost: two sums over the processes, of as many numbers as there are means.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Total = Callable[[Tensor], Tensor]
"""Adds up a tensor over the processes that hold the images of one batch."""


def pooled(mean: Tensor, var: Tensor, count: int, total: Total) -> tuple[Tensor, Tensor, Tensor]:
    """Moments over all processes; differentiable if ``total`` is.

    Args:
        mean: of this process's numbers, (F,); anything finite if there are none.
        var: their biased variance, (F,), likewise.
        count: of numbers in each of the F sets here.
        total: the sum over the processes.

    Returns:
        mean (F,), biased variance (F,), and the count () over all processes.

    >>> one = torch.ones(1)
    >>> mean, var, count = pooled(one, one, 4, lambda here: 2 * here)  # two processes with the same numbers
    >>> mean.item(), var.item(), count.item()
    (1.0, 1.0, 8.0)
    """
    sums = total(torch.cat([mean * count, mean.new_tensor([count])]))
    everywhere, counted = sums[:-1] / sums[-1], sums[-1]
    return everywhere, total((var + (mean - everywhere).square()) * count) / counted, counted
