"""Seconds and memory of a training step with circulant weights beside a dense one: same network, same batch, in turns.

python benchmarks/training_step.py --model mobilenetv2_cifar --block-size 8 --channels-last
"""

import argparse
import multiprocessing
import statistics
import time

import torch
from torch import nn

from benchmarks.bench.networks import network_shapes
from privcirnet.he.system.process import peak_bytes
from privcirnet.passes.convert import candidates, circulant_
from privcirnet.train.network import create


class Contestant:
    """A network with its optimizer and a batch.

    Args:
        name: of privcirnet.models or timm.
        block_size: of every searched layer that it divides.
        images: (N, C, H, W).
        memory_format: of weights and images.
    """

    def __init__(self, name: str, block_size: int, images: torch.Tensor, memory_format: torch.memory_format) -> None:
        torch.manual_seed(0)
        self.model = create(name, 10, tuple(images.shape[1:]))
        if block_size > 1:
            reasons = candidates(self.model, block_size)
            circulant_(self.model, {layer: block_size for layer in network_shapes(name) if not reasons[layer]})
        self.model.to(memory_format=memory_format).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.images = images.contiguous(memory_format=memory_format)
        self.labels = torch.randint(10, (len(images),), generator=torch.Generator().manual_seed(1))

    def step(self) -> float:
        """Return the seconds of forward pass, backward pass and update."""
        started = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()
        return time.perf_counter() - started


def peak(name: str, block_size: int, batch: int, memory_format: torch.memory_format) -> int:
    """Return the peak memory of a process that trains one of them, bytes; call it in a process of its own."""
    contestant = Contestant(name, block_size, torch.rand(batch, 3, 32, 32), memory_format)
    for _ in range(3):
        contestant.step()
    return peak_bytes()


def main() -> None:
    """Print both medians, the median ratio and both peaks of memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mobilenetv2_cifar", help="a network of benchmarks.bench.networks for CIFAR")
    parser.add_argument("--block-size", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128, help="images")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--channels-last", action="store_true", help="channels innermost, in both")
    given = parser.parse_args()
    memory_format = torch.channels_last if given.channels_last else torch.contiguous_format
    images = torch.rand(given.batch, 3, 32, 32)
    pair = [Contestant(given.model, b, images, memory_format) for b in (1, given.block_size)]
    for contestant in pair:
        contestant.step()
    seconds = [tuple(contestant.step() for contestant in pair) for _ in range(given.repetitions)]
    dense, circulant = (statistics.median(column) for column in zip(*seconds, strict=True))
    ratio = statistics.median(b / a for a, b in seconds)
    print(f"{given.model}, batch {given.batch}, seconds: dense {dense:.3f}, b = {given.block_size} {circulant:.3f}")
    print(f"median ratio {ratio:.3f}")
    cases = [(given.model, b, given.batch, memory_format) for b in (1, given.block_size)]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        dense, circulant = (found / 1e6 for found in pool.starmap(peak, cases, chunksize=1))
    print(f"peak memory of the process, MB: dense {dense:.0f}, b = {given.block_size} {circulant:.0f}")


if __name__ == "__main__":
    main()
