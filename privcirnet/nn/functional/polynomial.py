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
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from privcirnet.nn.functional import squares
from privcirnet.nn.functional.batch_norm import power_means

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
    if squares.compiled_for(x, axis):
        return _BatchSquare.apply(x, weight, of_means, axis)  # type: ignore[no-any-return]
    scale, shift = of_means(torch.stack(power_means(x, axis)), weight)
    return scaled_square(x, scale, shift, axis)


class _BatchSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, of_means: OfMeans, axis: int) -> Tensor:  # type: ignore[override]
        ctx.axis = axis % x.ndim
        means = (squares.power_sums(x, ctx.axis) / _per_channel(x, ctx.axis)).float().requires_grad_()
        with torch.enable_grad():
            inner = weight.detach().requires_grad_()
            ctx.leaves, ctx.coefficients = (means, inner), of_means(means, inner)
        scale, shift = (v.detach() for v in ctx.coefficients)
        ctx.save_for_backward(x, scale, shift)
        return squares.square(x, ctx.axis, scale, shift)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        x, scale, shift = ctx.saved_tensors
        gradient = squares.alike(gradient, x, ctx.axis)
        of_coefficients = squares.coefficient_gradients(x, ctx.axis, scale, shift, gradient)
        of_means, of_weight = _gradients(ctx.coefficients, ctx.leaves, of_coefficients)
        of_sums = of_means / _per_channel(x, ctx.axis)
        return squares.square_gradient(x, ctx.axis, scale, shift, gradient, of_sums), of_weight, None, None


def _gradients(outputs: Pair, inputs: Pair, of_outputs: Pair) -> Pair:
    return torch.autograd.grad(outputs, inputs, of_outputs, retain_graph=True)  # type: ignore[return-value]


def _per_channel(x: Tensor, axis: int) -> int:
    return x.numel() // x.shape[axis]


class _ScaledSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, axis: int) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, scale, shift)
        ctx.axis = axis % x.ndim
        if squares.compiled_for(x, ctx.axis):
            return squares.square(x, ctx.axis, scale, shift)
        return torch.addcmul(_along(shift, x, ctx.axis), _along(scale, x, ctx.axis), x).square_()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        x, scale, shift = ctx.saved_tensors
        if squares.compiled_for(x, ctx.axis):
            gradient = squares.alike(gradient, x, ctx.axis)
            of_coefficients = squares.coefficient_gradients(x, ctx.axis, scale, shift, gradient)
            return squares.square_gradient(x, ctx.axis, scale, shift, gradient), *of_coefficients, None
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
