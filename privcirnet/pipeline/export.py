"""A quantized network to an encrypted program, under the settings of the group he/: what export.py does."""

import math
from dataclasses import replace

import torch
from torch import fx

from privcirnet.config import HEConfig
from privcirnet.data.dataset import ImageData
from privcirnet.he.planning.chooser import SETS, sets_for
from privcirnet.he.planning.cost import LINKS, Profile
from privcirnet.he.planning.fit import Target, set_of
from privcirnet.he.program.bounds import ObservedRange, Reals
from privcirnet.he.program.program import Program
from privcirnet.lower import Lowered, lower_refined
from privcirnet.nn.ranges import peaks, ranges, usual
from privcirnet.pipeline.profiles import find_profile, profile_at
from privcirnet.pipeline.progress import Bar, silent

CHECKED_IMAGES = 512
"""Held-out images on which measured bounds are checked."""


def lower_for(he: HEConfig, network: fx.GraphModule, data: ImageData, bar: Bar = silent) -> tuple[Lowered, Profile]:
    """The program, and the profile at its set of parameters that its plans were chosen by."""
    channels, height, width = data.train_images.shape[1:]
    shape = (channels, height, width)
    sets, profile = sets_for(he.ring_degree, he.coefficient_bits), find_profile(he, bar=bar)
    if he.coefficient_bits:
        profile = profile_at(profile, sets[0], he.engine, bar)
    elif he.ring_degree in (0, profile.ring_degree):
        sets = (set_of(profile), *sets)
    auto = not he.coefficient_bits
    masks = he.masks, he.failure_bits, he.hiding_bits
    target = Target(profile, LINKS[he.link], *masks, sets if auto else SETS, auto, nonlinear=he.nonlinear)
    if he.bounds == "measured":
        with bar("measuring ranges", 0):
            images = data.real(data.sample(he.bound_images)[0])
            seen = seen_on(network, images[usual(peaks(network, images))])
        target = replace(target, seen=seen, margin_bits=he.margin_bits)
    guard = he.guard_bits, he.least_guard_bits
    with bar("lowering", 0):
        lowered = lower_refined(network, shape, data.levels, data.log_step, target, *guard)
    profile = profile_at(profile, lowered.choice.set, he.engine, bar)
    if profile is target.profile:
        return lowered, profile
    measured = replace(target, profile=profile, sets=(), auto=False)
    with bar("planning", 0):
        again = lower_refined(network, shape, data.levels, data.log_step, measured, *guard)
    return replace(again, choice=lowered.choice), profile


def seen_on(network: fx.GraphModule, images: torch.Tensor) -> dict[str, ObservedRange]:
    """The real values of every node on images, channels first: those of tokens (T, C) become (C, T)."""

    def array(values: torch.Tensor) -> Reals:
        return (values.mT if values.ndim == 2 else values).numpy()

    return {name: ObservedRange(*map(array, found)) for name, found in ranges(network, images).items()}


def exceeding(program: Program, network: fx.GraphModule, data: ImageData) -> dict[str, int] | None:
    """How well measured bounds hold on held-out images; None for proved ones, which hold for every image.

    Args:
        program: lowered from the network.
        network: fake-quantized.
        data: with held-out images.

    Returns:
        {"images": checked, "beyond": of them with a value that the plain modulus does not carry, so that their result
        is wrong, "spare_bits": of the modulus over the largest value of the others}.
    """
    if program.bounds == "proved":
        return None
    images = data.real(data.held_out(CHECKED_IMAGES)[0])
    found, half = peaks(network, images), program.parameters.plain_modulus / 2
    shares = torch.stack([found[node.name] * (2.0**-node.log_step / half) for node in program.nodes]).amax(0)
    carried = shares[shares < 1]  # neither too large nor no number at all
    spare = math.floor(-math.log2(carried.max().item())) if len(carried) else 0
    return {"images": len(images), "beyond": len(images) - len(carried), "spare_bits": spare}
