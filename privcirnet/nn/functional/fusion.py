"""Batch norms folded into the weights before them, and the block means that keep those weights circulant.

In evaluation a batch norm is y = s x + (beta - s m) with s = gamma / sqrt(v + eps), so behind a linear map it becomes::

    weight' = s * weight        bias' = s * (bias - m) + beta

Row c of the weight is scaled by s[c]: a block stays circulant exactly when s is constant over the block's b rows. Hence
gamma, beta, m and v are shared by each block of b channels.

Cost: one pass over the weight.

Source: PrivCirNet (NeurIPS 2024), Section 3.4. Departure: see `block_variance`.
"""

import torch
from torch import Tensor

from privcirnet.errors import RuleError


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
