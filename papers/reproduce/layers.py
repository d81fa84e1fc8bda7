"""The layers that cells name: shape, encoding and parameters from plain data, and the bytes of their messages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from papers.coefficients import cheetah
from papers.coefficients.layer import COEFFICIENT_ENCODINGS, CoefficientLayer
from papers.layouts.named import published_named
from privcirnet.he.bfv.parameters import (
    DEFAULT_COEFFICIENT_BITS,
    NARROW_COEFFICIENT_BITS,
    WIDE_COEFFICIENT_BITS,
    Parameters,
    choose,
    ciphertext_bytes,
    key_bytes,
)
from privcirnet.he.layers.layer import Layer, layer_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning.planner import candidate_layers, counted_goal, plan_named

INSECURE_ENSEI_PRIMES = (60, 60)
"""ENSEI's 60 bits at n = 2048, and a special prime that nothing uses. For counts and bytes alone: today's table allows
53 bits, so no parameters and no keys can be made of it."""

PRIMES = {
    2048: INSECURE_ENSEI_PRIMES,
    4096: NARROW_COEFFICIENT_BITS,
    8192: DEFAULT_COEFFICIENT_BITS,
    16384: WIDE_COEFFICIENT_BITS,
    32768: WIDE_COEFFICIENT_BITS,
}
"""n -> bits of the primes of q, of which n = 4096 carries plain moduli of 30 bits, the others of 41 and more."""

PLAIN_BITS = {2048: 22, 4096: 30}
"""n -> bits of t where it is not 41, the papers'."""


@dataclass(frozen=True)
class LayerCase:
    """A layer as a cell names it.

    Attributes:
        gemm: d1, d2, d3; empty for a convolution.
        conv: H, W, C, K, R with same padding; empty for a GEMM.
        encoding: of :data:`planning.planner.NAMES` or :data:`coefficients.layer.NAMES`; "iron" for a published layout.
        layout: "paper" (sums encrypted, least HE-Rot + 0.135 HE-Pmult) or "published" (the papers' own plan).
        t_bits: bits of t; 0 for 30 at n = 4096 and 41 elsewhere.
    """

    gemm: Sequence[int] = ()
    conv: Sequence[int] = ()
    b: int = 1
    encoding: str = "cirencode"
    layout: str = "paper"
    n: int = 8192
    groups: int = 1
    t_bits: int = 0

    @cached_property
    def shape(self) -> LinearShape:
        """Dimensions of the layer."""
        if self.gemm:
            return LinearShape.gemm(*self.gemm)
        height, width, channels, maps, kernel = self.conv
        return LinearShape(height, width, channels, maps, kernel, 1, (kernel - 1) // 2, self.groups)

    @cached_property
    def layer(self) -> Layer:
        """The layer, planned."""
        if self.layout == "published":
            return published_named(self.encoding, self.shape, self.b, self.n)
        if self.encoding == "ensei":
            return without_rotations(self.shape, self.n)
        if self.encoding in COEFFICIENT_ENCODINGS:
            return CoefficientLayer(self.shape, self.b, self.n, self.encoding)
        return plan_named(self.encoding, self.shape, self.b, counted_goal(self.n)).layer

    @property
    def primes(self) -> tuple[int, ...]:
        """Bits of the primes of q, the special prime last."""
        return PRIMES[self.n]

    @property
    def plain_bits(self) -> int:
        """Bits of t."""
        return self.t_bits or PLAIN_BITS.get(self.n, 41)

    @cached_property
    def parameters(self) -> Parameters:
        """n, q and t."""
        return choose(self.layer.transform_lengths, self.plain_bits, self.n, self.primes)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """HE-Pmult, HE-Rot, ciphertexts up and down; of a dense layer in Cheetah's encoding not by listing them."""
        layer, shape = self.layer, self.shape
        if layer.encoding != "cheetah" or shape.groups > 1 or self.layout == "published":
            return layer.pmults, layer.rotations, layer.ciphertexts_in, layer.ciphertexts_out
        flat = replace(shape, height=shape.height * shape.width, width=1) if shape.kind == "gemm" else shape
        tile = cheetah.best_tile(flat, self.n)
        up = tile.grid.tiles * -(-shape.in_channels * len(tile.grid.phases) // tile.planes)
        return cheetah.products(flat, self.n), 0, up, tile.grid.tiles * -(-shape.out_channels // tile.outputs)

    @property
    def message_bytes(self) -> tuple[int, int]:
        """Bytes that the client sends and that the server sends back, exactly."""
        return layer_bytes(self.layer, self.primes, self.plain_bits)

    @property
    def public_key_bytes(self) -> int:
        """Bytes of the keys that the client sends once: an encryption of zero, and a Galois key for each rotation."""
        up, _ = ciphertext_bytes(self.n, self.primes, self.plain_bits)
        return up + len(self.layer.column_steps) * key_bytes(self.parameters)


def without_rotations(shape: LinearShape, ring_degree: int) -> SpectralLayer:
    """Return a layer with b = 1 and every sum of lanes on shares, as ENSEI has it, in the fewest bytes.

    First come transforms whose lengths one small prime carries.
    """

    def expense(layer: SpectralLayer) -> tuple[int, int, int]:
        return math.lcm(*layer.transform_lengths), layer.ciphertexts_in + 2 * layer.ciphertexts_out, layer.pmults

    return min((layer for layer in candidate_layers(shape, 1, ring_degree) if not layer.rotations), key=expense)
