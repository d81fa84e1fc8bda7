"""timm's Muon with its matrices orthogonalized in float32 on CPUs.

timm runs the Newton-Schulz iteration in bfloat16, which suits GPUs. CPUs without instructions for bfloat16, as all that
have AVX2 alone, emulate it: on one the products of a 256 x 1024 matrix took 30 times as long as in float32, and with
them four fifths of each step of a dense vision transformer.
"""

from typing import Any

import torch
from timm.optim import muon as timms
from torch import Tensor

_orthogonal = timms.zeropower_via_newtonschulz


def orthogonal(matrix: Tensor, steps: int, coefficients: list[tuple[float, float, float]], **options: Any) -> Tensor:
    """Return about the orthogonal matrix that is nearest, as timm's function of the same arguments.

    Args:
        matrix: (m, n), or several of them, (batch, m, n).
        steps: of the iteration.
        coefficients: of its polynomials.
        options: see timm's.
    """
    dtype = torch.float32 if matrix.device.type == "cpu" else torch.bfloat16
    return _orthogonal(matrix, steps, coefficients, dtype=dtype, **options)


def use_own_precision() -> None:
    """Have timm's Muon call :func:`orthogonal`: its optimizer has no setting for the precision."""
    timms.zeropower_via_newtonschulz = orthogonal
