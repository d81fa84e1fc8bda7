"""Checkpoint, profile and run summary: one file each, and the code that all formats share.

Reading checks format, version, names and types before anything is used. numpy only; no torch.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from privcirnet.artifact.compact import expanded
from privcirnet.errors import RuleError
from privcirnet.he.planning.profile import Profile
from privcirnet.he.system.atomic import replacing

VERSION = 1
CHECKPOINT_FORMAT = "privcirnet-checkpoint"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        RuleError: the disk is full.
    """
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file atomically, indented, keys in the order given.

    Raises:
        RuleError: the disk is full.
    """
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """Read a JSON object.

    Returns:
        The object.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RuleError(f"{what} must exist", got=path, remedy=remedy) from None
    except (ValueError, RecursionError, OSError) as error:
        raise RuleError(f"{what} must be readable JSON", got=f"{path}: {error}", remedy=remedy) from None
    if not isinstance(data, dict):
        raise RuleError(f"{what} must be a JSON object", got=path, remedy=remedy)
    return data


class Bits(NamedTuple):
    """The numbers of bits of a quantized network, see :func:`privcirnet.passes.quantize.quantize`."""

    weight: int
    activation: int
    stream: int
    """of residual streams"""


@dataclass(frozen=True)
class InputSpec:
    """The images that a network reads, and its classes.

    Attributes:
        shape: shape (C, H, W).
        log_step: real pixel = integer x 2^log_step.
        levels: largest integer; integers are in [0, levels].
        classes: names by label.
        data: name of the data set.
    """

    shape: tuple[int, int, int]
    log_step: int
    levels: int
    classes: tuple[str, ...]
    data: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """A trained network as stored.

    Attributes:
        model: name of a network of privcirnet.models or timm.
        stage: "train", "finetune", "replace" or "qat".
        block_sizes: block size by module name ({}: dense).
        bits: bits of a quantized network, None before.
        arguments: arguments of the model besides classes and channels, such as its activation.
        composed: layers that are one with the layer before them once the network is fused.
        inputs: form of its images; None: not known.
    """

    tensors: dict[str, np.ndarray]
    model: str
    stage: str
    block_sizes: dict[str, int]
    bits: Bits | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    composed: tuple[str, ...] = ()
    inputs: InputSpec | None = None

    def digest(self) -> str:
        """Return the SHA-256 of the tensors with their names, types and shapes, in hexadecimal."""
        sha256 = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            sha256.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
            sha256.update(np.ascontiguousarray(tensor).tobytes())
        return sha256.hexdigest()


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write one safetensors file with the facts of the checkpoint as metadata.

    Raises:
        RuleError: the disk is full.
    """
    about = {
        "format": CHECKPOINT_FORMAT,
        "version": str(VERSION),
        "model": checkpoint.model,
        "stage": checkpoint.stage,
        "block_sizes": json.dumps(checkpoint.block_sizes),
        "bits": json.dumps(checkpoint.bits),
        "arguments": json.dumps(checkpoint.arguments),
    }
    about |= {"composed": json.dumps(checkpoint.composed)} if checkpoint.composed else {}
    about |= {"inputs": json.dumps(asdict(checkpoint.inputs))} if checkpoint.inputs else {}
    with replacing(path) as draft:
        write_tensors(draft, checkpoint.tensors, about)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Returns:
        Tensors and facts.
    """
    remedy = "train it with train.py, or give the path of a checkpoint.safetensors"
    if not Path(path).is_file():
        raise RuleError("a checkpoint must exist", got=path, remedy=remedy)
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            tensors = expanded({name: file.get_tensor(name) for name in file.keys()})
    except SafetensorError as error:
        got = f"{path}: {error}"
        raise RuleError("a checkpoint must be a whole safetensors file", got=got, remedy=remedy) from None
    check_format(about, CHECKPOINT_FORMAT, path)
    try:
        bits, block_sizes = json.loads(about["bits"]), json.loads(about["block_sizes"])
        arguments, composed = json.loads(about.get("arguments", "{}")), json.loads(about.get("composed", "[]"))
        facts = about["model"], about["stage"], dict(block_sizes), Bits(*bits) if bits else None, dict(arguments)
        inputs = _inputs(**json.loads(about["inputs"])) if "inputs" in about else None
        return Checkpoint(tensors, *facts, tuple(map(str, composed)), inputs)
    except (KeyError, ValueError, RecursionError, TypeError) as error:
        raise RuleError("a checkpoint must say what it holds", got=f"{path}: {error!r}", remedy=remedy) from None


def _inputs(shape: Sequence[int], log_step: int, levels: int, classes: Sequence[str], data: str) -> InputSpec:
    channels, height, width = map(int, shape)
    return InputSpec((channels, height, width), int(log_step), int(levels), tuple(map(str, classes)), str(data))


def read_profile(path: Path) -> Profile:
    """Read a cost profile.

    Returns:
        The profile.

    Raises:
        RuleError: missing or damaged.
    """
    return profile_from(read_json(path, "a cost profile", "make one with search.py he.profile=calibrate"), path)


def profile_from(data: Mapping[str, Any], path: Path) -> Profile:
    """Return a cost profile that was stored."""
    try:
        bits = tuple(int(b) for b in data["coefficient_bits"])
        seconds = {str(name): float(value) for name, value in data["seconds"].items()}
        name, ring_degree, threads = str(data["name"]), int(data["ring_degree"]), int(data.get("threads", 1))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RuleError(
            "a cost profile must be complete", got=f"{path}: {error!r}", remedy="measure it again with search.py"
        ) from None
    return Profile(name, ring_degree, bits, seconds, threads)


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write named arrays as an npz file, atomically.

    Raises:
        RuleError: the disk is full.
    """
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], about: dict[str, str] | None = None) -> None:
    """Write a safetensors file; not atomically.

    The library writes an array's memory as it lies, so a transposed view is laid out first.
    """
    laid_out = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    safetensors.numpy.save_file(laid_out, path, metadata=about)


def check_format(about: Mapping[str, Any], name: str, path: Path, versions: Sequence[int] = (VERSION,)) -> None:
    """Raise unless a file says that it is of this format and version."""
    if about.get("format") != name or str(about.get("version")) not in map(str, versions):
        raise RuleError(
            f"the file must be a {name} of version {' or '.join(map(str, versions))}",
            got=f"{path}: {about.get('format')} {about.get('version')}",
            remedy="make it again with this version of privcirnet",
        )
