"""AESPA's passes over values on a CPU, compiled: each reads its values once, where torch's operations read them often.

The functions that use them (:mod:`batch_norm`, :mod:`polynomial`) are the same with torch's operations, which serve other
devices, layouts and types. A step of circulant MobileNetV2 with AESPA takes 2.0 s so, and 3.4 s in torch.compile, which
needs a C++ compiler and 100 s for the first (one thread of an AMD EPYC, 128 images,
float32; in bfloat16 1.9 and 3.9).
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from privcirnet.nn.functional.threads import run

PER_THREAD = 2**16
"""Smallest number of values that is worth a thread."""


def compiled_for(x: Tensor, axis: int) -> bool:
    """Return whether the compiled passes can read values: on a CPU, of 16 or 32 bits, channels innermost."""
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16) or torch.compiler.is_compiling():
        return False
    return x.numel() > 0 and x.movedim(axis, -1).is_contiguous()


def power_sums(x: Tensor, axis: int) -> Tensor:
    """Return the sums of x, x^2 and x^4 over all axes but one: float64 (3, C).

    Args:
        x: values for which :func:`compiled_for` holds; C channels.
    """
    rows = _rows(x, axis)
    return _summed(3, rows, partial(_kernels().add_powers, rows))


def square(x: Tensor, axis: int, scale: Tensor, shift: Tensor) -> Tensor:
    """Return (scale x + shift)^2: of the shape, type and layout of x.

    Args:
        x: values for which :func:`compiled_for` holds; C channels.
    """
    out = torch.empty_like(x)
    rows, result, scales, shifts = _rows(x, axis), _rows(out, axis), _channels(scale), _channels(shift)
    run([partial(_kernels().square, rows, scales, shifts, result, *span) for span in _spans(rows)])
    return out


def coefficient_gradients(
    x: Tensor, axis: int, scale: Tensor, shift: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`square` for scale and shift: each of the shape and type of scale and of shift.

    Args:
        gradient: gradient of the squares, from :func:`alike`.
    """
    rows, gradients = _rows(x, axis), _rows(gradient, axis)
    work = partial(_kernels().add_square_gradients, rows, gradients, _channels(scale), _channels(shift))
    of_scale, of_shift = _summed(2, rows, work)
    return of_scale.to(scale.dtype).view_as(scale), of_shift.to(shift.dtype).view_as(shift)


def square_gradient(
    x: Tensor, axis: int, scale: Tensor, shift: Tensor, gradient: Tensor, of_sums: Tensor | None = None
) -> Tensor:
    """Return the gradient of :func:`square` for x, and of :func:`power_sums` where scale and shift follow from them.

    Args:
        gradient: gradient of the squares, from :func:`alike`.
        of_sums: gradient of the sums of powers, (3, C); None if nothing follows from them.

    Returns:
        Gradient of the shape, type and layout of x.
    """
    out = torch.empty_like(x)
    rows, gradients, result = _rows(x, axis), _rows(gradient, axis), _rows(out, axis)
    factors = (torch.zeros(3, rows.shape[1]) if of_sums is None else of_sums.float()).numpy()
    work = partial(_kernels().square_gradient, rows, gradients, _channels(scale), _channels(shift), factors, result)
    run([partial(work, *span) for span in _spans(rows)])
    return out


def alike(gradient: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return a gradient in the type and layout of x, copied only if they differ; ``gradient``: of the shape of x."""
    same = gradient.dtype == x.dtype and compiled_for(gradient, axis)
    return gradient if same else torch.empty_like(x).copy_(gradient)


def _kernels() -> ModuleType:
    """Return the compiled passes; Numba takes half a second to import."""
    from privcirnet.nn.functional.kernels import squares

    return squares


def _rows(x: Tensor, axis: int) -> Any:
    """Return values as an array (M, C); bfloat16 as uint16."""
    rows = x.detach().movedim(axis, -1).reshape(-1, x.shape[axis])
    return rows.view(torch.int16).numpy().view("uint16") if x.dtype == torch.bfloat16 else rows.numpy()


def _channels(values: Tensor) -> Any:
    return values.detach().flatten().float().numpy()


def _summed(kinds: int, rows: Any, work: Callable[..., None]) -> Tensor:
    """Return the total of the sums of all threads, float64 (kinds, C)."""
    spans = _spans(rows)
    sums = torch.zeros(len(spans), kinds, rows.shape[1], dtype=torch.float64)
    run([partial(work, thread_sums.numpy(), *span) for thread_sums, span in zip(sums, spans, strict=True)])
    return sums.sum(0)


def _spans(rows: Any) -> list[tuple[int, int]]:
    """Return equal spans of rows, one for each of torch's threads; few rows are one thread's."""
    threads = min(torch.get_num_threads(), 1 + rows.size // PER_THREAD)
    return list(pairwise(len(rows) * part // threads for part in range(threads + 1)))
