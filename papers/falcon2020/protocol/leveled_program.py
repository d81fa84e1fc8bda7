"""A leveled program: a network with a plan and parameters; and its description, which is all that a client needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.planning.exact_network import ExactNetwork, exact_network_of
from papers.falcon2020.planning.parameters import check_parameters, plan_at
from papers.falcon2020.planning.plan import Plan, PublicPlan
from papers.falcon2020.planning.plans import planner_of
from privcirnet.he.bfv.parameters import SEAL_SEED_BYTES, key_bytes, message_bytes
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import Network, PixelRange
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.one_message.description import OneMessageDescription
from privcirnet.he.protocol.wire import MessageSizes

_WORD = 8
"""Bytes of a residue in the clear-text engine's messages."""


@dataclass(frozen=True)
class Description(OneMessageDescription):
    """What both parties know of a program: no weight.

    Attributes:
        log_step: real logit = result x 2^log_step.
        shift: bits that are dropped of a stored pixel; the rest is what is encrypted.
    """

    plan: PublicPlan
    parameters: LeveledParameters
    log_step: int
    shift: int = 0
    mode = "leveled"

    @property
    def pixels(self) -> PixelRange:
        """As they are stored: all of them that are in range once their lower bits are dropped."""
        return PixelRange(self.plan.image, self.plan.low, ((self.plan.high + 1) << self.shift) - 1)

    @property
    def request_bits(self) -> tuple[int, ...]:
        return self.parameters.data_bits

    @property
    def parameters_in_words(self) -> str:
        own = self.parameters
        return f"n = {own.ring_degree}, log q = {sum(own.data_bits)}, {len(own.moduli)} plain moduli"

    @property
    def classes(self) -> int:
        return len(self.plan.results) // self.plan.batch

    @property
    def result_log_step(self) -> int:
        return self.log_step

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages, whatever the engine."""
        plan, moduli = self.plan, self.parameters.moduli
        rows, clear = (1 if self.together else len(moduli)), _WORD * plan.ring_degree
        up, down = (max(size, clear) for size in message_bytes(self.parameters.at(0, plan.primes), SEAL_SEED_BYTES))
        if self.together:
            keys = max(self.parameters.key_bytes(plan.primes, plan.keys), clear * len(moduli))
            up = max(self.parameters.request_bytes, clear * len(moduli))
        else:
            keys = up + len(plan.keys) * max(key_bytes(moduli[0], SEAL_SEED_BYTES), _WORD)
        return MessageSizes(
            keys=wire.framed_bytes([keys] * rows),
            request=wire.framed_bytes([up] * plan.inputs * rows) + wire.framed_bytes([0] * plan.inputs * len(moduli)),
            reply=wire.framed_bytes([down] * plan.outputs * len(moduli)),
        )

    @property
    def together(self) -> bool:
        """Whether one request and one set of keys serve all plain moduli: as the kernels have it, and SEAL has not."""
        return bool(self.parameters.request_bits)

    @property
    def inputs(self) -> int:
        """Ciphertexts of a row of a request."""
        return self.plan.inputs

    @property
    def outputs(self) -> int:
        """Ciphertexts of a row of an answer."""
        return self.plan.outputs

    def requests(self, images: Sequence[Values] | Values) -> Iterator[tuple[Values, int, int]]:
        pixels, plan = self.shifted(np.asarray(images)), self.plan
        if plan.lanes is None:
            yield from ((image, 1, 1) for image in pixels)
            return
        for start in range(0, len(pixels), plan.batch):
            some = pixels[start : start + plan.batch]
            yield some, len(some), plan.batch

    def shifted(self, stored: np.ndarray) -> np.ndarray:
        """Return images as the network takes them; ``stored``: integers as the data set has them, (N, C, H, W)."""
        return stored >> self.shift


@dataclass(frozen=True)
class LeveledProgram:
    """A network that can be served.

    Attributes:
        planner: name of its plan, see :data:`papers.falcon2020.planning.plans.PLANS`.
        shift: bits that are dropped of a stored pixel.
        made: its plan, if it was made already.

    Raises:
        RuleError: the plan is unknown, or not for this network.
        DoesNotFit: the network is deeper, or its values are larger, than the parameters carry.
    """

    network: Network
    planner: str
    parameters: LeveledParameters
    shift: int = 0
    made: Plan | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_parameters(self.parameters, self.plan.circuit, self.exact.bits)

    def __reduce__(self) -> tuple[type["LeveledProgram"], tuple[object, ...]]:
        """Return how to make it again in another process: plans have functions in them."""
        return LeveledProgram, (self.network, self.planner, self.parameters, self.shift)

    @cached_property
    def exact(self) -> ExactNetwork:
        """The network's layers with a square between each two."""
        return exact_network_of(self.network)

    @property
    def log_step(self) -> int:
        """Real logit = result x 2^log_step."""
        return self.network.output.log_step

    @cached_property
    def plan(self) -> Plan:
        """The network's circuit, and what its messages hold."""
        return self.made or plan_at(self.exact, planner_of(self.planner), self.parameters)

    @cached_property
    def description(self) -> Description:
        """What a client is told."""
        return Description(self.plan.public, self.parameters, self.log_step, self.shift)

    @cached_property
    def ends(self) -> dict[str, int]:
        """The last value of every layer and square, by name: what an audit looks at."""
        circuit = self.plan.circuit
        return {name: number for number, name in enumerate(circuit.layers, circuit.inputs)}
