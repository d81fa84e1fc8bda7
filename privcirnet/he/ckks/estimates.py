"""What the simulator knows of a value and of a layer."""

import math
from dataclasses import dataclass

_DEVIATIONS = 6


@dataclass(frozen=True)
class ErrorEstimate:
    """What is known of a value.

    Attributes:
        scale: S, followed product by product.
        variance: of a slot's error, in units of the message.
        rms: root mean square of the slots, where it is known; else infinite.
    """

    level: int
    scale: float
    bound: float
    variance: float
    rms: float = math.inf

    @property
    def usual(self) -> float:
        """What the errors of a product's factors are multiplied by: the root mean square, or the bound."""
        return min(self.bound, self.rms)

    @property
    def precision_bits(self) -> float:
        """Every slot is right to 2^-bits, but for one in 2^52."""
        return -math.log2(_DEVIATIONS * math.sqrt(self.variance))

    def noise_bits(self, slots: int) -> int:
        """Return log2 of a bound, six deviations, on the error's coefficients as integers.

        Args:
            slots: of a ciphertext, n / 2.
        """
        return math.ceil(math.log2(_DEVIATIONS * self.scale * math.sqrt(self.variance / (2 * slots))))


@dataclass(frozen=True)
class Trace:
    """What became of one layer.

    Attributes:
        level: of its last value.
        precision_bits: of its last value.
        bound: of its last value.
    """

    layer: str
    level: int
    precision_bits: float
    bound: float
