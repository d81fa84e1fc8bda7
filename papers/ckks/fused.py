"""A convolution fused with the bootstrapping that follows it (NeuJeans, section 4, Algorithm 1, Figure 3).

Maths: StoC is S_(n/4) ... S_l (StoC2) after S_(l/2) ... S_1 (StoC1), and StoC1 leads from slot encoding to CinS, where
the convolution is. So StoC1, the convolution and StoC2 end in coefficient encoding, which is where the modulus is
raised; and StoC2 times the convolution has no more diagonals than the convolution (equation 11). In a row the
convolution comes back to slot encoding instead, for a bootstrapping that begins with all of StoC:

    fused:     StoC1,  StoC2 conv,                    ModRaise, CtoS, EvalMod
    in a row:  StoC1,  conv, StoC1^-1,  StoC1, StoC2, ModRaise, CtoS, EvalMod

Both take slots in slot encoding to slots in slot encoding. In a row takes higher levels, where all costs more.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from privcirnet.he.ckks import linear_map
from privcirnet.he.ckks.bootstrapping import ROOM, Bootstrapping, weighed
from privcirnet.he.ckks.evaluator import CkksEvaluator, mapped
from privcirnet.he.ckks.linear_map import LinearMap

V = TypeVar("V")


def to_coefficients(length: int, slots: int) -> LinearMap:
    """Return S_(n/4) ... S_l, from CinS to coefficient encoding, as one map: what a convolution absorbs (equation 11).

    Args:
        length: l, under the slots.
        slots: n / 2.
    """
    logs = range(length.bit_length() - 1, slots.bit_length() - 1)
    return linear_map.composed([linear_map.butterfly(1 << j, slots) for j in logs])


@dataclass(frozen=True, eq=False)
class FusedConvolution:
    """A convolution in CinS and a bootstrapping; inputs and outputs in slot encoding, parts of outputs in [-1, 1].

    Attributes:
        convolution: a layer in CinS whose diagonals are at multiples of l (:mod:`ckks.convolution`).
        length: l, slots of a slice.
        levels: of StoC1, at most log2 l.
    """

    refresh: Bootstrapping
    convolution: LinearMap
    length: int
    levels: int = 2

    @property
    def slots(self) -> int:
        """Of a ciphertext, n / 2."""
        return self.refresh.parameters.slots

    @property
    def levels_fused(self) -> int:
        """Levels that the fused maps take before the modulus is raised."""
        return self.levels + 1

    @property
    def levels_in_a_row(self) -> int:
        """Levels that the maps take one after the other before the modulus is raised."""
        return 2 * self.levels + 1 + self.refresh.to_coefficients

    @cached_property
    def to_cins(self) -> list[LinearMap]:
        """StoC1."""
        return weighed(linear_map.to_cins(self.length, self.slots, self.levels))

    @cached_property
    def from_cins(self) -> list[LinearMap]:
        """The inverse of StoC1."""
        return weighed(linear_map.from_cins(self.length, self.slots, self.levels))

    @cached_property
    def merged(self) -> LinearMap:
        """The convolution, StoC2, and the factor that bootstrapping takes."""
        shrink = self.refresh.shrink
        last = to_coefficients(self.length, self.slots)
        return replace(linear_map.composed([self.convolution, last], shrink), coefficients=shrink * ROOM)

    def __call__(self, machine: CkksEvaluator[V], value: V) -> V:
        """Return the refreshed outputs.

        Args:
            value: of at least ``levels_fused`` levels.
        """
        name = machine.layer
        machine.layer = f"{name} StoC1"
        value = mapped(machine, value, self.to_cins)
        machine.layer = f"{name} convolution and StoC2"
        value = machine.map(value, self.merged)
        machine.layer = name
        return self.refresh.refreshed(machine, value)

    def in_a_row(self, machine: CkksEvaluator[V], value: V) -> V:
        """Return the same by the convolution in slot encoding, and then the bootstrapping: what fusion is held against.

        Args:
            value: of at least ``levels_in_a_row`` levels.
        """
        name = machine.layer
        machine.layer = f"{name} convolution"
        value = mapped(machine, value, [*self.to_cins, self.convolution, *self.from_cins])
        machine.layer = name
        return self.refresh(machine, machine.bounded(value, 2.0**0.5 * ROOM))
