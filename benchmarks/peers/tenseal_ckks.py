"""TenSEAL's CKKS tensors on the tutorial network, non-interactive, with the parameters of its own tutorial.

python benchmarks/peers/tenseal_ckks.py --network outputs/peers/network.npz

The client sends the image once, as columns of 7 x 7 windows (im2col); the server evaluates everything on it and sends
the logits. An image's time is encryption, both serialisations, the evaluation and the decryption, in one process.
"""

import argparse
import statistics
import time
from pathlib import Path

from peer import HERE, Result, add_out, inside, peak_bytes, timed, write

PACKAGES = ["tenseal==0.3.18", "numpy"]
RING_DEGREE, COEFFICIENT_BITS, SCALE_BITS = 8192, [31, 26, 26, 26, 26, 26, 26, 31], 26


def logits(query, weights, windows: int):
    """Return the encrypted logits of an encrypted image."""
    import tenseal

    maps = [
        query.conv2d_im2col(kernel, windows) + bias
        for kernel, bias in zip(weights["conv.weight"], weights["conv.bias"], strict=True)
    ]
    x = tenseal.CKKSVector.pack_vectors(maps)
    x.square_()
    x = x.mm(weights["fc1.weight"]) + weights["fc1.bias"]
    x.square_()
    return x.mm(weights["fc2.weight"]) + weights["fc2.bias"]


def load(path: Path):
    """Return images in [0, 1), labels, float logits, and weights as lists, matrices as (in, out)."""
    import numpy as np

    with np.load(path) as arrays:
        known = dict(arrays)
    w = {name: known[name].astype(np.float64) for name in known if "." in name}
    w["conv.weight"] = w["conv.weight"][:, 0]
    w |= {name: w[name].T for name in ("fc1.weight", "fc2.weight")}
    return known["images"][:, 0] / 256, known["labels"], known["logits"], {k: v.tolist() for k, v in w.items()}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=Path("outputs/peers/network.npz"), help="of network.py")
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--venv", type=Path, default=HERE / ".venvs" / "tenseal", help="made if it is not there")
    parser.add_argument("--python", default="python3", help="interpreter that TenSEAL's package supports")
    add_out(parser, "tenseal")
    given = parser.parse_args()
    inside(PACKAGES, given.venv, given.python)
    import tenseal

    images, labels, clear, weights = load(given.network)
    images, labels, clear = images[: given.images], labels[: given.images], clear[: given.images]
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, RING_DEGREE, coeff_mod_bit_sizes=COEFFICIENT_BITS)
    context.global_scale = 2**SCALE_BITS
    context.generate_galois_keys()
    public = context.serialize(save_secret_key=False)
    server = tenseal.context_from(public)
    served, moved = [], [0]

    def run(image):
        query, windows = tenseal.im2col_encoding(context, image.tolist(), 7, 7, 3)
        request = query.serialize()
        began = time.perf_counter()
        reply = logits(tenseal.ckks_vector_from(server, request), weights, windows).serialize()
        served.append(time.perf_counter() - began)
        moved[0] = len(request) + len(reply)
        return tenseal.ckks_vector_from(context, reply).decrypt()[:10]

    found = timed(images, run).facts(clear, labels)
    write(
        given.out,
        Result(
            network="tutorial",
            peer="TenSEAL (CKKS)",
            version=tenseal.__version__,
            activation="square",
            interactive=False,
            parameters=f"n = {RING_DEGREE}, log q = {sum(COEFFICIENT_BITS)}, scale 2^{SCALE_BITS}",
            bytes_image=moved[0],
            bytes_once=len(public),
            peak_bytes={"both": peak_bytes()},
            **found,
            notes=f"the server alone {statistics.median(served):.2f} s",
        ),
    )


if __name__ == "__main__":
    main()
