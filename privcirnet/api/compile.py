"""Compilation of a network to a program that runs encrypted, and loading of saved ones."""

import copy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, fx, nn

from privcirnet.api.settings import bars, encryption, verb
from privcirnet.artifact.records import Checkpoint, InputSpec
from privcirnet.config import CompileConfig
from privcirnet.config.checks import check
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.nn.checks import check_images, check_module, check_weights, image_of
from privcirnet.nn.example import FACTS
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.passes.comparisons import check_reference
from privcirnet.passes.difference import Difference, difference, warn_of_losses
from privcirnet.passes.quantize import BITS, calibrated, check_calibrated, input_quantizer, is_quantized
from privcirnet.runs.compiled import CompiledProgram, read_compiled
from privcirnet.runs.export import Pixels, SampleImages, exceeding, lower_on, pixels_of
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.progress import ProgressBar

_HALF = 0.5
"""Share of a step that a pixel may be off."""


@verb
def compile(  # noqa: PLR0913
    network: nn.Module,
    images: Tensor,
    config: CompileConfig | None = None,
    *,
    profile: Profile | str | Path = "calibrate",
    reference: nn.Module | None = None,
    tolerance: float = 0.25,
    rehearsed_images: int = 128,
    progress: bool = True,
    **settings: Any,
) -> CompiledProgram:
    """Return the program of a network: integer weights, bounds, encryption parameters, plans of its layers.

    A network that is not quantized is fused and quantized to 8 bits first (:func:`privcirnet.quantize`), on a copy. Its
    activations stay: those that are no polynomials run exactly, by two-party computation.

    Args:
        network: any network, of timm, torchvision or your own, trained or not; one of :func:`privcirnet.quantize` is
            taken as it is. Left as it was.
        images: some as the network reads them, (N, C, H, W) or (N, F). They give the size and the range of all images:
            the smallest of whole bits that holds them.
        config: bounds and encryption. Measured ``bounds`` are those of these images: give a hundred or more, because
            an image that exceeds them 2^``margin_bits`` times gets a wrong answer.
        profile: operation times that plans are chosen by, as for :func:`privcirnet.search`.
        reference: a network whose logits on some of the images must be those of the program but for quantization, for a
            quantized network without a record of its original, as one of a checkpoint.
        tolerance: largest difference from the reference's logits, as a share of their size.
        rehearsed_images: number of images that are classified in clear as encrypted ones are. Where truncations are at
            random, activations keep as many bits more as these images need to keep their classes, but for one in a
            hundred. The printed program has the distance of their logits from the quantized network's. 0: none.
        progress: whether bars are shown, and the number of images that keep their class.
        settings: fields of ``config`` by name, as ``failure_bits=12`` or ``bounds="proved"``.

    Warns:
        UserWarning: some of the images go beyond the measured bounds: their values are far above the others'; or more
            than a tenth of the images that the network was quantized with have another class than before.

    Raises:
        DoesNotFit: a bound or a modulus is out of reach, or there is too little noise budget.
        RuleError: the network has an operation that does not run encrypted, its weights are not finite, images are
            none, not finite or of another size, a setting is out of range, or the program computes something other than
            the network or the reference.
    """
    check_weights(network)
    check_images(network, images)
    check(rehearsed_images >= 0, "rehearsed_images must be at least 0", rehearsed_images, "use 128")
    he, bar = encryption("compile", config, settings, profile), bars(progress)
    images = images.to("cpu", next(network.parameters(), images).dtype)
    inputs = _inputs_of(network, images)
    quantized, before = _quantized(network, images, bar, inputs.log_step if inputs else None)
    if reference is not None:
        check_module(reference)
        check_reference(quantized, copy.deepcopy(with_plain_weights(reference)).cpu(), images, tolerance)
    costs = (
        profile if isinstance(profile, Profile) else None if he.profile == "calibrate" else find_profile(he, bar=bar)
    )
    some = images[:rehearsed_images] if rehearsed_images else None
    samples = SampleImages(_pixels(quantized, images, inputs), images, some)
    planned = lower_on(he, quantized, samples, bar, costs)
    room = _checked_bounds(planned.program, quantized, images, bar)
    about = "; ".join(filter(None, (before, room)))
    return CompiledProgram(planned.program, {}, planned.profile, planned.rehearsal, about, inputs, bar)


def _inputs_of(network: nn.Module, images: Tensor) -> InputSpec | None:
    """Return the form of a network's images, in the size of these, if it was read with one that they have."""
    checkpoint: Checkpoint | None = getattr(network, "meta", {}).get(FACTS)
    inputs = checkpoint.inputs if checkpoint else None
    if inputs is None or images.ndim != len(inputs.shape) + 1 or images.shape[1] != inputs.shape[0]:
        return None
    if isinstance(network, fx.GraphModule) and is_quantized(network):
        quantizer = input_quantizer(network)
        if quantizer.exponents is not None or int(quantizer.log_step) != inputs.log_step:
            return None
    low_end, high_end = (end.item() * 2.0**-inputs.log_step - inputs.low for end in images.aminmax())
    has_it = low_end > -_HALF and high_end < inputs.levels + _HALF
    return replace(inputs, shape=image_of(images.shape[1:])) if has_it else None


def _pixels(quantized: fx.GraphModule, images: Tensor, inputs: InputSpec | None) -> Pixels:
    """Return the input format of a network's program: as it is known, else that of the images."""
    if inputs is None:
        return pixels_of(quantized, images)
    return Pixels(image_of(inputs.shape), Input(inputs.low, inputs.low + inputs.levels), inputs.log_step)


def _quantized(
    network: nn.Module, images: Tensor, bar: ProgressBar, input_log_step: int | None = None
) -> tuple[fx.GraphModule, str]:
    """Return a network quantized, a copy on the CPU, and its difference from its original in words.

    Warns:
        UserWarning: more than a tenth of the images have another class than before.
    """
    copied = copy.deepcopy(with_plain_weights(network)).cpu()
    if isinstance(copied, fx.GraphModule) and is_quantized(copied):
        check_calibrated(copied)
        change = warn_of_losses(copied, "give quantize images like these, or more bits, or train it quantized", 5)
        return copied, _in_words(copied, change)
    with bar("folding norms, quantizing", 1) as advance:
        quantized = calibrated(copied, images, input_log_step)
        summary = _in_words(quantized, difference(quantized))
        advance(summary)
    warn_of_losses(quantized, "give more images, or train it quantized: pc.fit(pc.quantize(model, images), data)", 5)
    return quantized, summary


def _in_words(quantized: fx.GraphModule, change: Difference | None) -> str:
    """Return bits and the difference from the network before in a clause; "" if that is not known."""
    weight, activation, _ = quantized.meta.get(BITS, (8, 8, 8))
    bits = f"{activation} bits" if weight == activation else f"weights of {weight} bits, values of {activation}"
    return f"{bits}: {change}" if change else ""


def _checked_bounds(program: Program, network: fx.GraphModule, images: Tensor, bar: ProgressBar) -> str:
    """Return how far the images' values are from measured bounds, in words; "" for proved ones.

    Warns:
        UserWarning: some of the images go beyond.
    """
    with bar("checking bounds", 0):
        exceeded = exceeding(program, network, images)
    if exceeded is None:
        return ""
    if exceeded.beyond:
        remedy = "train longer, or with outlier_penalty=0.1, which keeps values near each other"
        many = f"{exceeded.beyond} of {exceeded.images} images go beyond the measured bounds"
        warnings.warn(f"{many}: they would be answered wrongly; {remedy}", stacklevel=4)
    return f"bounds hold {2**exceeded.spare_bits} times the images' values at {exceeded.nearest}, elsewhere more"


def load(folder: str | Path, *, progress: bool = True) -> CompiledProgram:
    """Return a program that :meth:`CompiledProgram.save` or export.py wrote.

    Args:
        folder: folder of the program.
        progress: whether its sessions show progress bars.

    Raises:
        RuleError: missing, damaged or foreign.
    """
    remedy = "check the path, or write a program there: program.save(folder)"
    check(Path(folder).exists(), "a program's folder must exist", folder, remedy)
    return replace(read_compiled(Path(folder)), bar=bars(progress))
