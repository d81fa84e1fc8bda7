"""From a quantized network to a program that runs encrypted."""

import copy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn

from privcirnet.api.profiles import encryption
from privcirnet.api.progress import bars
from privcirnet.api.settings import verb
from privcirnet.config import CompileConfig
from privcirnet.config.checks import check
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program.program import Program
from privcirnet.nn.checks import check_images, check_module, check_weights
from privcirnet.nn.plain import with_plain_weights
from privcirnet.passes.origin import warn_of_losses
from privcirnet.passes.quantize import check_calibrated
from privcirnet.passes.reference import check_reference
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.export import exceeding, logits_of, lower_on, pixels_of
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.progress import Bar
from privcirnet.runs.rehearsal import rehearsed


@verb
def compile(  # noqa: PLR0913
    network: fx.GraphModule,
    images: Tensor,
    config: CompileConfig | None = None,
    *,
    profile: Profile | str | Path = "calibrate",
    reference: nn.Module | None = None,
    tolerance: float = 0.25,
    rehearsed_images: int = 16,
    progress: bool = True,
    **settings: Any,
) -> CompiledProgram:
    """Return the program of a quantized network: integer weights, bounds, encryption parameters, plans of its layers.

    Args:
        network: of :func:`privcirnet.quantize`, trained or not; left as it was.
        images: some as the network reads them, (N, C, H, W) or (N, F). They give the size and the range of all images:
            the smallest of whole bits that holds them.
        config: bounds and encryption. Measured ``bounds`` are those of these images: give a hundred or more, because
            an image that exceeds them 2^``margin_bits`` times gets a wrong answer.
        profile: operation times that plans are chosen by, as for :func:`privcirnet.search`.
        reference: the network that you began with, before fuse and quantize: its logits on some of the images must be
            those of the program but for quantization.
        tolerance: largest difference from the reference's logits, as a share of their size.
        rehearsed_images: images that are classified in clear as encrypted ones are, with truncations at random;
            printed, the program says how far their logits are from the quantized network's. 0: none.
        progress: whether bars are shown.
        settings: fields of ``config`` by name, as ``failure_bits=12`` or ``bounds="proved"``.

    Warns:
        UserWarning: some of the images go beyond the measured bounds: their values are far above the others'; or more
            than a tenth of the images that ``network`` was quantized with have another class than before.

    Raises:
        DoesNotFit: a bound or a modulus is out of reach, or there is too little noise budget.
        RuleError: the network is not quantized, or without images, or has an operation that does not run encrypted, its
            weights are not finite, images are none, not finite or of another size, a setting is out of range, or the
            program computes something other than the network or the reference.
    """
    check_calibrated(network)
    check_weights(network)
    check_images(network, images)
    check(rehearsed_images >= 0, "rehearsed_images must be at least 0", rehearsed_images, "use 16")
    he, bar = encryption("compile", config, settings, profile), bars(progress)
    network = copy.deepcopy(network).cpu()
    images = images.to("cpu", next(network.parameters()).dtype)
    if reference is not None:
        check_module(reference)
        check_reference(network, copy.deepcopy(with_plain_weights(reference)).cpu(), images, tolerance)
    given = (
        profile if isinstance(profile, Profile) else None if he.profile == "calibrate" else find_profile(he, bar=bar)
    )
    lowered, chosen_by = lower_on(he, network, pixels_of(network, images), images, bar, given)
    before = warn_of_losses(network, "give quantize images like these, or more bits, or train it quantized", 4)
    _warn_of_large_values(lowered.program, network, images, bar)
    made = CompiledProgram(lowered.program, profile=chosen_by, quantization=str(before) if before else "", bar=bar)
    if not rehearsed_images:
        return made
    some = images[:rehearsed_images]
    integers, logits = made.integers(some.double()), logits_of(network, some)
    return replace(made, rehearsal=rehearsed(made.integer, integers, bar, quantized=logits))


def _warn_of_large_values(program: Program, network: fx.GraphModule, images: Tensor, bar: Bar) -> None:
    with bar("checking bounds", 0):
        found = exceeding(program, network, images)
    if found and found.beyond:
        remedy = "train longer, or with outlier_penalty=0.1, which keeps values near each other"
        many = f"{found.beyond} of {found.images} images go beyond the measured bounds"
        warnings.warn(f"{many}: they would be answered wrongly; {remedy}", stacklevel=4)
