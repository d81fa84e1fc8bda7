"""Quantizers: parametrizations for weights and biases, a module for activations. Their steps are in the state dict."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privcirnet.functional.quantize import quantize_activation, quantize_learned, quantize_weight


class Quantizer(nn.Module):
    """A power-of-two step.

    Attributes:
        log_step: of the step that is used.
        learned: while steps are learned, the parameter that ``log_step`` follows (nn.learned), else None. Quantizers
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
        """Let the step be learned."""
        self.learned, self.limits = learned, limits


class WeightQuantizer(Quantizer):
    """Parametrization: the weight on a power-of-two grid. Commutes with the circulant expansion bit for bit."""

    def __init__(self, bits: int, log_step: int = 0) -> None:
        super().__init__(log_step)
        self.bits = bits

    def forward(self, weight: Tensor) -> Tensor:
        """Quantized weight."""
        if self.training and self.learned is not None:
            return quantize_learned(weight, self.learned, int(self.log_step), self.limits)
        return quantize_weight(weight, int(self.log_step), self.bits)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The weight itself: a stacked parametrization needs one."""
        return weight


class BiasQuantizer(Quantizer):
    """Parametrization: the bias on the grid of its layer's sums."""

    def forward(self, bias: Tensor) -> Tensor:
        """Rounded bias."""
        return quantize_activation(bias, int(self.log_step))

    def right_inverse(self, bias: Tensor) -> Tensor:
        """The bias itself."""
        return bias


class ActivationQuantizer(Quantizer):
    """Rescale of an activation: stochastic in training, as the protocol's truncation is, nearest in evaluation.

    Values are clipped only while steps are learned, and then only in training.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Rounded activation."""
        if self.training and self.learned is not None:
            return quantize_learned(x, self.learned, int(self.log_step), self.limits, stochastic=True)
        return quantize_activation(x, int(self.log_step), stochastic=self.training)

    def extra_repr(self) -> str:
        """The step."""
        return f"log_step={int(self.log_step)}"


def quantizer_of(module: nn.Module, tensor: str = "weight") -> WeightQuantizer | BiasQuantizer | None:
    """Return the quantizer of a layer's weight or bias, or None if it has none."""
    if not parametrize.is_parametrized(module, tensor):
        return None
    structures = module.parametrizations[tensor]  # type: ignore[index]
    return next((s for s in structures if isinstance(s, WeightQuantizer | BiasQuantizer)), None)
