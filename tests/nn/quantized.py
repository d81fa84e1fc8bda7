"""A small circulant network with fake quantization, and its quantizers by name."""

import torch
from torch import Tensor, fx, nn

from privcirnet.models import DigitsResNet
from privcirnet.nn.quantization_steps import incoming_steps
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from tests.nn.networks import randomize_norms_

BLOCK_SIZES = {"stem": 1, "down": 2, "conv1": 8, "conv2": 4, "classifier": 2}

INPUT_STEP = -4


def network() -> DigitsResNet:
    """Circulant at mixed block sizes, with the statistics of a network that was trained."""
    torch.manual_seed(0)
    model = DigitsResNet(width=8)
    randomize_norms_(model)
    return circulant_(model, BLOCK_SIZES).eval()


def pixels(count: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(17, (count, 1, 8, 8), generator=torch.Generator().manual_seed(seed)) * 2.0**INPUT_STEP


def quantized(**options: int) -> fx.GraphModule:
    return quantize(fuse(network()), pixels(), INPUT_STEP, **options)


def quantizers(graph: fx.GraphModule) -> dict[str, ActivationQuantizer]:
    found = {name: m for name, m in graph.named_modules() if isinstance(m, ActivationQuantizer)}
    assert found
    return found


def log_steps(graph: fx.GraphModule) -> dict[str, int]:
    return {name: int(module.log_step) for name, module in quantizers(graph).items()}


def incoming_by_name(graph: fx.GraphModule) -> dict[str, int]:
    return {node.name: step for node, step in incoming_steps(graph, INPUT_STEP).items()}


class Skip(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)
        nn.init.constant_(self.conv.weight, scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + x
