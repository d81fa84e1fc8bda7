"""Folding of constants into a single layer, dense or circulant: into its rows, its columns and its bias.

A circulant layer stays circulant if the factors are shared by its blocks. Other factors are refused.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.circulant import BlockCirculant, block_size_of
from privcirnet.nn.functional.batch_norm import fold_batch_norm, scale_inputs
from privcirnet.nn.graph import WeightedLayer
from privcirnet.nn.norm import BlockBatchNorm2d


def fold_norm_(layer: WeightedLayer, norm: _BatchNorm, name: str) -> None:
    """Fold the batch norm behind a layer into the layer.

    Args:
        layer: layer whose output the batch norm reads; changed in place.
        norm: batch norm over the layer's K output channels, in evaluation.

    Raises:
        RuleError: the batch norm has no running statistics, or is not shared by the blocks of a circulant layer, or the
            weight is quantized already.
    """
    gamma, beta, mean, var = _statistics(norm, name)
    _fold_values_(layer, (gamma, beta, mean, var), norm.eps, name)


def fold_norm_before_(layer: nn.Linear, norm: _BatchNorm, name: str) -> None:
    """Fold the batch norm before a linear layer into the layer: W (s x + t) = (W s) x + W t.

    Args:
        layer: layer that reads the batch norm's output; changed in place.
        norm: batch norm over the layer's C input channels, in evaluation.
    """
    gamma, beta, mean, var = (value.double() for value in _statistics(norm, name))
    scale = gamma * (var + norm.eps).rsqrt()
    fold_before_(layer, scale, beta - scale * mean, name)


def fold_before_(layer: WeightedLayer, scale: Tensor, shift: Tensor, name: str) -> None:
    """Make a layer compute W (scale x + shift) instead of W x.

    Args:
        layer: layer with C input channels; changed in place. A convolution that pads can have no shift.
        scale: factor of each input channel, (C,), float64.
        shift: shift of each input channel, (C,), float64.
    """
    stored = stored_weight(layer, name)
    with torch.no_grad():
        groups = 1 if isinstance(layer, nn.Linear) else layer.groups
        shifted = scale_inputs(layer.weight.double(), shift, groups).flatten(1).sum(1)
        bias = shifted if layer.bias is None else layer.bias.double() + shifted
        scale_inputs_(layer, scale, name)
    _set_bias_(layer, bias.to(stored.dtype))


def scale_outputs_(layer: WeightedLayer, scale: Tensor, shift: Tensor, name: str) -> None:
    """Make a layer compute scale (y + shift) instead of y, as with a batch norm of mean -shift and variance 1.

    Args:
        layer: layer with K output channels; changed in place.
        scale, shift: factor and shift of each output channel, (K,).

    Raises:
        RuleError: the values are not shared by the blocks of a circulant layer, or the weight is quantized already.
    """
    values = scale, torch.zeros_like(scale), -shift, torch.ones_like(scale)
    _fold_values_(layer, values, 0.0, name)


def scale_inputs_(layer: WeightedLayer, scale: Tensor, name: str) -> None:
    """Make a layer compute W (scale x) instead of W x.

    Args:
        layer: layer with C input channels; changed in place.
        scale: factor of each input channel, (C,).
    """
    stored = stored_weight(layer, name)
    b = block_size_of(layer)
    blocks = _by_block(scale, b, name)
    scale = scale if len(scale) % b == 0 else blocks.repeat_interleave(b)
    with torch.no_grad():
        stored.copy_(scale_inputs(stored, scale, 1 if isinstance(layer, nn.Linear) else layer.groups))


def scale_input_(layer: WeightedLayer, factor: float, name: str) -> None:
    """Make a layer compute W (factor x) instead of W x, with one factor for all channels.

    Raises:
        RuleError: the weight is quantized already.
    """
    inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    scale_inputs_(layer, torch.full((inputs,), factor, dtype=torch.float64), name)


def _statistics(norm: _BatchNorm, name: str) -> tuple[Tensor, ...]:
    """Return gamma, beta, mean and variance of a batch norm for each channel."""
    shared = norm.block_size if isinstance(norm, BlockBatchNorm2d) else 1
    if norm.running_mean is None or norm.running_var is None:
        raise RuleError(
            "a batch norm must have running statistics to be folded", got=repr(name), remedy="set track_running_stats"
        )
    gamma = torch.ones_like(norm.running_var) if norm.weight is None else norm.weight
    beta = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias
    return tuple(v.detach().repeat_interleave(shared) for v in (gamma, beta, norm.running_mean, norm.running_var))


def _fold_values_(layer: WeightedLayer, values: tuple[Tensor, ...], eps: float, name: str) -> None:
    """Fold (gamma, beta, mean, variance), each (K,), into a layer."""
    stored, out = stored_weight(layer, name), layer.weight.shape[0]
    gamma, beta, mean, var = (_by_block(value, block_size_of(layer), name) for value in values)
    bias = stored.new_zeros(out) if layer.bias is None else layer.bias
    with torch.no_grad():
        weight, bias = fold_batch_norm(stored, bias, gamma, beta, mean, var, eps)
        stored.copy_(weight)
    _set_bias_(layer, bias)


def _set_bias_(layer: WeightedLayer, bias: Tensor) -> None:
    """Give a layer a bias, which needs no gradient where nothing else of the layer does."""
    layer.bias = nn.Parameter(bias, requires_grad=any(parameter.requires_grad for parameter in layer.parameters()))


def _by_block(values: Tensor, block_size: int, name: str) -> Tensor:
    """Return one of every b values, (ceil(C / b),), which must be equal."""
    blocks = torch.cat([values, values[-1:].expand(-len(values) % block_size)]).reshape(-1, block_size)
    if not torch.equal(blocks, blocks[:, :1].expand_as(blocks)):
        raise RuleError(
            "what is folded into a circulant layer must be shared by its blocks",
            got=f"values that differ within a block at {name!r} for block size {block_size}",
            remedy="convert the network with circulant_, or build it with blocks",
        )
    return blocks[:, 0]


def stored_weight(layer: WeightedLayer, name: str) -> Tensor:
    """Return the tensor that holds a layer's weight: the rows of a circulant one.

    Args:
        layer: dense or circulant, not quantized.

    Returns:
        The weight, (out, in, *kernel), or the rows, (out / b, in, *kernel); not a copy.
    """
    if not parametrize.is_parametrized(layer, "weight"):
        return layer.weight
    structures = layer.parametrizations["weight"]  # type: ignore[index]
    if [type(structure) for structure in structures] != [BlockCirculant]:
        raise RuleError(
            "batch norms must be folded before weights are quantized",
            got=f"{', '.join(type(structure).__name__ for structure in structures)} before {name!r}",
            remedy="fuse first",
        )
    return structures.original  # type: ignore[union-attr]
