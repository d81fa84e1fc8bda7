"""Falcon's spectral layer with quantised complex transforms and with exact ones: operations, bits, noise, error.

The layer is the circulant one of LoLa's MNIST network, 845 to 100 with k = 8, with random 8-bit weights. Inputs are
squares of 17 bits. A result is computed modulo as many plain moduli of 22 bits as it needs. Nothing is encrypted: noise
is that of the estimate, which tests hold against measured noise.

    python benchmarks/transforms.py
"""

import numpy as np

from papers.falcon2020.circuits.network_circuit import NetworkCircuit
from papers.falcon2020.circuits.noise import noise_bits
from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.planning.exact_network import ExactLayer
from papers.layouts.falcon_quantized import QuantizedLayer, exact_circuit
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring import modular

_N, _T_BITS, _INPUT_BITS, _DATA = 16384, 22, 34, (48,) * 7


def main() -> None:
    """Print a table."""
    random = np.random.default_rng(0)
    shape = LinearShape.gemm(1, 845, 100)
    rows = random.integers(-127, 128, shape.weight_shape(8))
    layer = ExactLayer("fc1", shape, 8, rows, np.zeros(100, dtype=object))
    x = random.integers(0, 1 << 17, 845) ** 2
    exact = int(np.abs(layer.matrix).sum(axis=1).max()) << _INPUT_BITS
    print("| transforms | rotations | products | bits of a result | plain moduli | noise, bits | largest error |")
    print("|---|---|---|---|---|---|---|")
    row("exact, mod t", exact_circuit(layer, _N), exact.bit_length() + 1, 0.0)
    wanted = layer.matrix.astype(object) @ x.astype(object)
    for bits in (8, 10, 12):
        made = QuantizedLayer(layer, _N, bits)
        found = made.evaluate(x >> 10) / made.scale * 1024  # in 64 bits; their roundings are what is shown
        error = float(np.abs(found - wanted.astype(float)).max() / np.abs(wanted.astype(float)).max())
        row(f"complex, {bits} bits", made.circuit(), made.result_bits(1 << _INPUT_BITS), error)


def row(name: str, circuit: NetworkCircuit, bits: int, error: float) -> None:
    """Print one of a table.

    Args:
        name: of the transforms.
        circuit: of the layer.
        bits: of a result.
        error: of a result, as a part of the largest.
    """
    t = modular.largest_prime(_T_BITS, 2 * _N)
    parameters = LeveledParameters((Parameters(_N, (*_DATA, 48), t),))
    moduli, counts = -(-bits // _T_BITS), circuit.counts
    noise = noise_bits(circuit, parameters)
    print(f"| {name} | {counts['rotate']} | {counts['pmult']} | {bits} | {moduli} | {noise} | {error:.1%} |")


if __name__ == "__main__":
    main()
