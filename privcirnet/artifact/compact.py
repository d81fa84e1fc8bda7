"""Small checkpoints: floating-point tensors in float16, or kernels and matrices in 8 bits with a step for each row.

Row r of a weight is stored as integers v of [-127, 127] and a float32 step s_r = max |w_r| / 127, so that s_r v is off
by s_r / 2 at most. The steps of a tensor stand beside it under its name with :data:`STEPS` behind it. Tensors of one
dimension, such as biases and running statistics, stay as they are: they are few, and their ranges are wide.

Of a quantized network the integers and the step are its quantizers', so that it computes the same, bit for bit. What
its weights were before they were rounded is lost, which only further training would need.
"""

import re
from collections.abc import Mapping

import numpy as np

from privcirnet.errors import RuleError

KINDS = ("float16", "rows8")
"""Two bytes, or one byte and four for each row, instead of four."""
STEPS = "@steps"
_LARGEST = 127
_QUANTIZER = re.compile(r"(.*\.parametrizations\.weight)\.\d+\.log_step")


def compacted(tensors: Mapping[str, np.ndarray], kind: str, bits: int = 0) -> dict[str, np.ndarray]:
    """Return a state dict in fewer bytes.

    Args:
        kind: one of :data:`KINDS`.
        bits: of the weights of a quantized network, 0 of any other. Those of one bit stay as they are.

    Returns:
        By name: the tensors, those of floating-point numbers smaller; with rows8 their steps besides.
    """
    if bits and kind == "float16":
        remedy = "use rows8, which keeps what they are rounded to"
        raise RuleError("quantized weights must keep their grid", got=f"float16 for {bits} bits", remedy=remedy)
    if bits:
        return dict(tensors) | (_on_their_grid(tensors, bits) if bits > 1 else {})
    found: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if not np.issubdtype(tensor.dtype, np.floating):
            found[name] = tensor
        elif kind == "float16":
            with np.errstate(over="ignore"):
                found[name] = tensor.astype(np.float16)
            _check(name, found[name])
        elif tensor.ndim > 1:
            found[name], found[name + STEPS] = _rows(name, tensor)
        else:
            found[name] = tensor
    return found


def expanded(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the state dict that 8-bit rows stand for; one without them is returned as it is."""
    found = {name: tensor for name, tensor in tensors.items() if not name.endswith(STEPS)}
    for name in tensors.keys() - found.keys():
        whole, steps = found.get(name.removesuffix(STEPS)), tensors[name]
        fits = whole is not None and whole.dtype == np.int8 and whole.ndim > 1 and steps.shape == whole.shape[:1]
        if whole is None or not fits or steps.dtype != np.float32 or not np.isfinite(steps).all():
            raise RuleError(
                "8-bit rows must have a finite float32 step each",
                got=f"{name} {steps.dtype} {steps.shape}",
                remedy="make the file again with train.py evaluate= compact=rows8",
            )
        found[name.removesuffix(STEPS)] = whole * steps.reshape(-1, *(1,) * (whole.ndim - 1))
    return found


def _rows(name: str, tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 8-bit integers and the step of each row."""
    _check(name, tensor)
    rows = tensor.reshape(len(tensor), -1).astype(np.float64)
    steps = (np.abs(rows).max(axis=1, initial=0) / _LARGEST).astype(np.float32)
    steps[steps == 0] = 1  # of rows of zeros
    whole = np.rint(rows / steps[:, None]).clip(-_LARGEST, _LARGEST)
    return whole.astype(np.int8).reshape(tensor.shape), steps


def _on_their_grid(tensors: Mapping[str, np.ndarray], bits: int) -> dict[str, np.ndarray]:
    """Return the integers that quantizers round weights to, and their steps."""
    found: dict[str, np.ndarray] = {}
    for layer, log_step in ((_QUANTIZER.fullmatch(name), tensor) for name, tensor in tensors.items()):
        if layer:
            name, limit = layer[1] + ".original", 2 ** (bits - 1) - 1
            step = np.float32(2.0 ** int(log_step))
            found[name] = np.rint(tensors[name] / step).clip(-limit, limit).astype(np.int8)
            found[name + STEPS] = np.full(len(found[name]), step)
    return found


def _check(name: str, tensor: np.ndarray) -> None:
    if not np.isfinite(tensor).all():
        raise RuleError(
            "numbers of a small checkpoint must be finite and in its range", got=name, remedy="keep the whole one"
        )
