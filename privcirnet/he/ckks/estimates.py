"""The simulator's estimates of a value and of a layer."""

import math
from dataclasses import dataclass

_DEVIATIONS = 6


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimate of a value's scale, size and error.

    Attributes:
        scale: S, followed product by product.
        variance: variance of a slot's error, in units of the message.
        rms: root mean square of the slots, where it is known; else infinite.
    """

    level: int
    scale: float
    bound: float
    variance: float
    rms: float = math.inf

    @property
    def usual(self) -> float:
        """Size that the errors of a product's other factor are multiplied by: the root mean square, or the bound."""
        return min(self.bound, self.rms)

    @property
    def precision_bits(self) -> float:
        """Bits to which every slot is right, but for one in 2^52."""
        return -math.log2(_DEVIATIONS * math.sqrt(self.variance))

    def noise_bits(self, slots: int) -> int:
        """Return log2 of a bound, six deviations, on the error's coefficients as integers.

        Args:
            slots: slots of a ciphertext, n / 2.
        """
        return math.ceil(math.log2(_DEVIATIONS * self.scale * math.sqrt(self.variance / (2 * slots))))


@dataclass(frozen=True)
class Trace:
    """The last value of a layer.

    Attributes:
        level: level of that value.
        precision_bits: precision of that value.
        bound: bound of that value.
    """

    layer: str
    level: int
    precision_bits: float
    bound: float
