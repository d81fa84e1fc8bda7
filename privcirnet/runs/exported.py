"""The export of a trained network, in any mode, as a program that can be written; export.py uses it."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import fx, nn

from privcirnet.artifact import write_ckks, write_program
from privcirnet.artifact.summaries import Choice, ExportSummary, Truncation, TruncationTrial
from privcirnet.config import ExportConfig, HEConfig
from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.he.planning.noise_budget import budget
from privcirnet.he.planning.profile import Profile
from privcirnet.he.planning.stacks import weight_bytes
from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.program import layers_of, squares_of
from privcirnet.he.program.signature import PrivateKey
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.passes.lower import Lowered, lower_real
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.export import CHECKED_IMAGES, exceeding, lower_for, quantized
from privcirnet.runs.progress import Bar, silent

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.ckks.program import CkksProgram, Rehearsed


@dataclass(frozen=True)
class Exported:
    """An exported program.

    Attributes:
        facts: facts for its summary.
        write: function that writes its folder, with public facts, signed with a key or not.
        profile: operation times that its plans were chosen by; None where none were.
    """

    facts: ExportSummary
    write: Callable[[Path, Mapping[str, Any], PrivateKey | None], object]
    profile: Profile | None = None


def export_program(config: ExportConfig, network: nn.Module, data: ImageData, bar: Bar = silent) -> Exported:
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


def _interactive(config: ExportConfig, network: nn.Module, data: ImageData, bar: Bar) -> Exported:
    """Lower the network, prove or measure its bounds, and choose the parameters."""
    module = quantized(network)
    planned = lower_for(config.he, module, data, bar, config.rehearsed_images)
    lowered, rehearsal = planned.lowered, planned.rehearsal
    facts = replace(
        _facts(lowered),
        bounds_exceeded=exceeding(lowered.program, module, data.real(data.held_out(CHECKED_IMAGES)[0])),
        rehearsal=TruncationTrial(**cast("dict[str, Any]", rehearsal)) if rehearsal else None,
    )
    compiled = CompiledProgram(lowered.program, {}, planned.profile, rehearsal)

    def write(folder: Path, about: Mapping[str, Any], key: PrivateKey | None) -> None:
        write_program(
            folder, compiled.integer, {**about, **compiled.measured()}, full=config.plaintexts == "full", key=key
        )

    return Exported(facts, write, planned.profile)


def _facts(lowered: Lowered) -> ExportSummary:
    """Return the summary's facts of an interactive program."""
    program = lowered.program
    hidden = budget(layers_of(program.nodes), program.parameters, squares_of(program.nodes))
    bits = {name: bounds.value_bits(interval) for name, interval in lowered.fitted.intervals.items()}
    chances: dict[str, Any] = truncation.truncation_facts(program, lowered.fitted.sizes)
    plaintexts = [(8 * math.prod(layer.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
    return ExportSummary(
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
        choice=Choice(**lowered.choice.to_dict()),
        truncation=Truncation(**chances),
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
    from privcirnet.he.ckks.program import CkksProgram
    from privcirnet.he.ckks.sums import sums_of

    if isinstance(network, fx.GraphModule):
        rule, remedy = "a CKKS program is made of a network before the qat stage", "give init=outputs/finetune"
        raise RuleError(rule, got="a quantized network", remedy=remedy)
    examples = data.real(data.sample(he.bound_images)[0])
    lowered = lower_real(deepcopy(network).eval(), data.shape)
    scales = sums_of(lowered).seen(examples.double().numpy())
    return CkksProgram(lowered, scales, Bootstrapping(parameters_for()), data.log_step)


def ckks_facts(program: "CkksProgram", rehearsed: "Rehearsed") -> ExportSummary:
    """Return the summary's facts of a CKKS program."""
    from privcirnet.he.ckks.costs import encoded_bytes, predicted

    circuit, counting, parameters = rehearsed.circuit, rehearsed.counting, program.bootstrapping.parameters
    seconds = {"bootstrapping": 0.0, "layers": 0.0}
    for name, layer_seconds in predicted(circuit, counting).items():
        seconds["bootstrapping" if name.endswith(" bootstrapping") else "layers"] += layer_seconds
    return ExportSummary(
        mode="ckks",
        ring_degree=parameters.ring_degree,
        log_q=parameters.log_q,
        security_bits=SECURITY_BITS,
        scale_bits=parameters.scale_bits,
        levels=parameters.levels,
        level_image=circuit.placement.image,
        bootstrappings=rehearsed.bootstrappings,
        failure_bits=program.bootstrapping.failure_bits,
        precision_bits=rehearsed.reply.precision_bits,
        bounds="measured",
        depth_squares=len(program.sums.nodes),
        operations={name: count for name, count in counting.total.items() if name != "raised"},
        rotation_keys=len(counting.keys),
        bytes_keys_server=rehearsed.key_bytes,
        bytes_weights=encoded_bytes(counting),
        processor_seconds_predicted=seconds,
    )
