"""Seconds of layers in clear: the times of a few, and the operations' that explain them best."""

from collections.abc import Callable, Mapping

import numpy as np

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.planning.online import clear_work
from privcirnet.he.planning.profile import ONLINE
from privcirnet.he.ring import sampling

LAYERS: dict[str, tuple[LinearShape, int]] = {
    "clear, one position": (LinearShape(1, 1, 64, 64), 8),
    "clear, early": (LinearShape(32, 32, 32, 32), 1),
    "clear, early blocks": (LinearShape(32, 32, 32, 32), 8),
    "clear, late": (LinearShape(8, 8, 256, 256), 1),
    "clear, late blocks": (LinearShape(8, 8, 256, 256), 8),
    "clear, windows": (LinearShape(16, 16, 64, 64, 3, 1, 1), 1),
    "clear, windows of blocks": (LinearShape(16, 16, 64, 64, 3, 1, 1), 8),
    "clear, many weights": (LinearShape(2, 2, 512, 512, 3, 1, 1), 1),
    "clear, many blocks": (LinearShape(2, 2, 512, 512, 3, 1, 1), 8),
    "clear, channel by channel": (LinearShape(16, 16, 192, 192, 3, 1, 1, 192), 1),
    "clear, few channels by themselves": (LinearShape(16, 16, 32, 32, 3, 1, 1, 32), 1),
}
"""Layers like those of networks, with their block sizes, that differ in their main operation."""
_LARGEST = 127
"""Largest absolute weight, of 8 bits."""


def clear_calls(t: int) -> dict[str, Callable[[], object]]:
    """Return each timed layer."""
    return {name: _call(shape, b, t) for name, (shape, b) in LAYERS.items()}


def _call(shape: LinearShape, b: int, t: int) -> Callable[[], object]:
    rows = np.random.default_rng(0).integers(-_LARGEST, _LARGEST + 1, shape.weight_shape(b))
    layer, share = ClearLinear(shape, b, rows, t), sampling.uniform(shape.input_shape, t)
    mask = sampling.uniform(shape.output_shape, t)
    return lambda: layer.apply(share, mask)


def clear_seconds(layer_seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each operation of :data:`ONLINE`: those whose sums are off by the least share of a layer.

    Args:
        layer_seconds: seconds of the layers, by name.
    """
    rows = np.array([clear_work(*layer) for layer in LAYERS.values()]) / [[layer_seconds[name]] for name in LAYERS]
    solution, *_ = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)
    return dict(zip(ONLINE, solution.tolist(), strict=True))
