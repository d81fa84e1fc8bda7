"""Networks with random weights run encrypted: bytes and seconds do not depend on what they have learned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from papers.reproduce.cells import Values
from papers.reproduce.trained import over_link
from privcirnet.config import HEConfig
from privcirnet.he.program.operations import Input
from privcirnet.nn.activations import Aespa2d
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.export import Pixels, SampleImages, lower_on
from privcirnet.runs.interactive import Interactive
from privcirnet.train.network import create

LEVELS, LOG_STEP = 255, -8
"""Largest pixel, and log2 of the step of pixels."""
_IMAGES, _RUN, _FAILURE_BITS = 16, 3, 8
_DAMPING = 100.0
"""Of a square's variance: it is a tenth as strong."""
_NORM_EPS, _LEAST_VARIANCE, _LEAST_SQUARE_VARIANCE = 1e-2, 1.0, 2.0
"""Added to the variance of a norm's input; and least variances of a square's input and its square, those of a normal
distribution. A map of 1 x 1 may be the same for all of these images, and dividing by nothing makes rounding errors
explode."""


@dataclass(frozen=True)
class RandomNetwork:
    """A network with random weights and images for it.

    Attributes:
        pixels: (N, C, H, W), uint8, without sharp edges.
    """

    model: nn.Module
    pixels: Tensor

    @property
    def images(self) -> Tensor:
        """The pixels as real numbers."""
        return self.pixels.float() * 2.0**LOG_STEP

    @property
    def samples(self) -> SampleImages:
        """The images with what a program has to know of them."""
        _, channels, height, width = self.pixels.shape
        return SampleImages(Pixels((channels, height, width), Input(0, LEVELS), LOG_STEP), self.images)


def random_network(
    network: str,
    side: int,
    classes: int,
    b: int = 1,
    arguments: Mapping[str, Any] | None = None,
    channels: int = 3,
) -> RandomNetwork:
    """Return a network with random weights, the same each time.

    Args:
        network: of the project or of timm.
        arguments: of the network; None: AESPA for its activations.
        channels: of its images.

    Raises:
        RuleError: the network is unknown or has no polynomial form.
    """
    torch.manual_seed(0)
    model = create(network, classes, (channels, side, side), dict(arguments or {"activation": "aespa"}))
    circulant_(model, uniform_sizes(model, b))
    return RandomNetwork(model, smooth_pixels(_IMAGES, side, channels))


def smooth_pixels(count: int, side: int, channels: int = 3) -> Tensor:
    """Return random images without sharp edges, (count, channels, side, side), uint8."""
    coarse = torch.rand(count, channels, 4, 4, generator=torch.Generator().manual_seed(0))
    return (LEVELS * nn.functional.interpolate(coarse, size=side, mode="bilinear")).to(torch.uint8)


def keep_last_statistics_(model: nn.Module) -> None:
    """Let statistics be those of the last batch alone; norms that begin at zero begin at one.

    Args:
        model: changed in place.
    """
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and not module.weight.any():
            nn.init.ones_(module.weight)
        if hasattr(module, "momentum"):
            module.momentum = 1.0  # type: ignore[assignment]


@torch.no_grad()
def untrained(
    network: str, side: int, classes: int, b: int = 1, link: str = "wan", arguments: Mapping[str, Any] | None = None
) -> Values:
    """Return the traffic and latency of encrypted inference by a network with random weights, every value checked.

    Args:
        network: of the project or of timm, with AESPA in place of its activations, 8 bits.
        link: whose time the latency adds, of :data:`planning.network_links.LINKS`.
        arguments: of the network; None: AESPA for its activations.

    Raises:
        RuleError: no program can be made of the network, or an encrypted value is not the integer network's.
    """
    made = random_network(network, side, classes, b, arguments)
    _settle(made.model, made.images)
    he = HEConfig(profile="counted", bounds="measured", failure_bits=_FAILURE_BITS)
    quantized = quantize(fuse(made.model), made.images, LOG_STEP)
    planned = lower_on(he, quantized, made.samples)
    return over_link(evaluate(Interactive(planned.program), made.pixels[:_RUN].numpy().astype(np.int64)), link)


def _settle(model: nn.Module, images: Tensor) -> None:
    """Leave these images' statistics in norms and activations.

    Random squares in a row make rounding errors explode, so each is damped, and then the norms follow.
    """
    keep_last_statistics_(model)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.eps = _NORM_EPS
    model.train()(images)
    model.eval()
    for module in model.modules():
        if isinstance(module, Aespa2d):
            module.running_var.clamp_(min=_LEAST_VARIANCE)
            module.running_square_var.clamp_(min=_LEAST_SQUARE_VARIANCE).mul_(_DAMPING)
    for norm in norms:
        norm.train()
    model(images)
    model.eval()
