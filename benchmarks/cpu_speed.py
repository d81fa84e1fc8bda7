"""Images per second on this machine's CPU: how freed memory, precision and activation change training and evaluation.

python benchmarks/cpu_speed.py --models mobilenetv2_cifar vit_cifar

Each line is measured in a process of its own, with channels innermost: the median of the steps after the first two.
"""

import argparse
import multiprocessing
import statistics
import time
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from privcirnet.he.system.process import keep_freed_memory
from privcirnet.train.callbacks import SlowConvolutions
from privcirnet.train.network import create

NETWORKS = ("mobilenetv2_cifar", "resnet18_cifar", "vit_cifar")
_BATCH, _EVALUATED, _WARM_UP = 128, 256, 2


def images_per_second(name: str, activation: str, keep: bool, mixed: bool, repetitions: int) -> tuple[float, float]:
    """Return images per second in training and in evaluation (float32); call it in a process of its own.

    Args:
        name: of privcirnet.models or timm.
        activation: of its arguments; "" for its own.
        keep: keep freed memory.
        mixed: train in bfloat16 where torch considers it safe.
        repetitions: steps that are measured.
    """
    if keep:
        keep_freed_memory()
    torch.manual_seed(0)
    model = create(name, 10, (3, 32, 32), {"activation": activation} if activation else {})
    model.to(memory_format=torch.channels_last)
    side = 64 if "tiny" in name else 32
    images = torch.rand(_EVALUATED, 3, side, side).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (_BATCH,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = nn.functional.cross_entropy(model(images[:_BATCH]), labels)
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def evaluate() -> Tensor:
        return model(images)

    slow = SlowConvolutions(model) if mixed else None
    trained = _BATCH / _seconds(step, repetitions)
    if slow:
        slow.detach()
    model.eval()
    return trained, _EVALUATED / _seconds(evaluate, repetitions)


def _seconds(work: Any, repetitions: int) -> float:
    times: list[float] = []
    for _ in range(_WARM_UP + repetitions):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times[_WARM_UP:])


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=NETWORKS, help="networks of privcirnet.models or timm")
    parser.add_argument("--activations", nargs="+", default=["", "aespa"], help="each network with each of these")
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    print("| network | freed memory | precision | trained, images/s | evaluated, images/s |\n|---|---|---|---|---|")
    for name, activation, keep, mixed in product(given.models, given.activations, (False, True), (False, True)):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            trained, evaluated = pool.apply(images_per_second, (name, activation, keep, mixed, given.repetitions))
        facts = f"{name} {activation}".strip(), "kept" if keep else "given back", "bfloat16" if mixed else "float32"
        print(f"| {' | '.join(facts)} | {trained:.0f} | {evaluated:.0f} |", flush=True)


if __name__ == "__main__":
    main()
