"""What the page has to know of any program: pixels, logits, primes, and its rounds in words."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privcirnet.he.program.program import Program
from privcirnet.he.protocol.leveled.bfv.leveled_program import Description
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.waves import stages
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.runs.answers import name_of
from privcirnet.runs.pictures import Ends, ends_of

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.protocol.leveled.ckks import CkksDescription

_BITS = f"{SECURITY_BITS} bits"
_KINDS = {"conv": "convolution", "gemm": "linear", "depthwise": "depthwise convolution", "square": "squares"}
"""What rounds are called."""


@dataclass(frozen=True)
class Subject(Ends):
    """A server's program as the page sees it.

    Attributes:
        bits: of the primes of a request.
        program: an interactive one; None for a leveled one, which has one round.
    """

    bits: tuple[int, ...]
    parameters: str
    program: Program | None = None

    def facts(self) -> dict[str, Any]:
        """Return what the page shows of it, as plain data."""
        return {
            "rounds": self.rounds(),
            "shape": list(self.shape),
            "parameters": self.parameters,
            "leveled": self.program is None,
        }

    def rounds(self) -> list[dict[str, str]]:
        """Return what the rounds with an image are, as plain data."""
        if self.program is None:
            return [{"name": "image", "what": "all layers, by the server alone"}]
        names, found = {node.name: name_of(node) for node in self.program.nodes}, exchanges_of(self.program)
        asking = [
            {
                "name": ", ".join(names[node.name] for node in stage.nodes),
                "what": ", ".join(dict.fromkeys(in_words(found[node.name].plan) for node in stage.nodes)),
            }
            for stage in stages(self.program, found)
            for _ in stage.trips
        ]
        return [{"name": "image", "what": "less the client’s random share"}, *asking]


def subject_of(known: "Program | Description | CkksDescription", levels: int = 0) -> Subject:
    """Return what the page has to know of a program.

    Args:
        levels: largest pixel of its data set, of which a leveled program does not know all; 0 where nobody knows.
    """
    ends = vars(ends_of(known, levels))
    if isinstance(known, Program):
        own = known.parameters
        bits, words = own.coefficient_bits[:-1], f"n = {own.ring_degree}, log q = {own.log_q}"
        words = f"BFV of {_BITS}, {words}"
        return Subject(**ends, bits=bits, parameters=words, program=known)
    if isinstance(known, Description):
        params = known.parameters
        words = f"BFV of {_BITS}, n = {params.ring_degree}, log q = {sum(params.data_bits)}"
        words += f", {len(params.moduli)} plain moduli"
        return Subject(**ends, bits=params.data_bits, parameters=words)
    chain = known.parameters
    words = f"CKKS of {_BITS}, n = {chain.ring_degree}, log q = {chain.log_q}"
    bits = tuple(prime.bit_length() for prime in chain.data_primes[: known.level + 1])
    return Subject(**ends, bits=bits, parameters=words)


def in_words(plan: RoundPlan) -> str:
    """Return what a round computes.

    >>> in_words(RoundPlan("conv", "nested", block_size=8))
    'convolution, b = 8'
    """
    kind = _KINDS.get(plan.kind, plan.kind)
    return f"{kind}, b = {plan.block_size}" if plan.block_size > 1 else kind
