"""Functions of few bits, exact on shares: an exact truncation to an index, then a look-up (:mod:`mpc.lookup`).

The functions that are no polynomials, by name, all fall to one lowest point and rise from there, or only fall: an
interval's image follows from three points.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.integer import Values, round_shift
from privcirnet.he.program.exact import MOST_BITS, ExactStep
from privcirnet.he.program.operation import Domain, Interval, Node, V, Weights

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
"""Functions with tables (:mod:`program.table`), by name; the last two for positive numbers, where they fall."""
WITH_NUMBERS: dict[str, Callable[..., ScalarFunction]] = {
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


LEAST_INDEX_BITS, MOST_INDEX_BITS = 4, 12
"""Bits of an index."""
MOST_UNCLIPPED_BITS = 10
"""Most bits of an index that is not clipped: the work ahead doubles with each bit, with 11 it exceeds that of clips."""
_LARGEST = 2.0**40
"""Bound that every entry is under."""


@dataclass(frozen=True, kw_only=True)
class ExactTable(ExactStep):
    """y = round(f(q 2^log_step_in) 2^-log_step_out), ties up, of q = round(x / 2^bits), clipped to [low, high].

    Attributes:
        bits: number of bits that go before, 0 or more.
        function: name of f (:func:`function_named`).
        log_step_in: log2 of the index's step, real value = q x 2^log_step_in.
        log_step_out: log2 of the result's step.
        low: least q that is told from others.
        high: the largest.
        digest: digest of the entries (:func:`digest_of`): both parties must find the same ones.
        index_bits: bits of the look-up's index; 0: not known yet.
        first: least number that is looked up.
        clips: ends at which q is clipped, as it may be more numbers than a table has entries: 1 below, 2 above, too.
    """

    kind: ClassVar[str] = "exact_table"

    title = "exact table"

    function: str
    log_step_in: int
    log_step_out: int
    low: int
    high: int
    digest: int
    index_bits: int = 0
    first: int = 0
    clips: int = 0

    @property
    def rectifies(self) -> bool:
        return self.clips > 0

    @property
    def top(self) -> int:
        return (1 << self.index_bits) - 1 if self.clips == 2 else 0

    @property
    def modulus(self) -> int:
        return 1 << self.index_bits

    @property
    def best_divisor(self) -> int:
        return max(super().best_divisor, self.modulus << self.bits + 1)

    @property
    def entries(self) -> Values:
        """The results of low to high."""
        return np.array(_entries(self.function, self.log_step_in, self.log_step_out, self.low, self.high))

    @property
    def table(self) -> tuple[int, ...]:
        """The results of all indices, from the first on."""
        places = np.arange(self.first, self.first + (1 << self.index_bits)).clip(self.low, self.high)
        return tuple(self.entries[places - self.low].tolist())

    def values(self, x: Values) -> Values:
        """Return its values."""
        return self.entries[self._index(x) - self.low]

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the least and the largest value on [low, high], position by position."""
        return ends(self.function, self._index(low), self._index(high), self.log_step_in, self.log_step_out)

    def _index(self, x: Values) -> Values:
        return round_shift(x, self.bits).clip(self.low, self.high)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.function(self, arguments[0])

    def bounded(self, low: int, high: int) -> Self:
        """Return it for values of this range, with the shortest index, or clipped."""
        first, last = (int(round_shift(np.array(end), self.bits)) for end in (low, high))
        first = first >> (start := max(0, (last - first).bit_length() - 3)) << start  # three bits of it are public
        bits = (last - first).bit_length()
        if bits > MOST_UNCLIPPED_BITS:
            bits, first = (self.high - self.low).bit_length(), self.low
            start = self.low << self.bits
            clips = 1 + (last - self.low >> max(LEAST_INDEX_BITS, bits) > 0)
            table = super(ExactTable, replace(self, clips=clips)).bounded(low - start, high - start)
        else:
            table = super().bounded(low, high)
        return replace(table, first=first, index_bits=max(LEAST_INDEX_BITS, bits))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        steps = self.log_step_in == sources[0].log_step + self.bits and self.log_step_out == node.log_step
        fits = steps and 0 <= self.bits <= MOST_BITS and 0 <= self.clips <= 2 and self.bound_fits
        fits = fits and self.index_bits in (0, *range(LEAST_INDEX_BITS, MOST_INDEX_BITS + 1))
        if not fits or not 0 <= self.high - self.low < 1 << MOST_INDEX_BITS or not function_named(self.function):
            return f"an exact table of {self.function} at step 2^{self.log_step_in}, by {self.bits} bits"
        try:
            digest = digest_of(self.entries)
        except DoesNotFit as error:
            return str(error)
        return "" if digest == self.digest else f"an exact table whose entries of {self.function} differ from these"

    def unfit(self, t: int) -> str:
        """Return why a plain modulus does not carry it, "" if it does."""
        if not self.index_bits:
            return f"an {self.title} of values without a bound"
        spread = int(self.entries.max() - self.entries.min())
        return super().unfit(t) or (
            f"a plain modulus of {t} for entries that differ by {spread}" if spread >= t else ""
        )


def tabulated(function: str, bits: int, log_step: int, log_step_out: int, low: int, high: int) -> ExactTable:
    """Return a table of a function; arguments as of :class:`ExactTable`.

    Raises:
        DoesNotFit: the function has no value somewhere, or one that is too large.
    """
    digest = digest_of(np.array(_entries(function, log_step, log_step_out, low, high)))
    return ExactTable(
        bits, function=function, log_step_in=log_step, log_step_out=log_step_out, low=low, high=high, digest=digest
    )


def digest_of(entries: Values) -> int:
    """Return 60 bits of SHA-256: machines whose functions round otherwise must not look up in different tables."""
    return int.from_bytes(hashlib.sha256(entries.astype("<i8").tobytes()).digest()[:8], "little") >> 4


@lru_cache(maxsize=64)
def _entries(function: str, log_step: int, log_step_out: int, low: int, high: int) -> tuple[int, ...]:
    with np.errstate(all="ignore"):
        entries = np.floor(real_values(function, np.arange(low, high + 1), log_step, log_step_out) + 0.5)
    if not (abs(entries) < _LARGEST).all():
        rule, remedy = (
            "a table's entries must be under 2^40",
            "take a range where the function is small, or a coarser step",
        )
        raise DoesNotFit(rule, got=f"{function} of {low} to {high} steps of 2^{log_step}", remedy=remedy)
    return tuple(entries.astype(np.int64).tolist())
