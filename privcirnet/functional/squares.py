"""AESPA's passes over values on a CPU, compiled: each reads its values once, where torch's operations read them often.

The functions that use them (:mod:`moments`, :mod:`polynomial`) are the same with torch's operations, which serve other
devices, layouts and types.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

_INSTALLED = find_spec("numba") is not None


def compiled_for(x: Tensor, axis: int) -> bool:
    """Return whether the compiled passes can read values: on a CPU, of 16 or 32 bits, channels innermost, with Numba.

    Args:
        x: of any shape.
        axis: of the channels.
    """
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16) or torch.compiler.is_compiling():
        return False
    return x.numel() > 0 and x.movedim(axis, -1).is_contiguous() and _INSTALLED


def power_sums(x: Tensor, axis: int) -> Tensor:
    """Return the sums of x, x^2 and x^4 over all axes but one.

    Args:
        x: for which :func:`compiled_for` holds; C channels.
        axis: of the channels.

    Returns:
        float64 (3, C).
    """
    rows = _rows(x, axis)
    return _summed(3, rows, partial(_kernels().add_powers, rows))


def power_gradient(x: Tensor, axis: int, of_sums: Tensor) -> Tensor:
    """Return the gradient of :func:`power_sums`.

    Args:
        x: as there.
        axis: of the channels.
        of_sums: gradient of the sums, (3, C).

    Returns:
        Of the shape, type and layout of x.
    """
    out = torch.empty_like(x)
    rows, found, factors = _rows(x, axis), _rows(out, axis), of_sums.float().numpy()
    _run(partial(_kernels().power_gradient, rows, factors, found, *span) for span in _spans(rows))
    return out


def square(x: Tensor, axis: int, scale: Tensor, shift: Tensor) -> Tensor:
    """Return (scale x + shift)^2.

    Args:
        x: for which :func:`compiled_for` holds; C channels.
        axis: of the channels.
        scale: C values.
        shift: C values.

    Returns:
        Of the shape, type and layout of x.
    """
    out = torch.empty_like(x)
    rows, found, scales, shifts = _rows(x, axis), _rows(out, axis), _channels(scale), _channels(shift)
    _run(partial(_kernels().square, rows, scales, shifts, found, *span) for span in _spans(rows))
    return out


def square_gradient(
    x: Tensor, axis: int, scale: Tensor, shift: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`square`.

    Args:
        x: as there.
        axis: of the channels.
        scale: C values.
        shift: C values.
        gradient: of the squares, of the shape of x.

    Returns:
        Gradients of x, of scale and of shift, each of the shape and type of that.
    """
    out = torch.empty_like(x)
    same = gradient.dtype == x.dtype and compiled_for(gradient, axis)
    rows, found = _rows(x, axis), _rows(out, axis)
    given = _rows(gradient if same else torch.empty_like(x).copy_(gradient), axis)
    work = partial(_kernels().square_gradient, rows, given, _channels(scale), _channels(shift), found)
    of_scale, of_shift = _summed(2, rows, work)
    return out, of_scale.to(scale.dtype).view_as(scale), of_shift.to(shift.dtype).view_as(shift)


def _kernels() -> ModuleType:
    """Return the compiled passes; Numba takes half a second to import."""
    from privcirnet.compiled import squares

    return squares


def _rows(x: Tensor, axis: int) -> Any:
    """Return values as an array (M, C); bfloat16 as uint16."""
    rows = x.detach().movedim(axis, -1).reshape(-1, x.shape[axis])
    return rows.view(torch.int16).numpy().view("uint16") if x.dtype == torch.bfloat16 else rows.numpy()


def _channels(values: Tensor) -> Any:
    return values.detach().flatten().float().numpy()


def _summed(kinds: int, rows: Any, work: Callable[..., None]) -> Tensor:
    """Return the sum of what each thread adds to sums of its own, float64 (kinds, C)."""
    spans = _spans(rows)
    sums = torch.zeros(len(spans), kinds, rows.shape[1], dtype=torch.float64)
    _run(partial(work, own.numpy(), *span) for own, span in zip(sums, spans, strict=True))
    return sums.sum(0)


def _spans(rows: Any) -> list[tuple[int, int]]:
    """Return equal spans of rows, one for each of torch's threads."""
    threads = torch.get_num_threads()
    return list(pairwise(len(rows) * part // threads for part in range(threads + 1)))


def _run(works: Iterable[Callable[[], None]]) -> None:
    """Call all functions, the first on this thread."""
    own, *others = works
    pending = [_pool(len(others)).submit(work) for work in others]
    own()
    for other in pending:
        other.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="privcirnet")
