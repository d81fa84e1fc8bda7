"""The block-circulant structure as a parametrization of a layer's weight.

The layer keeps its base class and its `weight`, which is now computed at each use from the stored rows, of shape
(out / b, in, *kernel): ``layer.parametrizations.weight.original``. State dicts and optimizers see only the rows.
A layer whose sizes b does not divide can be padded: its weight keeps its shape, and the rows are those of the larger
circulant matrix (:mod:`..functional.circulant`), whose further rows and columns are never stored.

Cost: each use of the weight expands it once; evaluate and export a dense twin (`privcirnet.nn.dense_state_dict`).
A stored entry stands for b entries of the weight, so its gradient is the sum of theirs: plain SGD takes steps b times
as large as on one dense entry, AdamW is not affected.
"""

import difflib
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError, listed
from privcirnet.nn.functional.circulant import check_block_size, expand, padded_size, project
from privcirnet.nn.graph import WeightedLayer
from privcirnet.nn.materialize import has_plain_weights, materialize_weights_


class BlockCirculant(nn.Module):
    """Parametrization of a weight by the first rows of its circulant blocks.

    Args:
        block_size: Block size b; divides both weight dimensions unless the weight is padded.
        size: (out, in) of a padded weight; None where b divides.

    >>> layer = parametrize.register_parametrization(nn.Linear(8, 4), "weight", BlockCirculant(4))
    >>> layer.weight.shape, layer.parametrizations.weight.original.shape
    (torch.Size([4, 8]), torch.Size([1, 8]))
    """

    def __init__(self, block_size: int, size: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.block_size, self.size = block_size, size

    def forward(self, rows: Tensor) -> Tensor:
        """Return the weight whose first rows are `rows`: the dense weight, (out, in, *kernel).

        Args:
            rows: First row of every block row, (out / b, in, *kernel).
        """
        return expand(rows, self.block_size, self.size)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the rows of the nearest block-circulant weight: Rows, (out / b, in, *kernel).

        Args:
            weight: Dense weight, (out, in, *kernel).

        Raises:
            RuleError: b does not divide the weight's dimensions.
        """
        return project(weight, self.block_size, pad=self.size is not None)

    def extra_repr(self) -> str:
        return f"block_size={self.block_size}" + (f", size={self.size}" if self.size else "")


def block_size_of(module: nn.Module) -> int:
    """Return the block size of a layer's weight: b, or 1 if the module has no block-circulant weight.

    >>> block_size_of(nn.Linear(8, 4)), block_size_of(BlockCirculantLinear(8, 4, block_size=2))
    (1, 2)
    """
    if not parametrize.is_parametrized(module, "weight"):
        return 1
    structures = module.parametrizations["weight"]  # type: ignore[index]
    return next((structure.block_size for structure in structures if isinstance(structure, BlockCirculant)), 1)


def find_layer(model: nn.Module, name: str, *, plain: bool = True) -> WeightedLayer:
    """Return the linear or convolutional layer of a name.

    Args:
        plain: whether a weight that is computed from others is refused.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if name not in modules:
        layers = [key for key, module in modules.items() if isinstance(module, WeightedLayer)]
        close = difflib.get_close_matches(name, layers, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        choices = [*close, *(layer for layer in layers if layer not in close)] or ["none"]
        remedy = f"{meant}its layers are {listed(choices)}"
        raise RuleError("a layer name must exist in the model", got=repr(name), remedy=remedy)
    layer = modules[name]
    if not isinstance(layer, WeightedLayer):
        got = f"{type(layer).__name__} at {name!r}"
        raise RuleError("a layer must be Linear, Conv1d or Conv2d", got=got, remedy="leave it out")
    if plain and not has_plain_weights(layer):
        got, remedy = f"{name!r}, whose weight is computed from others", "materialize_weights_(model) makes it so"
        raise RuleError("a layer must have a plain weight", got=got, remedy=remedy)
    if parametrize.is_parametrized(layer, "weight") and has_plain_weights(layer):
        got = f"{name!r} with a parametrized weight of block size {block_size_of(layer)}"
        raise RuleError("a layer must still have its plain dense weight", got=got, remedy="start from the dense model")
    return layer


def checked_layer(model: nn.Module, name: str, block_size: int, *, pad: bool = False) -> WeightedLayer:
    """Return the layer of this name, unchanged, if it can become circulant."""
    layer = find_layer(model, name, plain=False)
    owners = [key for key, value in model.named_parameters(remove_duplicate=False) if value is layer.weight]
    if len(owners) > 1:
        got, remedy = " = ".join(owners), "untie the weights or leave them dense"
        raise RuleError("a circulant layer must not share its weight", got=got, remedy=remedy)
    try:
        if block_size != 1:
            _check_groups(layer)
        check_block_size(layer.weight.shape, block_size, pad=pad)
    except RuleError as error:
        raise RuleError(error.rule, got=f"{error.got} at {name!r}", remedy=error.remedy) from None
    return layer


def _check_groups(layer: WeightedLayer) -> None:
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.groups != 1:
        raise RuleError(
            "a circulant convolution must have one group", got=f"groups={layer.groups}", remedy="leave it dense"
        )


def make_circulant_(
    layer: WeightedLayer, block_size: int, importance: Tensor | None = None, *, pad: bool = False
) -> None:
    """Give one layer a block-circulant weight, the nearest to the one it has.

    A weight that is computed from others becomes plain. The `Parameter` stays the same object, of a new shape; its
    gradient, which has the old one, is dropped. Build the optimizer afterwards. For b = 1 the weight stays dense.

    Args:
        layer: A linear layer, or a convolution with one group.
        importance: Importance of each entry in the projection, of the weight's shape; None for equal weights.

    Raises:
        RuleError: The block size or the importance does not fit the weight.
    """
    check_block_size(layer.weight.shape, block_size, pad=pad)
    materialize_weights_(layer)
    if block_size == 1:
        return
    size = layer.weight.shape[0], layer.weight.shape[1]
    with torch.no_grad():
        layer.weight.copy_(expand(project(layer.weight, block_size, importance, pad=pad), block_size, size))
    layer.weight.grad = None
    padded = any(length % block_size for length in size)
    parametrize.register_parametrization(layer, "weight", BlockCirculant(block_size, size if padded else None))


def take_weight_(layer: nn.Linear | _ConvNd, source: nn.Linear | _ConvNd, form: Callable[[Tensor], Tensor]) -> None:
    """Give a layer the weight of another one in a new form, circulant if that is; both share their memory.

    Args:
        layer: layer without a weight yet.
        form: function of a weight and of its rows, which leaves both first axes.
    """
    plain = block_size_of(source) == 1
    layer.weight = nn.Parameter(form(source.weight.detach()), requires_grad=source.weight.requires_grad)
    if not plain:
        chain = cast(parametrize.ParametrizationList, source.parametrizations["weight"])  # type: ignore[index]
        structure = next(part for part in chain if isinstance(part, BlockCirculant))
        parametrize.register_parametrization(layer, "weight", BlockCirculant(structure.block_size, structure.size))
        original = cast(Tensor, chain.original)
        rows = nn.Parameter(form(original.detach()), requires_grad=original.requires_grad)
        layer.parametrizations["weight"].original = rows  # type: ignore[index]


def reset_circulant_(layer: WeightedLayer) -> None:
    """Give a circulant layer random rows, of the same variance as the weights of a new dense layer.

    Args:
        layer: A layer with a block-circulant weight; a plain one is left as it is.
    """
    if (b := block_size_of(layer)) > 1:
        fresh = torch.empty_like(layer.weight)
        nn.init.kaiming_uniform_(fresh, a=math.sqrt(5))
        out, into = fresh.shape[:2]
        rows = fresh[torch.arange(0, out, b)][:, torch.arange(padded_size(into, b)) % into]
        with torch.no_grad():
            layer.weight = expand(rows, b, (out, into))


def _repeat_first_rows_(layer: WeightedLayer, block_size: int) -> None:
    """Make a fresh weight block circulant without averaging it, which would shrink its initial variance b-fold."""
    check_block_size(layer.weight.shape, block_size)
    with torch.no_grad():
        layer.weight.copy_(expand(layer.weight[::block_size], block_size))


class BlockCirculantLinear(nn.Linear):
    """A linear layer with a block-circulant weight, for building by hand; initialized with the variance of nn.Linear.

    Args:
        in_features: Input width.
        out_features: Output width.
        block_size: Block size b; divides both widths.
        options: Keyword arguments of nn.Linear.

    Raises:
        RuleError: b does not divide both widths.

    >>> BlockCirculantLinear(8, 4, block_size=2)(torch.ones(3, 8)).shape
    torch.Size([3, 4])
    """

    def __init__(self, in_features: int, out_features: int, block_size: int, **options: Any) -> None:
        super().__init__(in_features, out_features, **options)
        _repeat_first_rows_(self, block_size)
        make_circulant_(self, block_size)


class BlockCirculantConv2d(nn.Conv2d):
    """A convolution with a block-circulant kernel, for building by hand; initialized with the variance of nn.Conv2d.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        kernel_size: As in nn.Conv2d.
        block_size: Block size b; divides both channel counts.
        options: Keyword arguments of nn.Conv2d.

    Raises:
        RuleError: b does not divide both channel counts, or the convolution is grouped.

    >>> BlockCirculantConv2d(4, 8, 3, block_size=4, padding=1)(torch.ones(1, 4, 5, 5)).shape
    torch.Size([1, 8, 5, 5])
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int], block_size: int, **options: Any
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, **options)
        _check_groups(self)
        _repeat_first_rows_(self, block_size)
        make_circulant_(self, block_size)
