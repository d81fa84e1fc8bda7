"""A residual network on bootstrapped CKKS at n = 65536, without the client in between: seconds, levels, keys, memory.

python benchmarks/ckks_networks.py --weights checkpoints/leveled/resnet20_cifar10.safetensors --data DIR
python benchmarks/ckks_networks.py --counts                         counts and predicted seconds, nothing encrypted
python benchmarks/ckks_networks.py --counts --model resnet18_cifar
python benchmarks/ckks_networks.py --model resnet18_cifar --block-size 8 --weights-gb 3

Without weights the network is random. Circulant weights run as the dense ones that they are.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from privcirnet.cli.console import progress_bar
from privcirnet.data import Files, load
from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.ckks.network import sums_of
from privcirnet.he.ckks.program import CkksProgram, Rehearsed, part_of, predicted
from privcirnet.models import ENTRY_POINTS
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.lower import lower_real
from privcirnet.runs.ckks import Ckks, bits_of
from privcirnet.runs.evaluation import Evaluation, evaluate
from privcirnet.runs.parties import RunOptions
from privcirnet.train import stages

EXAMPLES = 256
"""Training images whose largest values tell the bounds."""
LOG_STEP = -8
"""Of the pixels of random images."""


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20_cifar", help="of those without weights")
    parser.add_argument("--block-size", type=int, default=1, help="of circulant weights, wherever it fits")
    parser.add_argument("--weights", default="", help="checkpoint; random if there is none")
    parser.add_argument("--data", default="", help="folder of CIFAR-10; random images if there is none")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--counts", action="store_true", help="counts and predicted seconds only")
    parser.add_argument("--weights-gb", type=float, default=8.0, help="of memory for encoded weights")
    parser.add_argument("--keys-gb", type=float, default=16.0, help="of memory for keys")
    given = parser.parse_args()
    model, images, examples, log_step = network_of(given)
    network = lower_real(model.double(), (3, *images.shape[2:]))
    scales = sums_of(network).seen(examples * 2.0**log_step)
    program = CkksProgram(network, scales, Bootstrapping(parameters_for()), log_step)
    if given.counts:
        show_counts(program.rehearsed(0))
        return
    mode, how = Ckks(program), RunOptions(weights_gb=given.weights_gb, keys_gb=given.keys_gb)
    found = evaluate(mode, images, how, bar=progress_bar)
    show_counts(mode.circuit)
    show_run(found)


def network_of(given: argparse.Namespace) -> tuple[nn.Module, np.ndarray, np.ndarray, int]:
    """Return a network, held-out images that are run, training images that tell its bounds, and their step."""
    count = given.images
    if given.data:
        data = load("cifar10", files=Files(given.data))
        images, examples, step = data.test_images[:count].numpy(), data.sample(EXAMPLES)[0].numpy(), data.log_step
        if given.weights:
            return stages.load_checkpoint(Path(given.weights), data).model.eval(), images, examples, step
    else:
        images = examples = np.random.default_rng(0).integers(-256, 256, (max(count, 32), 3, 32, 32))
        step = LOG_STEP
    torch.manual_seed(0)
    model = ENTRY_POINTS[given.model](activation="aespa")
    circulant_(model, uniform_sizes(model, given.block_size)).train()
    with torch.no_grad():
        for _ in range(40):
            model(torch.from_numpy(examples[:32]).float() * 2.0**step)
    return model.eval(), images[:count], examples, step


def show_counts(rehearsed: Rehearsed) -> None:
    """Print counts and the seconds that follow from them."""
    counting, took = rehearsed.counting, {"bootstrapping": 0.0, "layers": 0.0}
    for name, seconds in predicted(rehearsed.circuit, counting).items():
        took["bootstrapping" if name.endswith(" bootstrapping") else "layers"] += seconds
    own = [met for met in counting.maps if not part_of(met.layer)]
    print(f"image at level {rehearsed.circuit.placement.image}; {rehearsed.bootstrappings} bootstrappings")
    diagonals, rotations = sum(met.products for met in own), sum(met.rotations for met in own)
    print(f"maps of the network: {len(own)}, {diagonals} diagonals, {rotations} rotations")
    print(f"keys: {len(counting.keys)}, {rehearsed.key_bytes / 1e9:.2f} GB")
    print(
        f"predicted, in processor seconds: {took['layers']:.0f} of layers, {took['bootstrapping']:.0f} of bootstrapping"
    )


def show_run(found: Evaluation) -> None:
    """Print what encrypted images took, and how right they are."""
    audit, laps = found.audited, found.audited.laps.images
    for answer, bits, clear in zip(found.answers, bits_of(found), audit.clear, strict=True):
        same = answer.logits.argmax() == clear.argmax()
        took = f"{answer.seconds:.1f} s, {answer.processor:.1f} processor seconds"
        print(f"{took}; logits right to {bits:.1f} bits, same class: {same}")
    parts = defaultdict[str, float](float)
    for layer in laps.each[-1]:
        parts[part_of(layer) or "layers"] += laps.of(layer)
    print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items()))
    up, down = found.answers[-1].bytes
    print(f"set up in {found.parties.seconds_setup:.1f} s; request {up / 1e6:.2f} MB", end=", ")
    print(f"reply {down / 1e6:.2f} MB; {audit.peak / 1e9:.2f} GB at most", flush=True)


if __name__ == "__main__":
    main()
