"""From a quantized network to a program that runs encrypted."""

import copy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn

from privcirnet.api.progress import bars
from privcirnet.api.settings import arguments_named, known_settings
from privcirnet.config import HEConfig
from privcirnet.config.rules import check
from privcirnet.he.planning.profile import Profile
from privcirnet.nn.checks import check_images, check_module, check_weights
from privcirnet.nn.plain import with_plain_weights
from privcirnet.passes.quantize import input_step
from privcirnet.passes.reference import check_reference
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.export import exceeding, logits_of, lower_on, pixels_of
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.rehearsal import rehearsed

_NOT_OWN = ("profile", "bounds", "link", "bound_images")
"""Settings that have an argument of their own."""


@arguments_named()
def compile(  # noqa: PLR0913
    network: fx.GraphModule,
    images: Tensor,
    *,
    bounds: str = "measured",
    profile: Profile | str | Path = "calibrate",
    link: str = "local",
    reference: nn.Module | None = None,
    tolerance: float = 0.25,
    rehearsed_images: int = 16,
    progress: bool = True,
    **settings: Any,
) -> CompiledProgram:
    """Return the program of a quantized network: integer weights, bounds, encryption parameters, plans of its layers.

    Args:
        network: of :func:`privcirnet.quantize`, trained or not; left as it was.
        images: some as the network reads them, (N, C, H, W). They give the size and the range of all images: the
            smallest of whole bits that holds them.
        bounds: of all values: "measured" on these images (give a hundred or more: an image that exceeds them
            2^``margin_bits`` times gets a wrong answer), or "proved" for every image, which few squares in a row allow.
        profile: operation times that plans are chosen by, as for :func:`privcirnet.search`.
        link: "local", "lan", "wan44" or "wan": the network between client and server.
        reference: the network that you began with, before fuse and quantize: its logits on some of the images must be
            those of the program but for quantization.
        tolerance: largest difference from the reference's logits, as a share of their size.
        rehearsed_images: images that are classified in clear as encrypted ones are, with truncations at random;
            printed, the program says how far their logits are from the quantized network's. 0: none.
        progress: whether bars are shown.
        settings: further ones of :class:`privcirnet.config.HEConfig`, as ``failure_bits``, ``margin_bits``,
            ``guard_bits``, ``ring_degree``, ``family``.

    Warns:
        UserWarning: some of the images go beyond the measured bounds: their values are far above the others'.

    Raises:
        DoesNotFit: a bound or a modulus is out of reach, or there is too little noise budget.
        RuleError: the network is not quantized or has an operation that does not run encrypted, its weights are not
            finite, images are none, not finite or of another size, a setting is out of range, or the program computes
            something other than the network or the reference.
    """
    input_step(network)
    check_weights(network)
    check_images(network, images)
    own, bar = known_settings("compile", settings, HEConfig, _NOT_OWN), bars(progress)
    check(rehearsed_images >= 0, "rehearsed_images must be at least 0", rehearsed_images, "use 16")
    named = "calibrate" if isinstance(profile, Profile) else str(profile)
    he = HEConfig(profile=named, bounds=bounds, link=link, **own)
    given = profile if isinstance(profile, Profile) else None if named == "calibrate" else find_profile(he, bar=bar)
    network, images = copy.deepcopy(network).cpu(), images.cpu()
    if reference is not None:
        check_module(reference)
        check_reference(network, copy.deepcopy(with_plain_weights(reference)).cpu(), images, tolerance)
    lowered, chosen_by = lower_on(he, network, pixels_of(network, images), images, bar, given)
    with bar("checking bounds", 0):
        found = exceeding(lowered.program, network, images)
    if found and found["beyond"]:
        warnings.warn(_answered_wrongly(found), stacklevel=3)
    made = CompiledProgram(lowered.program, profile=chosen_by)
    if not rehearsed_images:
        return made
    some = images[:rehearsed_images]
    integers, logits = made.integers(some.double()), logits_of(network, some)
    return replace(made, rehearsal=rehearsed(made.integer, integers, bar, quantized=logits))


def _answered_wrongly(found: dict[str, Any]) -> str:
    remedy = "train longer, or with tails=0.1, which keeps values near each other"
    many = f"{found['beyond']} of {found['images']} images go beyond the measured bounds"
    return f"{many}: they would be answered wrongly; {remedy}"
