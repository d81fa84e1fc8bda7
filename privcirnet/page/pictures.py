"""Pictures of the page from bytes: the server's view of an image, and test images to choose from."""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privcirnet.he.rlwe.wire_bytes import residue_bytes

SIDE = 64
"""Most pixels of a side of a ciphertext's picture."""


def ciphertext_picture(ciphertext: bytes, bits: Sequence[int]) -> NDArray[np.uint8]:
    """Return the highest 8 bits of a ciphertext's first coefficients: uint8 (s, s), s = 64 or less if it is shorter.

    Args:
        ciphertext: bytes on the wire (:mod:`he.rlwe.wire_bytes`); its first polynomial modulo the first prime is drawn.
        bits: bits of each prime of the data.

    >>> ciphertext_picture(bytes([1, 0xFF]) + bytes([0, 0x0A]) * 3, bits=[16]).tolist()
    [[255, 10], [10, 10]]
    """
    widths = [residue_bytes(b) for b in bits]
    side, width = min(SIDE, math.isqrt(len(ciphertext) // sum(widths))), widths[0]
    octets = np.zeros((side * side, 8), dtype=np.uint8)
    octets[:, :width] = np.frombuffer(ciphertext, dtype=np.uint8, count=width * side * side).reshape(-1, width)
    return (octets.view("<u8")[:, 0] >> np.uint64(bits[0] - 8)).astype(np.uint8).reshape(side, side)


def for_canvas(pixels: NDArray[np.integer[Any]], levels: int = 255) -> dict[str, Any]:
    """Return a picture as plain data for the page.

    Args:
        pixels: pixels (H, W) or (C, H, W), C = 1 or 3, in [0, levels].
    """
    planes = _bytes(pixels, levels)
    channels, height, width = planes.shape
    octets = base64.b64encode(planes.transpose(1, 2, 0).tobytes()).decode("ascii")
    return {"width": width, "height": height, "channels": channels, "pixels": octets}


def png(pixels: NDArray[np.integer[Any]], levels: int) -> bytes:
    """Return a picture as a PNG file; ``pixels``: (C, H, W), C = 1 or 3, in [0, levels]."""
    planes, stream = _bytes(pixels, levels), io.BytesIO()
    Image.fromarray(planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)).save(stream, format="PNG")
    return stream.getvalue()


def _bytes(pixels: NDArray[np.integer[Any]], levels: int) -> NDArray[np.uint8]:
    planes = pixels if pixels.ndim == 3 else pixels[None]
    return np.ascontiguousarray(planes.astype(np.int64) * 255 // levels).astype(np.uint8)
