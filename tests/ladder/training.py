"""A few steps of training, so that steps and weights are no longer those of calibration."""

import torch
from torch import Tensor, fx

from privcirnet.nn.quantization_steps import fix_steps_, follow_learned_steps_, learned_steps
from tests.ladder.case import real


def train_a_little_(network: fx.GraphModule, target: Tensor, images: Tensor) -> None:
    """Towards logits; steps are learned fast, so that some change."""
    torch.manual_seed(0)
    steps = learned_steps(network)
    weights = [p for p in network.parameters() if not any(p is step for step in steps)]
    optimizer = torch.optim.Adam([{"params": weights, "lr": 1e-3}, {"params": steps, "lr": 0.3}])
    network.train()
    for _ in range(5):
        optimizer.zero_grad()
        (network(real(images)) - target).square().mean().backward()
        optimizer.step()
        follow_learned_steps_(network)
    fix_steps_(network)
