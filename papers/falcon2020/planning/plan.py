"""A plan: a network's circuit, and what its ciphertexts hold at both ends.

A *window* message holds, for one weight of a kernel, the pixel that each place of the output sees through it (LoLa's
convolution representation): a convolution is then a sum of products without rotations. The client makes windows of its
image in clear.

The client's half, :class:`PublicPlan`, has no weight in it: what it says follows from the architecture, but for the
bits of the results.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from papers.falcon2020.circuits.network_circuit import NetworkCircuit
from papers.falcon2020.planning.exact_network import ExactNetwork, check_image
from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import windows
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.program import ImpossibleResultError
from privcirnet.he.ring.modular import Residues

Places = tuple[tuple[int, int], ...]
"""(output, slot) of each result."""


@dataclass(frozen=True)
class PublicPlan:
    """What both parties know of how a network is computed.

    Attributes:
        image: (C, H, W) of an image.
        first: dimensions of a layer whose windows the messages hold; its input has as many values as an image.
        low: least value of a pixel.
        high: largest value of a pixel.
        columns: for each slot of every message, which place of the first layer's output it is for, -1 for none: (n,).
        results: where each result stands; of a batch image by image.
        kernels: for each slot of every message which weight of a kernel it meets, -1 for none, (inputs, n); None: a
            message for each weight.
        summed: columns to the right of a result's place, 0 first, whose values the client adds up to the result.
        keys: names of switch keys (:mod:`rlwe.switch_keys`), and data primes of what they switch.
        primes: data primes of an answer.
        lanes: for each slot which image of a batch it is for: (n,); None: a request has one image.
    """

    image: tuple[int, int, int]
    first: LinearShape
    low: int
    high: int
    bits: int
    ring_degree: int
    inputs: int
    outputs: int
    columns: np.ndarray = field(repr=False)
    results: Places = field(repr=False)
    kernels: np.ndarray | None = field(default=None, repr=False)
    summed: tuple[int, ...] = (0,)
    keys: tuple[tuple[int, int], ...] = ()
    primes: int = 0
    lanes: np.ndarray | None = field(default=None, repr=False)

    @property
    def batch(self) -> int:
        """Images of a request, at most."""
        return 1 if self.lanes is None else int(self.lanes.max()) + 1

    def encode(self, image: np.ndarray) -> np.ndarray:
        """Return an image as slots: a message for each weight of a kernel.

        Args:
            image: integers, (C, H, W); of a batch (B, C, H, W) with B at most ``batch``.

        Returns:
            integers, (inputs, n).
        """
        if self.lanes is None:
            seen = self._windows(image)
            if self.kernels is None:
                return np.where(self.columns >= 0, seen[:, self.columns], 0)
            return np.where((self.columns >= 0) & (self.kernels >= 0), seen[self.kernels, self.columns], 0)
        if not 1 <= len(image) <= self.batch:
            rule = f"a request must have 1 to {self.batch} images"
            raise RuleError(rule, got=len(image), remedy="send them in several requests")
        every = np.stack([self._windows(one) for one in image], axis=1)
        held = (self.columns >= 0) & (self.lanes < len(image))
        return np.where(held, every[:, np.where(held, self.lanes, 0), self.columns], 0)

    def _windows(self, image: np.ndarray) -> np.ndarray:
        check_image(image, self.image, self.low, self.high)
        return windows(self.first, image.reshape(self.first.input_shape))

    def gather(self, slots: Residues, t: int) -> Residues:
        """Return the residues of the results, (K,): sums of what the client sees.

        Args:
            slots: residues mod t, (outputs, n).
        """
        sums = [slots[output, self.slots(place)].sum(dtype=object) % t for output, place in self.results]
        return np.array(sums, dtype=np.uint64)

    def slots(self, place: int) -> np.ndarray:
        """Return the slots that add up to a result."""
        return place + np.array(self.summed)

    def decode(self, found: np.ndarray) -> np.ndarray:
        """Return the results.

        Args:
            found: integers, (K,); of a batch those of each image in turn.

        Raises:
            ImpossibleResultError: one has more bits than the network's results: keys, parameters or the answer are
            foreign.
        """
        if found.size and 2 * int(np.abs(found).max()) >= 1 << self.bits:
            rule = f"a result must have at most {self.bits} bits, or it is wrong"
            remedy = "use the server's program and parameters; never tell the server what was wrong"
            got = f"{int(np.abs(found).max()).bit_length() + 1} bits"
            raise ImpossibleResultError(rule, got=got, remedy=remedy, values=found)
        return found


@dataclass(frozen=True)
class Plan:
    """How the server computes a network."""

    network: ExactNetwork
    circuit: NetworkCircuit
    public: PublicPlan

    def added(self, summed: tuple[int, ...]) -> "Plan":
        """Return the plan with results that the client adds up."""
        return replace(self, public=replace(self.public, summed=summed))

    def packed(self, kernels: np.ndarray, summed: tuple[int, ...]) -> "Plan":
        """Return the plan with messages that hold several windows, and results that the client adds up."""
        return replace(self, public=replace(self.public, kernels=kernels, summed=summed))


def plan_of(
    network: ExactNetwork,
    circuit: NetworkCircuit,
    columns: np.ndarray,
    results: Sequence[tuple[int, int]],
    first: LinearShape | None = None,
    *,
    lanes: np.ndarray | None = None,
) -> Plan:
    """Return a plan.

    Args:
        first: likewise; None: the first layer's.
        lanes: likewise; None: a request has one image.
    """
    counts = circuit.ring_degree, circuit.inputs, len(circuit.outputs)
    range_, seen = (network.low, network.high, network.bits), first or network.layers[0].shape
    return Plan(
        network,
        circuit,
        PublicPlan(network.input_shape, seen, *range_, *counts, columns, tuple(results), lanes=lanes),
    )
