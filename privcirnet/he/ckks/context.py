"""Tables of client and server for one set of parameters, beyond the chain of primes (:mod:`rlwe.key_switching`).

A polynomial is in the kernel's NTT order unless it is said otherwise.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import to_coefficients
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import rns
from privcirnet.he.rlwe.kernels.rns import RnsRing
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import (
    EPHEMERAL,
    LOW,
    RELINEARIZATION,
    TO_EPHEMERAL,
    RlweParameters,
    galois_element,
    is_low,
)
from privcirnet.he.rlwe.wire_bytes import WireFormat
from privcirnet.he.system.threads import each

_MOST = 62
"""Bits of a plaintext's coefficients, at most."""
_BASE = 5

Names = Collection[int] | Mapping[int, int]
"""Names of keys: with the highest level that each is used at, or Galois elements alone, which are for all levels then
and have the key for products with them."""


def stored_name(parameters: CkksParameters, name: int, level: int) -> int:
    """Return the name of the key that serves a level.

    Args:
        name: see :mod:`rlwe.parameters`.
    """
    return name if name in EPHEMERAL or parameters.at(level) is parameters else name + LOW


def is_name(name: int, parameters: CkksParameters) -> bool:
    """Return whether an integer, which a stranger may have sent, is the name of a key that parameters can have."""
    if is_low(name):
        return parameters.low is not None and is_name(name - LOW, parameters.low)
    element = name % 2 == 1 and name < 2 * parameters.ring_degree
    return element or name == RELINEARIZATION or (name in EPHEMERAL and parameters.ephemeral_weight > 0)


@dataclass(frozen=True)
class Context:
    """Tables for one set of parameters."""

    parameters: CkksParameters

    @cached_property
    def chain(self) -> ModulusChain:
        """Chain of all primes."""
        return ModulusChain(self.parameters.rlwe)

    @cached_property
    def low(self) -> "Context | None":
        """Tables of the lower levels' parameters alone, if there are any."""
        return Context(self.parameters.low) if self.parameters.low else None

    @property
    def low_rows(self) -> list[int]:
        """The rows of :attr:`low` among these."""
        if self.low is None:
            raise ValueError("there are no lower levels")
        data = len(self.parameters.data_primes)
        return [*range(len(self.low.parameters.data_primes)), *range(data, data + self.low.chain.special)]

    @cached_property
    def ephemeral(self) -> ModulusChain:
        """Chain of level 0 alone, with one special prime: the modulus of the key to the sparse secret."""
        parameters = self.parameters
        return ModulusChain(
            RlweParameters(parameters.ring_degree, parameters.data_primes[:1], parameters.special_primes[:1])
        )

    def named(self, names: Names) -> dict[int, int]:
        """Return names of keys, ascending, with the highest level that each is used at."""
        if isinstance(names, Mapping):
            levels = cast(Mapping[int, int], names)
            return {name: levels[name] for name in sorted(levels)}
        return dict.fromkeys([RELINEARIZATION, *sorted(names)], self.parameters.levels)

    def key_chain(self, name: int, level: int) -> tuple[ModulusChain, int]:
        """Return the primes that a key is under, as a chain and the number of its data primes."""
        if self.low and is_low(name):
            return self.low.chain, level + 1
        return (self.ephemeral, 1) if name == TO_EPHEMERAL else (self.chain, level + 1)

    def key_bytes(self, names: Names) -> int:
        """Return the bytes that a server keeps of keys."""
        keys = (self.key_chain(name, level) for name, level in self.named(names).items())
        return sum(chain.parameters.loaded_key_bytes(count) for chain, count in keys)

    def check_keys_gb(self, names: Names, keys_gb: float) -> None:
        """Raise unless keys fit a budget, before they are made.

        Args:
            names: names of keys, with the highest level that each is used at (``simulator.keys``).

        Raises:
            RuleError: they do not fit.
        """
        if (size := self.key_bytes(names)) > keys_gb * 1e9:
            rule, remedy = f"keys must fit keys_gb = {keys_gb:g}", "raise it, or take fewer rotations or levels"
            raise RuleError(rule, got=f"{size / 1e9:.2f} GB", remedy=remedy)

    @property
    def ring(self) -> RnsRing:
        """Ring of all primes."""
        return self.chain.ring

    def modulus(self, level: int) -> WireFormat:
        """Return the format of a polynomial of a level."""
        return self.parameters.rlwe.modulus(level + 1)

    def element(self, step: int) -> int:
        """Return the Galois element of a rotation to the left.

        Args:
            step: slots.
        """
        return galois_element(step, self.parameters.ring_degree, _BASE)

    def elements(self, steps: Collection[int]) -> set[int]:
        """Return the Galois elements of rotations to the left.

        Args:
            steps: slots.
        """
        return {self.element(step) for step in steps}

    def integers(self, slots: npt.ArrayLike, scale: float, period: int = 0) -> Integers:
        """Return slots encoded: the rounded coefficients of scale times their polynomial, shape (n,).

        Args:
            slots: shape (n / 2,), real or complex, or one number for all.
            period: period of the slots; all but every (n / 2 / period)-th coefficient are zero. 0: none.

        Raises:
            RuleError: there are more or fewer slots, or the coefficients are over 62 bits or not finite.
        """
        values = np.asarray(slots, dtype=np.complex128)
        if values.shape not in {(), (self.parameters.slots,)}:
            rule = f"a plaintext must have {self.parameters.slots} slots"
            raise RuleError(rule, got=f"shape {values.shape}", remedy="pad it with zeros")
        period = 1 if values.shape == () else period or self.parameters.slots
        scaled = to_coefficients(np.broadcast_to(values, (self.parameters.slots,))[:period]) * scale
        if not np.abs(scaled).max(initial=0) < 2.0**_MOST:
            rule = f"a plaintext's coefficients must be under 2^{_MOST}"
            raise RuleError(rule, got=f"{np.abs(scaled).max():.3g}", remedy="use a smaller scale or smaller values")
        coefficients = np.zeros(self.parameters.ring_degree, dtype=np.int64)
        coefficients[:: self.parameters.slots // period] = np.rint(scaled)
        return coefficients

    def polynomial(self, integers: Integers, level: int) -> Residues:
        """Return a plaintext under the primes of a level, shape (level + 1, n).

        Args:
            integers: coefficients, shape (n,).
        """
        residues = np.empty((level + 1, integers.size), dtype=np.uint64)

        def row(i: int) -> None:
            rns.transformed(residues[i : i + 1], integers, self.ring.tables, i)

        each(row, range(level + 1))
        return residues

    def subtracted(self, first: Residues, second: Residues) -> Residues:
        """Return the difference of polynomials under the same data primes.

        Args:
            first: shape (..., L', n).
            second: shape (..., L', n).
        """
        return self.chain.added(first, self.ring.tables.primes[: second.shape[-2], None] - second)
