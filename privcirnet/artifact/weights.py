"""Weights of any network as tensors: integers or real numbers. numpy only; no torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from privcirnet.artifact.folder import REMEDY
from privcirnet.errors import RuleError
from privcirnet.he.program import bounds
from privcirnet.he.program.operation import NO_ROWS, Node, Weights

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
