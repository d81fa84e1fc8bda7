"""The group ckks/: how a program of CKKS is made of a trained network; and the modes."""

from dataclasses import dataclass

from privcirnet.config.checks import check, check_fields, check_name, number

MODES = ("interactive", "ckks")
"""How a network runs: rounds of both parties; or one request and one answer, in CKKS."""
LEVELED = "use mode=ckks and ckks.*, or python -m papers.falcon2020 for leveled BFV"
"""What to do where the mode leveled is asked for, or its settings."""


@dataclass
class CkksConfig:
    """How a CKKS program is made of a trained network."""

    examples: int = number(256, least=1)
    """training images whose values tell how large those of others are."""

    def __post_init__(self) -> None:
        check_fields(self, "ckks.")


def check_mode(mode: str) -> None:
    """Raise unless a network can run so.

    Raises:
        RuleError: it is not one of :data:`MODES`.
    """
    check(mode != "leveled", "mode must be interactive or ckks", mode, LEVELED)
    check_name("mode", mode, MODES)
