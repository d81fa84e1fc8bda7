"""The program folder: a manifest without any weight, the integer weights, and their spectra as plaintexts.

Reading checks format, version, checksums, names, shapes and types before anything is used. numpy only; no torch.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from privcirnet.artifact.atomic import replacing_folder
from privcirnet.artifact.records import VERSION, check_format, read_json, write_json, write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.operations import Linear, has_weights
from privcirnet.he.program.program import NO_ROWS, Program, Weights
from privcirnet.he.program.rearrangement import Tokens
from privcirnet.he.ring import batching
from privcirnet.he.ring.modular import Residues

MANIFEST, WEIGHTS, PLAINTEXTS = "manifest.json", "weights.safetensors", "plaintexts.safetensors"
FULL_FOLDER = "plaintexts_full"


def write_program(
    folder: Path, program: Program, about: Mapping[str, Any], *, full: bool = False, replace: bool = True
) -> None:
    """Write a program folder.

    Args:
        folder: where; an older program there is replaced when the new one is complete.
        program: with weights.
        about: further public facts for the manifest.
        full: also write every encoded plaintext as n coefficients mod t.
        replace: whether an existing program may be replaced.

    Raises:
        RuleError: the folder exists and must not be replaced or holds something that is not a program, or the disk is
            full.
    """
    if folder.exists() and not (replace and _is_program(folder)):
        raise RuleError(
            "the program's folder must be new or hold a program", got=folder, remedy="choose another out= folder"
        )
    with replacing_folder(folder) as draft:
        files = {WEIGHTS: _weight_tensors(program), PLAINTEXTS: spectra(program)}
        for name, tensors in files.items():
            write_tensors(draft / name, tensors)
        written = [*files]
        if full:
            (draft / FULL_FOLDER).mkdir()
            written += list(_write_full(draft, program, files[PLAINTEXTS]))
        head = {"format": "privcirnet-program", "version": VERSION}
        facts = json.loads(json.dumps({**head, **about, **manifest.to_dict(program)}))
        checksums = {MANIFEST: _sha256_of_facts(facts)} | {name: _sha256(draft / name) for name in written}
        write_json(draft / MANIFEST, {**facts, "checksums": checksums})


def read_program(folder: Path) -> tuple[Program, dict[str, Residues]]:
    """Read a program.

    Args:
        folder: that :func:`write_program` made.

    Returns:
        The program with its weights, and its weight spectra by node.

    Raises:
        RuleError: missing, damaged, foreign, or inconsistent.
    """
    remedy = "export it again with export.py"
    data = read_json(Path(folder) / MANIFEST, "a program's manifest", remedy)
    check_format(data, "privcirnet-program", folder)
    checksums = data.pop("checksums", None)
    if not isinstance(checksums, dict) or not {MANIFEST, WEIGHTS, PLAINTEXTS} <= checksums.keys():
        raise RuleError("a program must list its files' checksums", got=folder, remedy=remedy)
    for name, checksum in checksums.items():
        path = Path(folder) / name
        found = _sha256_of_facts(data) if name == MANIFEST else _sha256(path) if path.is_file() else "no file"
        if found != checksum:
            raise RuleError("a program's files must match their checksums", got=path, remedy=remedy)
    public = manifest.from_dict(data)
    try:
        weights = safetensors.numpy.load_file(Path(folder) / WEIGHTS)
        plaintexts = safetensors.numpy.load_file(Path(folder) / PLAINTEXTS)
    except SafetensorError as error:
        got = f"{Path(folder) / WEIGHTS} or {PLAINTEXTS}: {error}"
        raise RuleError("a program's tensors must be whole safetensors files", got=got, remedy=remedy) from None
    program = replace(public, weights=_checked_weights(public, weights))
    return program, _checked_spectra(public, plaintexts)


def spectra(program: Program) -> dict[str, Residues]:
    """Return the weight spectra of every linear node: each distinct slot value of its plaintexts, once.

    Args:
        program: with weights.

    Returns:
        Residues mod t, of the layer's ``spectrum_shape``, by node.
    """
    t = program.parameters.plain_modulus
    return {node.name: layer.spectrum(program.weights[node.name].rows, t) for node, layer in program.linear_nodes}


def plaintext_coefficients(layer: Layer, spectrum: Residues, t: int) -> tuple[np.ndarray, Residues]:
    """Return every encoded plaintext of a layer as a polynomial.

    Args:
        layer: with its plan.
        spectrum: of its weights, see :func:`spectra`.
        t: plain modulus.

    Returns:
        (products (m, 5): piece, target, giant, baby, source; coefficients (m, n) of 1, X, ..., mod t).
    """
    found = list(layer.plaintexts(spectrum))
    products = np.array([product for product, _ in found], dtype=np.int64)
    return products, batching.slots_to_coefficients(np.stack([slots for _, slots in found]), t)


def folder_bytes(folder: Path) -> dict[str, int]:
    """Return the bytes of each file of a folder, by relative name.

    Args:
        folder: to measure, with everything below it.
    """
    return {str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}


def _weight_tensors(program: Program) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    for name, weights in program.weights.items():
        if weights.rows.size:
            narrow = np.int8 if np.abs(weights.rows).max(initial=0) < 128 else np.int32
            tensors[f"{name}.rows"] = weights.rows.astype(narrow)
        tensors[f"{name}.bias"] = weights.bias.astype(np.int64)
    return tensors


def _write_full(draft: Path, program: Program, found: Mapping[str, Residues]) -> Iterator[str]:
    for node, layer in program.linear_nodes:
        products, coefficients = plaintext_coefficients(layer, found[node.name], program.parameters.plain_modulus)
        name = f"{FULL_FOLDER}/{node.name}.safetensors"
        write_tensors(draft / name, {"products": products, "coefficients": coefficients})
        yield name


def _checked_weights(public: Program, tensors: Mapping[str, np.ndarray]) -> dict[str, Weights]:
    weights: dict[str, Weights] = {}
    for node in public.nodes:
        if not has_weights(node.operation):
            continue
        rows = NO_ROWS
        if isinstance(node.operation, Linear):
            layer = node.operation.layer
            rows = _checked_tensor(tensors, f"{node.name}.rows", layer.shape.weight_shape(layer.block_size))
        size = node.shape[:2] if isinstance(node.operation, Tokens) else node.shape[:1]
        bias = _checked_tensor(tensors, f"{node.name}.bias", size)
        if np.abs(bias.astype(np.float64)).max(initial=0) >= 2.0**bounds.MAX_BOUND_BITS:
            raise RuleError("a bias must be under the value bound", got=node.name, remedy="export it again")
        weights[node.name] = Weights(rows.astype(np.int64), bias.astype(np.int64))
    return weights


def _checked_spectra(public: Program, tensors: Mapping[str, np.ndarray]) -> dict[str, Residues]:
    found: dict[str, Residues] = {}
    for node, layer in public.linear_nodes:
        found[node.name] = _checked_tensor(tensors, node.name, layer.spectrum_shape).astype(np.uint64)
        if (found[node.name] >= public.parameters.plain_modulus).any():
            raise RuleError("a plaintext's slots must be under t", got=node.name, remedy="export it again")
    return found


def _checked_tensor(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype.kind not in "iu":
        got = "none" if tensor is None else f"{tensor.dtype} {tensor.shape}"
        raise RuleError(f"a program's tensor {name} must be integers {shape}", got=got, remedy="export it again")
    return tensor


def _is_program(folder: Path) -> bool:
    try:
        return read_json(folder / MANIFEST, "a manifest", "").get("format") == "privcirnet-program"
    except RuleError:
        return False


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sha256_of_facts(facts: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest without its checksums, whatever its white space and order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
