"""Small checkpoints: floating-point tensors in float16, or kernels and matrices in 8 bits with a step for each row.

Row r of a weight is stored as integers v of [-127, 127] and a float32 step s_r = max |w_r| / 127, so that s_r v is off
by s_r / 2 at most. The steps of a tensor stand beside it under its name with :data:`STEPS` behind it. Tensors of one
dimension, such as biases and running statistics, stay as they are: they are few, and their ranges are wide.

For a quantized network the integers and the steps are its quantizers', so that it computes the same, bit for bit, and
no steps stand beside. Its weights before rounding are lost, which only further training would need.
"""

import re
from collections.abc import Mapping

import numpy as np

from privcirnet.errors import RuleError

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
