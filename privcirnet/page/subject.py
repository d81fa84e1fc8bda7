"""The page's view of any program: pixels, logits, primes, and its rounds in words."""

from dataclasses import dataclass
from typing import Any, cast

from privcirnet.he.program.known import Known
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.runs.answers import name_of
from privcirnet.runs.pictures import ImageInterface, ends_of

_BITS = f"{SECURITY_BITS} bits"
_KINDS = {"conv": "convolution", "gemm": "linear", "depthwise": "depthwise convolution", "square": "squares"}
"""Names of rounds."""


@dataclass(frozen=True)
class Subject(ImageInterface):
    """The page's view of a server's program.

    Attributes:
        bits: bits of the primes of a request.
        program: interactive program; None for one of CKKS, which has one round.
    """

    bits: tuple[int, ...]
    parameters: str
    program: Program | None = None

    def facts(self) -> dict[str, Any]:
        """Return the program's facts for the page, as plain data."""
        return {
            "rounds": self.rounds(),
            "shape": list(self.shape),
            "parameters": self.parameters,
            "one_round": self.program is None,
        }

    def rounds(self) -> list[dict[str, str]]:
        """Return the rounds with an image, as plain data."""
        if self.program is None:
            return [{"name": "image", "what": "all layers, by the server alone"}]
        names, schedule = {node.name: name_of(node) for node in self.program.nodes}, schedule_of(self.program)
        asking = [
            {
                "name": ", ".join(names[node.name] for node in stage.nodes),
                "what": ", ".join(dict.fromkeys(in_words(schedule.exchanges[node.name].plan) for node in stage.nodes)),
            }
            for stage in schedule.online
            for _ in stage.trips
        ]
        return [{"name": "image", "what": "less the client’s random share"}, *asking]


def subject_of(description: Known, levels: int = 0) -> Subject:
    """Return the page's view of a program.

    Args:
        levels: largest pixel of its data set, of which a CKKS program does not know all; 0 where nobody knows.
    """
    words = f"{description.scheme} of {_BITS}, {description.parameters_in_words}"
    program = cast(Program, description) if description.prepares else None
    return Subject(
        **vars(ends_of(description, levels)), bits=description.request_bits, parameters=words, program=program
    )


def in_words(plan: RoundPlan) -> str:
    """Return the computation of a round in words.

    >>> in_words(RoundPlan("conv", "nested", block_size=8))
    'convolution, b = 8'
    """
    kind = _KINDS.get(plan.kind, plan.kind)
    return f"{kind}, b = {plan.block_size}" if plan.block_size > 1 else kind
