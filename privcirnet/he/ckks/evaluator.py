"""Machines that run a circuit, a function of a machine and values, so that the same lines run three times.

* :class:`Cleartext`: on bare slots, with counters: what the result should be, hiding nothing;
* :class:`ckks.simulator.Simulator`: on levels, scales, bounds and errors: whether it can be, before anyone
  encrypts;
* :class:`EncryptedEvaluator`: on ciphertexts.

A circuit says ``machine.layer = "conv1"`` where a layer begins; the simulator names it in what it refuses, and
:class:`Stopwatch` takes its seconds.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.ckks import hoisting
from privcirnet.he.ckks.embedding import Reals, Slots, to_coefficients
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.server import CkksServer, Keys
from privcirnet.he.rlwe.key_switching import Ciphertext
from privcirnet.he.rlwe.parameters import LOW, is_low


def unheard(layer: str) -> None:
    """Ignore that a layer begins."""


class NotifiesLayers:
    """A machine that says when a layer begins.

    Args:
        begins: called with the layer's name.
    """

    def __init__(self, begins: Callable[[str], object] = unheard) -> None:
        self._layer, self._begins = "", begins

    @property
    def layer(self) -> str:
        """Name of the layer that runs."""
        return self._layer

    @layer.setter
    def layer(self, name: str) -> None:
        """Begin a layer."""
        self._layer = name
        self._begins(name)


class Stopwatch:
    """Seconds by layer, from the beginning of one to that of the next.

    Attributes:
        seconds: seconds by layer.
    """

    def __init__(self) -> None:
        self.seconds = defaultdict[str, float](float)
        self._layer, self._since = "", time.perf_counter()

    def __call__(self, layer: str) -> None:
        """Begin a layer; the one before it ends.

        Args:
            layer: name of the layer; "" for none.
        """
        now = time.perf_counter()
        if self._layer:
            self.seconds[self._layer] += now - self._since
        self._layer, self._since = layer, now


V = TypeVar("V")


class CkksEvaluator(Protocol[V]):
    """Operations on values of one kind. Values of different levels meet at the lower one."""

    @property
    def layer(self) -> str:
        """Name of the layer that runs."""
        ...

    @layer.setter
    def layer(self, name: str) -> None:
        """Begin a layer."""
        ...

    def add(self, first: V, second: V) -> V:
        """Return the sum."""
        ...

    def subtract(self, first: V, second: V) -> V:
        """Return the difference."""
        ...

    def add_plain(self, value: V, slots: npt.ArrayLike) -> V:
        """Return value + plaintext.

        Args:
            slots: shape (n / 2,), or one number for all.
        """
        ...

    def multiply_plain(self, value: V, slots: npt.ArrayLike) -> V:
        """Return value times plaintext; takes a level.

        Args:
            slots: shape (n / 2,), or one number for all.
        """
        ...

    def combine(self, values: Sequence[V], factors: Sequence[float]) -> V:
        """Return the sum of numbers times values, at the lowest of their levels; takes a level, once.

        Args:
            values: values, at least one.
            factors: real factor of each.
        """
        ...

    def multiply(self, first: V, second: V, gain: float = 1.0) -> V:
        """Return the product; takes a level.

        Args:
            gain: factor of the product, for nothing: that of the level (:meth:`CkksParameters.gain`).
        """
        ...

    def rotate(self, value: V, step: int) -> V:
        """Return slots rotated to the left.

        Args:
            step: slots, not 0.
        """
        ...

    def conjugate(self, value: V) -> V:
        """Return the conjugates of all slots."""
        ...

    def times_i(self, value: V) -> V:
        """Return all slots times the imaginary unit; takes no level and adds no error."""
        ...

    def times(self, value: V, factor: int) -> V:
        """Return all slots times an integer; takes no level."""
        ...

    def raised(self, value: V, multiples: float, ratio: float) -> V:
        """Return a value's polynomial at the top level, plus q_0 times one with small integer coefficients.

        Slots are multiplied by S_0 / S_L, because the polynomial is as it was and the scale is that of the top level.

        Args:
            value: a value; it is lowered to level 0 first.
            ratio: S_0 / S_L.
        """
        ...

    def bounded(self, value: V, bound: float, rms: float = math.inf) -> V:
        """Return a value as it is, and say how large its slots are: what is known of a network's activations.

        Without it, bounds are those of the worst input.

        Args:
            rms: root mean square of the slots, if it is known, which estimates errors in products.
        """
        ...

    def smooth(self, value: V, source: V, slope: float, growth: float, error: float) -> V:
        """Return a value as it is, and say how errors reach it, where products of bounds would say far too much.

        Args:
            value: a smooth function of another value, computed in several products.
            slope: largest slope of the function.
            growth: factor of the error of a product at the source's level, of all products together.
        """
        ...

    def lowered(self, value: V, level: int) -> V:
        """Return a value at a lower level, where all costs less.

        Args:
            level: at most its own.
        """
        ...

    def map(self, value: V, linear: LinearMap) -> V:
        """Return a linear map of the slots; takes a level."""
        ...


def mapped(machine: CkksEvaluator[V], value: V, maps: Sequence[LinearMap]) -> V:
    """Return a value after several linear maps, one after the other; each takes a level.

    Args:
        maps: the first is applied first.
    """
    for linear in maps:
        value = machine.map(value, linear)
    return value


class EncryptedEvaluator(NotifiesLayers):
    """An evaluator on the ciphertexts of one client.

    Args:
        begins: called with the name of each layer that begins.
    """

    def __init__(self, server: CkksServer, keys: Keys, begins: Callable[[str], object] = unheard) -> None:
        super().__init__(begins)
        self._server, self._keys = server, keys
        self._low = {name - LOW: key for name, key in keys.items() if is_low(name)}

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        return self._server.add(first, second)

    def subtract(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        return self._server.subtract(first, second)

    def add_plain(self, value: Ciphertext, slots: npt.ArrayLike) -> Ciphertext:
        return self._server.add_plain(value, slots)

    def multiply_plain(self, value: Ciphertext, slots: npt.ArrayLike) -> Ciphertext:
        return self._server.multiply_plain(value, slots)

    def combine(self, values: Sequence[Ciphertext], factors: Sequence[float]) -> Ciphertext:
        return self._server.combine(values, factors)

    def multiply(self, first: Ciphertext, second: Ciphertext, gain: float = 1.0) -> Ciphertext:
        lhs, rhs = self._server.aligned(first, second)
        return self._server.at(lhs.level).multiply(lhs, rhs, self._keys_at(lhs), gain)

    def rotate(self, value: Ciphertext, step: int) -> Ciphertext:
        return self._server.at(value.level).rotate(value, step, self._keys_at(value))

    def conjugate(self, value: Ciphertext) -> Ciphertext:
        return self._server.at(value.level).conjugate(value, self._keys_at(value))

    def times_i(self, value: Ciphertext) -> Ciphertext:
        return self._server.times_i(value)

    def times(self, value: Ciphertext, factor: int) -> Ciphertext:
        return self._server.times(value, factor)

    def raised(self, value: Ciphertext, multiples: float, ratio: float) -> Ciphertext:
        """Return the value raised; the size of the integers is up to the key."""
        return self._server.raised(value, self._keys)

    def bounded(self, value: Ciphertext, bound: float, rms: float = math.inf) -> Ciphertext:
        return value

    def smooth(self, value: Ciphertext, source: Ciphertext, slope: float, growth: float, error: float) -> Ciphertext:
        return value

    def lowered(self, value: Ciphertext, level: int) -> Ciphertext:
        return self._server.lower(value, level)

    def map(self, value: Ciphertext, linear: LinearMap) -> Ciphertext:
        """Apply a linear map with double hoisting."""
        return hoisting.apply(self._server.at(value.level), value, linear, self._keys_at(value))

    def _keys_at(self, value: Ciphertext) -> Keys:
        return self._keys if self._server.at(value.level) is self._server else self._low


class Cleartext(NotifiesLayers):
    """A :class:`ckks.evaluator.CkksEvaluator` in clear; values are slots, shape (n / 2,).

    Args:
        begins: called with the name of each layer that begins.
        strict: whether values must keep the bounds that their circuit states; under encryption nobody notices.
    """

    def __init__(self, begins: Callable[[str], object] = unheard, *, strict: bool = True) -> None:
        super().__init__(begins)
        self.counts, self._strict = Counter[str](), strict

    def add(self, first: Slots, second: Slots) -> Slots:
        self.counts["add"] += 1
        return first + second

    def subtract(self, first: Slots, second: Slots) -> Slots:
        self.counts["add"] += 1
        return first - second

    def add_plain(self, value: Slots, slots: npt.ArrayLike) -> Slots:
        self.counts["add_plain"] += 1
        return value + np.asarray(slots)

    def multiply_plain(self, value: Slots, slots: npt.ArrayLike) -> Slots:
        self.counts["pmult"] += 1
        return value * np.asarray(slots)

    def combine(self, values: Sequence[Slots], factors: Sequence[float]) -> Slots:
        self.counts["pmult"] += len(values)
        return np.sum([factor * value for value, factor in zip(values, factors, strict=True)], axis=0)

    def multiply(self, first: Slots, second: Slots, gain: float = 1.0) -> Slots:
        self.counts["multiply"] += 1
        return gain * first * second

    def rotate(self, value: Slots, step: int) -> Slots:
        self.counts["rotate"] += 1
        return np.roll(value, -step)

    def conjugate(self, value: Slots) -> Slots:
        self.counts["conjugate"] += 1
        return value.conj()

    def times_i(self, value: Slots) -> Slots:
        return 1j * value

    def times(self, value: Slots, factor: int) -> Slots:
        return factor * value

    def raised(self, value: Slots, multiples: float, ratio: float) -> Slots:
        """Return the slots with multiples of zero."""
        return ratio * value

    def bounded(self, value: Slots, bound: float, rms: float = math.inf) -> Slots:
        """Raise a RuleError where a slot is larger."""
        self._within(np.abs(value), bound)
        return value

    def smooth(self, value: Slots, source: Slots, slope: float, growth: float, error: float) -> Slots:
        return value

    def lowered(self, value: Slots, level: int) -> Slots:
        return value

    def map(self, value: Slots, linear: LinearMap) -> Slots:
        self.counts["rotate"] += linear.rotations
        self.counts["pmult"] += linear.products
        mapped = linear(value)
        if linear.coefficients:
            self._within(np.abs(to_coefficients(mapped)), linear.coefficients)
        return mapped

    def _within(self, sizes: Reals, bound: float) -> None:
        if self._strict and (largest := float(sizes.max())) > bound:
            got, remedy = f"{largest:.4g} for {bound:.4g} in layer {self.layer!r}", "raise the bound"
            raise RuleError("a value must keep the bound that its circuit states", got=got, remedy=remedy)
