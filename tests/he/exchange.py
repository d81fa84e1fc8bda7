"""One linear layer from plain input to plain output, both parties, and the slow oracle for it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privcirnet.he.encodings import spectral
from privcirnet.he.encodings.integer import Values
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.engines import cleartext
from privcirnet.he.engines.interface import client_engine, server_engine
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.protocol.exchange import Held
from privcirnet.he.protocol.linear import LinearExchange
from privcirnet.he.ring import modular, sampling


class Watched(cleartext.CleartextServer):
    """The clear-text server, keeping the column steps that it rotated by."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.steps: set[int] = set()

    def rotate(self, ciphertext: cleartext.Slots, step: int, keys: frozenset[int]) -> cleartext.Slots:
        self.steps.add(step)
        return super().rotate(ciphertext, step, keys)


@dataclass
class Party:
    """Both engines and the layer's weights, ready for exchanges."""

    layer: SpectralLayer
    rows: Values
    bias: Values
    parameters: Parameters
    mask_bound: int | None = None
    engine: str = "cleartext"
    client: Any = field(init=False)
    server: Any = field(init=False)

    def __post_init__(self) -> None:
        self.client = client_engine(self.engine, self.parameters)
        watched = self.engine == "cleartext"
        self.server = Watched(self.parameters) if watched else server_engine(self.engine, self.parameters)
        t, steps = self.parameters.plain_modulus, self.layer.column_steps
        encoded = encode_weights(self.layer, spectral.weight_spectrum(self.layer.layout, self.rows, t), self.server)
        self.exchange, self.held = LinearExchange(self.layer), Held(encoded, self.bias, self.mask_bound)
        self.keys = self.server.load_keys(self.client.public_keys(steps), steps)

    def run(self, x: Values) -> Values:
        """The layer's output on a shared input."""
        t = self.parameters.plain_modulus
        theirs = sampling.uniform(x.shape, t)
        ours = modular.subtract(modular.residues(x, t), theirs, t)
        request = self.exchange.request([ours], self.client)
        replies, own = self.exchange.reply(self.held, [theirs], request, self.server, self.keys)
        return modular.centered(modular.add(self.exchange.finish([ours], replies, self.client), own, t), t)


def random_rows(shape: LinearShape, b: int, seed: int = 0, largest: int = 100) -> Values:
    """First rows of circulant block rows, no weight zero."""
    random = np.random.default_rng(seed)
    sizes = shape.weight_shape(b)
    return random.integers(1, largest + 1, sizes) * random.choice([-1, 1], sizes)


def random_input(shape: LinearShape, seed: int = 1, largest: int = 100) -> Values:
    return np.random.default_rng(seed).integers(-largest, largest + 1, shape.input_shape)


def slow_layer(shape: LinearShape, b: int, rows: Values, bias: Values, x: Values) -> Values:
    """Direct sums with block[i, j] = w[(i - j) mod b], the first row holding w[-j mod b]; no code of the package.

    Channels of different groups have no weight in common: the dense matrix is zero there.
    """
    outputs, inputs = shape.out_channels // shape.groups, shape.in_channels // shape.groups
    dense = np.zeros((shape.out_channels, shape.in_channels, shape.kernel, shape.kernel), dtype=np.int64)
    for k in range(shape.out_channels):
        for c in range(inputs):
            dense[k, k // outputs * inputs + c] = rows[k // b, c // b * b + (c % b - k % b) % b]
    padded = np.pad(x, ((0, 0), (shape.padding,) * 2, (shape.padding,) * 2))
    height, width = ((size + 2 * shape.padding - shape.kernel) // shape.stride + 1 for size in x.shape[1:])
    y = np.zeros((shape.out_channels, height, width), dtype=np.int64)
    for r in range(shape.kernel):
        for s in range(shape.kernel):
            ends = r + (height - 1) * shape.stride + 1, s + (width - 1) * shape.stride + 1
            y += np.einsum(
                "kc,chw->khw", dense[:, :, r, s], padded[:, r : ends[0] : shape.stride, s : ends[1] : shape.stride]
            )
    return y + bias[:, None, None]
