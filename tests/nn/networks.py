"""Small networks that tests of several modules convert, and what they compare about them."""

import copy

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.models import vit_cifar
from privcirnet.nn.activations import Aespa1d, Aespa2d, Square
from privcirnet.passes.convert import circulant_
from tests import tolerances


class Round(nn.Module):
    """A toy quantizer: one step for the whole tensor."""

    def forward(self, weight: Tensor) -> Tensor:
        return (weight / 0.125).round() * 0.125

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


class Written(nn.Module):
    """A network whose forward is given."""

    def __init__(self, forward, **children: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)
        self.written = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.written(self, x)


def rows_of(layer: nn.Module) -> nn.Parameter:
    return layer.parametrizations.weight.original


SIZES = {"stem": 2, "left": 4, "right": 8, "head": 4}


class Residual(nn.Module):
    """Modules are defined in an order that is not that of the forward, and norms are named after nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 4)
        self.alpha, self.beta, self.gamma = (nn.BatchNorm2d(16) for _ in range(3))
        self.right, self.left = nn.Conv2d(16, 16, 1, bias=False), nn.Conv2d(16, 16, 3, padding=1)
        self.stem, self.square = nn.Conv2d(2, 16, 3), Square()
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.square(self.gamma(self.stem(x)))
        x = self.alpha(self.left(x)) + self.beta(self.right(x))
        return self.head(self.depthwise(x).mean((2, 3)))


def residual(dtype: torch.dtype = torch.float64) -> Residual:
    torch.manual_seed(0)
    model = Residual().to(dtype)
    randomize_norms_(model)
    return model


def randomize_norms_(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in module.state_dict().values():
                if value.is_floating_point():
                    value.uniform_(0.5, 1.5)


def images(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(1), dtype=dtype)


def snapshot(model: nn.Module) -> tuple[str, dict[str, Tensor], list[bool]]:
    return repr(model), copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]


def assert_unchanged(model: nn.Module, before: tuple[str, dict[str, Tensor], list[bool]]) -> None:
    text, state, modes = snapshot(model)
    assert text == before[0]
    assert modes == before[2]
    assert state.keys() == before[1].keys()
    assert all(torch.equal(value, before[1][key]) for key, value in state.items())


def assert_same_outputs(model: nn.Module, other: nn.Module, layers: int = 8, terms: int = 16 * 9 + 10) -> None:
    with torch.no_grad():
        expected, actual = model.eval()(images()), other(images())
    bound = tolerances.network(torch.float64, layers, terms, expected.abs().max().item())
    assert_close(actual, expected, rtol=0, atol=bound)


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)) if x.sum() > 0 else x


class Twice(nn.Module):
    """One batch norm behind two convolutions, one of which runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.norm = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.one(x)) + self.norm(self.other(x)) + self.norm(self.one(2 * x))


def converted(dtype: torch.dtype = torch.float64) -> nn.Module:
    """Left stays dense before a plain batch norm; the others are circulant, one of them with a bias."""
    return circulant_(residual(dtype), {"stem": 2, "right": 8, "head": 4})


SMALL = {"image_size": 8, "depth": 2, "width": 16, "heads": 2, "num_classes": 4}

POLYNOMIAL = {"norm": "batch", "attention": "polynomial", "activation": "square"}


def vit(**options):
    torch.manual_seed(0)
    return vit_cifar(**{**SMALL, **POLYNOMIAL, **options}).double()


def with_aespa():
    layers = [nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), Aespa2d(8)]
    head = [nn.Conv2d(8, 8, 1), Aespa2d(8), nn.Flatten(), nn.Linear(8 * 16, 8), Aespa1d(8), nn.Linear(8, 4)]
    model = nn.Sequential(*layers, *head)
    for _ in range(20):
        model(2 * torch.randn(16, 4, 4, 4) + 0.5)
    for module in model.modules():
        if isinstance(module, Aespa2d | Aespa1d):
            nn.init.normal_(module.log_gamma, std=0.3)
    return model.eval()


DOUBLE = {"rtol": 0, "atol": 1e-12}


def randn(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))
