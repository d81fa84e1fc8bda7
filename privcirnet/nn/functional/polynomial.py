"""Degree-2 activations by the Hermite expansion of ReLU, with each basis function normalized (AESPA).

For standard normal x, ReLU(x) = sum f_i h_i(x) with the Hermite polynomials h_0 = 1, h_1 = x, h_2 = (x^2 - 1) / sqrt 2,
... and f_0 = 1 / sqrt(2 pi), f_1 = 1 / 2, f_2 = 1 / sqrt(4 pi). AESPA stops at h_2 and divides each basis function by
its own standard deviation, so that inputs of another scale do not make it explode::

    f(x) = gamma (f_1 (x - m_1) / sqrt(v_1 + eps) + f_2 (h_2(x) - m_2) / sqrt(v_2 + eps)) + beta = a2 x^2 + a1 x + a0
    a1 = gamma / (2 sqrt(v_1 + eps))        a2 = gamma / sqrt(8 pi (v_2 + eps))

Completed to a square it is a2 (x + a1 / (2 a2))^2 plus a constant.

Source: Park et al., "AESPA: Accuracy Preserving Low-degree Polynomial Activation" (2022). Departure: the constant is
left out, and beta with it. The next layer's bias makes up for it, except where zeros are padded. One square
remains between two linear layers, which costs no more under encryption than x^2. gamma must be positive.

On a CPU compiled passes read values once, where torch's operations, which serve other devices, layouts and types, read
them often. A step of circulant MobileNetV2 with AESPA takes 2.0 s so, and 3.4 s in torch.compile, which needs a C++
compiler and 100 s for the first (one thread of an AMD EPYC, 128 images, float32; in bfloat16 1.9 and 3.9).
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from privcirnet.nn.functional.batch_norm import power_means
from privcirnet.nn.functional.threads import run

Pair: TypeAlias = tuple[Tensor, Tensor]
OfMeans: TypeAlias = Callable[[Tensor, Tensor], Pair]
"""Differentiable function from the means of x, x^2 and x^4, (3, C), and a weight to scale and shift, (C,) each."""


def aespa_square(gamma: Tensor, var: Tensor, square_var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the scale and shift that write the activation as a square, f(x) = (scale (x + shift))^2.

    Args:
        gamma: positive, (C,).
        var: v_1, variance of x, (C,).
        square_var: variance of x^2, which is 2 v_2, (C,).
        eps: added to v_1 and v_2.

    Returns:
        (scale, shift), each (C,).

    >>> import torch
    >>> one = torch.ones(1)
    >>> scale, shift = aespa_square(one, one, 2 * one, eps=0.0)
    >>> a2, a1 = scale**2, 2 * scale**2 * shift
    >>> (1 / a2**2 / math.pi).round(), a1
    (tensor([8.]), tensor([0.5000]))
    """
    second = 8 * math.pi * (square_var / 2 + eps)
    scale = (gamma / second.sqrt()).sqrt()
    shift = second.sqrt() / (4 * (var + eps).sqrt())
    return scale, shift


def scaled_square(x: Tensor, scale: Tensor, shift: Tensor, axis: int) -> Tensor:
    """Return (scale x + shift)^2; differentiable, and keeps only x for the gradient.

    Cost: one pass forward and two backward where :mod:`products` can read x, else two and six.

    Args:
        x: values, with C channels along ``axis``.
        scale: (C,).
        shift: (C,).

    Returns:
        Values of the shape and type of x.

    >>> scaled_square(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0]), torch.tensor([1.0, 0.0]), 0)
    tensor([ 9., 36.])
    """
    if torch._C._are_functorch_transforms_active():  # type: ignore[attr-defined]  # gradients of each image alone
        return torch.addcmul(_along(shift, x, axis), _along(scale, x, axis), x).square()
    return _ScaledSquare.apply(x, scale, shift, axis)  # type: ignore[no-any-return]


def batch_square(x: Tensor, weight: Tensor, of_means: OfMeans, axis: int) -> Tensor:
    """Return (scale x + shift)^2 with scale and shift that follow from the batch; differentiable, and keeps only x.

    Cost: two passes forward and two backward where :mod:`products` can read x, else those of :func:`power_means` and
    :func:`scaled_square`, and one that adds their gradients.

    Args:
        x: values, with C channels along ``axis``.
        of_means: function that returns scale and shift; called once.

    Returns:
        Values of the shape and type of x.

    >>> batch_square(torch.tensor([1.0, 3.0]), torch.ones(2), lambda m, weight: (weight, -m[0]), 0)
    tensor([0., 0.])
    """
    if compiled_for(x, axis):
        return _BatchSquare.apply(x, weight, of_means, axis)  # type: ignore[no-any-return]
    scale, shift = of_means(torch.stack(power_means(x, axis)), weight)
    return scaled_square(x, scale, shift, axis)


class _BatchSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, of_means: OfMeans, axis: int) -> Tensor:  # type: ignore[override]
        ctx.axis = axis % x.ndim
        means = (power_sums(x, ctx.axis) / _per_channel(x, ctx.axis)).float().requires_grad_()
        with torch.enable_grad():
            inner = weight.detach().requires_grad_()
            ctx.leaves, ctx.coefficients = (means, inner), of_means(means, inner)
        scale, shift = (v.detach() for v in ctx.coefficients)
        ctx.save_for_backward(x, scale, shift)
        return square(x, ctx.axis, scale, shift)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        x, scale, shift = ctx.saved_tensors
        gradient = alike(gradient, x, ctx.axis)
        of_coefficients = coefficient_gradients(x, ctx.axis, scale, shift, gradient)
        of_means, of_weight = _gradients(ctx.coefficients, ctx.leaves, of_coefficients)
        of_sums = of_means / _per_channel(x, ctx.axis)
        return square_gradient(x, ctx.axis, scale, shift, gradient, of_sums), of_weight, None, None


def _gradients(outputs: Pair, inputs: Pair, of_outputs: Pair) -> Pair:
    return torch.autograd.grad(outputs, inputs, of_outputs, retain_graph=True)  # type: ignore[return-value]


def _per_channel(x: Tensor, axis: int) -> int:
    return x.numel() // x.shape[axis]


class _ScaledSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, axis: int) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, scale, shift)
        ctx.axis = axis % x.ndim
        if compiled_for(x, ctx.axis):
            return square(x, ctx.axis, scale, shift)
        return torch.addcmul(_along(shift, x, ctx.axis), _along(scale, x, ctx.axis), x).square_()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        x, scale, shift = ctx.saved_tensors
        if compiled_for(x, ctx.axis):
            gradient = alike(gradient, x, ctx.axis)
            of_coefficients = coefficient_gradients(x, ctx.axis, scale, shift, gradient)
            return square_gradient(x, ctx.axis, scale, shift, gradient), *of_coefficients, None
        factor = _along(scale, x, ctx.axis)
        inner = torch.addcmul(_along(shift, x, ctx.axis), factor, x).mul_(gradient).mul_(2)
        axes = [i for i in range(x.ndim) if i != ctx.axis]
        of_shift, of_scale = inner.sum(axes), (inner * x).sum(axes)
        return inner.mul_(factor), of_scale.to(scale.dtype), of_shift.to(shift.dtype), None


def _along(values: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return values for each channel of x in a shape that broadcasts to x's, in its type."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape).to(x.dtype)


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
