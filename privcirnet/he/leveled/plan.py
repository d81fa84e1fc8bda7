"""A plan: a network's circuit, and what its ciphertexts hold at both ends.

A *window* message holds, for one weight of a kernel, the pixel that each place of the output sees through it (LoLa's
convolution representation): a convolution is then a sum of products without rotations. The client makes windows of its
image in clear.
"""

from dataclasses import dataclass, field

import numpy as np

from privcirnet.he.leveled.circuit import Circuit
from privcirnet.he.leveled.network import LeveledNetwork

Places = tuple[int, int]
"""(output, slot): of the values that are sent back."""


@dataclass(frozen=True)
class Plan:
    """How both parties compute a network.

    Attributes:
        network: what is computed.
        circuit: its steps.
        columns: for each slot of every message, which place of the first layer's output it is for, -1 for none: (n,).
        results: where each result stands.
    """

    network: LeveledNetwork
    circuit: Circuit
    columns: np.ndarray = field(repr=False)
    results: tuple[Places, ...] = field(repr=False)

    def encode(self, image: np.ndarray) -> np.ndarray:
        """Return an image as slots: a message for each weight of a kernel.

        Args:
            image: integers, (C, H, W).

        Returns:
            integers, (inputs, n).

        Raises:
            RuleError: a pixel is out of range, or the image has another shape.
        """
        self.network.check_image(image)
        windows = self.network.layers[0].windows(image)
        return np.where(self.columns >= 0, windows[:, self.columns], 0)

    def decode(self, slots: np.ndarray) -> np.ndarray:
        """Return the results.

        Args:
            slots: integers, (outputs, n).

        Returns:
            integers, (K,).
        """
        return np.array([slots[place] for place in self.results], dtype=slots.dtype)

    def free(self, output: int) -> np.ndarray:
        """Return the slots of an output that hold no result, and are masked: bool, (n,).

        Args:
            output: its number.
        """
        free = np.ones(self.circuit.ring_degree, dtype=bool)
        free[[slot for number, slot in self.results if number == output]] = False
        return free
