"""Quantizers: parametrizations for weights and biases, a module for activations. Their steps are in the state dict."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.exact_functions import table_ends
from privcirnet.nn.functional.quantize import quantize_activation, quantize_binary, quantize_learned, quantize_weight

FAR = 3
"""Bits beyond its own up to which a quantizer keeps values in training: the loss of an image that explodes in a row of
squares would be NaN, and with it every gradient of its batch."""


class Quantizer(nn.Module):
    """A power-of-two step.

    Attributes:
        log_step: log2 of the step that is used, ().
        learned: the parameter that ``log_step`` follows while steps are learned (nn.learned), else None. Quantizers
            that must have the same step share it.
        limits: lowest and highest integer while steps are learned and the network is in training.
    """

    log_step: Tensor
    learned: nn.Parameter | None
    limits: tuple[int, int]

    def __init__(self, log_step: int = 0) -> None:
        super().__init__()
        self.register_buffer("log_step", torch.tensor(log_step))
        self.register_parameter("learned", None)

    def learn(self, learned: nn.Parameter, limits: tuple[int, int]) -> None:
        """Make the step learnable; ``learned``: parameter that the step will be rounded from, ()."""
        self.learned, self.limits = learned, limits


class WeightQuantizer(Quantizer):
    """The parametrization that rounds a weight to integers of some bits, times a power of two of each output.

    It commutes with the circulant expansion bit for bit.

    Args:
        bits: bits of the integers, sign included; 1: signs.
        log_step: log2 of the first step.
        outputs: number of outputs of the layer.
        block_size: outputs that a row of blocks has; the last may have fewer.

    Attributes:
        exponents: log2 of the unit of each row of blocks, in steps, (rows,).
    """

    exponents: Tensor

    def __init__(self, bits: int, log_step: int = 0, outputs: int = 1, block_size: int = 1) -> None:
        super().__init__(log_step)
        self.bits, self.block_size = bits, block_size
        self.register_buffer("exponents", torch.zeros(-(-outputs // block_size), dtype=torch.int8))

    def forward(self, weight: Tensor) -> Tensor:
        scale = (2 ** self.exponents.int()).repeat_interleave(self.block_size)
        scale = scale[: len(weight)].view(-1, *[1] * (weight.dim() - 1)).to(weight)
        return self._rounded(weight / scale) * scale

    def _rounded(self, weight: Tensor) -> Tensor:
        """Return multiples of the step."""
        if self.bits == 1:
            return quantize_binary(weight, int(self.log_step))
        if self.training and self.learned is not None:
            return quantize_learned(weight, self.learned, int(self.log_step), self.limits)
        return quantize_weight(weight, int(self.log_step), self.bits)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


class BiasQuantizer(Quantizer):
    """The parametrization that rounds a bias to the grid of its layer's sums."""

    def forward(self, bias: Tensor) -> Tensor:
        return quantize_activation(bias, int(self.log_step))

    def right_inverse(self, bias: Tensor) -> Tensor:
        return bias


class ActivationQuantizer(Quantizer):
    """A rescale of activations: stochastic in training, like the protocol's truncation; to nearest in evaluation.

    In evaluation nothing is clipped unless ``clips`` says so. In training values are, far outside (:data:`FAR`), or to
    the bits while steps are learned. A function with a table is evaluated in double precision between its two
    quantizers, so that its values are rounded as those of the table are.

    Args:
        bits: bits of the integers that its step is made for, sign included; larger values are carried.
        log_step: log2 of the first step.

    Attributes:
        clips: name of the function that follows, if it is looked up in a table: values outside of it are clipped.
        kind: an empty tensor of the type of the network's values.
        exponents: log2 of the factors by which the channels of images are finer than the step, 0 or less, (C,): its
            results are integers times one step, and the layers behind have the factors in their weights. None for
            other values, and for images whose channels have one size.
    """

    kind: Tensor
    exponents: Tensor | None

    def __init__(self, bits: int, log_step: int = 0) -> None:
        super().__init__(log_step)
        self.bits, self.clips = bits, ""
        self.register_buffer("kind", torch.empty(0), persistent=False)
        self.register_buffer("exponents", None)

    @property
    def ends(self) -> tuple[int, int]:
        """Least and largest integer of its bits, or of the table that follows."""
        return table_ends(self.clips, self.bits)

    def forward(self, x: Tensor) -> Tensor:
        if self.exponents is not None:
            x = x * torch.exp2(-self.exponents.to(x)).view(-1, *[1] * (x.dim() - 2))
        if self.training and self.learned is not None:
            return quantize_learned(x, self.learned, int(self.log_step), self.limits, stochastic=True)
        if self.training:
            far = 2.0 ** (self.bits + FAR - 1 + int(self.log_step))
            x = x.clamp(-far, far)
        rounded = quantize_activation(x, int(self.log_step), stochastic=self.training)
        if not self.clips:
            return rounded.to(self.kind)
        clipped = rounded.clamp(*(end * 2.0 ** int(self.log_step) for end in self.ends))
        return clipped if self.training else clipped.double()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any, **named: Any) -> None:
        exponents = state_dict.get(f"{prefix}exponents")
        self.exponents = None if exponents is None else torch.empty_like(exponents, device=self.kind.device)
        super()._load_from_state_dict(state_dict, prefix, *rest, **named)

    def extra_repr(self) -> str:
        return f"bits={self.bits}, log_step={int(self.log_step)}"


def check_unquantized(model: nn.Module, rule: str) -> None:
    """Raise unless a network has no quantizers yet."""
    for name, module in model.named_modules():
        if isinstance(module, ActivationQuantizer) or quantizer_of(module):
            raise RuleError(rule, got=f"a quantizer at {name!r}", remedy="start from the network of the stage before")


def quantizer_of(module: nn.Module, tensor: str = "weight") -> WeightQuantizer | BiasQuantizer | None:
    """Return the quantizer of a layer's weight or bias, or None if it has none; ``tensor``: "weight" or "bias"."""
    if not parametrize.is_parametrized(module, tensor):
        return None
    structures = module.parametrizations[tensor]  # type: ignore[index]
    return next((s for s in structures if isinstance(s, WeightQuantizer | BiasQuantizer)), None)
