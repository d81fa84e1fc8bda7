"""Program folders: a manifest without any weight, the weights, a signature; exact ones may have spectra as plaintexts.

Reading checks format, version, checksums, names, shapes and types before anything is used. Bounds of an exact program
are proved from the integer weights and the server computes with the spectra, so these are computed again and compared.
A CKKS program has real weights and the scales of their sums. numpy only; no torch.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privcirnet.artifact.folder import (
    CKKS,
    INTERACTIVE,
    MANIFEST,
    REMEDY,
    bounded_integers,
    checked_files,
    complete,
    finish_folder,
    integers,
    read_manifest,
    read_weights,
    reals,
    replacing_program,
    tensors_of,
    weight_tensors,
)
from privcirnet.artifact.records import InputSpec, inputs_from, profile_from, write_tensors
from privcirnet.artifact.summaries import TruncationTrial, fit
from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.profile import Profile
from privcirnet.he.program import manifest
from privcirnet.he.program.operations import Square
from privcirnet.he.program.program import Network, Program
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.ring.modular import Residues

if TYPE_CHECKING:
    from privcirnet.he.ckks.program import CkksProgram


VERSION = 4
WEIGHTS, PLAINTEXTS, FULL_FOLDER = "weights.safetensors", "plaintexts.safetensors", "plaintexts_full"
_FULL = re.compile(rf"{FULL_FOLDER}/[^/\\]+\.safetensors")
"""Names of optional files, all inside the folder, beside the three that are always there."""


def write_program(
    folder: Path,
    program: Program,
    about: Mapping[str, Any],
    *,
    full: bool = False,
    replace: bool = True,
    key: PrivateKey | None = None,
) -> None:
    """Write a program folder.

    Args:
        folder: folder to write; an older program there is replaced when the new one is complete.
        full: whether to write every encoded plaintext, too, as n coefficients mod t.
        replace: whether an existing program may be replaced.
        key: key that signs the program; None for a program without a signature.

    Raises:
        RuleError: the folder exists and must not be replaced or holds something that is not a program, or the disk is
            full.
    """
    described = manifest.to_dict(program)
    files = {WEIGHTS: weight_tensors(program.weights), PLAINTEXTS: spectra(program)}
    head = {"format": INTERACTIVE, "version": VERSION, **about, **described}
    with replacing_program(folder, replace=replace) as draft:
        for name, tensors in files.items():
            write_tensors(draft / name, tensors)
        written = [*files]
        if full:
            (draft / FULL_FOLDER).mkdir()
            written += list(_write_full(draft, program, files[PLAINTEXTS]))
        finish_folder(draft, head, written, described, key)


def read_program(folder: Path, key: PublicKey | None = None) -> tuple[Program, dict[str, Residues]]:
    """Read a program.

    Args:
        key: key that must have signed it; None for any program.

    Returns:
        The program with its weights, and its weight spectra by node.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, or not signed with the key.
    """
    data = read_manifest(folder, key, INTERACTIVE, (VERSION,))
    files = checked_files(folder, data, (WEIGHTS, PLAINTEXTS), _FULL)
    public = manifest.from_dict(data)
    with complete("a program", folder):
        weights, plaintexts = (tensors_of(files, name) for name in (WEIGHTS, PLAINTEXTS))
        program = replace(public, weights=read_weights(public.nodes, weights, integers, bounded_integers))
    return program, _checked_spectra(program, plaintexts)


def read_measured(
    folder: Path, key: PublicKey | None = None
) -> tuple[Profile | None, TruncationTrial | None, str, InputSpec | None]:
    """Return the measurements made with a program and the form of its images, if its manifest has them.

    Args:
        folder: folder from :func:`write_program`, with ``profile``, ``rehearsal``, ``quantization`` and ``inputs``
            among its facts.
        key: key that must have signed it; None for any program.

    Returns:
        The profile that its plans were chosen by, the distance of logits from the quantized network's
        (:mod:`privcirnet.runs.rehearsal`), in words the distance of those from the ones before quantization, and the
        form of images; None and "" where it has none.
    """
    data, where = read_manifest(folder, key, INTERACTIVE, (VERSION,)), Path(folder) / MANIFEST
    profile = data.get("profile")
    try:
        rehearsal = fit(TruncationTrial | None, data.get("rehearsal"), "rehearsal")
    except ValueError as error:
        raise RuleError("a rehearsal must be complete", got=f"{where}: {error!r}", remedy=REMEDY) from None
    quantization = data.get("quantization", "")
    if not isinstance(quantization, str):
        raise RuleError("a quantization must be words", got=f"{where}: {quantization!r:.80}", remedy=REMEDY)
    return profile_from(profile, where) if profile else None, rehearsal, quantization, _inputs_in(data, folder)


def read_inputs(folder: Path, key: PublicKey | None = None, mode: str = "interactive") -> InputSpec | None:
    """Return the form of a program's images; None if its manifest does not say it.

    Args:
        key: key that must have signed it; None for any program.
        mode: "interactive" or "ckks".
    """
    return _inputs_in(read_manifest(folder, key, CKKS if mode == "ckks" else INTERACTIVE, (VERSION,)), folder)


def _inputs_in(data: Mapping[str, Any], folder: Path) -> InputSpec | None:
    try:
        return inputs_from(data["inputs"]) if "inputs" in data else None
    except (KeyError, TypeError, ValueError) as error:
        got = f"{Path(folder) / MANIFEST}: {error!r}"
        raise RuleError("the form of a program's images must be complete", got=got, remedy=REMEDY) from None


def spectra(program: Program) -> dict[str, Residues]:
    """Return the weight spectra of every linear node: each distinct slot value of its plaintexts, once.

    Returns:
        Residues mod t, of the layer's ``spectrum_shape``, by node.
    """
    t = program.parameters.plain_modulus
    return {node.name: layer.spectrum(program.weights[node.name].rows, t) for node, layer in program.linear_nodes}


def plaintext_coefficients(layer: Layer, spectrum: Residues, t: int) -> tuple[np.ndarray, Residues]:
    """Return every encoded plaintext of a layer as a polynomial.

    Returns:
        (products (m, 5): piece, target, giant, baby, source; coefficients (m, n) of 1, X, ..., mod t).
    """
    plaintexts = list(layer.plaintexts(spectrum, t))
    products = np.array([product for product, _ in plaintexts], dtype=np.int64)
    return products, batching.slots_to_coefficients(np.stack([slots for _, slots in plaintexts]), t)


def folder_bytes(folder: Path) -> dict[str, int]:
    """Return the bytes of each file of a folder, by relative name."""
    return {str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}


def _write_full(draft: Path, program: Program, spectra_by_node: Mapping[str, Residues]) -> Iterator[str]:
    for node, layer in program.linear_nodes:
        products, coefficients = plaintext_coefficients(
            layer, spectra_by_node[node.name], program.parameters.plain_modulus
        )
        name = f"{FULL_FOLDER}/{node.name}.safetensors"
        write_tensors(draft / name, {"products": products, "coefficients": coefficients})
        yield name


def _checked_spectra(program: Program, tensors: Mapping[str, np.ndarray]) -> dict[str, Residues]:
    """Return the spectra of the weights; raise unless the stored ones are equal."""
    expected = spectra(program)
    for node, layer in program.linear_nodes:
        stored = integers(tensors, node.name, layer.spectrum_shape).astype(np.uint64)
        if not np.array_equal(stored, expected[node.name]):
            rule, remedy = "a program's plaintexts must be those of its weights", "export it again"
            raise RuleError(rule, got=f"others in {node.name}", remedy=remedy)
    return expected


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
    from privcirnet.he.ckks.network import Scales
    from privcirnet.he.ckks.program import CkksProgram
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
