"""The schema of fixed-point formats."""

from dataclasses import dataclass, field

from privcirnet.config.checks import check_fields, number


@dataclass
class QuantConfig:
    """The fixed-point formats of the qat stage."""

    weight_bits: int = number(8, least=1, most=8)
    """1 to 8, times a power of two of each output; 1: signs."""
    activation_bits: int = number(8, least=2, most=16)
    """2 to 16."""
    stream_bits: int = 0
    """2 to 20, of what the residuals of a transformer add up; never fewer than activation_bits. 0: 10, or 16 where
    layer norms read it."""
    calibration_images: int = number(512, least=1)
    """training images on which the steps are calibrated."""
    calibration_quantile: float = number(1.0, above=0, most=1)
    """an activation's bits hold all values of this share of these images; larger values are carried. 1: of all, which
    a few images decide; 0.5: a transformer's steps are finer by a bit or two."""
    equalize: bool = False
    """scale channels between layers first, so that one step suits all of them (docs/quantization.md)."""
    composed: list[str] = field(default_factory=list[str])
    """layers that become one with the layer before them; empty for those of the plan that block sizes come from."""
    learned_steps: bool = False
    """train the steps with the weights, clipping values in training only; else they stay as calibrated."""

    def __post_init__(self) -> None:
        check_fields(self, "quant.")
