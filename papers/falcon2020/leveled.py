"""Leveled inference of LoLa's MNIST network by each plan and engine, in turns: operations, bytes, seconds.

Seconds are of the clock and of the processor, which other programs disturb less; each engine has its own parameters.

Without --run the weights are random, circulant with k = 8; rotations, bytes and seconds are those of a
trained network. With it they are of a run directory of train.py, and images are MNIST's test images:

python train.py model=lola_mnist data=mnist data.root=/images recipe.epochs=20
python train.py model=lola_mnist data=mnist data.root=/images recipe=finetune recipe.uniform=8 recipe.pad=true
python -m papers.falcon2020.leveled --run outputs/finetune --data mnist --root /images --images 20 --accuracy 1000
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.common import add_data, load
from papers.falcon2020.lower import lower_exact
from papers.falcon2020.planning.exact_network import ExactNetwork, exact_network_of
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.packed import packed_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.planning.periodic import periodic_plan
from papers.falcon2020.planning.plan import Plan
from papers.layouts.falcon import falcon_plan
from papers.reproduce.network_seconds import LeveledBenchmark
from privcirnet.artifact.records import read_checkpoint, write_json
from privcirnet.cli.console import show_rows
from privcirnet.config import run_file
from privcirnet.he.bfv.engines import ENGINES
from privcirnet.he.program.operations import Input
from privcirnet.models import lola_mnist
from privcirnet.passes.convert import circulant_
from privcirnet.train import stages

PLANS: dict[str, Callable[[ExactNetwork, int], Plan]] = {
    "lola": lola_plan,
    "falcon": falcon_plan,
    "periodic": periodic_plan,
    "packed": packed_plan,
}


class Entry(LeveledBenchmark):
    """Both parties for one plan and engine."""

    def __init__(self, network: ExactNetwork, name: str, engine: str) -> None:
        self.name, self.engine = name, engine
        super().__init__(*plan_for(network, PLANS[name], engine), engine)

    def row(self) -> dict[str, str]:
        """Return the table's row."""
        parameters, counts = self.parameters, self.plan.circuit.counts
        whole, server, work, served = (median(column) for column in zip(*self.seconds, strict=True))
        return {
            "plan": self.name,
            "engine": self.engine,
            "n": str(parameters.ring_degree),
            "log q": f"{sum(parameters.data_bits)} + {sum(parameters.special_bits) + parameters.coefficient_bits[-1]}",
            "t": f"{len(parameters.moduli)} x {parameters.moduli[0].plain_bits}",
            "rotations": str(counts["rotate"]),
            "products": str(counts["pmult"]),
            "keys MB": f"{self.key_bytes / 1e6:.1f}",
            "request MB": f"{self.message_bytes[0] / 1e6:.2f}",
            "answer MB": f"{self.message_bytes[1] / 1e6:.2f}",
            "server s": f"{server:.2f}",
            "server processor s": f"{served:.3f}",
            "image s": f"{whole:.2f}",
            "image processor s": f"{work:.3f}",
            "equal": f"{self.equal} of {self.images}",
        }


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--run", default="", help="run directory of train.py")
    parser.add_argument("--plans", nargs="+", default=list(PLANS), choices=list(PLANS))
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--accuracy", type=int, default=0, help="test images for the accuracy of the integer network")
    parser.add_argument("--weight-bits", type=int, default=8)
    parser.add_argument("--pixel-bits", type=int, default=4)
    parser.add_argument("--engines", nargs="+", default=["kernel"], choices=ENGINES)
    parser.add_argument("--out", type=Path, default=Path("outputs/leveled.json"))
    given = parser.parse_args()
    source = Input(0, 2**given.pixel_bits - 1)
    if given.run:
        data = load(given)
        model = stages.built(read_checkpoint(run_file(given.run, stages.CHECKPOINT, "train.py")), data).model
        stored, log_step = data.test_images.long().numpy(), data.log_step + 8 - given.pixel_bits
        images, labels = stored >> 8 - given.pixel_bits, data.test_labels.numpy()
    else:
        torch.manual_seed(0)
        model, log_step = circulant_(lola_mnist(), {"fc1": 8}, pad=True), -given.pixel_bits
        images = np.random.default_rng(0).integers(0, source.high + 1, (given.images, 1, 28, 28))
        labels = np.zeros(given.images, dtype=np.int64)
    network = exact_network_of(lower_exact(model.double(), (1, 28, 28), source, log_step, given.weight_bits))
    facts = {"bits": network.bits, "weight_bits": given.weight_bits, "pixel_bits": given.pixel_bits}
    if given.accuracy:
        some = zip(images[: given.accuracy], labels[: given.accuracy], strict=True)
        right = [network.evaluate(image).argmax() == label for image, label in some]
        facts["top1"] = 100 * float(np.mean(right))
    parties = [Entry(network, name, engine) for name in given.plans for engine in given.engines]
    for image in images[: given.images]:
        for each in parties:
            each.run(image)
    rows = [each.row() for each in parties]
    show_rows(f"leveled, MNIST, {facts}", rows)
    write_json(given.out, {**facts, "plans": rows})


if __name__ == "__main__":
    main()
