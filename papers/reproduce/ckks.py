"""NeuJeans in CKKS: counts of its encodings, the client's part of an ImageNet image, and its seconds from counts."""

import statistics
import time
from itertools import pairwise

import numpy as np

from papers.ckks import cins, compared, convolution
from papers.reproduce.cells import Values
from privcirnet.errors import RuleError
from privcirnet.he.ckks import program
from privcirnet.he.ckks.bootstrapping import parameters_for
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.embedding import Reals
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ckks.server import CkksServer
from privcirnet.he.ckks.slotwise import Layout
from privcirnet.he.system import threads as in_use

_N, _LEVELS, _SCALE_BITS, _MB = 65536, 1, 42, 1e6
"""One level: a convolution, after which comes a bootstrapping. NeuJeans' scale (Table 3)."""
_RUNS, _PRECISION = 5, 2.0**-18


def operations(encoding: str, channels: int, kernel: int, depthwise: bool = False) -> Values:
    """Return the counts of a layer in CKKS, all channels in one message.

    Args:
        encoding: "slot", "coefficient" or "cins".
        depthwise: whether each channel has one kernel.
    """
    counts = compared.counts(encoding, channels, kernel, depthwise=depthwise)
    return {"HE-Pmult": counts["pmult"], "HE-Rot": counts["rotate"]}


def downsampling(channels: int, width: int, kernel: int = 3) -> Values:
    """Return how many times fewer ciphertexts a convolution with stride 2 has over phases than one that is cut later.

    Two ciphertexts of inputs, twice as many outputs as inputs (NeuJeans, section 6.3): outputs of phases are dense; a
    convolution with stride 1 leaves one place in four for each. Every ciphertext is bootstrapped.

    Args:
        kernel: f.
    """
    weights = np.ones((4 * channels, 2 * channels, kernel, kernel))
    sparse = convolution.convolution(weights, channels, width)
    dense = convolution.strided(weights, 2, 4 * channels, width // 2)
    return {"ciphertexts, times fewer": len(sparse) / len(dense)}


def imagenet() -> Values:
    """Return the processor seconds of an ImageNet image in ResNet-18 with AESPA, predicted from counts.

    Maps are padded to powers of two: 128 behind the stem, whose 7 x 7 kernel has 16 taps over phases, then 64 to 8. Of
    every block the sum is bootstrapped, two ciphertexts as one of complex slots. Convolutions are at level 5 on
    average; their rotations and squares are left out.
    """
    slots, stem = _N // 2, Layout(64, 128, _N // 2)
    stages = [Layout(64 << i, 64 >> i, slots) for i in range(4)]
    diagonals = _diagonals(Layout(16, 128, slots), stem, 16) + 4 * _diagonals(stages[0], stages[0], 9)
    for before, stage in pairwise(stages):
        phases = Layout(4 * before.channels, stage.size, slots)
        diagonals += 3 * _diagonals(stage, stage, 9) + _diagonals(phases, stage, 4) + _diagonals(phases, stage, 1)
    convolutions = program.diagonal_seconds(diagonals, 5, parameters_for())
    bootstrapped = sum(program.part_seconds(each.parts) for each in [stem, *stages, *stages])
    return {
        "convolutions": convolutions,
        "CtoS, ModEval, StoC": bootstrapped,
        "latency": convolutions + bootstrapped,
    }


def _diagonals(source: Layout, target: Layout, taps: int) -> int:
    """Of a convolution in slot encoding (:mod:`ckks.slotwise`)."""
    own = source.own // 2 if source.parts == 1 else source.own
    return target.parts * max(source.parts // 2, 1) * own * taps


def client_costs(slices: int, messages: int) -> Values:
    """Return what a client does for an image, on one thread: encode, encrypt, decrypt one result; and bytes.

    Args:
        slices: channels in a message, each with n / slices places.

    Raises:
        RuleError: what is decrypted is not what was encrypted.
    """
    parameters = CkksParameters(_N, _LEVELS, _SCALE_BITS)
    client, server = CkksClient(parameters), CkksServer(parameters)
    maps = np.random.default_rng(0).random((messages, slices, _N // slices))
    with in_use.using(1):
        found = [_image(client, server, maps) for _ in range(_RUNS + 1)][1:]  # the first loads compiled kernels
    client.close()
    return {quantity: statistics.median(values[quantity] for values in found) for quantity in found[0]}


def _image(client: CkksClient, server: CkksServer, maps: Reals) -> Values:
    """Encrypt an image's messages, (messages, slices, places), and decrypt the first of them."""
    start = time.process_time()
    sent = [client.encrypt(cins.encode(each)) for each in maps]
    encryption = time.process_time() - start
    reply = server.reply(server.receive(sent[0]))
    start = time.process_time()
    slots = client.decrypt(reply)
    decryption = time.process_time() - start
    if (error := np.abs(cins.decode(slots, maps.shape[2]) - maps[0]).max()) > _PRECISION:
        rule = "a decrypted map must be the one that was encrypted"
        raise RuleError(rule, got=f"an error of {error:.2g}", remedy="report it, with this line")
    sizes = {"ciphertext up": sum(map(len, sent)) / _MB, "ciphertext down": len(reply) / _MB}
    return {"encryption": encryption, "decryption": decryption, **sizes}
