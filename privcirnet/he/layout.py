"""Which value sits in which slot: the spectral layout of a linear layer.

A layer maps x of shape (C, H, W) to y of shape (K, H', W'); a GEMM (d1, d2, d3) is the 1 x 1 convolution with C = d2,
K = d3 and d1 positions. The circulant axis (length b) and every image axis on which the kernel reaches beyond its own
position are transformed (NTT mod t), so that the layer becomes slot-wise products between channel blocks.

One channel block is a *lane* of L = b N1 N2 values. A lane takes L' = next power of two >= L slots, half in each of the
two slot rows, so that ``rotate_rows`` by L'/2 turns the G = n / L' lanes of a ciphertext cyclically::

    row 0 | lane 0, first half  | lane 1, first half  | ... | lane G-1, first half  |
    row 1 | lane 0, second half | lane 1, second half | ... | lane G-1, second half |

Transform lengths (he.md 2.1): an image axis of H values under a "same" kernel of size R needs N = H + (R - 1) / 2
only, because the convolution wraps and one run of zeros serves both borders. Stride s: the input is split into its
s x s phase images, which become input channels of a stride-1 convolution; phases that no kernel tap reads are not sent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.modular import Residues


@dataclass(frozen=True)
class LinearShape:
    """Dimensions of a convolution or GEMM.

    Attributes:
        height: H, input rows (d1 for a GEMM).
        width: W, input columns (1 for a GEMM).
        in_channels: C (d2).
        out_channels: K (d3).
        kernel: R, square kernel.
        stride: same on both axes.
        padding: zeros on each side.
        groups: output channel k reads the C / groups input channels of its group only; weights (K, C/groups, R, R).
    """

    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    groups: int = 1

    def __post_init__(self) -> None:
        if min(self.height, self.width, self.in_channels, self.out_channels, self.kernel, self.stride) < 1:
            raise RuleError("layer dimensions must be positive", got=self, remedy="give H, W, C, K, R of 1 or more")
        if self.kernel > min(self.height, self.width) + 2 * self.padding or not 0 <= self.padding < max(self.kernel, 1):
            raise RuleError(
                "the kernel must fit the padded input and the padding must be smaller than the kernel",
                got=f"kernel {self.kernel}, padding {self.padding}, input {self.height} x {self.width}",
                remedy="use padding = (kernel - 1) / 2",
            )
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise RuleError(
                "the groups must divide the input and the output channels",
                got=f"{self.groups} groups for {self.in_channels} and {self.out_channels} channels",
                remedy="use a common divisor of both",
            )

    @classmethod
    def gemm(cls, tokens: int, in_features: int, out_features: int) -> "LinearShape":
        """The GEMM (d1, d2, d3)."""
        return cls(height=tokens, width=1, in_channels=in_features, out_channels=out_features)

    @property
    def kind(self) -> str:
        """'gemm' for 1 x 1 kernels with stride 1, else 'conv'."""
        return "gemm" if self.kernel == 1 and self.stride == 1 else "conv"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        return self.in_channels, self.height, self.width

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(K, H', W')."""
        return self.out_channels, self.rows.outputs, self.columns.outputs

    @cached_property
    def rows(self) -> "Axis":
        """The vertical axis."""
        return Axis(self.height, self.kernel, self.stride, self.padding)

    @cached_property
    def columns(self) -> "Axis":
        """The horizontal axis."""
        return Axis(self.width, self.kernel, self.stride, self.padding)


@dataclass(frozen=True)
class Axis:
    """One image axis of a convolution: y[u] = sum_r w[r] x[stride u + r - padding].

    With r - padding = stride a + phase, that is y[u] = sum over phases and taps a of w x_phase[u + a]: a
    stride-1 correlation of each phase image x_phase[m] = x[stride m + phase].
    """

    size: int
    kernel: int
    stride: int
    padding: int

    @cached_property
    def outputs(self) -> int:
        """Length of the output."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @cached_property
    def taps(self) -> dict[int, list[tuple[int, int]]]:
        """Phase -> [(kernel index r, tap offset a)], phases in ascending order."""
        found: dict[int, list[tuple[int, int]]] = {}
        for r in range(self.kernel):
            offset, phase = divmod(r - self.padding, self.stride)
            found.setdefault(phase, []).append((r, offset))
        return dict(sorted(found.items()))

    @cached_property
    def transformed(self) -> bool:
        """Whether a tap reaches beyond its own position, so that the axis needs a transform."""
        return any(offset for taps in self.taps.values() for _, offset in taps)

    @cached_property
    def length(self) -> int:
        """Cyclic length N, the smallest that will do: no output reads a wrapped value that is not zero."""
        return max(self._length_for(phase) for phase in self.taps)

    def read_size(self, phase: int) -> int:
        """Values of a phase image from its first to the last that an output reads."""
        stored = len(range(phase, self.size, self.stride))
        return max(0, min(stored, self.outputs + max(offset for _, offset in self.taps[phase])))

    def _length_for(self, phase: int) -> int:
        offsets = [offset for _, offset in self.taps[phase]]
        return max(self.read_size(phase) - min(0, *offsets), self.outputs + max(0, *offsets))


@dataclass(frozen=True)
class SpectralLayout:
    """Where the values of a layer with block size b go (see the module's picture).

    Raises:
        RuleError: b does not divide both channel counts, or a lane is longer than a ciphertext.
    """

    shape: LinearShape
    block_size: int
    ring_degree: int

    def __post_init__(self) -> None:
        channels = self.shape.in_channels, self.shape.out_channels
        if self.block_size < 1 or any(c % self.block_size for c in channels):
            raise RuleError(
                "block size must divide both weight dimensions",
                got=f"{self.block_size} for ({channels[1]}, {channels[0]})",
                remedy="use a common divisor of both",
            )
        if self.lane_slots > self.ring_degree:
            raise RuleError(
                "a lane (block size x padded positions) must fit one ciphertext",
                got=f"{self.lane_length} values for {self.ring_degree} slots",
                remedy="use a smaller block size or map, or a larger ring degree",
            )

    @property
    def phases(self) -> list[tuple[int, int]]:
        """(row phase, column phase) of each phase image, in the order of the input blocks."""
        return [(i, j) for i in self.shape.rows.taps for j in self.shape.columns.taps]

    @property
    def extent(self) -> tuple[int, int]:
        """(N1, N2): padded positions of a map."""
        return self.shape.rows.length, self.shape.columns.length

    @property
    def spectral_extent(self) -> tuple[int, int]:
        """Extent of a weight's spectrum: 1 on an axis that is not transformed (the value repeats over positions)."""
        axes = self.shape.rows, self.shape.columns
        first, second = (axis.length if axis.transformed else 1 for axis in axes)
        return first, second

    @property
    def spectrum_shape(self) -> tuple[int, int, int, int, int]:
        """(q, p, b, S1, S2): shape of all blocks' spectra, each distinct slot value of the plaintexts once."""
        return self.blocks_out, self.blocks_in, self.block_size, *self.spectral_extent

    @property
    def transform_lengths(self) -> set[int]:
        """Lengths that must divide t - 1."""
        return {self.block_size, *self.spectral_extent}

    @property
    def lane_length(self) -> int:
        """L = b N1 N2."""
        return self.block_size * self.extent[0] * self.extent[1]

    @cached_property
    def lane_slots(self) -> int:
        """L' = slots of a lane, a power of two of at least 2 (one in each row)."""
        return max(2, next_power_of_two(self.lane_length))

    @property
    def lanes(self) -> int:
        """G = lanes of a ciphertext."""
        return self.ring_degree // self.lane_slots

    @property
    def blocks_in(self) -> int:
        """P = input blocks: phases x C / b."""
        return len(self.phases) * self.shape.in_channels // self.block_size

    @property
    def blocks_out(self) -> int:
        """Q = K / b."""
        return self.shape.out_channels // self.block_size


def lanes_to_slots(lanes: Residues) -> Residues:
    """(ciphertexts, G, L') -> (ciphertexts, n): each lane's halves go to the two slot rows.

    >>> lanes_to_slots(np.arange(8, dtype=np.uint64).reshape(1, 2, 4)).tolist()
    [[0, 1, 4, 5, 2, 3, 6, 7]]
    """
    count, per_ciphertext, width = lanes.shape
    halves = lanes.reshape(count, per_ciphertext, 2, width // 2)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(count, per_ciphertext * width)


def slots_to_lanes(slots: Residues, lanes: int) -> Residues:
    """Inverse of :func:`lanes_to_slots`: (ciphertexts, n) -> (ciphertexts, G, L')."""
    count, n = slots.shape
    halves = slots.reshape(count, 2, lanes, n // lanes // 2)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(count, lanes, n // lanes)


def next_power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()
