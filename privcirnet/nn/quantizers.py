"""Quantizers: parametrizations for weights and biases, a module for activations. Their steps are in the state dict."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privcirnet.functional.quantize import quantize_activation, quantize_weight


class WeightQuantizer(nn.Module):
    """Parametrization: the weight on a power-of-two grid. Commutes with the circulant expansion bit for bit."""

    log_step: Tensor

    def __init__(self, bits: int, log_step: int = 0) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("log_step", torch.tensor(log_step))

    def forward(self, weight: Tensor) -> Tensor:
        """Quantized weight."""
        return quantize_weight(weight, int(self.log_step), self.bits)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The weight itself: a stacked parametrization needs one."""
        return weight


class BiasQuantizer(nn.Module):
    """Parametrization: the bias on the grid of its layer's sums."""

    log_step: Tensor

    def __init__(self, log_step: int = 0) -> None:
        super().__init__()
        self.register_buffer("log_step", torch.tensor(log_step))

    def forward(self, bias: Tensor) -> Tensor:
        """Rounded bias."""
        return quantize_activation(bias, int(self.log_step))

    def right_inverse(self, bias: Tensor) -> Tensor:
        """The bias itself."""
        return bias


class ActivationQuantizer(nn.Module):
    """Rescale of an activation: stochastic in training, as the protocol's truncation is, nearest in evaluation."""

    log_step: Tensor

    def __init__(self, log_step: int = 0) -> None:
        super().__init__()
        self.register_buffer("log_step", torch.tensor(log_step))

    def forward(self, x: Tensor) -> Tensor:
        """Rounded activation."""
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
