"""timm's Muon, with its matrices orthogonalized in float32 on processors that only emulate bfloat16.

timm runs the Newton-Schulz iteration in bfloat16, which suits GPUs and processors with instructions for it. On one that
has AVX2 alone the products of a 256 x 1024 matrix took 30 times as long as in float32, and with them four fifths of
each step of a dense vision transformer.

Torch's own Muon (from 2.9 on) takes matrices alone, no convolutions, leaves all else to another optimizer, and computes
in bfloat16 whatever the processor.
"""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from timm.optim import muon as timms
from torch import Tensor

_orthogonal = timms.zeropower_via_newtonschulz


def orthogonal(matrix: Tensor, steps: int, coefficients: list[tuple[float, float, float]], **options: Any) -> Tensor:
    """Return about the orthogonal matrix that is nearest, as timm's function of the same arguments.

    Args:
        matrix: (m, n), or several of them, (batch, m, n).
    """
    emulated = matrix.device.type == "cpu" and not has_bfloat16()
    return _orthogonal(matrix, steps, coefficients, dtype=torch.float32 if emulated else torch.bfloat16, **options)


@cache
def has_bfloat16(facts: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the processor has instructions for bfloat16; no where the system does not say."""
    try:
        words = facts.read_text().split()
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(words)


def use_own_precision() -> None:
    """Have timm's Muon call :func:`orthogonal`: its optimizer has no setting for the precision."""
    timms.zeropower_via_newtonschulz = orthogonal
