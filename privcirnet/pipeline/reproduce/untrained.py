"""Networks with random weights run encrypted: bytes and seconds do not depend on what they have learned."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from privcirnet.config import HEConfig
from privcirnet.he.program.operations import Input
from privcirnet.nn.activations import Aespa2d
from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from privcirnet.pipeline.evaluation import evaluate
from privcirnet.pipeline.export import Pixels, lower_on
from privcirnet.pipeline.reproduce.counts import Values
from privcirnet.pipeline.reproduce.trained import over_link
from privcirnet.training.network import create

_IMAGES, _RUN, _LEVELS, _LOG_STEP, _FAILURE_BITS = 16, 3, 255, -8, 8
_DAMPING = 100.0
"""Of a square's variance: it is a tenth as strong."""


@torch.no_grad()
def untrained(
    network: str, side: int, classes: int, b: int = 1, link: str = "wan", arguments: Mapping[str, Any] | None = None
) -> Values:
    """Return the traffic and latency of encrypted inference by a network with random weights, every value checked.

    Args:
        network: of the project or of timm, with AESPA in place of its activations, 8 bits.
        side: of an image.
        classes: number of logits.
        b: block size wherever it fits.
        link: whose time the latency adds, of :data:`planning.profile.LINKS`.
        arguments: of the network; None: AESPA for its activations.

    Raises:
        RuleError: no program can be made of the network, or an encrypted value is not the integer network's.
    """
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    coarse = torch.rand(_IMAGES, 3, 4, 4, generator=generator)
    pixels = (_LEVELS * nn.functional.interpolate(coarse, size=side, mode="bilinear")).to(torch.uint8)
    images = pixels.float() * 2.0**_LOG_STEP
    model = create(network, classes, (3, side, side), dict(arguments or {"activation": "aespa"}))
    circulant_(model, uniform_sizes(model, b))
    _settle(model, images)
    described = Pixels((3, side, side), Input(0, _LEVELS), _LOG_STEP)
    he = HEConfig(profile="counted", bounds="measured", failure_bits=_FAILURE_BITS)
    lowered, _ = lower_on(he, quantize(fuse(model), [images], _LOG_STEP), described, images)
    return over_link(evaluate(lowered.program, {}, pixels[:_RUN].numpy().astype(np.int64)), link)


def _settle(model: nn.Module, images: torch.Tensor) -> None:
    """Leave these images' statistics in norms and activations; norms that begin at zero begin at one.

    Random squares in a row make rounding errors explode, so each is damped, and then the norms follow.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in norms:
        if not module.weight.any():
            nn.init.ones_(module.weight)
    for module in model.modules():
        if hasattr(module, "momentum"):
            module.momentum = 1.0  # type: ignore[assignment]
    model.train()(images)
    model.eval()
    for module in model.modules():
        if isinstance(module, Aespa2d):
            module.running_square_var *= _DAMPING
    for norm in norms:
        norm.train()
    model(images)
    model.eval()
