"""Functions of single numbers that are no polynomials, by name; exact steps look them up (:mod:`program.lookup_table`).

All fall to one lowest point and rise from there, or only fall: an interval's image follows from three points.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privcirnet.he.layers.integer import Values

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScalarFunction:
    """A function of single numbers.

    Attributes:
        of: function, element by element.
        lowest_at: argument at which it is least; -inf for a function that never falls.
    """

    of: Callable[[Reals], Reals]
    lowest_at: float = -math.inf


def _gelu(x: Reals) -> Reals:
    error = np.array([math.erf(value) for value in (x * math.sqrt(0.5)).ravel()]).reshape(x.shape)
    return 0.5 * x * (1 + error)


def _silu(x: Reals) -> Reals:
    return x / (1 + np.exp(np.minimum(-x, 700.0)))


def _gelu_tanh(x: Reals) -> Reals:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x: Reals) -> Reals:
    return 1 / (1 + np.exp(np.minimum(-x, 700.0)))


def _mish(x: Reals) -> Reals:
    return x * np.tanh(np.log1p(np.exp(np.minimum(x, 700.0))))


def _softplus(x: Reals) -> Reals:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


def _celu(x: Reals, alpha: float) -> Reals:
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0) / alpha)


def _selu(x: Reals) -> Reals:
    scale, alpha = 1.0507009873554805, 1.6732632423543773
    return scale * (np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0)))


TABULATED = {
    "relu": ScalarFunction(lambda x: np.maximum(x, 0)),
    "relu6": ScalarFunction(lambda x: np.clip(x, 0, 6)),
    "hardswish": ScalarFunction(lambda x: x * np.clip(x + 3, 0, 6) / 6, -1.5),
    "gelu": ScalarFunction(_gelu, -0.7517915),
    "gelu_tanh": ScalarFunction(_gelu_tanh, -0.7524614),
    "silu": ScalarFunction(_silu, -1.2784645),
    "mish": ScalarFunction(_mish, -1.1924312),
    "leakyrelu": ScalarFunction(lambda x: np.where(x > 0, x, 0.01 * x)),
    "sigmoid": ScalarFunction(_sigmoid),
    "hardsigmoid": ScalarFunction(lambda x: np.clip(x + 3, 0, 6) / 6),
    "tanh": ScalarFunction(np.tanh),
    "selu": ScalarFunction(_selu),
    "exp": ScalarFunction(np.exp),
    "reciprocal": ScalarFunction(lambda x: 1 / x),
    "rsqrt": ScalarFunction(lambda x: 1 / np.sqrt(x)),
}
"""Functions with tables (:mod:`program.lookup_table`), by name; the last two for positive numbers, where they fall."""
WITH_NUMBERS: dict[str, Callable[[float], ScalarFunction] | Callable[[float, float], ScalarFunction]] = {
    "leakyrelu": lambda slope: ScalarFunction(lambda x: np.where(x > 0, x, slope * x), 0.0 if slope < 0 else -math.inf),
    "elu": lambda alpha: ScalarFunction(lambda x: np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))),
    "celu": lambda alpha: ScalarFunction(lambda x: _celu(x, alpha)),
    "softplus": lambda beta: ScalarFunction(lambda x: _softplus(beta * x) / beta),
    "hardtanh": lambda low, high: ScalarFunction(lambda x: np.clip(x, low, high)),
}
"""Functions with numbers of their own, as "leakyrelu(0.2)", by name; the numbers of all but the first are positive."""


def with_numbers(name: str, *numbers: float) -> str:
    """Return the name of a function with numbers of its own.

    >>> with_numbers("leakyrelu", 0.2)
    'leakyrelu(0.2)'
    """
    return f"{name}({','.join(repr(float(number)) for number in numbers)})"


@lru_cache(maxsize=64)
def function_named(name: str) -> ScalarFunction | None:
    """Return a function with a table, None if nobody knows it.

    Args:
        name: key of :data:`TABULATED`, or of :data:`WITH_NUMBERS` with its numbers, as :func:`with_numbers` writes.

    >>> function_named("elu(1.0)").of(np.array([2.0])).tolist(), function_named("elu(1)"), function_named("elu(nan)")
    ([2.0], None, None)
    """
    if name in TABULATED:
        return TABULATED[name]
    first, _, rest = name.partition("(")
    make = WITH_NUMBERS.get(first)
    try:
        numbers = [float(number) for number in rest.removesuffix(")").split(",")] if make else []
        if make is None or name != with_numbers(first, *numbers) or any(map(math.isnan, numbers)):
            return None
        bad = numbers[0] >= numbers[1] if first == "hardtanh" else not 0 < numbers[0] < math.inf
        return None if bad and (first != "leakyrelu" or not math.isfinite(numbers[0])) else make(*numbers)
    except (ValueError, TypeError, IndexError):
        return None


def _known(name: str) -> ScalarFunction:
    function = function_named(name)
    assert function is not None
    return function


def apply(name: str, values: Values, log_step: int, log_step_out: int) -> Values:
    """Return f(x 2^log_step) 2^-log_step_out, rounded to the nearest integer, ties up.

    Args:
        name: name of f, see :func:`function_named`.
        values: x, int64 of any shape.

    >>> apply("relu6", np.array([-5, 3, 40]), -2, -1).tolist()
    [0, 2, 12]
    """
    integers, places = np.unique(values.ravel(), return_inverse=True)
    rounded = np.floor(real_values(name, integers, log_step, log_step_out) + 0.5)
    return rounded.astype(np.int64)[places].reshape(values.shape)


def real_values(name: str, values: Values, log_step: int, log_step_out: int) -> Reals:
    """Return the real results that :func:`apply` rounds; ``values``: in one row."""
    return _known(name).of(values.astype(np.float64) * 2.0**log_step) * 2.0**-log_step_out


def ends(name: str, low: Values, high: Values, log_step: int, log_step_out: int) -> tuple[Values, Values]:
    """Return the least and the largest value of :func:`apply` on [low, high], position by position.

    Args:
        name: name of f, see :func:`function_named`.
        low: least values, int64 of any shape.
        high: largest values, of the same shape.
    """
    first, last = (apply(name, end, log_step, log_step_out) for end in (low, high))
    lowest = _known(name).lowest_at
    smallest = np.minimum(first, last)
    if math.isfinite(lowest):
        turn = math.floor(_known(name).of(np.array([lowest]))[0] * 2.0**-log_step_out + 0.5)
        crossed = (low * 2.0**log_step < lowest) & (lowest < high * 2.0**log_step)
        smallest = np.where(crossed, turn, smallest)
    return smallest, np.maximum(first, last)
