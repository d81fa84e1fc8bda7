"""Folders of programs: a manifest with the checksums of all files, a signature, and weights as tensors.

Reading checks format, version, checksums and names before anything in a file is used. numpy only; no torch.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from privcirnet.artifact.records import check_format, read_json, write_json
from privcirnet.errors import RuleError
from privcirnet.he.program import bounds, signature
from privcirnet.he.program.operation import NO_ROWS, Node, Weights
from privcirnet.he.program.signature import PrivateKey, PublicKey
from privcirnet.he.system.files import replacing_folder

MANIFEST, SIGNATURE = "manifest.json", "signature.json"
INTERACTIVE, CKKS = "privcirnet-program", "privcirnet-ckks-program"
"""Formats of programs."""
_MODES = {INTERACTIVE: "interactive", CKKS: "ckks"}
REMEDY = "export it again with export.py"


def program_folder(path: str) -> str:
    """Return the folder of a program: a folder itself, or ``program`` in it, where export.py puts it."""
    inner = Path(path) / "program"
    return str(inner) if (inner / MANIFEST).is_file() and not (Path(path) / MANIFEST).is_file() else path


@contextmanager
def replacing_program(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """Open a draft that becomes a program's folder if the block succeeds.

    Args:
        replace: whether a program there may be replaced.

    Yields:
        The path of the draft, an empty folder.
    """
    if folder.exists() and not (replace and format_of(folder) in _MODES):
        rule, remedy = "the program's folder must be new or hold a program", "choose another out= folder"
        raise RuleError(rule, got=folder, remedy=remedy)
    with replacing_folder(folder) as draft:
        yield draft


def finish_folder(
    draft: Path,
    about: Mapping[str, Any],
    written: Sequence[str],
    description: Mapping[str, Any],
    key: PrivateKey | None = None,
) -> None:
    """Write the manifest, with the checksums of the files, and the signatures.

    Args:
        key: key that signs the program; None for a program without a signature.
    """
    facts = json.loads(json.dumps(dict(about)))
    checksums = {MANIFEST: _sha256_of_facts(facts)} | {name: _sha256((draft / name).read_bytes()) for name in written}
    write_json(draft / MANIFEST, {**facts, "checksums": checksums})
    if key is not None:
        signed = signature.sign_folder(key, (draft / MANIFEST).read_bytes())
        described = signature.sign_description(key, description)
        head = {"format": "privcirnet-signature", "version": 1}
        write_json(draft / SIGNATURE, {**head, "folder": signed.hex(), "description": described.hex()})


def read_signature(folder: Path) -> tuple[bytes, bytes]:
    """Return the signatures of a program's folder and of its public description, which its server's greeting repeats.

    Returns:
        both of them; empty ones for a program without a signature.
    """
    if not (path := Path(folder) / SIGNATURE).is_file():
        return b"", b""
    data = read_json(path, "a signature", REMEDY)
    check_format(data, "privcirnet-signature", path, (1,))
    try:
        return bytes.fromhex(data["folder"]), bytes.fromhex(data["description"])
    except (KeyError, TypeError, ValueError) as error:
        rule = "a signature's file must hold two signatures in hexadecimal"
        raise RuleError(rule, got=f"{path}: {error!r}", remedy="export it again") from None


def read_manifest(folder: Path, key: PublicKey | None, name: str, versions: Sequence[int]) -> dict[str, Any]:
    """Return a program's manifest, with its checksums.

    Args:
        key: key that must have signed it; None for any program.
        name: name of the format that it must have.
    """
    data = read_json(Path(folder) / MANIFEST, "a program's manifest", REMEDY)
    if key is not None:
        signed = (Path(folder) / MANIFEST).read_bytes()
        signature.check_folder(key, signed, read_signature(folder)[0])
        data = json.loads(signed)
    mode, expected_mode = _MODES.get(str(data.get("format"))), _MODES[name]
    if mode and mode != expected_mode:
        rule, remedy = (
            f"this reads programs of mode={expected_mode}",
            f"give mode={mode}, or export it with mode={expected_mode}",
        )
        raise RuleError(rule, got=f"{folder} of mode={mode}", remedy=remedy)
    check_format(data, name, folder, versions)
    return data


def checked_files(
    folder: Path, data: dict[str, Any], needed: Sequence[str], optional: re.Pattern[str] | None = None
) -> dict[str, bytes]:
    """Return the bytes of a program's files, all checked against the manifest.

    Args:
        optional: names of further files, which are only checked.
    """
    folder, checksums = Path(folder), data.pop("checksums", None)
    required = {MANIFEST, *needed}
    if not isinstance(checksums, dict) or not required <= checksums.keys():
        raise RuleError("a program must list its files' checksums", got=folder, remedy=REMEDY)
    contents: dict[str, bytes] = {}
    for name, checksum in checksums.items():
        if name not in required and not (optional and optional.fullmatch(name)):
            raise RuleError("a program's files must have known names", got=f"{folder}: {name!r:.80}", remedy=REMEDY)
        path = folder / name
        read = path.read_bytes() if name != MANIFEST and path.is_file() else None
        actual = _sha256_of_facts(data) if name == MANIFEST else "no file" if read is None else _sha256(read)
        if actual != checksum:
            raise RuleError("a program's files must match their checksums", got=path, remedy=REMEDY)
        if name in needed and read is not None:
            contents[name] = read
    return contents


def format_of(folder: Path) -> str:
    """Return the format that a folder's manifest names; "" if there is none."""
    try:
        return str(read_json(Path(folder) / MANIFEST, "a manifest", "").get("format"))
    except RuleError:
        return ""


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sha256_of_facts(facts: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest without its checksums, whatever its white space and order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


Tensors = Mapping[str, np.ndarray]
Reader = Callable[[Tensors, str, tuple[int, ...]], np.ndarray]
"""Function (tensors of a file, name, shape) -> the checked tensor."""


def weight_tensors(weights: Mapping[str, Weights]) -> dict[str, np.ndarray]:
    """Return a network's weights as tensors."""
    return {
        f"{name}.{field}": _stored(getattr(layer_weights, field), narrow=field == "rows")
        for name, layer_weights in weights.items()
        for field in ("rows", "bias")
        if getattr(layer_weights, field).size
    }


def read_weights(nodes: Sequence[Node], tensors: Tensors, rows: Reader, bias: Reader) -> dict[str, Weights]:
    """Return a network's weights, by node.

    Raises:
        RuleError: a tensor is missing, or of another type or shape.
    """
    weights: dict[str, Weights] = {}
    for node in nodes:
        shapes = node.operation.tensors(node.shape)
        if shapes:
            layer_rows = rows(tensors, f"{node.name}.rows", shapes["rows"]) if "rows" in shapes else NO_ROWS
            weights[node.name] = Weights(layer_rows, bias(tensors, f"{node.name}.bias", shapes["bias"]))
    return weights


def integers(tensors: Tensors, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return int64, see :data:`Reader`.

    Raises:
        RuleError: there is none, or it is not of integers and that shape.
    """
    return _of_kind(tensors, name, shape, "iu", "integers").astype(np.int64)


def bounded_integers(tensors: Tensors, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return int64, see :data:`Reader`."""
    values = integers(tensors, name, shape)
    if np.abs(values.astype(np.float64)).max(initial=0) >= 2.0**bounds.MAX_BOUND_BITS:
        raise RuleError("a bias must be under the value bound", got=name, remedy=REMEDY)
    return values


def reals(tensors: Tensors, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return float64, see :data:`Reader`."""
    values = _of_kind(tensors, name, shape, "f", "real numbers").astype(np.float64)
    if not np.isfinite(values).all():
        rule, remedy = "weights must be finite", "train the network again: its loss may have become NaN"
        raise RuleError(rule, got=f"others in {name}", remedy=remedy)
    return values


@contextmanager
def complete(what: str, folder: Path) -> Iterator[None]:
    """Return a context that names a part of a program which is missing or of another type."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, RuleError):
            raise
        raise RuleError(f"{what} must be complete", got=f"{folder}: {error!r:.200}", remedy=REMEDY) from None


def tensors_of(files: Mapping[str, bytes], name: str) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file."""
    try:
        return safetensors.numpy.load(files[name])
    except SafetensorError as error:
        rule = "a program's tensors must be whole safetensors files"
        raise RuleError(rule, got=f"{name}: {error}", remedy=REMEDY) from None


def _of_kind(tensors: Tensors, name: str, shape: tuple[int, ...], kinds: str, description: str) -> np.ndarray:
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != shape or tensor.dtype.kind not in kinds:
        got = "none" if tensor is None else f"{tensor.dtype} {tensor.shape}"
        raise RuleError(f"a program's tensor {name} must be {description} {shape}", got=got, remedy=REMEDY)
    return tensor


def _stored(values: np.ndarray, *, narrow: bool) -> np.ndarray:
    if values.dtype.kind == "f" or not narrow:
        return values
    return values.astype(np.int8 if np.abs(values).max() < 128 else np.int32)
