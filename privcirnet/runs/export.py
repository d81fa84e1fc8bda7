"""A quantized network to an encrypted program, under the settings of the group he/.

It is what export.py and privcirnet.compile do.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import fx, nn

from privcirnet.artifact.summaries import BoundsCheck
from privcirnet.config import HEConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.planning.chooser import SETS, sets_for
from privcirnet.he.planning.fit import Target, scaled
from privcirnet.he.planning.profile import LINKS, Profile
from privcirnet.he.planning.stacks import with_stacks
from privcirnet.he.program.bounds import ObservedRange, Reals, real_name
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.framing.message_sizes import together
from privcirnet.he.protocol.rounds.exchanges import exchanges_of
from privcirnet.he.protocol.rounds.transfers import source_for
from privcirnet.nn.checks import image_of
from privcirnet.nn.nonpolynomial import is_polynomial
from privcirnet.passes.lower import Drafts, Lowered, drafts, refined
from privcirnet.passes.lower.agreement import check_program
from privcirnet.passes.quantize import input_quantizer, input_step
from privcirnet.passes.ranges import Range, peaks, usual_ranges
from privcirnet.runs.profiles import CALIBRATION_ROUNDS, RANKING_ROUNDS, find_profile, measure, profile_at
from privcirnet.runs.progress import Bar, silent

CHECKED_IMAGES = 512
"""Held-out images on which measured bounds are checked."""


def quantized(network: nn.Module) -> fx.GraphModule:
    """Return a network that can be lowered: one that the qat stage made."""
    if not isinstance(network, fx.GraphModule):
        got, remedy = type(network).__name__, "run train.py recipe=qat first, or give its directory with init="
        raise RuleError("an exported network must be quantized", got=got, remedy=remedy)
    return network


@dataclass(frozen=True)
class Pixels:
    """What a program reads.

    Attributes:
        shape: (C, H, W) of an image.
        log_step: real pixel = integer x 2^log_step.
    """

    shape: tuple[int, int, int]
    range: Input
    log_step: int


def pixels_of(network: fx.GraphModule, images: torch.Tensor) -> Pixels:
    """Return what the program of a network reads: integers of as many whole bits as the images have.

    Args:
        images: real, (N, C, H, W).
    """
    step, exponents = input_step(network), input_quantizer(network).exponents
    axes = [1] * (images.ndim - 2)
    scaled = images if exponents is None else images * torch.exp2(-exponents.to(images)).view(-1, *axes)
    low, high = (math.floor(end.item() * 2.0**-step + 0.5) for end in scaled.aminmax())
    bits = max(high, -low - 1, 1).bit_length() + (exponents is not None)  # of many that fill their bits one goes beyond
    of_channels = None if exponents is None else tuple(exponents.tolist())
    return Pixels(image_of(images.shape[1:]), Input(-(2**bits) if low < 0 else 0, 2**bits - 1, of_channels), step)


def lower_for(he: HEConfig, network: fx.GraphModule, data: ImageData, bar: Bar = silent) -> tuple[Lowered, Profile]:
    """Return the program of a quantized network for the images of a data set, see :func:`lower_on`.

    Args:
        data: What it was trained on; measured bounds are taken on training images.
    """
    pixels = Pixels(data.shape, Input(0, data.levels), data.log_step)
    return lower_on(he, network, pixels, data.real(data.sample(he.bound_images)[0]), bar)


def lower_on(
    he: HEConfig,
    network: fx.GraphModule,
    pixels: Pixels,
    images: torch.Tensor,
    bar: Bar = silent,
    given: Profile | None = None,
) -> tuple[Lowered, Profile]:
    """Return the program of a quantized network, and the profile at its (n, q) that its plans were chosen by.

    The network is lowered once for each number of guard bits. Where (n, q) are chosen, they are chosen under the
    profile of one set, with times scaled to the others; plans are then made under the profile of the chosen set. A
    profile that is measured for the choice alone takes fewer rounds, :data:`profiles.RANKING_ROUNDS`.

    Args:
        images: For measured bounds, real, (N, C, H, W).
        given: A profile that is used in place of the settings', with times scaled to the chosen set.

    Raises:
        DoesNotFit: A bound or a modulus is out of reach, or there is too little noise budget.
        RuleError: An operation is not supported, no parameters are secure, the file is not a profile, or the program
            computes something other than the network.
    """
    settled = he.settled(exact=not is_polynomial(network))
    lowered, profile = _lowered(settled, network, pixels, images, bar, given)
    with bar("comparing with the network", 0):
        check_program(lowered, network, images)
    return lowered, profile


def _lowered(
    he: HEConfig, network: fx.GraphModule, pixels: Pixels, images: torch.Tensor, bar: Bar, given: Profile | None
) -> tuple[Lowered, Profile]:
    found, target, lowered = _fitting(he, network, pixels, images, target_of(he, given, bar), bar)
    if given:
        profile = scaled(given, lowered.choice.set)
        return _stacked(he, lowered, profile), profile
    ranked = target.auto and he.profile == "calibrate"
    chosen = lowered.choice.set, he.engine, bar
    profile = measure(*chosen) if ranked else profile_at(target.profile, *chosen)
    if profile is target.profile:
        return _stacked(he, lowered, profile), profile
    with bar("planning", 0):
        again = refined(found, replace(target, profile=profile, sets=(), auto=False), *_guard(he))
    return _stacked(he, replace(again, choice=lowered.choice), profile), profile


def _fitting(
    he: HEConfig, network: fx.GraphModule, pixels: Pixels, images: torch.Tensor, target: Target, bar: Bar
) -> tuple[Drafts, Target, Lowered]:
    """Return the network with the first kind of bounds that parameters carry, and the target that has them."""

    def fitting(kind: str) -> tuple[Drafts, Target, Lowered]:
        wanted = target
        if kind == "measured":
            with bar("measuring ranges", 0):
                wanted = _measured(he, network, images, target)
        found = drafts(network, pixels.shape, pixels.range, pixels.log_step, wanted)
        with bar("lowering", 0):
            return found, wanted, refined(found, wanted, *_guard(he))

    *preferred, last = he.bounds_tried
    for kind in preferred:
        with suppress(DoesNotFit):
            return fitting(kind)
    return fitting(last)


def _guard(he: HEConfig) -> tuple[int, int]:
    return (0, 0) if he.exact else (he.guard_bits, he.least_guard_bits)


def _stacked(he: HEConfig, lowered: Lowered, profile: Profile) -> Lowered:
    """The same with layers that take several images together, as far as the settings give room, and transfers."""
    program = with_transfers(lowered.program, he.ot)
    program = with_stacks(program, profile, LINKS[he.link], together(program), int(1e9 * he.stack_gb))
    return replace(lowered, fitted=replace(lowered.fitted, program=program))


def with_transfers(program: Program, source: str) -> Program:
    """Return a program with a source of oblivious transfers; ``source``: of them, or "auto"."""
    return replace(program, transfers=source_for(exchanges_of(program)) if source == "auto" else source)


def target_of(he: HEConfig, given: Profile | None = None, bar: Bar = silent) -> Target:
    """Return what the settings ask for, with proved bounds.

    Args:
        given: A profile that is used in place of the settings'.

    Raises:
        RuleError: No parameters are secure, or the file is not a profile.
    """
    link, auto = LINKS[he.link], not he.coefficient_bits
    sets = sets_for(he.ring_degree, he.coefficient_bits)
    profile = given or find_profile(he, bar=bar, rounds=RANKING_ROUNDS if auto else CALIBRATION_ROUNDS)
    if not auto:
        at_set = scaled(profile, sets[0]) if given else profile_at(profile, sets[0], he.engine, bar)
        profile, sets = at_set, SETS
    elif he.ring_degree in (0, profile.ring_degree):
        sets = (profile.parameter_set, *sets)
    kinds = {"truncation": "exact" if he.exact else "random", "nonlinear": he.nonlinear, "answer": he.answer}
    return replace(Target(profile, link, he.failure_bits, sets, auto), **kinds)


def _measured(he: HEConfig, network: fx.GraphModule, images: torch.Tensor, target: Target) -> Target:
    """The target with the ranges of all values on images."""
    seen = usual_ranges(network, images)
    for node in network.graph.nodes:  # of images what the program reads
        if node.op == "placeholder":
            seen[node.name] = seen[next(iter(node.users)).name]
    return replace(target, seen=observed(seen), margin_bits=he.margin_bits)


def logits_of(network: fx.GraphModule, images: torch.Tensor) -> np.ndarray:
    """Return the logits of a quantized network, (N, classes); ``images``: real, (N, C, H, W)."""
    with torch.no_grad():
        return network.eval()(images).flatten(1).double().numpy()


def observed(found: Mapping[str, Range]) -> dict[str, ObservedRange]:
    """Return what was seen of every node as arrays, channels first: values of tokens (T, C) become (C, T)."""

    def array(values: torch.Tensor) -> Reals:
        return (values.mT if values.ndim == 2 else values).numpy()

    return {name: ObservedRange(*map(array, ends)) for name, ends in found.items()}


def exceeding(program: Program, network: fx.GraphModule, images: torch.Tensor) -> BoundsCheck | None:
    """Return how well measured bounds hold on images; None for proved ones, which hold for every image.

    Args:
        images: real, (N, C, H, W).
    """
    if program.bounds == "proved":
        return None
    found, half = peaks(network, images), program.parameters.plain_modulus / 2
    nodes = program.nodes[: program.nodes.index(program.logits) + 1]
    named = [node for node in nodes if real_name(node) in found]  # others are pieces of an operation
    shares = torch.stack([found[real_name(node)] * (2.0**-node.log_step / half) for node in named]).amax(0)
    carried = shares[shares < 1]  # neither too large nor no number at all
    spare = math.floor(-math.log2(carried.max().item())) if len(carried) else 0
    return BoundsCheck(len(images), len(images) - len(carried), spare)
