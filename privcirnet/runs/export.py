"""The export of a network to an encrypted program, in any mode, under the settings of the group he/.

export.py and privcirnet.compile use it.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx, nn

from privcirnet.artifact import summaries
from privcirnet.artifact.program import write_ckks, write_program
from privcirnet.config import ExportConfig, HEConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import SETS, budget, sets_for
from privcirnet.he.planning.plan_program import Target, scaled
from privcirnet.he.planning.profile import Profile
from privcirnet.he.planning.stacks import weight_bytes, with_stacks
from privcirnet.he.program import bounds
from privcirnet.he.program.bounds import ObservedRange, Reals, real_name
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program, layers_of, squares_of
from privcirnet.he.program.signature import PrivateKey
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.rlwe.parameters import SECURITY_BITS
from privcirnet.nn.checks import image_of
from privcirnet.nn.supported_modules import is_polynomial
from privcirnet.passes.comparisons import check_program, images_within
from privcirnet.passes.lower import Drafts, Lowered, drafts, lower_real, refined
from privcirnet.passes.quantize import input_quantizer, input_step
from privcirnet.passes.ranges import Range, peaks, usual_ranges
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.profiles import CALIBRATION_ROUNDS, RANKING_ROUNDS, find_profile, measure, profile_at
from privcirnet.runs.progress import ProgressBar, silent
from privcirnet.runs.rehearsal import Trial, rehearse

if TYPE_CHECKING:
    from privcirnet.he.ckks.program import CkksProgram, Rehearsed


CHECKED_IMAGES = 512
"""Held-out images on which measured bounds are checked."""
FREE_GUARD_BITS = 4
"""Number of guard bits that a program gets where its modulus has room for them."""
MOST_GUARD_BITS = 12
"""Most guard bits that are tried while rehearsed images change their class."""
_REHEARSED_VALUES = 2**30
"""Most values of all nodes and rehearsed images together: half a minute of a core."""


def quantized(network: nn.Module) -> fx.GraphModule:
    """Return a network if it can be lowered: one of the qat stage."""
    if not isinstance(network, fx.GraphModule):
        got, remedy = type(network).__name__, "run train.py recipe=qat first, or give its directory with init="
        raise RuleError("an exported network must be quantized", got=got, remedy=remedy)
    return network


@dataclass(frozen=True)
class Pixels:
    """The input format of a program.

    Attributes:
        shape: shape (C, H, W) of an image.
        log_step: real pixel = integer x 2^log_step.
    """

    shape: tuple[int, int, int]
    range: Input
    log_step: int

    def integers(self, images: torch.Tensor) -> Values:
        """Return a program's integers for images, (N, C, H, W), int64; ``images``: real, or a table (N, F)."""
        steps, values = np.array(self.range.exponents or (0,)), images.reshape(-1, *self.shape).double().numpy()
        return np.floor(np.ldexp(values, -steps.reshape(-1, 1, 1) - self.log_step) + 0.5).astype(np.int64)


@dataclass(frozen=True)
class SampleImages:
    """Images that a network is lowered with, real, (N, C, H, W).

    Attributes:
        pixels: the program's input format.
        bounding: images for measured bounds; the program is compared with the network on them.
        rehearsed: images on which truncations are rehearsed, of a large network a few of them; None: no rehearsal.
    """

    pixels: Pixels
    bounding: torch.Tensor
    rehearsed: torch.Tensor | None = None


@dataclass(frozen=True)
class Planned:
    """A program whose parameters and plans are chosen.

    Attributes:
        profile: operation times that its plans were chosen by, at its (n, q).
        rehearsal: trial of random truncations; None if no images were rehearsed.
    """

    lowered: Lowered
    profile: Profile
    rehearsal: summaries.TruncationTrial | None

    @property
    def program(self) -> Program:
        """The program with weights."""
        return self.lowered.program


def pixels_of(network: fx.GraphModule, images: torch.Tensor) -> Pixels:
    """Return the input format of a network's program: integers of as many whole bits as the images have.

    Args:
        images: real images, (N, C, H, W).
    """
    step, exponents = input_step(network), input_quantizer(network).exponents
    axes = [1] * (images.ndim - 2)
    scaled = images if exponents is None else images * torch.exp2(-exponents.to(images)).view(-1, *axes)
    low, high = (math.floor(end.item() * 2.0**-step + 0.5) for end in scaled.aminmax())
    bits = max(high, -low - 1, 1).bit_length() + (exponents is not None)  # of many that fill their bits one goes beyond
    of_channels = None if exponents is None else tuple(exponents.tolist())
    return Pixels(image_of(images.shape[1:]), Input(-(2**bits) if low < 0 else 0, 2**bits - 1, of_channels), step)


def lower_for(
    he: HEConfig, network: fx.GraphModule, data: ImageData, bar: ProgressBar = silent, rehearsed_images: int = 0
) -> Planned:
    """Return the program of a quantized network for the images of a data set, see :func:`lower_on`.

    Args:
        data: Data that it was trained on; measured bounds are taken on training images.
        rehearsed_images: Number of held-out images that the program is rehearsed on.
    """
    pixels = Pixels(data.shape, Input(0, data.levels), data.log_step)
    images = data.real(data.sample(he.bound_images)[0])
    rehearsed = data.real(data.held_out(rehearsed_images)[0]) if rehearsed_images else None
    return lower_on(he, network, SampleImages(pixels, images, rehearsed), bar)


def lower_on(
    he: HEConfig,
    network: fx.GraphModule,
    images: SampleImages,
    bar: ProgressBar = silent,
    fixed_profile: Profile | None = None,
) -> Planned:
    """Return the program of a quantized network, planned for its (n, q).

    Where truncations are at random, activations get guard bits: fractional bits beyond their steps
    (:func:`privcirnet.nn.quantization_steps.refine`), the fewest with which at most one in a hundred rehearsed images
    changes its class and none would be refused, and up to :data:`FREE_GUARD_BITS` where the modulus has room anyway.

    The network is lowered once for each number of guard bits. Where (n, q) are chosen, they are chosen under the
    profile of one set, with times scaled to the others; plans are then made under the profile of the chosen set. A
    profile that is measured for the choice alone takes fewer rounds, :data:`profiles.RANKING_ROUNDS`.

    Args:
        fixed_profile: Profile that is used in place of the settings', with times scaled to the chosen set.

    Raises:
        DoesNotFit: A bound or a modulus is out of reach, or there is too little noise budget.
        RuleError: An operation is not supported, no parameters are secure, the file is not a profile, or the program
            computes something other than the network.
    """
    settled = he.settled(exact=not is_polynomial(network))
    planned = _planned(settled, network, images, bar, fixed_profile)
    with bar("comparing with the network", 0):
        compared = check_program(planned.lowered, network, images.bounding)
    if images.rehearsed is not None and settled.exact:  # equal to the last bit on these
        planned = replace(planned, rehearsal=summaries.TruncationTrial(compared, difference=0.0))
    return planned


def _planned(
    he: HEConfig, network: fx.GraphModule, images: SampleImages, bar: ProgressBar, fixed_profile: Profile | None
) -> Planned:
    drafted, target, lowered = _fitting(he, network, images, target_of(he, fixed_profile, bar), bar)
    rehearsal = None
    if images.rehearsed is not None and not he.exact:
        some = images.rehearsed[: images_within(lowered.program, _REHEARSED_VALUES)]
        trial = Trial(images.pixels.integers(some), logits_of(network, some))
        lowered, rehearsal = _guarded(drafted, target, lowered, trial, bar)
    if fixed_profile:
        profile = scaled(fixed_profile, lowered.choice.set)
        return Planned(_stacked(he, lowered, profile), profile, rehearsal)
    ranked = target.auto and he.profile == "calibrate"
    arguments = lowered.choice.set, he.engine, bar
    profile = measure(*arguments) if ranked else profile_at(target.profile, *arguments)
    if profile is not target.profile:
        at_set, bits = replace(target, profile=profile, sets=(), auto=False), lowered.guard_bits
        with bar("planning", 0), suppress(DoesNotFit):  # else the plans by scaled times remain
            lowered = replace(refined(drafted, at_set, bits, bits), choice=lowered.choice)
    return Planned(_stacked(he, lowered, profile), profile, rehearsal)


def _guarded(
    drafted: Drafts, target: Target, lowered: Lowered, trial: Trial, bar: ProgressBar
) -> tuple[Lowered, summaries.TruncationTrial]:
    """Return the program with the fewest guard bits that suffice for a trial, or the most that fit, and its rehearsal.

    Args:
        lowered: the program with the free guard bits.
    """
    rehearsal = rehearse(lowered.program, trial, bar)
    while rehearsal.spoiled and lowered.guard_bits < MOST_GUARD_BITS:
        bits = lowered.guard_bits + 1
        try:
            more = refined(drafted, target, bits, bits)
        except DoesNotFit:
            break
        lowered, rehearsal = more, rehearse(more.program, trial, bar)
    return lowered, rehearsal


def _fitting(
    he: HEConfig, network: fx.GraphModule, images: SampleImages, target: Target, bar: ProgressBar
) -> tuple[Drafts, Target, Lowered]:
    """Return the network with the first kind of bounds that parameters carry, and the target that has them."""
    free, pixels = 0 if he.exact else FREE_GUARD_BITS, images.pixels

    def fitting(kind: str) -> tuple[Drafts, Target, Lowered]:
        bounded = target
        if kind == "measured":
            with bar("measuring ranges", 0):
                bounded = _measured(he, network, images.bounding, target)
        drafted = drafts(network, pixels.shape, pixels.range, pixels.log_step, bounded)
        with bar("lowering", 0):
            return drafted, bounded, refined(drafted, bounded, free)

    *preferred, last = he.bounds_tried
    for kind in preferred:
        with suppress(DoesNotFit):
            return fitting(kind)
    return fitting(last)


def _stacked(he: HEConfig, lowered: Lowered, profile: Profile) -> Lowered:
    """Return the program with transfers and with stacked layers, as far as the settings give room."""
    program = with_transfers(lowered.program, he.ot)
    program = with_stacks(program, profile, LINKS[he.link], schedule_of(program).max_batch, int(1e9 * he.stack_gb))
    return replace(lowered, fitted=replace(lowered.fitted, program=program))


def with_transfers(program: Program, source: str) -> Program:
    """Return a program with a source of oblivious transfers, or the best one for "auto"."""
    return replace(program, transfers=schedule_of(program).best_source if source == "auto" else source)


def target_of(he: HEConfig, fixed_profile: Profile | None = None, bar: ProgressBar = silent) -> Target:
    """Return the target of the settings, with proved bounds.

    Args:
        fixed_profile: Profile that is used in place of the settings'.

    Raises:
        RuleError: No parameters are secure, or the file is not a profile.
    """
    link, auto = LINKS[he.link], not he.coefficient_bits
    sets = sets_for(he.ring_degree, he.coefficient_bits)
    profile = fixed_profile or find_profile(he, bar=bar, rounds=RANKING_ROUNDS if auto else CALIBRATION_ROUNDS)
    if not auto:
        at_set = scaled(profile, sets[0]) if fixed_profile else profile_at(profile, sets[0], he.engine, bar)
        profile, sets = at_set, SETS
    elif he.ring_degree in (0, profile.ring_degree):
        sets = (profile.parameter_set, *sets)
    kinds = {"truncation": "exact" if he.exact else "random", "nonlinear": he.nonlinear, "answer": he.answer}
    return replace(Target(profile, link, he.failure_bits, sets, auto), **kinds)


def _measured(he: HEConfig, network: fx.GraphModule, images: torch.Tensor, target: Target) -> Target:
    """Return the target with the ranges of all values on images."""
    ranges = usual_ranges(network, images)
    for node in network.graph.nodes:  # of images what the program reads
        if node.op == "placeholder":
            ranges[node.name] = ranges[next(iter(node.users)).name]
    return replace(target, seen=observed(ranges), margin_bits=he.margin_bits)


def logits_of(network: fx.GraphModule, images: torch.Tensor) -> np.ndarray:
    """Return the logits of a quantized network, (N, classes); ``images``: real, (N, C, H, W)."""
    with torch.no_grad():
        return network.eval()(images).flatten(1).double().numpy()


def observed(ranges: Mapping[str, Range]) -> dict[str, ObservedRange]:
    """Return the observed ranges of every node as arrays, channels first: values of tokens (T, C) become (C, T)."""

    def array(values: torch.Tensor) -> Reals:
        return (values.mT if values.ndim == 2 else values).numpy()

    return {name: ObservedRange(*map(array, ends)) for name, ends in ranges.items()}


def exceeding(program: Program, network: fx.GraphModule, images: torch.Tensor) -> summaries.BoundsCheck | None:
    """Return the check of measured bounds on images; None for proved ones, which hold for every image.

    Args:
        images: real images, (N, C, H, W).
    """
    if program.bounds == "proved":
        return None
    peak_values, half = peaks(network, images), program.parameters.plain_modulus / 2
    steps = [(node.inputs[0], node.operation.bound) for node in program.nodes if isinstance(node.operation, ExactStep)]
    limits = {name: min(bound for of, bound in steps if of == name) for name, _ in steps}
    nodes = program.nodes[: program.nodes.index(program.logits) + 1]
    named = [node for node in nodes if real_name(node) in peak_values]  # others are pieces of an operation
    shares = torch.stack(
        [peak_values[real_name(node)] * (2.0**-node.log_step / limits.get(node.name, half)) for node in named]
    )
    carried = shares.T[shares.amax(0) < 1]  # neither too large nor no number at all
    if not len(carried):
        return summaries.BoundsCheck(len(images), len(images), 0)
    largest, place = carried.amax(0).max(0)
    spare = math.floor(-math.log2(largest.item()))
    return summaries.BoundsCheck(len(images), len(images) - len(carried), spare, named[int(place)].name)


@dataclass(frozen=True)
class Exported:
    """An exported program.

    Attributes:
        facts: facts for its summary.
        write: function that writes its folder, with public facts, signed with a key or not.
        profile: operation times that its plans were chosen by; None where none were.
    """

    facts: summaries.ExportSummary
    write: Callable[[Path, Mapping[str, Any], PrivateKey | None], object]
    profile: Profile | None = None


def export_program(config: ExportConfig, network: nn.Module, data: ImageData, bar: ProgressBar = silent) -> Exported:
    """Return the program of a network in the settings' mode.

    Raises:
        DoesNotFit: no parameters carry the program.
        RuleError: the network has something that does not run encrypted, or is of another stage.
    """
    if config.mode == "interactive":
        return _interactive(config, network, data, bar)
    program = ckks_program(config.he, network, data)
    with bar("Simulating the circuit", 0):
        facts = ckks_facts(program, program.rehearsed(0))
    return Exported(facts, lambda folder, about, key: write_ckks(folder, program, about, key))


def _interactive(config: ExportConfig, network: nn.Module, data: ImageData, bar: ProgressBar) -> Exported:
    """Lower the network, prove or measure its bounds, and choose the parameters."""
    module = quantized(network)
    planned = lower_for(config.he, module, data, bar, config.rehearsed_images)
    lowered = planned.lowered
    facts = replace(
        _facts(lowered),
        bounds_exceeded=exceeding(lowered.program, module, data.real(data.held_out(CHECKED_IMAGES)[0])),
        rehearsal=planned.rehearsal,
    )
    compiled = CompiledProgram(lowered.program, {}, planned.profile, planned.rehearsal)

    def write(folder: Path, about: Mapping[str, Any], key: PrivateKey | None) -> None:
        write_program(
            folder, compiled.integer, {**about, **compiled.measured()}, full=config.plaintexts == "full", key=key
        )

    return Exported(facts, write, planned.profile)


def _facts(lowered: Lowered) -> summaries.InteractiveExport:
    """Return the summary's facts of an interactive program."""
    program = lowered.program
    hidden = budget(layers_of(program.nodes), program.parameters, squares_of(program.nodes))
    bits = {name: bounds.value_bits(interval) for name, interval in lowered.fitted.intervals.items()}
    chances: dict[str, Any] = bounds.truncation_facts(program, lowered.fitted.sizes)
    plaintexts = [(8 * math.prod(layer.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
    return summaries.InteractiveExport(
        nodes=len(program.nodes),
        linear=len(program.linear_nodes),
        plain_modulus=program.parameters.plain_modulus,
        plain_modulus_bits=program.parameters.plain_bits,
        ring_degree=program.parameters.ring_degree,
        log_q=program.parameters.log_q,
        security_bits=SECURITY_BITS,
        flooding_bits=hidden.flooding,
        flooding_distance_bits=hidden.distance,
        max_value_bits=max(bits.values()),
        bounds=program.bounds,
        bounds_bits=bits,
        guard_bits=lowered.guard_bits,
        answer=program.answer,
        output_bits=program.output_bits,
        choice=summaries.Choice(**lowered.choice.to_dict()),
        truncation=summaries.Truncation(**chances) if chances else None,
        bytes_plaintexts=sum(size for size, _ in plaintexts),
        bytes_plaintexts_dense=sum(size * b for size, b in plaintexts),  # if every weight were of its own
        stacks={node.name: stack.images for node, _, stack in program.stacks},
        bytes_stacks=weight_bytes(program),
    )


def ckks_program(he: HEConfig, network: nn.Module, data: ImageData) -> "CkksProgram":
    """Return the CKKS program of a trained network, at n = 65536.

    Args:
        network: convolutions with squares or AESPA between them, residuals, an average pool and a linear layer, not
            quantized; left as it was.

    Raises:
        RuleError: the network has something else, is quantized already, or does not fit levels or slots.
    """
    from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for
    from privcirnet.he.ckks.network import sums_of
    from privcirnet.he.ckks.program import CkksProgram

    if isinstance(network, fx.GraphModule):
        rule, remedy = "a CKKS program is made of a network before the qat stage", "give init=outputs/finetune"
        raise RuleError(rule, got="a quantized network", remedy=remedy)
    examples = data.real(data.sample(he.bound_images)[0])
    lowered = lower_real(deepcopy(network).eval(), data.shape)
    scales = sums_of(lowered).seen(examples.double().numpy())
    return CkksProgram(lowered, scales, Bootstrapping(parameters_for()), data.log_step)


def ckks_facts(program: "CkksProgram", rehearsed: "Rehearsed") -> summaries.CkksExport:
    """Return the summary's facts of a CKKS program."""
    from privcirnet.he.ckks.program import encoded_bytes
    from privcirnet.runs.ckks import circuit_summary

    parameters = program.bootstrapping.parameters
    return summaries.CkksExport(
        ring_degree=parameters.ring_degree,
        log_q=parameters.log_q,
        security_bits=SECURITY_BITS,
        scale_bits=parameters.scale_bits,
        level_image=rehearsed.circuit.placement.image,
        failure_bits=program.bootstrapping.failure_bits,
        depth_squares=len(program.sums.nodes),
        circuit=circuit_summary(rehearsed, encoded_bytes(rehearsed.counting)),
    )
