"""The group leveled/: integers and plan of a network that runs without interaction."""

from dataclasses import dataclass

from privcirnet.config.rules import check, check_name
from privcirnet.he.leveled.plans import PLANS

MODES = ("interactive", "leveled")
"""How a network runs: rounds of both parties, or one request and one answer."""


@dataclass
class LeveledConfig:
    """How a leveled program is made of a trained network."""

    weight_bits: int = 8
    """of a weight, sign included; weights are rounded, activations are not."""
    pixel_bits: int = 4
    """of a pixel; the lower bits of stored pixels are dropped."""
    plan: str = "auto"
    """auto (the fastest that fits), packed, periodic, maps, lola, falcon, lola_maps, falcon_maps (two convolutions), or
    batch: many images in one request."""

    def __post_init__(self) -> None:
        check(2 <= self.weight_bits <= 16, "leveled.weight_bits must be in [2, 16]", self.weight_bits, "use 8")
        check(1 <= self.pixel_bits <= 8, "leveled.pixel_bits must be in [1, 8]", self.pixel_bits, "use 4")
        check_name("leveled.plan", self.plan, ("auto", *PLANS))
