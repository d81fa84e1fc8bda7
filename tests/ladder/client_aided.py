"""A network with every activation that is no polynomial, one behind a residual: the client computes them."""

import torch
from torch import Tensor, nn

from privcirnet.he.planning.fit import Target
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.passes.block_sizes import uniform_sizes
from privcirnet.passes.convert import circulant_
from tests.ladder.case import Case, real

AIDED = Target(COUNTED, LINKS["local"], nonlinear="client-aided")


class Standard(nn.Module):
    """Activations of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.one, self.gelu, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1)
        self.after, self.third, self.relu6 = nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU6()
        self.fourth, self.silu = nn.Conv2d(8, 8, 1), nn.SiLU()
        self.fifth, self.hard = nn.Conv2d(8, 8, 1), nn.Hardswish()
        self.pool, self.flatten, self.head = nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.stem(x)))
        x = self.after(self.two(self.gelu(self.one(x))) + x)
        x = self.hard(self.fifth(self.silu(self.fourth(self.relu6(self.third(x))))))
        return self.head(self.flatten(self.pool(x)))


def build(images: Tensor) -> nn.Module:
    """Circulant, with larger weights than it starts from."""
    torch.manual_seed(0)
    dense = Standard().double()
    with torch.no_grad():
        for parameter in dense.parameters():
            parameter.mul_(2)
    model = circulant_(dense, uniform_sizes(dense, 4))
    for _ in range(30):
        model(real(images))
    return model


CLIENT_AIDED = Case("client-aided", (1, 8, 8), build, {"one": 4, "head": 4}, target=lambda network, images: AIDED)
