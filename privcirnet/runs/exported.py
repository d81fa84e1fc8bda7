"""A trained network as a program that can be written, whichever way it is to run: what export.py does."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from privcirnet.artifact import write_leveled, write_program
from privcirnet.artifact.summaries import Choice, Export, Rehearsal, Truncation
from privcirnet.config import ExportConfig
from privcirnet.data.dataset import ImageData
from privcirnet.he.circuits.bfv.leveled.noise import noise_bits
from privcirnet.he.planning.leveled.bfv.parameters import distance_bits
from privcirnet.he.planning.noise_budget import budget
from privcirnet.he.planning.profile import Profile
from privcirnet.he.planning.stacks import weight_bytes
from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.program import layers_of, squares_of
from privcirnet.he.program.signature import PrivateKey
from privcirnet.he.protocol.leveled.bfv.leveled_program import LeveledProgram
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.he.schemes.bfv.noise import flood_bits
from privcirnet.passes.lower import Lowered
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.export import CHECKED_IMAGES, exceeding, lower_for, quantized
from privcirnet.runs.leveled_export import ckks_program, leveled_program
from privcirnet.runs.progress import Bar, silent

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.planning.leveled.ckks.ckks_program import CkksProgram, Rehearsed


@dataclass(frozen=True)
class Exported:
    """A program.

    Attributes:
        facts: what its summary says of it.
        write: writes its folder, with public facts, signed with a key or not.
        profile: operation times that its plans were chosen by; None where none were.
    """

    facts: Export
    write: Callable[[Path, Mapping[str, Any], PrivateKey | None], object]
    profile: Profile | None = None


def exported(config: ExportConfig, network: nn.Module, data: ImageData, bar: Bar = silent) -> Exported:
    """Return the program of a network in the mode that the settings name.

    Raises:
        DoesNotFit: no parameters carry the program.
        RuleError: the network has something that does not run encrypted, or is of another stage.
    """
    if config.mode != "leveled":
        return _interactive(config, network, data, bar)
    if config.leveled.scheme == "ckks":
        program = ckks_program(config.leveled, network, data)
        with bar("Simulating the circuit", 0):
            facts = ckks_facts(program, program.rehearsed(0))
    else:
        program = leveled_program(config.leveled, network, data, config.he.engine)
        facts = leveled_facts(program)
    return Exported(facts, lambda folder, about, key: write_leveled(folder, program, about, key))


def _interactive(config: ExportConfig, network: nn.Module, data: ImageData, bar: Bar) -> Exported:
    """Lower, prove or measure the bounds, choose the parameters."""
    module = quantized(network)
    planned = lower_for(config.he, module, data, bar, config.rehearsed_images)
    lowered, rehearsal = planned.lowered, planned.rehearsal
    facts = replace(
        _facts(lowered),
        bounds_exceeded=exceeding(lowered.program, module, data.real(data.held_out(CHECKED_IMAGES)[0])),
        rehearsal=Rehearsal(**cast("dict[str, Any]", rehearsal)) if rehearsal else None,
    )
    made = CompiledProgram(lowered.program, {}, planned.profile, rehearsal)

    def write(folder: Path, about: Mapping[str, Any], key: PrivateKey | None) -> None:
        write_program(folder, made.integer, {**about, **made.measured()}, full=config.plaintexts == "full", key=key)

    return Exported(facts, write, planned.profile)


def _facts(lowered: Lowered) -> Export:
    """What the summary says of an interactive program."""
    program = lowered.program
    hidden = budget(layers_of(program.nodes), program.parameters, squares_of(program.nodes))
    bits = {name: bounds.value_bits(interval) for name, interval in lowered.fitted.intervals.items()}
    chances: dict[str, Any] = truncation.truncation_facts(program, lowered.fitted.sizes)
    plaintexts = [(8 * math.prod(layer.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
    return Export(
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


def leveled_facts(program: LeveledProgram) -> Export:
    """Return what export.py says of a leveled program in its summary."""
    parameters, circuit = program.parameters, program.plan.circuit
    (products, squares), level = circuit.levels, program.plan.public.primes
    return Export(
        mode="leveled",
        planner=program.planner,
        plain_modulus=parameters.moduli[0].plain_modulus,
        plain_modulus_bits=parameters.moduli[0].plain_bits,
        plain_moduli=len(parameters.moduli),
        ring_degree=parameters.ring_degree,
        log_q=max(sum(parameters.data_bits), sum(parameters.coefficient_bits) + sum(parameters.special_bits)),
        security_bits=SECURITY_BITS,
        noise_bits=noise_bits(circuit, parameters),
        flooding_bits=min(flood_bits(parameters.at(i, level)) for i in range(len(parameters.moduli))),
        flooding_distance_bits=distance_bits(parameters, circuit),
        max_value_bits=program.exact.bits,
        bounds="proved",
        depth_products=products,
        depth_squares=squares,
        operations=dict(circuit.counts),
        rotation_keys=len(circuit.rotations),
        block_sizes={layer.name: layer.block_size for layer in program.exact.layers},
    )


def ckks_facts(program: "CkksProgram", rehearsed: "Rehearsed") -> Export:
    """Return what export.py says of a CKKS program in its summary."""
    from privcirnet.he.planning.leveled.ckks.costs import encoded_bytes, predicted

    circuit, counting, parameters = rehearsed.circuit, rehearsed.counting, program.bootstrapping.parameters
    seconds = {"bootstrapping": 0.0, "layers": 0.0}
    for name, each in predicted(circuit, counting).items():
        seconds["bootstrapping" if name.endswith(" bootstrapping") else "layers"] += each
    return Export(
        mode="leveled",
        scheme="ckks",
        planner="slots",
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
