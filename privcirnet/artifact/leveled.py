"""The folder of a leveled program: a manifest without any weight, the integer weights, a signature.

numpy only; no torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privcirnet.artifact.folder import LEVELED, REMEDY, checked_files, read_manifest, replacing_program, seal
from privcirnet.artifact.interactive import WEIGHTS
from privcirnet.artifact.records import write_tensors
from privcirnet.artifact.weights import complete, integers, large_integers, read_weights, tensors_of, weight_tensors
from privcirnet.errors import RuleError
from privcirnet.he.program import manifest
from privcirnet.he.program.program import Network
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.protocol.leveled import description
from privcirnet.he.protocol.leveled.leveled_program import LeveledProgram

VERSION = 2


def write_leveled(
    folder: Path, program: LeveledProgram, about: Mapping[str, Any], key: PrivateKey | None = None
) -> None:
    """Write a leveled program's folder.

    Args:
        folder: where; an older program there is replaced when the new one is complete.
        key: signs the program; None for a program without a signature.

    Raises:
        RuleError: the folder holds something that is not a program, or the disk is full.
    """
    described, network = description.to_dict(program.description), program.network
    facts = {"planner": program.planner, "nodes": manifest.nodes_to_list(network.nodes), "description": described}
    with replacing_program(folder) as draft:
        write_tensors(draft / WEIGHTS, weight_tensors(network.weights))
        seal(draft, {"format": LEVELED, "version": VERSION, **about, **facts}, [WEIGHTS], described, key)


def read_leveled(folder: Path, key: PublicKey | None = None) -> LeveledProgram:
    """Read a leveled program.

    Args:
        key: that must have signed it; None for any program.

    Returns:
        The program with its weights.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, not signed with the key; or its parameters do not carry it.
    """
    data = read_manifest(folder, key, LEVELED, (VERSION,))
    files = checked_files(folder, data, (WEIGHTS,))
    with complete("a leveled program", folder):
        known, nodes = description.from_dict(data["description"]), manifest.nodes_from_list(data["nodes"])
        weights = read_weights(nodes, tensors_of(files, WEIGHTS), integers, large_integers)
        program = LeveledProgram(Network(nodes, weights), str(data["planner"]), known.parameters, known.shift)
    if description.to_dict(program.description) != data["description"]:
        rule = "a leveled program's description must follow from its weights and its plan"
        raise RuleError(rule, got=f"another in {folder}", remedy=REMEDY)
    return program
