"""A residual network on bootstrapped CKKS at n = 65536, without the client in between: seconds, levels, keys, memory.

python benchmarks/ckks_networks.py --weights checkpoints/leveled/resnet20_cifar10.safetensors --data DIR
python benchmarks/ckks_networks.py --counts                         counts and predicted seconds, nothing encrypted
python benchmarks/ckks_networks.py --counts --model resnet18_cifar

Without weights the network is random.
"""

import argparse
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from privcirnet.data import Files, load
from privcirnet.he.leveled.ckks import hoisting
from privcirnet.he.leveled.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.leveled.ckks.client import CkksClient
from privcirnet.he.leveled.ckks.context import Context
from privcirnet.he.leveled.ckks.estimates import Estimate
from privcirnet.he.leveled.ckks.inference import NetworkCircuit
from privcirnet.he.leveled.ckks.machine import Encrypted
from privcirnet.he.leveled.ckks.parameters import CkksParameters
from privcirnet.he.leveled.ckks.server import CkksServer
from privcirnet.he.leveled.ckks.simulator import Simulator
from privcirnet.he.leveled.ckks.transform import LinearMap
from privcirnet.he.measure.memory import peak_bytes
from privcirnet.lower.ckks import lower_ckks
from privcirnet.models import ENTRY_POINTS
from privcirnet.training import stages

EXAMPLES = 256
"""Training images whose largest values tell the bounds."""
ROW, PRODUCT = 0.32e-3, 0.11e-3
"""Processor seconds of a transform of n = 65536, and of a row of both halves of a ciphertext times a plaintext."""
BABY, REAL, BOTH = 0.35e-3, 5.3, 6.9
"""Of a row of a baby step; of a bootstrapping of real values, and of complex ones (bench.py suite=bootstrapping)."""


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20_cifar", help="of those without weights")
    parser.add_argument("--weights", default="", help="checkpoint; random if there is none")
    parser.add_argument("--data", default="", help="folder of CIFAR-10; random images if there is none")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--counts", action="store_true", help="counts and predicted seconds only")
    parser.add_argument("--weights-gb", type=float, default=8.0, help="of memory for encoded weights")
    given = parser.parse_args()
    model, images, examples = network_of(given.model, given.weights, given.data, given.images)
    with torch.no_grad():
        want = model.double()(torch.from_numpy(images)).numpy()
    network = lower_ckks(model, (3, *images.shape[2:])).normalized(examples)
    circuit = NetworkCircuit(network, Bootstrapping(parameters_for()), 0 if given.counts else given.weights_gb)
    simulator = counted(circuit)
    if not given.counts:
        run(circuit, simulator, images, want)


def network_of(name: str, weights: str, folder: str, images: int) -> tuple[nn.Module, np.ndarray, np.ndarray]:
    """Return a network, held-out images that are run, and training images that tell its bounds."""
    if folder:
        data = load("cifar10", files=Files(folder))
        real, examples = (
            data.real(each).double().numpy() for each in (data.test_images[:images], data.sample(EXAMPLES)[0])
        )
        if weights:
            return stages.load_checkpoint(Path(weights), data).model.eval(), real, examples
    else:
        real = examples = np.random.default_rng(0).uniform(-1, 1, (max(images, 32), 3, 32, 32))
    torch.manual_seed(0)
    model = ENTRY_POINTS[name](activation="aespa").train()
    with torch.no_grad():
        for _ in range(40):
            model(torch.from_numpy(examples[:32]).float())
    return model.eval(), real[:images], examples


class Met(NamedTuple):
    """A map that a circuit meets: its layer, its level, its counts, and itself as long as the circuit keeps it."""

    layer: str
    level: int
    products: int
    rotations: int
    babies: int
    giants: int
    linear: Callable[[], LinearMap | None]


class Counting(Simulator):
    """A simulator that notes which maps it meets, at which level, in which layer."""

    def __init__(self, parameters: CkksParameters) -> None:
        super().__init__(parameters)
        self.maps: list[Met] = []
        self.counts = Counter[str]()

    def map(self, value: Estimate, linear: LinearMap) -> Estimate:
        """See :class:`Simulator`."""
        counts = linear.products, linear.rotations, len(linear.babies), len(linear.groups)
        self.maps.append(Met(self.layer, value.level, *counts, weakref.ref(linear)))
        return super().map(value, linear)

    def multiply(self, first: Estimate, second: Estimate, gain: float = 1.0) -> Estimate:
        """See :class:`Simulator`."""
        self.counts["products"] += 1
        return super().multiply(first, second, gain)

    def raised(self, value: Estimate, multiples: float, ratio: float) -> Estimate:
        """See :class:`Simulator`."""
        self.counts["bootstrappings"] += 1
        return super().raised(value, multiples, ratio)


def counted(circuit: NetworkCircuit) -> Counting:
    """Run the simulator, print its counts and the seconds that follow from them."""
    parameters, schedule = circuit.refresh.parameters, circuit.schedule
    simulator = Counting(parameters)
    circuit(simulator, [simulator.fresh(level=schedule.image)] * circuit.layouts[-1].parts)
    assert parameters.low is not None
    rows = len(parameters.low.special_primes) + 1
    own = [met for met in simulator.maps if kind(met.layer) == "network"]
    diagonals = sum(met.products * (rows + met.level) for met in own)
    babies = sum(met.babies * (rows + met.level) for met in own)
    giants = sum(met.giants * (4 * (met.level + 1) + 3 * rows) for met in own)
    seconds = diagonals * (ROW + PRODUCT) + babies * BABY + giants * ROW
    parts = [circuit.layouts[place].parts for place in schedule.refreshed]
    refreshed = sum(REAL if count == 1 else BOTH * count / 2 for count in parts)
    products, rotations = sum(met.products for met in own), sum(met.rotations for met in own)
    print(f"image at level {schedule.image}; {simulator.counts['bootstrappings']} bootstrappings")
    print(f"maps of the network: {len(own)}, {products} diagonals, {rotations} rotations")
    print(f"keys: {len(simulator.keys)}, {Context(parameters).key_bytes(simulator.keys) / 1e9:.2f} GB")
    print(f"predicted: {seconds:.0f} s of convolutions, {refreshed:.0f} s of bootstrapping, in processor seconds")
    return simulator


def kind(layer: str) -> str:
    """Return what part of a bootstrapping a layer's name says it is, or "network"."""
    last = layer.rsplit(maxsplit=1)[-1] if layer else ""
    return last if last in {"StoC", "CtoS", "EvalMod"} else "network"


class Timed:
    """A machine that notes the seconds of its operations, by the kind of their layer."""

    def __init__(self, machine: Encrypted) -> None:
        object.__setattr__(self, "machine", machine)
        object.__setattr__(self, "seconds", Counter[str]())

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.machine, name, value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.machine, name)
        if not callable(found):
            return found

        def timed(*given: Any) -> Any:
            part, start = kind(self.machine.layer), time.perf_counter()
            result = found(*given)
            self.seconds[part if part != "network" else name] += time.perf_counter() - start
            return result

        return timed


def run(circuit: NetworkCircuit, simulator: Counting, images: np.ndarray, want: np.ndarray) -> None:
    """Encrypt images, run the network on each, compare its logits."""
    parameters, level = circuit.refresh.parameters, circuit.schedule.image
    client, server, keys = CkksClient(parameters), CkksServer(parameters), dict[int, Any]()
    start = time.perf_counter()
    for name, at in simulator.keys.items():
        keys.update(server.load_keys(client.evaluation_keys({name: at}), {name: at}))
    print(f"keys made: {time.perf_counter() - start:.1f} s; {peak_bytes() / 1e9:.2f} GB", flush=True)
    start = time.perf_counter()
    for met in simulator.maps:
        if linear := met.linear():
            hoisting.encode(server.at(met.level).context, linear, met.level)
    print(f"weights encoded: {time.perf_counter() - start:.1f} s; {peak_bytes() / 1e9:.2f} GB", flush=True)
    for image, logits in zip(images, want, strict=True):
        messages = [client.encrypt(slots, level) for slots in circuit.encode(image)]
        machine: Any = Timed(Encrypted(server, keys))
        start, processor = time.perf_counter(), time.process_time()
        reply = server.reply(circuit(machine, [server.receive(message, level) for message in messages]))
        took, used = time.perf_counter() - start, time.process_time() - processor
        found = circuit.logits(client.decrypt(reply))
        bits = -np.log2(np.abs(found - logits).max() / np.abs(logits).max())
        same = found.argmax() == logits.argmax()
        sent = sum(map(len, messages))
        print(f"{took:.1f} s, {used:.1f} processor seconds; logits right to {bits:.1f} bits, same class: {same}")
        print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in machine.seconds.most_common()))
        print(f"request {sent / 1e6:.2f} MB, reply {len(reply) / 1e6:.2f} MB; {peak_bytes() / 1e9:.2f} GB", flush=True)


if __name__ == "__main__":
    main()
