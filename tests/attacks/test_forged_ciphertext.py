"""A client reads weights out of the noise of replies. It works: nothing proves that a ciphertext was encrypted.

The attacker takes zero as its secret key, and sends c0 = q / (t 2^j), a constant that is a fraction of a plaintext's
unit. A layer multiplies it by a weight polynomial w. The mask is a multiple of the unit, so modulo the unit the reply
holds w / 2^j: the lowest j bits of each coefficient of w, as far as flooding leaves them. The bits known so far are
subtracted, and the next ones follow from the next request. Flooding hides the noise of honest ciphertexts only.
"""

import numpy as np

from privcirnet.he.bfv import batching
from privcirnet.he.bfv.parameters import Parameters, choose
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.ring import modular
from tests.attacks.hostile import constant, first_polynomial, first_reply, keys_of_zero, modulus_of
from tests.he.exchange import random_rows

STEM = cheapest_layer(LinearShape(8, 8, 3, 16, 3, 1, 1), 1, COUNTED, LINKS["local"])
BITS, FINE = 2, 4
"""Read with each request; flooding and rounding leave hardly more. How finely a coefficient is looked at."""


def stem() -> Program:
    rows = random_rows(STEM.shape, 1, 0, 127)
    nodes = (
        Node("x", Input(0, 255), (), STEM.shape.input_shape, -8),
        Node("stem", Linear(STEM), ("x",), STEM.shape.output_shape, -16),
    )
    return Program(nodes, choose(STEM.transform_lengths, 46), {"stem": Weights(rows, np.arange(16))})


def lowest_bits(reply: bytes, parameters: Parameters, bits: int) -> np.ndarray:
    """Each coefficient of the weights' plaintext modulo 2^bits, in units of 2^-FINE, with noise in the last ones read."""
    coefficients, q = first_polynomial(reply, parameters)
    scale = parameters.plain_modulus << (bits + FINE)
    return np.array([(2 * c * scale + q) // (2 * q) % (1 << (bits + FINE)) for c in coefficients], dtype=object)


def test_a_client_reads_a_whole_layer_from_two_dozen_requests() -> None:
    program = stem()
    server, parameters, t = Server(program), program.parameters, program.parameters.plain_modulus
    client = Client(server.greeting())
    keys = keys_of_zero(client)
    q = int(np.prod([int(p) for p in modulus_of(parameters).primes], dtype=object))

    known, requests = np.zeros(parameters.ring_degree, dtype=object), range(BITS, t.bit_length() + BITS, BITS)
    for bits in requests:
        with server.session(keys) as session:
            reply = first_reply(session, [constant(q // (t << bits), parameters)])
        found = lowest_bits(reply, parameters, bits) - (known << FINE)
        step = 1 << (bits - BITS)
        known = known + (found + (step << FINE) // 2) // (step << FINE) % (1 << BITS) * step
    assert len(requests) == 23

    polynomial = np.array([(w - (w >> (bits - 1) << bits)) % t for w in known], dtype=np.uint64)
    assert (evaluated(polynomial, t) == program.weights["stem"].rows).all()


def evaluated(polynomial: np.ndarray, t: int) -> np.ndarray:
    """The weights that a plaintext stands for: what the layer makes of a single pixel in each channel."""
    slots, shape = batching.coefficients_to_slots(polynomial, t), STEM.shape
    found = np.zeros((shape.out_channels, shape.in_channels, 3, 3), dtype=np.int64)
    for channel in range(shape.in_channels):
        image = np.zeros(shape.input_shape, dtype=np.uint64)
        image[channel, 4, 4] = 1
        product = modular.multiply(STEM.encode_input(image, t), slots[None], t)
        around = modular.centered(STEM.decode_output(product, t), t)[:, 3:6, 3:6]
        found[:, channel] = around[:, ::-1, ::-1]
    return found
