"""The folder of a CKKS program: a manifest without any weight, real weights and the scales of their sums, a signature.

numpy only; no torch.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privcirnet.artifact.folder import CKKS, REMEDY, checked_files, finish_folder, read_manifest, replacing_program
from privcirnet.artifact.interactive import WEIGHTS
from privcirnet.artifact.records import write_tensors
from privcirnet.artifact.weights import complete, read_weights, reals, tensors_of, weight_tensors
from privcirnet.errors import RuleError
from privcirnet.he.program import manifest
from privcirnet.he.program.operations import Square
from privcirnet.he.program.program import Network
from privcirnet.he.program.signature import PrivateKey, PublicKey

if TYPE_CHECKING:  # it loads the kernels
    from privcirnet.he.ckks.program import CkksProgram

VERSION = 3
_SUMS, _ENDS = "/sums", "/ends"
"""Tensors of the scales, which depend on the weights: bounds and sizes of sums; those of image, means and logits."""


def write_ckks(folder: Path, program: "CkksProgram", about: Mapping[str, Any], key: PrivateKey | None = None) -> None:
    """Write a CKKS program's folder.

    Args:
        folder: folder to write; an older program there is replaced when the new one is complete.
        key: key that signs the program; None for a program without a signature.

    Raises:
        RuleError: the folder holds something that is not a program, or the disk is full.
    """
    from privcirnet.he.protocol.one_message import ckks

    tensors, described = weight_tensors(program.network.weights), ckks.to_dict(program)
    tensors[_SUMS], tensors[_ENDS] = program.scales.arrays()
    facts = {"nodes": manifest.nodes_to_list(program.network.nodes), "description": described}
    with replacing_program(folder) as draft:
        write_tensors(draft / WEIGHTS, tensors)
        finish_folder(draft, {"format": CKKS, "version": VERSION, **about, **facts}, [WEIGHTS], described, key)


def read_ckks(folder: Path, key: PublicKey | None = None) -> "CkksProgram":
    """Read a CKKS program.

    Args:
        key: key that must have signed it; None for any program.

    Returns:
        The program with its weights.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, not signed with the key; or its parameters do not carry it.
    """
    from privcirnet.he.ckks.bootstrapping import Bootstrapping
    from privcirnet.he.ckks.program import CkksProgram
    from privcirnet.he.ckks.sums import Scales
    from privcirnet.he.protocol.one_message import ckks

    data = read_manifest(folder, key, CKKS, (VERSION,))
    files = checked_files(folder, data, (WEIGHTS,))
    with complete("a CKKS program", folder):
        nodes, tensors, description = (
            manifest.nodes_from_list(data["nodes"]),
            tensors_of(files, WEIGHTS),
            data["description"],
        )
        public = ckks.from_dict(description)
        refresh = Bootstrapping(public.parameters, **ckks.bootstrapping_from(description["bootstrapping"]))
        count = sum(isinstance(node.operation, Square) for node in nodes)
        scales = Scales.of(reals(tensors, _SUMS, (2, count)), reals(tensors, _ENDS, (3,)))
        network = Network(nodes, read_weights(nodes, tensors, reals, reals))
        program = CkksProgram(network, scales, refresh, public.log_step)
    if ckks.to_dict(program) != description:
        rule = "a CKKS program's description must follow from its weights and its parameters"
        raise RuleError(rule, got=f"another in {folder}", remedy=REMEDY)
    return program
