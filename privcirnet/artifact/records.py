"""Checkpoint, profile, plan and run summary: one file each, and the code that all formats share.

Reading checks format, version, names and types before anything is used. numpy only; no torch.

A small checkpoint has floating-point tensors in float16, or kernels and matrices in 8 bits with a step for each row:
row r of a weight is stored as integers v of [-127, 127] and a float32 step s_r = max |w_r| / 127, so that s_r v is off
by s_r / 2 at most. The steps of a tensor stand beside it under its name with :data:`STEPS` behind it. Tensors of one
dimension, such as biases and running statistics, stay as they are: they are few, and their ranges are wide.

For a quantized network the integers and the steps are its quantizers', so that it computes the same, bit for bit, and
no steps stand beside. Its weights before rounding are lost, which only further training would need.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError, safe_open

from privcirnet.errors import RuleError
from privcirnet.he.planning.profile import Profile
from privcirnet.he.system.files import replacing

KINDS = ("float16", "rows8")
"""Kinds of compact numbers: two bytes, or one byte and four for each row, instead of four."""
STEPS = "@steps"
_LARGEST = 127
_QUANTIZER = re.compile(r"((.*\.parametrizations\.weight)\.\d+)\.log_step")


def compacted(tensors: Mapping[str, np.ndarray], kind: str, bits: int = 0) -> dict[str, np.ndarray]:
    """Return a state dict in fewer bytes.

    Args:
        kind: one of :data:`KINDS`.
        bits: bits of the weights of a quantized network, 0 for any other. Those of one bit stay as they are.

    Returns:
        Tensors by name, those of floating-point numbers smaller; with rows8 their steps besides.
    """
    if bits and kind == "float16":
        remedy = "use rows8, which keeps what they are rounded to"
        raise RuleError("quantized weights must keep their grid", got=f"float16 for {bits} bits", remedy=remedy)
    if bits:
        return dict(tensors) | (_on_their_grid(tensors, bits) if bits > 1 else {})
    smaller: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if not np.issubdtype(tensor.dtype, np.floating):
            smaller[name] = tensor
        elif kind == "float16":
            with np.errstate(over="ignore"):
                smaller[name] = tensor.astype(np.float16)
            _check(name, smaller[name])
        elif tensor.ndim > 1:
            smaller[name], smaller[name + STEPS] = _rows(name, tensor)
        else:
            smaller[name] = tensor
    return smaller


def expanded(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the state dict of 8-bit rows; one without them is returned as it is."""
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(STEPS)}
    stored = {name.removesuffix(STEPS): tensors[name] for name in tensors.keys() - weights.keys()}
    quantizer_steps = {
        name: steps for name, steps in _own_steps(weights).items() if name in weights and weights[name].dtype == np.int8
    }
    for name, steps in (stored | quantizer_steps).items():
        whole = weights.get(name)
        fits = whole is not None and whole.dtype == np.int8 and whole.ndim > 1 and steps.shape == whole.shape[:1]
        if whole is None or not fits or steps.dtype != np.float32 or not np.isfinite(steps).all():
            raise RuleError(
                "8-bit rows must have a finite float32 step each",
                got=f"{name} {steps.dtype} {steps.shape}",
                remedy="make the file again with train.py evaluate= compact=rows8",
            )
        weights[name] = whole * _by_row(steps, whole)
    return weights


def _own_steps(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the steps of each row that quantizers have, by the name of their weight."""
    quantizers = [match for match in map(_QUANTIZER.fullmatch, tensors) if match and not tensors[match[0]].shape]
    with np.errstate(over="ignore"):
        return {
            match[2] + ".original": np.exp2(
                np.float64(tensors[match[0]]) + tensors.get(match[1] + ".exponents", np.int8(0))
            ).astype(np.float32)
            for match in quantizers
        }


def _by_row(steps: np.ndarray, tensor: np.ndarray) -> np.ndarray:
    return steps.reshape(-1, *(1,) * (tensor.ndim - 1))


def _rows(name: str, tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 8-bit integers and the step of each row."""
    _check(name, tensor)
    rows = tensor.reshape(len(tensor), -1).astype(np.float64)
    steps = (np.abs(rows).max(axis=1, initial=0) / _LARGEST).astype(np.float32)
    steps[steps == 0] = 1  # of rows of zeros
    whole = np.rint(rows / steps[:, None]).clip(-_LARGEST, _LARGEST)
    return whole.astype(np.int8).reshape(tensor.shape), steps


def _on_their_grid(tensors: Mapping[str, np.ndarray], bits: int) -> dict[str, np.ndarray]:
    """Return the integers that quantizers round weights to."""
    limit = 2 ** (bits - 1) - 1
    return {
        name: np.rint(tensors[name] / _by_row(steps, tensors[name])).clip(-limit, limit).astype(np.int8)
        for name, steps in _own_steps(tensors).items()
    }


def _check(name: str, tensor: np.ndarray) -> None:
    if not np.isfinite(tensor).all():
        raise RuleError(
            "numbers of a small checkpoint must be finite and in its range", got=name, remedy="keep the whole one"
        )


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
        shape: shape (C, H, W) of an image, (C, L) of a signal or (F,) of a table's row.
        log_step: real pixel = integer x 2^log_step.
        levels: largest integer minus the least; integers are in [low, low + levels].
        classes: names by label.
        data: name of the data set.
        low: least integer, that of black.
    """

    shape: tuple[int, ...]
    log_step: int
    levels: int
    classes: tuple[str, ...]
    data: str = ""
    low: int = 0


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
        frozen: whether its norms are frozen in training.
    """

    tensors: dict[str, np.ndarray]
    model: str
    stage: str
    block_sizes: dict[str, int]
    bits: Bits | None = None
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    composed: tuple[str, ...] = ()
    inputs: InputSpec | None = None
    frozen: bool = False

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
    about |= {"inputs": json.dumps(inputs_to_dict(checkpoint.inputs))} if checkpoint.inputs else {}
    about |= {"frozen": json.dumps(True)} if checkpoint.frozen else {}
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
        inputs = inputs_from(json.loads(about["inputs"])) if "inputs" in about else None
        frozen = bool(json.loads(about.get("frozen", "false")))
        return Checkpoint(tensors, *facts, tuple(map(str, composed)), inputs, frozen)
    except (KeyError, ValueError, RecursionError, TypeError) as error:
        raise RuleError("a checkpoint must say what it holds", got=f"{path}: {error!r}", remedy=remedy) from None


def inputs_to_dict(inputs: InputSpec) -> dict[str, Any]:
    """Return the form of a network's images as plain data; a least integer of 0 goes without saying."""
    return {name: value for name, value in asdict(inputs).items() if name != "low" or value}


def inputs_from(data: Mapping[str, Any]) -> InputSpec:
    """Return the form of a network's images that was stored.

    Raises:
        KeyError, TypeError, ValueError: it is not complete.
    """
    shape = tuple(map(int, data["shape"]))
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"{len(shape)} sizes")
    numbers, classes = (int(data["log_step"]), int(data["levels"])), tuple(map(str, data["classes"]))
    return InputSpec(shape, *numbers, classes, str(data["data"]), int(data.get("low", 0)))


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


REPLACEMENTS = ("aespa", "square", "identity")
"""Possible replacements of an activation: AESPA, a square, or nothing."""


def write_plan(path: Path, block_sizes: Mapping[str, int], **about: Any) -> None:
    """Write plan.json: the block size of every weighted layer, by module name, and the facts of the search.

    Raises:
        RuleError: the disk is full.
    """
    head = {"format": "privcirnet-plan", "version": VERSION, "block_sizes": dict(block_sizes)}
    write_json(path, {**head, **about})


def read_plan(path: Path, **expected: str) -> dict[str, int]:
    """Read plan.json.

    Args:
        expected: facts that it must have, such as ``model`` and ``checkpoint``; keys that the plan lacks are not
            checked.

    Returns:
        Block sizes by module name.
    """
    data = read_json(path, "a plan", "make one with search.py")
    check_format(data, "privcirnet-plan", path)
    if "masks" in data:
        raise RuleError("a plan must be of block sizes alone", got=f"{path} with masks", remedy="use papers.pareto")
    block_sizes = data.get("block_sizes")
    if not isinstance(block_sizes, dict) or any(type(b) is not int or b < 1 for b in block_sizes.values()):
        raise RuleError("a plan must map module names to block sizes", got=f"{path}", remedy="make one with search.py")
    for key, value in expected.items():
        if data.get(key, value) != value:
            got = f"{path} for {key} {data[key]}, used with {value}"
            remedy = f"search again, or remove {key} from the plan if it fits nevertheless"
            raise RuleError(f"a plan must be for this {key}", got=got, remedy=remedy)
    return block_sizes


def plan_pads(path: Path) -> bool:
    """Return whether a plan is for layers that are padded where its block sizes do not divide."""
    return read_json(path, "a plan", "make one with search.py").get("pad") is True


def plan_composed(path: Path) -> tuple[str, ...]:
    """Return the layers that a plan composes with the layer before them."""
    composed = read_json(path, "a plan", "make one with search.py").get("composed", [])
    if not isinstance(composed, list) or any(not isinstance(name, str) for name in composed):
        raise RuleError("a plan must list composed layers by name", got=path, remedy="make one with search.py")
    return tuple(composed)


def plan_activations(path: Path, model: str) -> dict[str, str]:
    """Return the replacements of the activations that a plan replaces, by module name."""
    read_plan(path, model=model)
    kinds, remedy = (*REPLACEMENTS, "own"), "make one with search.py activations=[aespa]"
    activations = read_json(path, "a plan", remedy).get("activations")
    if not isinstance(activations, dict) or any(kind not in kinds for kind in activations.values()):
        raise RuleError(f"a plan must make activations one of {', '.join(kinds)}", got=f"{path}", remedy=remedy)
    return {name: kind for name, kind in activations.items() if kind != "own"}
