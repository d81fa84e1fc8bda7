"""A quantizer's passes over values on a CPU, compiled: each reads values once, torch's operations a dozen times.

The functions that use them (:mod:`quantize`) are the same with torch's operations, which serve other devices and types.
"""

from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from privcirnet.nn.functional.threads import run

PER_THREAD = 2**16
"""Smallest number of values that is worth a thread."""
_SEEDS = 2**32
NEAREST = 0
Limits = tuple[float, float]
UNLIMITED = (float("-inf"), float("inf"))


def compiled_for(x: Tensor) -> bool:
    """Return whether the compiled passes can read values: float32 on a CPU, without gaps, many of them."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    return PER_THREAD // 16 <= x.numel() < _SEEDS and _in_place(x) is not None


def seed_for(stochastic: bool) -> int:
    """Return a fresh seed of torch's generator for rounding at random; :data:`NEAREST` for rounding to nearest.

    Args:
        stochastic: whether to round at random.
    """
    return int(torch.randint(1, _SEEDS, ())) if stochastic else NEAREST


def rounded(x: Tensor, step: float, limits: Limits, seed: int) -> Tensor:
    """Return values rounded to a multiple of a step within limits: of the shape and layout of x.

    Args:
        step: a power of two.
        seed: result of :func:`seed_for`.
    """
    out = torch.empty_like(x)
    values, result = _array(x), _array(out)
    run([partial(_kernels().round_all, values, step, *limits, seed, result, *span) for span in _spans(values)])
    return out


def learned_gradients(x: Tensor, step: float, limits: Limits, seed: int, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`rounded` for x and for log2 of the step (:func:`quantize.quantize_learned`).

    Returns:
        Gradients of the shape and layout of x, and ().
    """
    out, gradients = torch.empty_like(x), torch.empty_like(x).copy_(gradient) if not _alike(gradient, x) else gradient
    values, result, received = _array(x), _array(out), _array(gradients)
    spans = _spans(values)
    totals = torch.zeros(len(spans), 1, dtype=torch.float64)
    work = partial(_kernels().learned_gradients, values, step, *limits, seed, received, result)
    run([partial(work, total.numpy(), *span) for total, span in zip(totals, spans, strict=True)])
    return out, totals.sum().to(x.dtype)


def _alike(gradient: Tensor, x: Tensor) -> bool:
    return gradient.dtype == x.dtype and gradient.stride() == x.stride()


def _in_place(x: Tensor) -> Tensor | None:
    """Return the values in the order in which they lie in memory; None if there are gaps."""
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    ordered = x.detach().permute(order)
    return ordered.view(-1) if ordered.is_contiguous() else None


def _array(x: Tensor) -> Any:
    flat = _in_place(x)
    assert flat is not None
    return flat.numpy()


def _kernels() -> ModuleType:
    """Return the compiled passes; Numba takes half a second to import."""
    from privcirnet.nn.functional.kernels import rounding

    return rounding


def _spans(values: Any) -> list[tuple[int, int]]:
    """Return equal spans of values, one for each of torch's threads; few values are one thread's."""
    threads = min(torch.get_num_threads(), 1 + values.size // PER_THREAD)
    return list(pairwise(values.size * part // threads for part in range(threads + 1)))
