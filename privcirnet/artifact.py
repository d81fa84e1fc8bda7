"""Every file format on disk: run summary, checkpoint, plan, program. The README's "Formats" describes them.

Writing is atomic: a file or folder appears under its name when it is complete, or not at all. Reading checks format,
version, checksums, names, shapes and types before anything is used. numpy only; no torch.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from privcirnet.atomic import replacing, replacing_folder
from privcirnet.errors import RuleError
from privcirnet.he import bounds, linear, manifest, ntt
from privcirnet.he.cost import Profile
from privcirnet.he.encodings import spectral
from privcirnet.he.modular import Residues
from privcirnet.he.program import Program, Weights

VERSION = 1
MANIFEST, WEIGHTS, PLAINTEXTS = "manifest.json", "weights.safetensors", "plaintexts.safetensors"
FULL_FOLDER = "plaintexts_full"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, indented, keys in the order given."""
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RuleError: there is no such file, or it holds something else.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RuleError(f"{what} must exist", got=path, remedy=remedy) from None
    except (ValueError, OSError) as error:
        raise RuleError(f"{what} must be readable JSON", got=f"{path}: {error}", remedy=remedy) from None
    if not isinstance(data, dict):
        raise RuleError(f"{what} must be a JSON object", got=path, remedy=remedy)
    return data


@dataclass(frozen=True)
class Checkpoint:
    """A trained network.

    Attributes:
        tensors: the state dict as arrays.
        model: timm model name.
        stage: "train", "finetune" or "qat".
        block_sizes: block size by module name ({}: dense).
        bits: (weight bits, activation bits) of a quantized network, None before.
    """

    tensors: dict[str, np.ndarray]
    model: str
    stage: str
    block_sizes: dict[str, int]
    bits: tuple[int, int] | None = None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write one safetensors file whose metadata says what the tensors are."""
    about = {
        "format": "privcirnet-checkpoint",
        "version": str(VERSION),
        "model": checkpoint.model,
        "stage": checkpoint.stage,
        "block_sizes": json.dumps(checkpoint.block_sizes),
        "bits": json.dumps(checkpoint.bits),
    }
    with replacing(path) as draft:
        _write_tensors(draft, checkpoint.tensors, about)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        RuleError: missing, damaged or foreign.
    """
    remedy = "train it with train.py, or give the path of a checkpoint.safetensors"
    if not Path(path).is_file():
        raise RuleError("a checkpoint must exist", got=path, remedy=remedy)
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        got = f"{path}: {error}"
        raise RuleError("a checkpoint must be a whole safetensors file", got=got, remedy=remedy) from None
    _check_format(about, "privcirnet-checkpoint", path)
    try:
        bits, block_sizes = json.loads(about["bits"]), json.loads(about["block_sizes"])
        return Checkpoint(tensors, about["model"], about["stage"], dict(block_sizes), tuple(bits) if bits else None)
    except (KeyError, ValueError, TypeError) as error:
        raise RuleError("a checkpoint must say what it holds", got=f"{path}: {error!r}", remedy=remedy) from None


def write_plan(path: Path, block_sizes: Mapping[str, int], **about: Any) -> None:
    """Write plan.json: the block size of every weighted layer, by module name, and how it was found."""
    head = {"format": "privcirnet-plan", "version": VERSION, "block_sizes": dict(block_sizes)}
    write_json(path, {**head, **about})


def read_plan(path: Path) -> dict[str, int]:
    """Block sizes by module name.

    Raises:
        RuleError: missing, damaged or foreign, or a block size that is not a positive integer.
    """
    data = read_json(path, "a plan", "make one with search.py")
    _check_format(data, "privcirnet-plan", path)
    block_sizes = data.get("block_sizes")
    if not isinstance(block_sizes, dict) or any(type(b) is not int or b < 1 for b in block_sizes.values()):
        raise RuleError("a plan must map module names to block sizes", got=f"{path}", remedy="make one with search.py")
    return block_sizes


def read_profile(path: Path) -> Profile:
    """A cost profile.

    Raises:
        RuleError: missing or damaged.
    """
    data = read_json(path, "a cost profile", "make one with search.py he.profile=calibrate")
    try:
        bits = tuple(int(b) for b in data["coefficient_bits"])
        seconds = {str(name): float(value) for name, value in data["seconds"].items()}
        name, ring_degree = str(data["name"]), int(data["ring_degree"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RuleError(
            "a cost profile must be complete", got=f"{path}: {error!r}", remedy="measure it again with search.py"
        ) from None
    return Profile(name, ring_degree, bits, seconds)


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write named arrays as an npz file, atomically."""
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_program(
    folder: Path, program: Program, about: Mapping[str, Any], *, full: bool = False, replace: bool = True
) -> None:
    """Write a program folder.

    Args:
        folder: where; an older program there is replaced when the new one is complete.
        program: with weights.
        about: further public facts for the manifest.
        full: also write every encoded plaintext as n coefficients mod t.
        replace: refuse to replace an existing folder if False.

    Raises:
        RuleError: the folder exists and holds something that is not a program.
    """
    if folder.exists() and not (replace and _is_program(folder)):
        raise RuleError(
            "the program's folder must be new or hold a program", got=folder, remedy="choose another out= folder"
        )
    with replacing_folder(folder) as draft:
        files = {WEIGHTS: _weight_tensors(program), PLAINTEXTS: spectra(program)}
        for name, tensors in files.items():
            _write_tensors(draft / name, tensors)
        written = [*files]
        if full:
            (draft / FULL_FOLDER).mkdir()
            written += list(_write_full(draft, program, files[PLAINTEXTS]))
        head = {"format": "privcirnet-program", "version": VERSION}
        facts = json.loads(json.dumps({**head, **about, **manifest.to_dict(program)}))
        checksums = {MANIFEST: _sha256_of_facts(facts)} | {name: _sha256(draft / name) for name in written}
        write_json(draft / MANIFEST, {**facts, "checksums": checksums})


def read_program(folder: Path) -> tuple[Program, dict[str, Residues]]:
    """A program with its weights, and its weight spectra by node.

    Raises:
        RuleError: missing, damaged, foreign, or inconsistent.
    """
    remedy = "export it again with export.py"
    data = read_json(Path(folder) / MANIFEST, "a program's manifest", remedy)
    _check_format(data, "privcirnet-program", folder)
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
    """Weight spectra of every linear node: each distinct slot value of its plaintexts, once."""
    t = program.parameters.plain_modulus
    return {
        node.name: spectral.weight_spectrum(layer.layout, program.weights[node.name].rows, t)
        for node, layer in program.linear_nodes
    }


def plaintext_coefficients(layer: linear.LinearLayer, spectrum: Residues, t: int) -> tuple[np.ndarray, Residues]:
    """Every encoded plaintext of a layer as a polynomial.

    Returns:
        (products (m, 4): target, giant, baby, source; coefficients (m, n) of 1, X, ..., mod t).
    """
    pairs = list(linear.diagonals(layer, spectrum))
    products = np.array([(p.target, p.giant, p.baby, p.source) for p, _ in pairs], dtype=np.int64)
    return products, ntt.slots_to_coefficients(np.stack([slots for _, slots in pairs]), t)


def folder_bytes(folder: Path) -> dict[str, int]:
    """Bytes of each file of a folder, by relative name."""
    return {str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}


def _weight_tensors(program: Program) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}
    for name, weights in program.weights.items():
        narrow = np.int8 if np.abs(weights.rows).max(initial=0) < 128 else np.int32
        tensors[f"{name}.rows"] = weights.rows.astype(narrow)
        tensors[f"{name}.bias"] = weights.bias.astype(np.int64)
    return tensors


def _write_full(draft: Path, program: Program, found: Mapping[str, Residues]) -> Iterator[str]:
    for node, layer in program.linear_nodes:
        products, coefficients = plaintext_coefficients(layer, found[node.name], program.parameters.plain_modulus)
        name = f"{FULL_FOLDER}/{node.name}.safetensors"
        _write_tensors(draft / name, {"products": products, "coefficients": coefficients})
        yield name


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray], about: dict[str, str] | None = None) -> None:
    """The library writes an array's memory as it lies, so a transposed view has to be laid out first."""
    laid_out = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    safetensors.numpy.save_file(laid_out, path, metadata=about)


def _checked_weights(public: Program, tensors: Mapping[str, np.ndarray]) -> dict[str, Weights]:
    weights: dict[str, Weights] = {}
    for node, layer in public.linear_nodes:
        s, b = layer.shape, layer.block_size
        rows = _checked_tensor(tensors, f"{node.name}.rows", (s.out_channels // b, s.in_channels, s.kernel, s.kernel))
        bias = _checked_tensor(tensors, f"{node.name}.bias", (s.out_channels,))
        if np.abs(bias.astype(np.float64)).max(initial=0) >= 2.0**bounds.MAX_BOUND_BITS:
            raise RuleError("a bias must be under the value bound", got=node.name, remedy="export it again")
        weights[node.name] = Weights(rows.astype(np.int64), bias.astype(np.int64))
    return weights


def _checked_spectra(public: Program, tensors: Mapping[str, np.ndarray]) -> dict[str, Residues]:
    found: dict[str, Residues] = {}
    for node, layer in public.linear_nodes:
        layout = layer.layout
        shape = (layout.blocks_out, layout.blocks_in, layer.block_size, *layout.spectral_extent)
        found[node.name] = _checked_tensor(tensors, node.name, shape).astype(np.uint64)
        if (found[node.name] >= public.parameters.plain_modulus).any():
            raise RuleError("a plaintext's slots must be under t", got=node.name, remedy="export it again")
    return found


def _checked_tensor(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype.kind not in "iu":
        got = "none" if tensor is None else f"{tensor.dtype} {tensor.shape}"
        raise RuleError(f"a program's tensor {name} must be integers {shape}", got=got, remedy="export it again")
    return tensor


def _check_format(about: Mapping[str, Any], name: str, path: Path) -> None:
    if about.get("format") != name or str(about.get("version")) != str(VERSION):
        raise RuleError(
            f"the file must be a {name} of version {VERSION}",
            got=f"{path}: {about.get('format')} {about.get('version')}",
            remedy="make it again with this version of privcirnet",
        )


def _is_program(folder: Path) -> bool:
    try:
        return read_json(folder / MANIFEST, "a manifest", "").get("format") == "privcirnet-program"
    except RuleError:
        return False


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sha256_of_facts(facts: Mapping[str, Any]) -> str:
    """Checksum of a manifest without its checksums, whatever its white space and order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
