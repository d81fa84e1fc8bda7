"""One layer in coefficient encoding from shared input to shared output, both parties, and the slow oracle for it."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.integer import Values
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.engines.interface import ClientEngine, ServerEngine, client_engine, server_engine
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.ring import modular, sampling

MANY_TILES = LinearShape(90, 70, 2, 3, 3, 1, 1)
"""Its maps are cut in tiles at a ring degree of 2048."""


@dataclass
class Exchange:
    """Both engines and a layer's weights; counts the bytes of the last run."""

    layer: CoefficientLayer
    rows: Values
    parameters: Parameters
    engine: str = "cleartext"
    client: ClientEngine = field(init=False)
    server: ServerEngine = field(init=False)
    sent: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.client, self.server = (make(self.engine, self.parameters) for make in (client_engine, server_engine))
        self.keys = self.server.load_keys(self.client.public_keys([]), self.layer.column_steps)
        self.weights = self.layer.encode_spectrum(
            self.layer.spectrum(self.rows, self.parameters.plain_modulus), self.server, "conv1"
        )

    def results(self, x: Values) -> list[object]:
        """Ciphertexts of the outputs, not hidden, of a shared input."""
        t = self.parameters.plain_modulus
        theirs = sampling.uniform(x.shape, t)
        ours = modular.subtract(modular.residues(x, t), theirs, t)
        self.requests = [self.client.encrypt(row) for row in self.layer.encode_input(ours, t)]
        inputs = self.server.receive_all(self.requests, self.layer.encode_input(theirs, t))
        return self.layer.evaluate(self.weights, inputs, self.server, self.keys)

    def replies(self, x: Values) -> tuple[list[bytes], np.ndarray]:
        """Masked replies and the server's share of the output."""
        layer, t = self.layer, self.parameters.plain_modulus
        own = sampling.uniform(layer.shape.output_shape, t)
        mask = layer.encode_mask(own, sampling.uniform((layer.ciphertexts_out, layer.ring_degree), t), t)
        minus = modular.subtract(np.zeros_like(mask), mask, t)
        return self.server.reply_all(self.results(x), minus, self.keys, layer.kept), own

    def run(self, x: Values) -> Values:
        """The layer's output."""
        t = self.parameters.plain_modulus
        messages, own = self.replies(x)
        self.sent = sum(map(len, self.requests)), sum(map(len, messages))
        slots = [self.client.decrypt(m, kept) for m, kept in zip(messages, self.layer.kept, strict=True)]
        return modular.centered(modular.add(self.layer.decode_output(np.stack(slots), t), own, t), t)


def slow_grouped(shape: LinearShape, weight: Values, x: Values) -> Values:
    """Direct sums, no code of the package: weight (K, C/groups, R, R), x (C, H, W)."""
    y = np.zeros(shape.output_shape, dtype=np.int64)
    padded = np.pad(x, ((0, 0), (shape.padding,) * 2, (shape.padding,) * 2))
    inputs, outputs = shape.in_channels // shape.groups, shape.out_channels // shape.groups
    for k in range(shape.out_channels):
        own = padded[k // outputs * inputs : (k // outputs + 1) * inputs]
        for u in range(y.shape[1]):
            for v in range(y.shape[2]):
                top, left = u * shape.stride, v * shape.stride
                y[k, u, v] = (weight[k] * own[:, top : top + shape.kernel, left : left + shape.kernel]).sum()
    return y


def random_weights(shape: LinearShape, seed: int = 0, largest: int = 128) -> Values:
    """Dense weights (K, C/groups, R, R), none zero."""
    random = np.random.default_rng(seed)
    sizes = (shape.out_channels, shape.in_channels // shape.groups, shape.kernel, shape.kernel)
    return random.integers(1, largest + 1, sizes) * random.choice([-1, 1], sizes)


def random_input(shape: LinearShape, seed: int = 1) -> Values:
    return np.random.default_rng(seed).integers(-1000, 1001, shape.input_shape)


@st.composite
def shapes(draw: st.DrawFn, most_groups: int = 7, most_channels: int = 3, largest: int = 12) -> LinearShape:
    """Any kernel, stride, padding, rectangular map, groups, channels a group in and out."""
    kernel, stride = draw(st.sampled_from([1, 3, 5, 7])), draw(st.sampled_from([1, 2, 3]))
    padding = draw(st.integers(0, kernel - 1))
    height, width = (max(draw(st.integers(1, largest)), kernel - 2 * padding) for _ in range(2))
    groups = draw(st.integers(1, most_groups))
    inputs, outputs = (groups * draw(st.integers(1, most_channels)) for _ in range(2))
    return LinearShape(height, width, inputs, outputs, kernel, stride, padding, groups)
