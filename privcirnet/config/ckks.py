"""The group leveled/: integers and plan of a network that runs without interaction."""

from dataclasses import dataclass

from privcirnet.config.checks import check, check_name
from privcirnet.he.planning.leveled.bfv.plans import PLANS

MODES = ("interactive", "leveled")
"""How a network runs: rounds of both parties, or one request and one answer."""
SCHEMES = ("bfv", "ckks")


@dataclass
class LeveledConfig:
    """How a leveled program is made of a trained network."""

    scheme: str = "bfv"
    """bfv: exact, for a few layers; ckks: approximate and bootstrapped, for residual networks of squares or AESPA."""
    examples: int = 256
    """with scheme=ckks: training images whose values tell how large those of others are."""
    weight_bits: int = 8
    """with scheme=bfv: of a weight, sign included; weights are rounded, activations are not."""
    pixel_bits: int = 4
    """with scheme=bfv: of a pixel; the lower bits of stored pixels are dropped."""
    plan: str = "auto"
    """with scheme=bfv: auto (the fastest that fits), packed, periodic, maps (two convolutions), lola, or batch: many
    images in one request."""

    def __post_init__(self) -> None:
        check_name("leveled.scheme", self.scheme, SCHEMES)
        check(self.examples >= 1, "leveled.examples must be at least 1", self.examples, "use 256")
        own = self.scheme == "bfv" or self.plan == "auto"
        check(own, "leveled.plan is for leveled.scheme=bfv", self.plan, "leave it out")
        check(2 <= self.weight_bits <= 16, "leveled.weight_bits must be in [2, 16]", self.weight_bits, "use 8")
        check(1 <= self.pixel_bits <= 8, "leveled.pixel_bits must be in [1, 8]", self.pixel_bits, "use 4")
        check_name("leveled.plan", self.plan, ("auto", *PLANS))
