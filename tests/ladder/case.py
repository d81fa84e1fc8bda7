"""One network on every step of the ladder: what each step starts from, made once and kept."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, fx, nn

from privcirnet.he.bfv.parameters import WIDE_COEFFICIENT_BITS, WIDE_RING_DEGREE
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Program
from privcirnet.nn.activations import Aespa
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import lower
from privcirnet.passes.quantize import quantize
from privcirnet.passes.ranges import ranges
from privcirnet.runs.export import observed

LEVELS, LOG_STEP = 16, -4
WIDE = Profile("counted, wide", WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS, COUNTED.seconds)
PROVED = Target(WIDE, LINKS["local"], failure_bits=4)


def real(images: Tensor) -> Tensor:
    """Integers as the network's input."""
    return images.double() * 2.0**LOG_STEP


def images_of(shape: tuple[int, int, int]) -> Tensor:
    """Some images, (24, C, H, W), always the same."""
    return torch.randint(0, LEVELS + 1, (24, *shape), generator=torch.Generator().manual_seed(1))


def measured(margin_bits: int = 2) -> Callable[[fx.GraphModule, Tensor], Target]:
    """A target with measured bounds: for squares of squares, beyond what interval arithmetic proves."""

    def target(network: fx.GraphModule, images: Tensor) -> Target:
        seen = observed(ranges(network, real(images)))
        return Target(WIDE, LINKS["local"], failure_bits=4, seen=seen, margin_bits=margin_bits)

    return target


def unsettle_(model: nn.Module, images: Tensor) -> nn.Module:
    """Norms and activations are no longer what they start from, and measured on the images."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.add_(0.2 * torch.randn_like(module.weight))
                module.bias.add_(0.2 * torch.randn_like(module.bias))
            elif isinstance(module, Aespa):
                module.log_gamma.add_(0.2 * torch.randn_like(module.log_gamma))
        for _ in range(60):
            model(real(images))
    return model


@dataclass(frozen=True)
class Case:
    """A network and what its steps allow.

    Attributes:
        name: of the network.
        shape: (C, H, W) of an image.
        build: from images, a circulant network in float64 whose norms have seen data, so that nothing on the ladder is
            trivially the identity.
        blocks: block size by name of some layers.
        folding: largest relative difference that folding may make.
        target: what it is lowered for, from the quantized network and images.
        plans: entered while it is lowered: plans that rotate, or pieces that are unlike.
        composed: layers that are made one with the layer before them.
    """

    name: str
    shape: tuple[int, int, int]
    build: Callable[[Tensor], nn.Module]
    blocks: dict[str, int]
    folding: float = 1e-10
    target: Callable[[fx.GraphModule, Tensor], Target] = lambda network, images: PROVED
    plans: Callable[[], AbstractContextManager[object]] = nullcontext
    composed: tuple[str, ...] = ()

    @cached_property
    def images(self) -> Tensor:
        """Integers, (24, C, H, W)."""
        return images_of(self.shape)

    @cached_property
    def circulant(self) -> nn.Module:
        """The network with circulant weights."""
        return self.build(self.images).eval()

    @cached_property
    def fused(self) -> fx.GraphModule:
        """Norms folded, and layers composed."""
        return fuse(self.circulant, composed=self.composed)

    @cached_property
    def quantized(self) -> fx.GraphModule:
        """Fake-quantized, 8 bits."""
        return quantize(self.fused, real(self.images), LOG_STEP).eval()

    @cached_property
    def program(self) -> Program:
        """The integer program."""
        return self.lowered(self.quantized)

    def lowered(self, network: fx.GraphModule, target: Target | None = None) -> Program:
        """A network as a program, with this case's plans."""
        with self.plans():
            target = target or self.target(network, self.images)
            return lower(network, self.shape, LEVELS, LOG_STEP, target)


def assert_bitwise(case: Case, network: fx.GraphModule, program: Program) -> None:
    """The integer program's logits, or class, are the fake-quantized network's; float64 carries every integer exactly."""
    with torch.no_grad():
        expected = network(real(case.images)).numpy()
    if program.answer == "top1":
        expected = np.eye(expected.shape[1])[expected.argmax(1)]
    for image, wanted in zip(case.images, expected, strict=True):
        assert np.array_equal(logits_of(program, image), wanted)


def logits_of(program: Program, image: Tensor) -> np.ndarray:
    """What the interpreter says, as real numbers."""
    found = program.answered(interpret(program, image.numpy())[program.output.name]).reshape(-1)
    return found * 2.0**program.output.log_step
