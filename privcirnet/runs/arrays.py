"""Real numbers as a program's images: their form, their range, and the integers that are encrypted."""

from typing import Any, NamedTuple

import numpy as np

from privcirnet.errors import RuleError, first_line
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import PixelRange


def integers_of(pixels: PixelRange, images: Any) -> Values:
    """Return images as a program takes them: (N, C, H, W), int64.

    Args:
        images: real images (N, C, H, W), signals (N, C, L) or a table (N, F): a NumPy array or a tensor.

    Raises:
        RuleError: they are none, or of another size or range.
    """
    array = _in_shape(pixels.shape, images)
    steps = np.ldexp(2.0**pixels.log_step, pixels.exponents or [0] * pixels.shape[0]).reshape(-1, 1, 1)
    integers = np.floor(array / steps + 0.5)
    outside = (integers < pixels.low) | (integers > pixels.high)
    if pixels.whole and outside.any():
        channel = int(outside.any(axis=(0, 2, 3)).argmax())
        step, values = steps[channel, 0, 0], array[:, channel]
        remedy = "normalize them as those that it was compiled with, or clamp them"
        if str(images.dtype if hasattr(images, "dtype") else "").endswith("uint8"):
            remedy = "convert them to float and scale them, as those that it was compiled with"
        where = f" in channel {channel}" if any(pixels.exponents) else ""
        rule = f"pixels must be in [{pixels.low * step:g}, {pixels.high * step:g}]{where}, as compiled"
        raise RuleError(rule, got=f"[{values.min():g}, {values.max():g}]", remedy=remedy)
    return integers.astype(np.int64)


def _in_shape(shape: tuple[int, int, int], images: Any) -> np.ndarray:
    """Return images as (N, C, H, W), float64, all finite."""
    rule, remedy = "images must be real numbers (N, C, H, W)", "give a NumPy array or a tensor"
    try:
        array = np.asarray(images.detach().cpu().double() if hasattr(images, "detach") else images, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RuleError(rule, got=first_line(error), remedy=remedy) from None
    if not array.ndim:
        raise RuleError(rule, got=type(images).__name__, remedy=remedy)
    size, signal = array.shape, (*array.shape[:1], 1, *array.shape[1:])
    are_signals = array.ndim == len(shape) and (*array.shape[1:2], 1, *array.shape[2:]) == shape
    if not are_signals and shape in {array.shape, signal, (*array.shape, 1, 1)}:
        rule, got = "images must have a batch axis", f"shape {array.shape}, a single one"
        raise RuleError(rule, got=got, remedy="give images[:1] or images[None]")
    if array.ndim == 2:
        array = array[..., None, None]
    elif array.ndim == len(shape):
        array = array[:, :, None]
    if not len(array):
        raise RuleError("there must be images", got="none", remedy="give one or more")
    if array.shape[1:] != shape:
        got, remedy = f"shape {size}", "resize them, or compile with images of this size"
        raise RuleError(f"images must be (N, {', '.join(map(str, shape))}), as compiled", got=got, remedy=remedy)
    if not np.isfinite(array).all():
        raise RuleError("images must be finite", got="NaN or infinity", remedy="replace or leave out such values")
    return array


class _Integers(NamedTuple):
    """An input as a program takes it.

    Attributes:
        pixels: int64 (C, H, W).
    """

    pixels: Values


class ArrayPreparation(NamedTuple):
    """The conversion of an array's rows to a program's integers, in place of a picture's preparation."""

    range: PixelRange

    def prepare(self, row: np.ndarray) -> _Integers:
        """Return a row as the program takes it; ``row``: (1, ...), as the network reads it."""
        return _Integers(integers_of(self.range, row)[0])
