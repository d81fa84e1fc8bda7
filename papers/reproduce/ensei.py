"""ENSEI's moduli at work: how many outputs of an encrypted layer are wrong, and its requests in the NTT domain."""

import statistics
import time
from collections.abc import Sequence

import numpy as np

from papers.ensei import moduli as ensei
from papers.ensei.exchange import Convolution, Exchange, wrong_share
from papers.ensei.moduli import Moduli, Sums
from papers.ensei.ntt_requests import NttClient, NttServer
from papers.reproduce.cells import Values
from papers.reproduce.layers import LayerCase, without_rotations
from privcirnet.he.bfv.client import KernelClient
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.kernel_engine import KernelServer
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, Parameters, choose, ordered_primes
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Integers
from privcirnet.he.rlwe.kernels.rns import ring
from privcirnet.he.system import threads as in_use

SETS = {2048: (37, 16), 8192: DEFAULT_COEFFICIENT_BITS}
"""n -> bits of the primes of q, 128-bit secure. That of 2048 decrypts one product under t = 12289 and has no room for
flooding: it is for showing which results are wrong, not for anybody's weights."""

_RUNS, _PLAIN_BITS = 31, 30


def layer_of(conv: Sequence[int], n: int) -> SpectralLayer:
    """Return a convolution without rotations.

    Args:
        conv: H, W, C, K, R, with same padding.
    """
    return without_rotations(LayerCase(conv=conv).shape, n)


def sums_of(conv: Sequence[int], bits: Sequence[int]) -> Sums:
    """Return what a layer adds up.

    Args:
        conv: see :func:`layer_of`.
        bits: of unsigned inputs and of signed weights; 1 for weights of +-1.
    """
    return Sums(conv[2], conv[-1] ** 2, 2 ** bits[0] - 1, max(1, 2 ** (bits[1] - 1) - 1))


def random_values(layer: SpectralLayer, sums: Sums, *, binary: bool) -> tuple[Integers, Integers]:
    """Return inputs and weights.

    Args:
        binary: whether weights are +-1.

    Returns:
        (inputs of shape (C, H, W), weights of shape (K, C, R, R)).
    """
    random = np.random.default_rng(0)
    most, shape = sums.largest_weight, layer.shape.weight_shape(1)
    rows = random.choice([-1, 1], shape) if binary else random.integers(-most, most + 1, shape)
    return random.integers(0, sums.largest_input + 1, layer.shape.input_shape), rows


def run(
    conv: Sequence[int], bits: Sequence[int], moduli: Moduli, parameters: Parameters, engine: str = "kernel"
) -> tuple[float, Exchange]:
    """Run a layer encrypted, twice, because the first run loads compiled kernels; times are processor seconds.

    Args:
        conv: see :func:`layer_of`.
        bits: see :func:`sums_of`.
        moduli: any; masks are uniform mod p_A.
        parameters: with p_E as the plain modulus.
        engine: of both parties; "cleartext" hides nothing.

    Returns:
        (share of the outputs that are wrong, the second run).
    """
    layer = layer_of(conv, parameters.ring_degree)
    x, rows = random_values(layer, sums_of(conv, bits), binary=bits[1] == 1)
    sides = engine_of(engine).parties(parameters)
    both, bias = Convolution(layer, rows, moduli, moduli.sharing, *sides), np.zeros(len(rows), dtype=np.int64)
    both.run(x, bias)
    found = both.run(x, bias)
    sides[0].close()
    return wrong_share(found.output, x, rows, layer), found


def wrong_outputs(
    conv: Sequence[int], bits: Sequence[int], n: int, moduli: Sequence[int] = (), engine: str = "kernel"
) -> Values:
    """Return the share of an encrypted layer's outputs that are wrong, for random inputs and weights.

    Args:
        conv: see :func:`layer_of`.
        bits: see :func:`sums_of`.
        n: ring degree, of :data:`SETS`.
        moduli: p_N, p_A, p_E; empty for those that :func:`ensei.moduli.equal` finds.
    """
    lengths = layer_of(conv, n).transform_lengths
    found = Moduli(*moduli) if moduli else ensei.equal(sums_of(conv, bits), lengths, n)
    with in_use.using(1):
        wrong, _ = run(conv, bits, found, Parameters(n, SETS[n], found.encryption), engine)
    return {"wrong outputs": 100 * wrong, "p_N": found.ntt, "p_A": found.sharing, "p_E": found.encryption}


def request_speedup(conv: Sequence[int], n: int = 8192) -> Values:
    """Return how many times as fast requests in the NTT domain are, from the client's slots to the products' inputs.

    On one thread, in turns, without what is made ahead.

    Args:
        conv: see :func:`layer_of`.
    """
    layer = layer_of(conv, n)
    parameters = choose(layer.transform_lengths, _PLAIN_BITS, n, SETS[n])
    client, server = KernelClient(parameters), KernelServer(parameters)
    requests, receiver = NttClient(client), NttServer(parameters)
    values = ring(ordered_primes(n, parameters.coefficient_bits)[:-1], n)
    shape, ratios = (layer.ciphertexts_in, n), list[float]()
    with in_use.using(1):
        for _ in range(_RUNS + 1):
            ours, theirs = (sampling.uniform(shape, parameters.plain_modulus) for _ in range(2))
            receiver.ahead(requests.ahead(len(ours)))
            start = time.process_time()
            receiver.receive(requests.request(ours), theirs)
            middle = time.process_time()
            for own in server.receive_all(client.encrypt_all(ours), theirs):
                values.values(own.residues)
            ratios.append((time.process_time() - middle) / (middle - start))
    client.close()
    return {"request, times as fast": statistics.median(ratios[1:])}
