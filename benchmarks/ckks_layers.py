"""Single layers of large networks in CKKS at n = 65536: ResNet-18's kinds of layers on ImageNet, and circulant blocks.

python benchmarks/ckks_layers.py                 ResNet-18, 224 x 224: a convolution, one with a stride, the classifier
python benchmarks/ckks_layers.py --circulant     convolutions in CinS with b = 1, 4, 8: both transforms counted in

Each layer runs alone at the level that a network has it at, and is compared with the same in clear. Weights are random.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from papers.ckks import cins, circulant
from privcirnet.he.ckks import slotwise
from privcirnet.he.ckks.bootstrapping import parameters_for
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.embedding import Reals, Slots
from privcirnet.he.ckks.evaluator import CkksEvaluator, Cleartext, EncryptedEvaluator
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ckks.server import CkksServer
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.he.ckks.slotwise import Layout

Circuit = Callable[[CkksEvaluator, Sequence], list]
LEVEL = 4
"""Of a layer's inputs."""
BLOCKS = (1, 4, 8)


def main() -> None:
    """Print a line for each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circulant", action="store_true", help="circulant convolutions instead of ResNet-18's layers")
    given = parser.parse_args()
    low = parameters_for().low
    assert low is not None, "the parameters of bootstrapping have lower levels"
    print("| layer | ciphertexts | products | rotations | keys, GB | seconds | processor seconds | bits right |")
    print("|---|---|---|---|---|---|---|---|")
    for name, circuit, inputs in circulant_layers(low.slots) if given.circulant else resnet_layers(low.slots):
        run(low, name, circuit, inputs)


def resnet_layers(slots: int):
    """Yield the kinds of layers of ResNet-18 on 224 x 224 images, in its last stage: name, circuit, slots of inputs."""
    wide, last = Layout(256, 16, slots), Layout(512, 8, slots)
    yield "3 x 3, 512 to 512 channels of 7 x 7 (8 x 8)", Convolution(random(512, 512, 3, 3), last, last), maps(last)
    yield (
        "3 x 3, stride 2, 256 of 14 x 14 to 512 of 7 x 7",
        Convolution(random(512, 256, 3, 3), wide, last, 2),
        maps(wide),
    )
    yield "mean and classifier, 512 to 1,000", Classifier(random(1000, 512), last), maps(last)


def circulant_layers(slots: int):
    """Yield convolutions of 3 x 3 in CinS with several block sizes: of one ciphertext, and of two."""
    for channels, size in ((256, 14), (128, 28)):
        width = cins.width_for(size, 3)
        slices = 2 * slots // width**2
        inputs = cins.encode(cins.pad(np.random.default_rng(1).random((channels, size, size)), width, 3))
        for b in BLOCKS:
            weights = random(channels // b, channels // b, b, 3, 3)
            circuit = Circulant(weights, slices, width)
            yield f"{channels} of {size} x {size}, b = {b}", circuit, list(inputs.reshape(-1, slots))


class Convolution:
    """A convolution in slot encoding, of all ciphertexts.

    Args:
        weights: shape (K, C, f, f).
        source: of the inputs.
        target: of the outputs, which are one ciphertext.
        stride: 1 or 2.
    """

    def __init__(self, weights: Reals, source: Layout, target: Layout, stride: int = 1) -> None:
        self._phases: tuple[LinearMap, ...] = ()
        if stride == 2:
            self._phases = slotwise.phases(source)
            source, weights = slotwise.phased(source), slotwise.over_phases(weights)
        self._source, self._maps = source, slotwise.convolve(weights, source, target)

    def __call__(self, machine: CkksEvaluator, values: Sequence) -> list:
        """Return the outputs."""
        for linear in self._phases:
            values = [machine.map(value, linear) for value in values]
        pairs = slotwise.paired(machine, values, self._source)
        total = reduce(machine.add, (machine.map(pair, linear) for pair, linear in zip(pairs, self._maps, strict=True)))
        return [machine.add(total, machine.conjugate(total))]


class Classifier:
    """The mean of each map and a fully connected layer, as many classes at a time as there are channels.

    Args:
        weights: shape (K, C).
        layout: of the C channels, one ciphertext.
    """

    def __init__(self, weights: Reals, layout: Layout) -> None:
        count = layout.channels
        parts = [weights[start : start + count] / layout.area for start in range(0, len(weights), count)]
        self._layout, self._maps = layout, [slotwise.pooled_classifier(part, layout) for part in parts]

    def __call__(self, machine: CkksEvaluator, values: Sequence) -> list:
        """Return the logits, a ciphertext for as many classes as there are channels."""
        (total,) = slotwise.paired(machine, values, self._layout)
        for doubling in range(int(math.log2(self._layout.area))):
            total = machine.add(total, machine.rotate(total, 1 << doubling))
        found = [machine.map(total, linear) for linear in self._maps]
        return [machine.add(each, machine.conjugate(each)) for each in found]


class Circulant:
    """A circulant convolution in CinS between the transforms over the channels of its blocks.

    Args:
        weights: see :func:`circulant.expanded`; b = 1 is a dense layer without transforms.
        slices: C of a ciphertext.
        width: w.
    """

    def __init__(self, weights: Reals, slices: int, width: int) -> None:
        b, length = weights.shape[2], width * width // 2
        self._maps = circulant.convolution(weights, slices, width)
        ways = (circulant.transform(b, slices, length, inverse=inverse) for inverse in (False, True)) if b > 1 else ()
        self._ways = list(ways)

    def __call__(self, machine: CkksEvaluator, values: Sequence) -> list:
        """Return the outputs."""
        for there in self._ways[:1]:
            values = [machine.map(value, there) for value in values]
        found = [
            reduce(machine.add, (machine.map(value, linear) for value, linear in zip(values, row, strict=True)))
            for row in self._maps
        ]
        for back in self._ways[1:]:
            found = [machine.map(value, back) for value in found]
        return found


def run(parameters: CkksParameters, name: str, circuit: Circuit, inputs: Sequence[Slots]) -> None:
    """Run a layer twice, the first time with weights to encode, and print the second run.

    Args:
        parameters: CKKS.
        name: of the layer.
        circuit: the layer.
        inputs: slots of each ciphertext.
    """
    largest = max(float(np.abs(each).max()) for each in inputs)
    inputs, counting = [each / largest for each in inputs], Simulator(parameters)
    circuit(counting, [counting.fresh(level=LEVEL) for _ in inputs])
    client, server = CkksClient(parameters), CkksServer(parameters)
    names = counting.keys
    machine = EncryptedEvaluator(server, server.load_keys(client.evaluation_keys(names), names))
    values = [server.receive(client.encrypt(each, LEVEL), LEVEL) for each in inputs]
    circuit(machine, values)  # encodes the weights
    start, used = time.perf_counter(), time.process_time()
    found = circuit(machine, values)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    wanted = circuit(Cleartext(), list(inputs))
    pairs = [(client.decrypt(server.reply(each)), want) for each, want in zip(found, wanted, strict=True)]
    error = max(float(np.abs(got - want).max()) / float(np.abs(want).max()) for got, want in pairs)
    counts, gigabytes = counting.total, server.context.key_bytes(names) / 1e9
    rotations = counts["rotate"] + counts["conjugate"]
    print(
        f"| {name} | {len(inputs)} | {counts['pmult']} | {rotations} | {gigabytes:.2f} | {seconds:.2f} | {used:.2f} "
        f"| {-math.log2(error):.1f} |",
        flush=True,
    )
    client.close()


def random(*shape: int) -> Reals:
    """Return weights of a layer whose outputs are about as large as its inputs."""
    return np.random.default_rng(0).normal(0, 1 / math.sqrt(math.prod(shape[1:])), shape)


def maps(layout: Layout) -> list[Slots]:
    """Return the slots of random maps that leave the last row and column free, as those of 7 and of 14 pixels do."""
    images = np.random.default_rng(1).random((layout.channels, layout.size, layout.size))
    edge = layout.size - (layout.size // 8)
    images[:, edge:], images[:, :, edge:] = 0, 0
    return layout.encode(images)


if __name__ == "__main__":
    main()
