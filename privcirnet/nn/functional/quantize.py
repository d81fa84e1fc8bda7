"""Fixed-point numbers with power-of-two steps: real value = integer x 2^log_step.

With power-of-two steps every rescale of the integer network is a truncation by whole bits, the only rescale that two
parties can do locally on their shares (docs/mathematics.md, "Truncation"). Gradients pass straight through the
rounding. On a CPU compiled passes read values once, where torch's operations read them a dozen times.
"""

import math
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from privcirnet.errors import RuleError
from privcirnet.nn.functional.threads import run

SMALLEST = 2.0**-60
"""Largest value that is assumed where all are zero, so that a step exists."""


def log_step_for(largest: float, bits: int, *, signed: bool = True) -> int:
    """Return log2 of the finest step with which ``largest`` still fits.

    Args:
        bits: number of bits of the integers, sign included.
        signed: symmetric range [-2^(bits-1) + 1, 2^(bits-1) - 1] if True, else [0, 2^bits - 1].

    >>> log_step_for(1.0, 8), log_step_for(127 / 64, 8), log_step_for(255.0, 8, signed=False)
    (-6, -6, 0)
    """
    levels = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    if not math.isfinite(largest):
        raise RuleError("values must be finite to be quantized", got=largest, remedy="train with a lower learning rate")
    largest = max(largest, SMALLEST)
    above = math.frexp(largest / levels)[1]
    return above - 1 if math.ldexp(levels, above - 1) >= largest else above


def quantize_weight(weight: Tensor, log_step: int, bits: int) -> Tensor:
    """Round to the nearest multiple of the step within the symmetric range [-2^(bits-1) + 1, 2^(bits-1) - 1] steps.

    The gradient passes inside the range and is zero outside.

    Args:
        bits: number of bits of the integers, sign included.

    Returns:
        The rounded weight, of the shape of ``weight``.

    >>> quantize_weight(torch.tensor([0.3, 9.0]), -1, 4)
    tensor([0.5000, 3.5000])
    """
    limit = 2 ** (bits - 1) - 1
    return torch.fake_quantize_per_tensor_affine(weight, 2.0**log_step, 0, -limit, limit)


def binary_steps(magnitudes: Tensor, bits: int = 8) -> Tensor:
    """Return log2 of the powers of two that stand for the weights of each output in a layer of one bit, (K,).

    Args:
        magnitudes: mean absolute weight of each output, (K,).
        bits: bits of the largest integer that a weight becomes, sign included.

    Raises:
        RuleError: a magnitude is not finite.

    >>> binary_steps(torch.tensor([1.0, 0.3, 0.001]))
    tensor([ 0, -2, -6])
    """
    largest = log_step_for(magnitudes.max().item(), 2)  # of what a sign stands for; refuses what is not finite
    logs = magnitudes.clamp(min=2.0 ** (largest - bits)).log2().round().to(torch.int64)
    return logs.clamp(min=int(logs.max()) - (bits - 2))


def quantize_binary(weight: Tensor, log_step: int) -> Tensor:
    """Return the sign of each weight, times the step.

    The gradient passes up to twice the step, and is zero beyond. Zeros stay zeros: pruned weights are.

    Source: BinaryConnect (Courbariaux et al., NeurIPS 2015), which ENSEI takes (section 6.3). There the weights are 1
    and -1 and a batch norm behind them has a scale for each channel; here norms are folded into weights, so the scale
    is part of them, as a power of two.

    >>> quantize_binary(torch.tensor([[0.3, -0.1], [2.0, 0.0]]), -2)
    tensor([[ 0.2500, -0.2500],
            [ 0.2500,  0.0000]])
    """
    step = 2.0**log_step
    clamped = weight.clamp(-2 * step, 2 * step)
    return clamped + (weight.sign() * step - clamped).detach()


def quantize_activation(x: Tensor, log_step: int, *, stochastic: bool = False) -> Tensor:
    """Round to a multiple of the step, without limits.

    Shares cannot be clipped, so the network must not rely on clipping.

    Args:
        stochastic: whether to round up with the probability of the remainder, as the truncation on shares does; else to
            nearest, ties up, as the integer interpreter does.

    Returns:
        The rounded values, of the shape of ``x``.

    >>> quantize_activation(torch.tensor([0.3, 0.75, -0.25]), -1)
    tensor([0.5000, 1.0000, 0.0000])
    """
    step = 2.0**log_step
    if compiled_for(x):
        return _Rounded.apply(x, step, seed_for(stochastic))
    values = _integers(x.detach() / step, stochastic).mul_(step)
    return values + (x - x.detach()) if x.requires_grad else values


def _integers(scaled: Tensor, stochastic: bool) -> Tensor:
    floor = scaled.floor()
    rest = scaled - floor
    return floor.add_(rest.gt_(torch.rand_like(rest)) if stochastic else rest.ge_(0.5))


def quantize_learned(
    x: Tensor, learned: Tensor, log_step: int, limits: tuple[int, int], *, stochastic: bool = False
) -> Tensor:
    """Round to a multiple of the step within limits, with the gradient by which the step is learned.

    With s = 2^log_step and integers k = clip(round(x / s), lowest, highest) the value is s k. Rounding counts as the
    identity, both that of x / s and that of the learned number to ``log_step``, which leaves::

        d value / d x       = 1 inside the limits, 0 outside
        d value / d learned = s ln(2) (k - x / s) inside the limits, s ln(2) k outside

    The first case pulls towards a finer step; the second, where values are clipped, towards a coarser one.

    Args:
        learned: a real number (), the log step before it is rounded; only receives a gradient.
        log_step: log2 of the step that is used.

    Returns:
        The rounded and clipped values, of the shape of ``x``.

    Source: Trained Quantization Thresholds (Jain et al., MLSys 2020, arXiv:1903.08066). There the threshold log2(t) is
    learned and rounded up; here ``learned`` is log2(t) minus the bits, rounded to nearest.

    >>> learned = torch.tensor(-1.0, requires_grad=True)
    >>> quantize_learned(torch.tensor([0.3, 9.0]), learned, -1, (-7, 7))
    tensor([0.5000, 3.5000], grad_fn=<AddBackward0>)
    """
    step, (lowest, highest) = 2.0**log_step, limits
    if compiled_for(x):
        return _Learned.apply(x, learned, step, limits, seed_for(stochastic))
    scaled = x.detach() / step
    values = _integers(scaled, stochastic)
    integers = values.clamp(lowest, highest)
    inside = integers == values
    slope = step * math.log(2) * torch.where(inside, integers - scaled, integers)
    return integers * step + inside * (x - x.detach()) + slope * (learned - learned.detach())


class _Rounded(torch.autograd.Function):
    """:func:`quantize_activation` in compiled passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, step: float, seed: int) -> Tensor:  # type: ignore[override]
        return rounded(x, step, UNLIMITED, seed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return gradient, None, None


class _Learned(torch.autograd.Function):
    """:func:`quantize_learned` in compiled passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, learned: Tensor, step: float, limits: tuple[int, int], seed: int) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x)
        ctx.facts = step, limits, seed
        return rounded(x, step, limits, seed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[override]
        (x,), (step, limits, seed) = ctx.saved_tensors, ctx.facts
        return *learned_gradients(x, step, limits, seed, gradient), None, None, None


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
