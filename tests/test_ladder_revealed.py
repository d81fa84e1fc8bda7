"""The ladder for a network whose activations are no polynomials: the client computes them, if that was asked for."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from privcirnet.config import HEConfig
from privcirnet.errors import RuleError
from privcirnet.he.planning.cost import COUNTED, LINKS
from privcirnet.he.planning.fit import Target
from privcirnet.he.program.interpreter import interpret
from privcirnet.lower import lower
from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from privcirnet.pipeline import audit
from tests.he.parties import protocol

LEVELS, LOG_STEP, SHAPE = 16, -4, (1, 8, 8)
AIDED = Target(COUNTED, LINKS["local"], nonlinear="client-aided")


class Standard(nn.Module):
    """Activations of every kind, one behind a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.one, self.gelu, self.two = nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 8, 3, padding=1)
        self.after, self.third, self.relu6 = nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU6()
        self.fourth, self.silu, self.fifth, self.hard = (
            nn.Conv2d(8, 8, 1),
            nn.SiLU(),
            nn.Conv2d(8, 8, 1),
            nn.Hardswish(),
        )
        self.pool, self.flatten, self.head = nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.stem(x)))
        x = self.after(self.two(self.gelu(self.one(x))) + x)
        x = self.hard(self.fifth(self.silu(self.fourth(self.relu6(self.third(x))))))
        return self.head(self.flatten(self.pool(x)))


@pytest.fixture(scope="module")
def images():
    return torch.randint(0, LEVELS + 1, (24, *SHAPE), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def quantized(images):
    torch.manual_seed(0)
    dense = Standard().double()
    with torch.no_grad():
        for parameter in dense.parameters():
            parameter.mul_(2)
    model = circulant_(dense, uniform_sizes(dense, 4))
    for _ in range(30):
        model(real(images))
    return quantize(fuse(model.eval()), [real(images)], LOG_STEP).eval()


@pytest.fixture(scope="module")
def program(quantized):
    return lower(quantized, SHAPE, LEVELS, LOG_STEP, AIDED)


def real(images):
    return images.double() * 2.0**LOG_STEP


@torch.no_grad()
def test_rung_fake_quant_to_integer_program_is_bitwise(quantized, program, images):
    expected = quantized(real(images)).numpy()
    for image, wanted in zip(images.numpy(), expected, strict=True):
        logits = interpret(program, image)[program.output.name].reshape(-1)
        assert np.array_equal(logits * 2.0**program.output.log_step, wanted)


def test_every_activation_is_revealed_once(program):
    functions = [node.operation.function for node in program.revealed_nodes]
    assert functions == ["relu", "gelu", "relu", "relu6", "silu", "hardswish"]


@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_rung_integer_program_to_encrypted(program, images, engine):
    logits, values, _ = protocol(program, engine, images[0].numpy())
    assert audit.wrong_nodes(program, values) == []
    told = interpret(program, images[0].numpy(), lambda node, _: values[node.name])
    assert np.array_equal(told[program.output.name], logits)


def test_who_did_not_ask_is_refused_and_told_how(quantized):
    with pytest.raises(RuleError, match=r"relu \(ReLU\).*he\.nonlinear=client-aided"):
        lower(quantized, SHAPE, LEVELS, LOG_STEP, Target(COUNTED, LINKS["local"]))


def test_the_setting_has_two_values():
    assert HEConfig().nonlinear == "refused"
    with pytest.raises(RuleError, match=r"he\.nonlinear"):
        HEConfig(nonlinear="yes")


def test_an_approximation_is_named(images):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(approximate="tanh"), nn.Flatten(), nn.Linear(144, 4)).double()
    with pytest.raises(RuleError, match=r"1 \(GELU\)"):
        lower(quantize(fuse(model.eval()), [real(images)], LOG_STEP), SHAPE, LEVELS, LOG_STEP, AIDED)
