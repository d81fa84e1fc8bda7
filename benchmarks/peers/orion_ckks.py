"""Orion (CKKS by Lattigo) on the tutorial network, non-interactive.

python benchmarks/peers/orion_ckks.py --network outputs/peers/network.npz

Orion compiles a PyTorch network to rotations and products of packed ciphertexts. Client and server are one process, and
nothing is serialised: an image's time is encoding, encryption, evaluation and decryption. Its parameters are those of
its own configuration for small networks, with as many levels as this one needs.
"""

import argparse
from pathlib import Path

from peer import HERE, Result, add_out, inside, peak_bytes, timed, write

PACKAGES = ["orion-fhe==1.0.2"]
LEVELS = 5
CONFIGURATION = {
    "ckks_params": {
        "LogN": 13,
        "LogQ": [29, *[26] * LEVELS],
        "LogP": [29, 29],
        "LogScale": 26,
        "H": 8192,
        "RingType": "ConjugateInvariant",
    },
    "orion": {
        "margin": 2,
        "embedding_method": "hybrid",
        "backend": "lattigo",
        "fuse_modules": True,
        "debug": False,
        "diags_path": "",
        "keys_path": "",
        "io_mode": "none",
    },
}


def network(arrays):
    """Return the tutorial network made of Orion's layers, with these weights."""
    import orion.nn
    import torch

    class Tutorial(orion.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act1 = orion.nn.Conv2d(1, 4, kernel_size=7, stride=3), orion.nn.Quad()
            self.flatten = orion.nn.Flatten()
            self.fc1, self.act2 = orion.nn.Linear(256, 64), orion.nn.Quad()
            self.fc2 = orion.nn.Linear(64, 10)

        def forward(self, x):
            x = self.flatten(self.act1(self.conv(x)))
            return self.fc2(self.act2(self.fc1(x)))

    made = Tutorial()
    weights = {name: torch.from_numpy(value).float() for name, value in arrays.items() if "." in name}
    made.load_state_dict(weights, strict=False)
    made.eval()
    return made


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, default=Path("outputs/peers/network.npz"), help="of network.py")
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--venv", type=Path, default=HERE / ".venvs" / "orion", help="made if it is not there")
    parser.add_argument("--python", default="python3.11", help="interpreter that Orion's package supports")
    add_out(parser, "orion")
    given = parser.parse_args()
    inside(PACKAGES, given.venv, given.python)
    import numpy as np
    import orion
    import torch

    with np.load(given.network) as known:
        arrays = dict(known)
    images = torch.from_numpy(arrays["images"][: given.images]).float() / 256
    labels, clear = arrays["labels"][: given.images], arrays["logits"][: given.images]
    orion.init_scheme(CONFIGURATION)
    model = network(arrays)
    orion.fit(model, images[:1])
    level = orion.compile(model)
    model.he()

    def logits(image):
        encrypted = orion.encrypt(orion.encode(image[None], level))
        return model(encrypted).decrypt().decode().reshape(-1)[:10].tolist()

    found, parameters = timed(images, logits).facts(clear, labels), CONFIGURATION["ckks_params"]
    write(
        given.out,
        Result(
            network="tutorial",
            peer="Orion (CKKS)",
            version="1.0.2",
            activation="square",
            interactive=False,
            parameters=f"n = 2^{parameters['LogN']}, conjugate invariant, log QP = "
            f"{sum(parameters['LogQ']) + sum(parameters['LogP'])}, scale 2^{parameters['LogScale']}",
            bytes_image=None,
            bytes_once=None,
            peak_bytes={"both": peak_bytes()},
            **found,
            notes="nothing is serialised; rotation keys and plaintexts are part of its memory",
        ),
    )


if __name__ == "__main__":
    main()
