"""Fixed-point numbers with power-of-two steps: real value = integer x 2^log_step.

Power-of-two steps make every rescale of the integer network a truncation by whole bits, the only rescale that two
parties can do alone on their shares (he.md section 3). Gradients pass straight through the rounding.
"""

import math

import torch
from torch import Tensor

from privcirnet.errors import RuleError

_SMALLEST = 2.0**-60
"""What counts as the largest value where all are zero, so that a step exists."""


def log_step_for(largest: float, bits: int, *, signed: bool = True) -> int:
    """The finest step with which ``largest`` still fits.

    Args:
        largest: largest absolute value to represent.
        bits: of the integers, sign included.
        signed: symmetric range [-2^(bits-1) + 1, 2^(bits-1) - 1] if True, else [0, 2^bits - 1].

    Raises:
        RuleError: ``largest`` is not finite.

    >>> log_step_for(1.0, 8), log_step_for(127 / 64, 8), log_step_for(255.0, 8, signed=False)
    (-6, -6, 0)
    """
    levels = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    if not math.isfinite(largest):
        raise RuleError("values must be finite to be quantized", got=largest, remedy="train with a lower learning rate")
    largest = max(largest, _SMALLEST)
    above = math.frexp(largest / levels)[1]
    return above - 1 if math.ldexp(levels, above - 1) >= largest else above


def quantize_weight(weight: Tensor, log_step: int, bits: int) -> Tensor:
    """Nearest multiple of the step within the symmetric range; gradients are cut where the range is exceeded.

    >>> quantize_weight(torch.tensor([0.3, 9.0]), -1, 4)
    tensor([0.5000, 3.5000])
    """
    limit = 2 ** (bits - 1) - 1
    return torch.fake_quantize_per_tensor_affine(weight, 2.0**log_step, 0, -limit, limit)


def quantize_activation(x: Tensor, log_step: int, *, stochastic: bool = False) -> Tensor:
    """Multiple of the step, without limit: shares can't be clipped, so the network must not count on clipping.

    Args:
        x: any shape.
        log_step: of the step.
        stochastic: round up with the probability of the remainder, as the truncation on shares does; else to nearest,
            ties up, as the integer interpreter does.

    >>> quantize_activation(torch.tensor([0.3, 0.75, -0.25]), -1)
    tensor([0.5000, 1.0000, 0.0000])
    """
    step = 2.0**log_step
    scaled = x.detach() / step
    floor = scaled.floor()
    rest = scaled - floor
    up = rest > torch.rand_like(rest) if stochastic else rest >= 0.5
    rounded = (floor + up) * step
    return rounded + (x - x.detach()) if x.requires_grad else rounded
