"""The folder of a leveled program, BFV or CKKS: a manifest without any weight, the weights, a signature.

BFV has integer weights and a plan by name; CKKS has real weights and the scales of their sums. numpy only; no torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privcirnet.artifact.folder import (
    CKKS,
    LEVELED,
    REMEDY,
    checked_files,
    format_of,
    read_manifest,
    replacing_program,
    seal,
)
from privcirnet.artifact.interactive import WEIGHTS
from privcirnet.artifact.records import write_tensors
from privcirnet.artifact.weights import (
    Tensors,
    complete,
    integers,
    large_integers,
    read_weights,
    reals,
    tensors_of,
    weight_tensors,
)
from privcirnet.errors import RuleError
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Square
from privcirnet.he.program.program import Network
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.protocol.leveled.bfv import description
from privcirnet.he.protocol.leveled.bfv.leveled_program import LeveledProgram

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.planning.leveled.ckks.ckks_program import CkksProgram

VERSIONS = {LEVELED: 2, CKKS: 3}
_SUMS, _ENDS = "/sums", "/ends"
"""Tensors of CKKS's scales, which depend on the weights: bounds and sizes of sums; of image, means and logits."""


def write_leveled(
    folder: Path, program: "LeveledProgram | CkksProgram", about: Mapping[str, Any], key: PrivateKey | None = None
) -> None:
    """Write a leveled program's folder.

    Args:
        folder: where; an older program there is replaced when the new one is complete.
        key: signs the program; None for a program without a signature.

    Raises:
        RuleError: the folder holds something that is not a program, or the disk is full.
    """
    network, tensors, described = program.network, weight_tensors(program.network.weights), _described(program)
    facts: dict[str, Any] = {"nodes": manifest.nodes_to_list(network.nodes), "description": described}
    if isinstance(program, LeveledProgram):
        kind, facts["planner"] = LEVELED, program.planner
    else:
        kind, (tensors[_SUMS], tensors[_ENDS]) = CKKS, program.scales.arrays()
    with replacing_program(folder) as draft:
        write_tensors(draft / WEIGHTS, tensors)
        seal(draft, {"format": kind, "version": VERSIONS[kind], **about, **facts}, [WEIGHTS], described, key)


def read_leveled(folder: Path, key: PublicKey | None = None) -> "LeveledProgram | CkksProgram":
    """Read a leveled program.

    Args:
        key: that must have signed it; None for any program.

    Returns:
        The program with its weights.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, not signed with the key; or its parameters do not carry it.
    """
    kind = CKKS if format_of(folder) == CKKS else LEVELED
    data = read_manifest(folder, key, kind, (VERSIONS[kind],))
    files = checked_files(folder, data, (WEIGHTS,))
    with complete("a leveled program", folder):
        nodes, tensors = manifest.nodes_from_list(data["nodes"]), tensors_of(files, WEIGHTS)
        program = (_ckks if kind == CKKS else _bfv)(data, nodes, tensors)
    if _described(program) != data["description"]:
        rule = "a leveled program's description must follow from its weights, its plan and its parameters"
        raise RuleError(rule, got=f"another in {folder}", remedy=REMEDY)
    return program


def _described(program: "LeveledProgram | CkksProgram") -> dict[str, Any]:
    if isinstance(program, LeveledProgram):
        return description.to_dict(program.description)
    from privcirnet.he.protocol.leveled import ckks

    return ckks.to_dict(program)


def _bfv(data: Mapping[str, Any], nodes: tuple[Node, ...], tensors: Tensors) -> LeveledProgram:
    known = description.from_dict(data["description"])
    network = Network(nodes, read_weights(nodes, tensors, integers, large_integers))
    return LeveledProgram(network, str(data["planner"]), known.parameters, known.shift)


def _ckks(data: Mapping[str, Any], nodes: tuple[Node, ...], tensors: Tensors) -> "CkksProgram":
    from privcirnet.he.circuits.ckks.bootstrapping import Bootstrapping
    from privcirnet.he.planning.leveled.ckks.ckks_program import CkksProgram
    from privcirnet.he.planning.leveled.ckks.sums import Scales
    from privcirnet.he.protocol.leveled import ckks

    known = data["description"]
    public = ckks.from_dict(known)
    refresh = Bootstrapping(public.parameters, **ckks.bootstrapping_from(known["bootstrapping"]))
    count = sum(isinstance(node.operation, Square) for node in nodes)
    scales = Scales.of(reals(tensors, _SUMS, (2, count)), reals(tensors, _ENDS, (3,)))
    return CkksProgram(Network(nodes, read_weights(nodes, tensors, reals, reals)), scales, refresh, public.log_step)
