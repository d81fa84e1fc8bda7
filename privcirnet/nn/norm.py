"""Batch norms shared by blocks of channels, so that a circulant layer stays circulant when they are folded in.

It is BatchNorm2d(C / b) applied to x of shape (N, C, H, W) viewed as (N, C / b, b H, W): gamma, beta, mean and variance
have one value for each block of b channels, in training as in evaluation.

Cost: that of a batch norm. Contiguous inputs are reshaped and passed to it. With channels innermost that would copy
them, so :mod:`..functional.batch_norm` works on them directly.

If the images of a batch are spread over several processes, `total` makes the statistics those of all of them.

Source: PrivCirNet (NeurIPS 2024), Section 3.4. Departure: when a trained batch norm is converted, the paper averages
the variances of a block. Here it is the variance of the block's channels taken together, the mean of the variances plus
the variance of the means, which is what the shared batch norm itself measures when training continues.
"""

from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.functional.batch_norm import Total, block_mean, block_norm, block_variance, check_channels

Module = TypeVar("Module", bound=nn.Module)
OPTIONS = ("eps", "momentum", "affine", "track_running_stats")
"""Arguments of a batch norm besides its channels, kept under the same names."""


class BlockBatchNorm2d(nn.BatchNorm2d):
    """A batch norm whose parameters and statistics are shared by each block of b channels.

    `weight`, `bias`, `running_mean` and `running_var` have shape (C / b,), and `num_features` is C / b. Child modules,
    if any, run after the normalization, in order: they come from batch norms with a built-in activation.

    Args:
        block_size: Block size b; divides C.
        options: Keyword arguments of nn.BatchNorm2d.

    Raises:
        RuleError: b does not divide C.

    >>> norm = BlockBatchNorm2d(8, block_size=4)
    >>> norm(torch.randn(2, 8, 5, 5)).shape, norm.weight.shape
    (torch.Size([2, 8, 5, 5]), torch.Size([2]))
    """

    total: Total | None = None
    """sums over the processes that hold images of the batch; None: this one holds them all."""

    def __init__(self, num_features: int, block_size: int, **options: Any) -> None:
        check_channels(num_features, block_size)
        super().__init__(num_features // block_size, **options)
        self.block_size = block_size

    def forward(self, input: Tensor) -> Tensor:
        """Return the input normalized by blocks of channels: values of the shape of the input.

        Args:
            input: (N, C, H, W), or signals (N, C, L).
        """
        if input.ndim == 3:
            return self.forward(input.unsqueeze(2)).squeeze(2)
        y = self._batch_normalized(input) if self.training or self.running_var is None else self._normalized(input)
        for child in self.children():
            y = child(y)
        return y

    def _batch_normalized(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        if not self.total and x.is_contiguous():
            return super().forward(x.reshape(n, c // self.block_size, self.block_size * h, w)).reshape(n, c, h, w)
        self._check_input_dim(x)
        wide = torch.promote_types(x.dtype, torch.float32)
        ones, zeros = x.new_ones(self.num_features, dtype=wide), x.new_zeros(self.num_features, dtype=wide)
        gamma, beta = ones if self.weight is None else self.weight, zeros if self.bias is None else self.bias
        y, mean, var = block_norm(x, gamma, beta, self.block_size, self.eps, self.total)
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            factor = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
            with torch.no_grad():
                self.running_mean.lerp_(mean, factor)  # type: ignore[union-attr]
                self.running_var.lerp_(var, factor)  # type: ignore[union-attr]
        return y

    def _normalized(self, x: Tensor) -> Tensor:
        constants = (self.running_mean, self.running_var, self.weight, self.bias)
        full = (None if value is None else value.repeat_interleave(self.block_size) for value in constants)
        return nn.functional.batch_norm(x, *full, training=False, eps=self.eps)

    def extra_repr(self) -> str:
        return f"block_size={self.block_size}, {super().extra_repr()}"

    @classmethod
    def from_batch_norm(cls, norm: nn.BatchNorm1d | nn.BatchNorm2d, block_size: int) -> Self:
        """Return a batch norm shared by blocks of b channels: gamma, beta and mean averaged, variance of the block.

        Options, training mode, device, dtype and `requires_grad` are kept. Child modules are shared, not copied.

        Args:
            norm: A batch norm, or timm's BatchNormAct2d, which adds a drop and an activation.

        Raises:
            RuleError: b does not divide the channels, or `norm` is a subclass of unknown behaviour.

        >>> norm = nn.BatchNorm2d(2)
        >>> _ = norm.running_mean.copy_(torch.tensor([1.0, 3.0]))
        >>> shared = BlockBatchNorm2d.from_batch_norm(norm, block_size=2)
        >>> shared.running_mean, shared.running_var
        (tensor([2.]), tensor([2.]))
        """
        check_can_share(norm)
        options = {name: getattr(norm, name) for name in OPTIONS}
        shared = cls(norm.num_features, block_size, **options)
        sample = next((value for value in norm.state_dict().values() if value.is_floating_point()), torch.empty(0))
        shared.to(device=sample.device, dtype=sample.dtype).train(norm.training)
        with torch.no_grad():
            for name in ("weight", "bias", "running_mean"):
                value: Tensor | None = getattr(norm, name)
                if value is not None:
                    getattr(shared, name).copy_(block_mean(value, block_size)).requires_grad_(value.requires_grad)
            if norm.running_mean is not None and norm.running_var is not None:
                shared.running_var.copy_(block_variance(norm.running_mean, norm.running_var, block_size))  # type: ignore[union-attr]
                shared.num_batches_tracked.copy_(norm.num_batches_tracked)  # type: ignore[union-attr]
        for name, child in norm.named_children():
            shared.add_module(name, child)
        return shared


class TokenBatchNorm(BlockBatchNorm2d):
    """A batch norm over the channels of tokens, channels last, with statistics shared by blocks of b channels.

    It is folded into the linear layer before it, or into those *behind* it (:mod:`privcirnet.nn.neighbours`).
    Circulant ones stay circulant if its blocks are theirs.

    Args:
        block_size: Block size b; divides C.
        options: Keyword arguments of nn.BatchNorm2d.

    Raises:
        RuleError: b does not divide C.

    >>> TokenBatchNorm(4)(torch.randn(2, 5, 4)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, num_features: int, block_size: int = 1, **options: Any) -> None:
        super().__init__(num_features, block_size, **options)

    def forward(self, input: Tensor) -> Tensor:
        """Return the input normalized by blocks of channels: values of the shape of the input.

        Args:
            input: (N, tokens, C) or (N, C).
        """
        maps = input.reshape(len(input), -1, 1, input.shape[-1]).movedim(-1, 1)
        return super().forward(maps).movedim(1, -1).reshape(input.shape)

    @classmethod
    def of_vectors(cls, norm: nn.BatchNorm1d) -> Self:
        """Return the norm of tokens with the parameters and statistics of one of vectors."""
        return with_state_of(norm, cls(norm.num_features, **{name: getattr(norm, name) for name in OPTIONS}))

    def shared_by(self, block_size: int) -> Self:
        """Return the same norm shared by blocks of b channels, as :meth:`from_batch_norm` shares and checks."""
        options = {name: getattr(self, name) for name in OPTIONS}
        shared = type(self)(self.num_features * self.block_size, block_size, **options).train(self.training)
        full = {name: v.repeat_interleave(self.block_size) if v.ndim else v for name, v in self.state_dict().items()}
        state = {name: block_mean(v, block_size) if v.ndim else v for name, v in full.items()}
        if "running_var" in full:
            state["running_var"] = block_variance(full["running_mean"], full["running_var"], block_size)
        sample = next((value for value in state.values() if value.is_floating_point()), torch.empty(0))
        shared.to(device=sample.device, dtype=sample.dtype).load_state_dict(state)
        for name, parameter in self.named_parameters():
            shared.get_parameter(name).requires_grad_(parameter.requires_grad)
        return shared


def with_state_of(source: nn.Module, module: Module) -> Module:
    """Return a module with the parameters, buffers and mode of another, which both then share."""
    for name, parameter in source.named_parameters(recurse=False):
        setattr(module, name, parameter)
    for name, buffer in source.named_buffers(recurse=False):
        module.register_buffer(name, buffer)
    return module.train(source.training)


def is_frozen_norm(module: nn.Module | None) -> bool:
    """Return whether a module is torchvision's or detectron2's FrozenBatchNorm2d, known by name."""
    return type(module).__name__ == "FrozenBatchNorm2d" and not isinstance(module, nn.BatchNorm2d)


def as_batch_norm(frozen: Any) -> nn.BatchNorm2d:
    """Return a frozen batch norm as torch's, in evaluation mode and with parameters that need no gradient."""
    norm = nn.BatchNorm2d(len(frozen.weight), frozen.eps).to(frozen.weight)
    for name in ("weight", "bias", "running_mean", "running_var"):
        getattr(norm, name).data.copy_(getattr(frozen, name))
    return norm.eval().requires_grad_(False)


def check_can_share(norm: nn.Module) -> None:
    """Raise unless a module is a batch norm that `BlockBatchNorm2d.from_batch_norm` can convert."""
    with_activation = isinstance(norm, nn.BatchNorm2d) and {name for name, _ in norm.named_children()} == {
        "drop",
        "act",
    }
    if isinstance(norm, BlockBatchNorm2d) or not (type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d) or with_activation):
        raise RuleError(
            "the batch norm of a circulant layer must be a BatchNorm1d, BatchNorm2d or timm's BatchNormAct2d",
            got=type(norm).__name__,
            remedy="replace it before conversion, or leave the layer dense",
        )


class Affine(nn.Module):
    """Two numbers for all values: scale x + shift.

    Args:
        scale: factor; not 0.

    >>> import torch
    >>> Affine(0.5, 1.0)(torch.tensor([2.0, -2.0]))
    tensor([2., 0.])
    """

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.shift

    def extra_repr(self) -> str:
        return f"{self.scale:g}, {self.shift:g}"
