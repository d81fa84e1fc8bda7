"""The program folder: a manifest without any weight, the integer weights, their spectra as plaintexts, a signature.

Reading checks format, version, checksums, names, shapes and types before anything is used. Bounds are proved from the
weights and the server computes with the spectra, so these are computed again and compared. numpy only; no torch.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from privcirnet.artifact.atomic import replacing_folder
from privcirnet.artifact.records import check_format, read_json, write_json, write_tensors
from privcirnet.errors import RuleError
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.program import bounds, manifest, signature
from privcirnet.he.program.operations import Linear, has_weights
from privcirnet.he.program.program import NO_ROWS, Program, Weights
from privcirnet.he.program.rearrangement import Tokens
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.ring import batching
from privcirnet.he.ring.modular import Residues

MANIFEST, WEIGHTS, PLAINTEXTS = "manifest.json", "weights.safetensors", "plaintexts.safetensors"
FULL_FOLDER, SIGNATURE = "plaintexts_full", "signature.json"
VERSION = 3
_WEIGHTS_AS_SPECTRA = 3
"""The first version whose coefficient layers store their weights for their spectra."""
"""Of the format; version 1, which says less of the result (:mod:`program.manifest`), is read too."""
_FULL = re.compile(rf"{FULL_FOLDER}/[^/\\]+\.safetensors")
"""Names that checksums may have beside the three files that are always there: all of them lie in the folder."""


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
        folder: where; an older program there is replaced when the new one is complete.
        program: with weights.
        about: further public facts for the manifest.
        full: also write every encoded plaintext as n coefficients mod t.
        replace: whether an existing program may be replaced.
        key: signs the program; None for a program without a signature.

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
        checksums = {MANIFEST: _sha256_of_facts(facts)} | {
            name: _sha256((draft / name).read_bytes()) for name in written
        }
        write_json(draft / MANIFEST, {**facts, "checksums": checksums})
        if key is not None:
            signed = signature.sign_folder(key, (draft / MANIFEST).read_bytes())
            described = signature.sign_description(key, manifest.to_dict(program))
            head = {"format": "privcirnet-signature", "version": 1}
            write_json(draft / SIGNATURE, {**head, "folder": signed.hex(), "description": described.hex()})


def read_signature(folder: Path) -> tuple[bytes, bytes]:
    """Return the signatures of a program's folder and of its public description, which its server's greeting repeats.

    Args:
        folder: that :func:`write_program` made.

    Returns:
        both of them; empty ones of a program without a signature.

    Raises:
        RuleError: the signature's file is damaged.
    """
    if not (path := Path(folder) / SIGNATURE).is_file():
        return b"", b""
    data = read_json(path, "a signature", "export it again with export.py")
    check_format(data, "privcirnet-signature", path, (1,))
    try:
        return bytes.fromhex(data["folder"]), bytes.fromhex(data["description"])
    except (KeyError, TypeError, ValueError) as error:
        rule = "a signature's file must hold two signatures in hexadecimal"
        raise RuleError(rule, got=f"{path}: {error!r}", remedy="export it again") from None


def read_program(folder: Path, key: PublicKey | None = None) -> tuple[Program, dict[str, Residues]]:
    """Read a program.

    Args:
        folder: that :func:`write_program` made.
        key: that must have signed it; None for any program.

    Returns:
        The program with its weights, and its weight spectra by node.

    Raises:
        RuleError: missing, damaged, foreign, inconsistent, or not signed with the key.
    """
    remedy = "export it again with export.py"
    data = read_json(Path(folder) / MANIFEST, "a program's manifest", remedy)
    if key is not None:
        signed = (Path(folder) / MANIFEST).read_bytes()
        signature.check_folder(key, signed, read_signature(folder)[0])
        data = json.loads(signed)
    check_format(data, "privcirnet-program", folder, range(1, VERSION + 1))
    files = _checked_files(Path(folder), data, remedy)
    public = manifest.from_dict(data)
    try:
        weights, plaintexts = (safetensors.numpy.load(files[name]) for name in (WEIGHTS, PLAINTEXTS))
    except SafetensorError as error:
        got = f"{Path(folder) / WEIGHTS} or {PLAINTEXTS}: {error}"
        raise RuleError("a program's tensors must be whole safetensors files", got=got, remedy=remedy) from None
    program = replace(public, weights=_checked_weights(public, weights))
    return program, _checked_spectra(program, plaintexts, int(data["version"]))


def _checked_files(folder: Path, data: dict[str, Any], remedy: str) -> dict[str, bytes]:
    """The bytes of the weights and the spectra, all of the folder's files being what the manifest says."""
    checksums = data.pop("checksums", None)
    needed = {MANIFEST, WEIGHTS, PLAINTEXTS}
    if not isinstance(checksums, dict) or not needed <= checksums.keys():
        raise RuleError("a program must list its files' checksums", got=folder, remedy=remedy)
    found: dict[str, bytes] = {}
    for name, checksum in checksums.items():
        if name not in needed and not _FULL.fullmatch(name):
            raise RuleError("a program's files must have known names", got=f"{folder}: {name!r:.80}", remedy=remedy)
        path = folder / name
        read = path.read_bytes() if name != MANIFEST and path.is_file() else None
        actual = _sha256_of_facts(data) if name == MANIFEST else "no file" if read is None else _sha256(read)
        if actual != checksum:
            raise RuleError("a program's files must match their checksums", got=path, remedy=remedy)
        if name in (WEIGHTS, PLAINTEXTS) and read is not None:
            found[name] = read
    return found


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
    found = list(layer.plaintexts(spectrum, t))
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


def _checked_spectra(program: Program, tensors: Mapping[str, np.ndarray], version: int) -> dict[str, Residues]:
    """The spectra of the weights, which the stored ones must be; earlier ones of coefficient layers are left alone."""
    found = spectra(program)
    for node, layer in program.linear_nodes:
        if version < _WEIGHTS_AS_SPECTRA and isinstance(layer, CoefficientLayer):
            continue
        stored = _checked_tensor(tensors, node.name, layer.spectrum_shape).astype(np.uint64)
        if not np.array_equal(stored, found[node.name]):
            rule, remedy = "a program's plaintexts must be those of its weights", "export it again"
            raise RuleError(rule, got=f"others in {node.name}", remedy=remedy)
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


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sha256_of_facts(facts: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest without its checksums, whatever its white space and order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
