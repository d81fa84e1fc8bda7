"""One linear layer from plain input to plain output, both parties, and the slow oracle for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privcirnet.he.bfv import engines
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.ring import modular, sampling
from privcirnet.he.ring.modular import Residues


class Watched(engines.CleartextServer):
    """The clear-text server, keeping the Galois elements that it rotated by."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.elements: set[int] = set()

    def turn(self, ciphertext: engines.ClearSlots, element: int, keys: frozenset[int]) -> engines.ClearSlots:
        self.elements.add(element)
        return super().turn(ciphertext, element, keys)


@dataclass
class Party:
    """Both engines and the layer's weights, ready for exchanges; ``sent`` has the bytes of the last one, up and down."""

    layer: Layer
    rows: Values
    bias: Values | None
    parameters: Parameters
    engine: str = "cleartext"
    client: Any = field(init=False)
    server: Any = field(init=False)
    sent: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.client = engine_of(self.engine).client(self.parameters)
        watched = self.engine == "cleartext"
        self.server = Watched(self.parameters) if watched else engine_of(self.engine).server(self.parameters)
        steps, spectrum = self.layer.column_steps, self.layer.spectrum(self.rows, self.parameters.plain_modulus)
        encoded = self.layer.encode_spectrum(spectrum, self.server)
        self.exchange, self.held = LinearExchange(self.layer), PreparedNode(encoded, self.bias)
        self.keys = self.server.load_keys(self.client.public_keys(steps), steps)

    def shared(self, x: Values) -> tuple[Residues, Residues]:
        """The client's share of an input, and the server's."""
        t = self.parameters.plain_modulus
        theirs = sampling.uniform(x.shape, t)
        return modular.subtract(modular.residues(x, t), theirs, t), theirs

    def results(self, x: Values) -> Sequence[Any]:
        """Ciphertexts of the outputs, not masked and not hidden, of a shared input."""
        ours, theirs = self.shared(x)
        slots = self.layer.encode_input(theirs, self.parameters.plain_modulus)
        inputs = self.server.receive_all(self.exchange.request([ours], self.client), slots)
        return self.layer.evaluate(self.held.weights, inputs, self.server, self.keys)

    def run(self, x: Values) -> Values:
        """The layer's output on a shared input."""
        (ours, theirs), t = self.shared(x), self.parameters.plain_modulus
        request = self.exchange.request([ours], self.client)
        replies, own = self.exchange.reply(self.held, [theirs], request, self.server, self.keys)
        self.sent = sum(map(len, request)), sum(map(len, replies))
        return modular.centered(modular.add(self.exchange.finish([ours], replies, self.client), own, t), t)


def random_rows(shape: LinearShape, b: int, seed: int = 0, largest: int = 100) -> Values:
    """First rows of circulant block rows, no weight zero."""
    random = np.random.default_rng(seed)
    sizes = shape.weight_shape(b)
    return random.integers(1, largest + 1, sizes) * random.choice([-1, 1], sizes)


def random_input(shape: LinearShape, seed: int = 1, largest: int = 100) -> Values:
    return np.random.default_rng(seed).integers(-largest, largest + 1, shape.input_shape)


def slow_layer(shape: LinearShape, b: int, rows: Values, bias: Values, x: Values) -> Values:
    """Direct sums with block[i, j] = w[(i - j) mod b], the first row holding w[-j mod b]; no code of the package."""
    outputs, inputs = shape.out_channels, shape.in_channels // shape.groups
    dense = np.zeros((outputs, inputs, *shape.kernels), dtype=np.int64)
    for k in range(outputs):
        for c in range(inputs):
            dense[k, c] = rows[k // b, c // b * b + (c % b - k % b) % b]
    return slow_convolution(shape, dense, x) + bias[:, None, None]


def slow_convolution(shape: LinearShape, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Direct sums over windows, no code of the package: weight (K, C/groups, R, S), x (C, H, W), of any integers."""
    (top, bottom), (left, right) = (window.ends for window in shape.windows)
    padded = np.zeros((len(x), top + x.shape[1] + bottom, left + x.shape[2] + right), dtype=x.dtype)
    padded[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    (down, across), (rows, columns) = shape.strides, shape.kernels
    maps, channels = shape.out_channels // shape.groups, shape.in_channels // shape.groups
    height, width = (padded.shape[1] - rows) // down + 1, (padded.shape[2] - columns) // across + 1
    y = np.zeros((shape.out_channels, height, width), dtype=x.dtype)
    for k in range(shape.out_channels):
        own = padded[k // maps * channels :][:channels]
        for r in range(rows):
            for s in range(columns):
                seen = own[:, r::down, s::across][:, :height, :width]
                y[k] += (seen * weight[k, :, r, s, None, None]).sum(axis=0)
    return y
