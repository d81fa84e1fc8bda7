"""A trained network as a program that can be written, whichever way it is to run: what export.py does."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from privcirnet.artifact import write_leveled, write_program
from privcirnet.config import ExportConfig
from privcirnet.data.dataset import ImageData
from privcirnet.he.planning.noise_budget import budget
from privcirnet.he.planning.profile import Profile
from privcirnet.he.planning.stacks import weight_bytes
from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.program import Program, layers_of, squares_of
from privcirnet.he.program.signature import PrivateKey
from privcirnet.he.rlwe.security import SECURITY_BITS
from privcirnet.passes.lower import Lowered
from privcirnet.runs.compiled import CompiledProgram
from privcirnet.runs.export import CHECKED_IMAGES, exceeding, logits_of, lower_for, quantized
from privcirnet.runs.leveled_export import leveled_facts, leveled_program
from privcirnet.runs.progress import Bar, silent
from privcirnet.runs.rehearsal import rehearsed


@dataclass(frozen=True)
class Exported:
    """A program.

    Attributes:
        facts: what its summary says of it.
        write: writes its folder, with public facts, signed with a key or not.
        profile: operation times that its plans were chosen by; None where none were.
    """

    facts: dict[str, Any]
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
    if config.leveled.scheme != "ckks":
        program = leveled_program(config.leveled, network, data, config.he.engine)
        return Exported(leveled_facts(program), lambda folder, about, key: write_leveled(folder, program, about, key))
    from privcirnet.artifact.ckks import write_ckks  # these load the kernels
    from privcirnet.runs.ckks_export import ckks_facts, ckks_program

    made = ckks_program(config.leveled, network, data)
    with bar("Simulating the circuit", 0):
        facts = ckks_facts(made, made.rehearsed(0))
    return Exported(facts, lambda folder, about, key: write_ckks(folder, made, about, key))


def _interactive(config: ExportConfig, network: nn.Module, data: ImageData, bar: Bar) -> Exported:
    """Lower, prove or measure the bounds, choose the parameters."""
    module = quantized(network)
    lowered, profile = lower_for(config.he, module, data, bar)
    rehearsal = None
    if config.rehearsed_images:
        some = data.held_out(config.rehearsed_images)[0]
        logits = logits_of(module, data.real(some))
        rehearsal = rehearsed(lowered.program, some.numpy().astype(np.int64), bar, quantized=logits)
    beyond = exceeding(lowered.program, module, data.real(data.held_out(CHECKED_IMAGES)[0]))
    made = CompiledProgram(lowered.program, {}, profile, rehearsal or {})

    def write(folder: Path, about: Mapping[str, Any], key: PrivateKey | None) -> None:
        write_program(folder, made.integer, {**about, **made.measured()}, full=config.plaintexts == "full", key=key)

    return Exported({**_facts(lowered), "bounds_exceeded": beyond, "rehearsal": rehearsal}, write, profile)


def _facts(lowered: Lowered) -> dict[str, Any]:
    """What the summary says of an interactive program."""
    program, intervals = lowered.program, lowered.fitted.intervals
    hidden = budget(layers_of(program.nodes), program.parameters, squares_of(program.nodes))
    bits = {name: bounds.value_bits(interval) for name, interval in intervals.items()}
    return {
        "nodes": len(program.nodes),
        "linear": len(program.linear_nodes),
        "plain_modulus": program.parameters.plain_modulus,
        "plain_modulus_bits": program.parameters.plain_bits,
        "ring_degree": program.parameters.ring_degree,
        "log_q": program.parameters.log_q,
        "security_bits": SECURITY_BITS,
        "flooding_bits": hidden.flooding,
        "flooding_distance_bits": hidden.distance,
        "max_value_bits": max(bits.values()),
        "bounds": program.bounds,
        "bounds_bits": bits,
        "guard_bits": lowered.guard_bits,
        "revealed": program.revealed,
        "answer": program.answer,
        "output_bits": program.output_bits,
        "choice": lowered.choice.to_dict(),
        "truncation": truncation.truncation_facts(program, intervals, lowered.fitted.sizes),
        **_plaintext_bytes(program),
        "stacks": {node.name: stack.images for node, _, stack in program.stacks},
        "bytes_stacks": weight_bytes(program),
    }


def _plaintext_bytes(program: Program) -> dict[str, int]:
    """As they are stored, and as they were if every weight were of its own."""
    compact = [(8 * math.prod(layer.spectrum_shape), layer.block_size) for _, layer in program.linear_nodes]
    dense = sum(size * b for size, b in compact)
    return {"bytes_plaintexts": sum(size for size, _ in compact), "bytes_plaintexts_dense": dense}
