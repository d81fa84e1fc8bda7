"""privcirnet without the client in the loop on the tutorial network: its leveled engine, one message each way.

python benchmarks/peers/leveled.py --network outputs/peers/network.npz

The weights are the peers' 8-bit ones, as integers; pixels are taken with all of their 8 bits, and nothing is rounded on
the way. Both parties are in one process. An image's time is encryption, the evaluation and the decryption.
"""

import argparse
from pathlib import Path

import numpy as np
from peer import Result, add_out, peak_bytes, timed, write

from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.packed import packed_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer
from privcirnet.he.layers.shape import LinearShape

_SHAPES = {
    "conv": LinearShape(28, 28, 1, 4, 7, 3, 0),
    "fc1": LinearShape.gemm(1, 256, 64),
    "fc2": LinearShape.gemm(1, 64, 10),
}


def integer_network(arrays: dict[str, np.ndarray], pixel_bits: int) -> tuple[ExactNetwork, int]:
    """Return the network in integers, and log2 of the step of its results."""
    layers: list[ExactLayer] = []
    step = -pixel_bits
    for name, shape in _SHAPES.items():
        weight = arrays[f"{name}.weight"].astype(np.float64)
        own = _log_step(weight)
        rows, step = np.rint(weight * 2.0**-own).astype(np.int64), step + own
        bias = np.array([round(float(b) * 2.0**-step) for b in arrays[f"{name}.bias"]], dtype=object)
        layers.append(ExactLayer(name, shape, 1, rows.reshape(shape.weight_shape(1)), bias))
        step *= 2
    return ExactNetwork(tuple(layers), 0, 2**pixel_bits - 1), step // 2


def _log_step(weight: np.ndarray) -> int:
    """log2 of the step of 8-bit weights: the largest power of two that all are multiples of."""
    return max(e for e in range(-40, 8) if not np.any(weight * 2.0**-e - np.rint(weight * 2.0**-e)))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=Path("outputs/peers/network.npz"), help="of network.py")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--pixel-bits", type=int, default=8)
    add_out(parser, "privcirnet-leveled")
    given = parser.parse_args()
    with np.load(given.network) as known:
        arrays = dict(known)
    network, log_step = integer_network(arrays, given.pixel_bits)
    plan, parameters = plan_for(network, packed_plan)
    client, server = LeveledInferenceClient(plan.public, parameters), LeveledInferenceServer(plan, parameters)
    sent = client.keys()
    keys, moved, results = server.load_keys(sent), [0], []

    def logits(image: np.ndarray) -> list[float]:
        request = client.request(image)
        answer = server.answer(request, keys)
        results.append(list(client.results(answer)))
        moved[0] = sum(len(message) for rows in (request, answer) for row in rows for message in row)
        return [float(result) * 2.0**log_step for result in results[-1]]

    images = arrays["images"][: given.images].astype(np.int64) >> 8 - given.pixel_bits
    found = timed(images, logits).facts(arrays["logits"][: len(images)], arrays["labels"][: len(images)])
    assert results == [list(network.evaluate(image)) for image in images], "a result is not the integer network's"
    write(
        given.out,
        Result(
            network="tutorial",
            peer="privcirnet leveled (BFV)",
            version="0.1.0",
            activation="square",
            interactive=False,
            parameters=f"n = {parameters.ring_degree}, log q = {sum(parameters.data_bits)}, "
            f"{len(parameters.moduli)} t of {parameters.moduli[0].plain_bits} bits",
            bytes_image=moved[0],
            bytes_once=sum(map(len, sent)),
            peak_bytes={"both": peak_bytes()},
            **found,
            notes=f"{plan.circuit.counts['rotate']} rotations, pixels of {given.pixel_bits} bits",
        ),
    )


if __name__ == "__main__":
    main()
