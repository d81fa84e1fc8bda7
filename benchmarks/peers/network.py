"""The tutorial network and its images as plain arrays, which every peer reads.

python benchmarks/peers/network.py checkpoints/tutorial_mnist.safetensors --root /images
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from privcirnet.config import DataConfig
from privcirnet.data import load_for
from privcirnet.train import stages

LAYERS = ("conv", "fc1", "fc2")


def main() -> None:
    """Write weights (8-bit, as floats), images (N, 1, 28, 28) of 0 to 255, labels and float logits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--root", default="data", help="as data.root of train.py")
    parser.add_argument("--cache", default="auto", help="as data.cache of train.py")
    parser.add_argument("--images", type=int, default=100, help="held-out images (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("outputs/peers/network.npz"))
    given = parser.parse_args()
    data = load_for(DataConfig(name="mnist", root=given.root, cache=given.cache))
    images, labels = data.held_out(given.images)
    network = stages.load_network(str(given.checkpoint), data)
    arrays = {"images": images.numpy(), "labels": labels.numpy()}
    for name in LAYERS:
        layer = network.get_submodule(name)
        arrays |= {f"{name}.{key}": getattr(layer, key).detach().numpy() for key in ("weight", "bias")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(given.out, **arrays, logits=logits(arrays))
    print(given.out)


def logits(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Return the network's logits in float64, without any rounding of activations, (N, 10)."""
    x = torch.from_numpy(arrays["images"]).double() / 256
    w = {key: torch.from_numpy(value).double() for key, value in arrays.items() if "." in key}
    x = torch.nn.functional.conv2d(x, w["conv.weight"], w["conv.bias"], stride=3) ** 2
    x = (x.flatten(1) @ w["fc1.weight"].T + w["fc1.bias"]) ** 2
    return (x @ w["fc2.weight"].T + w["fc2.bias"]).numpy()


if __name__ == "__main__":
    main()
