"""Predicted latency of every layer at every block size: the LAT of the integer program (PrivCirNet, equation 3)."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.functional.circulant import admissible_block_sizes
from privcirnet.he.cost import Link, Profile, linear_cost
from privcirnet.he.planner import cheapest_layer
from privcirnet.he.shape import LinearShape
from privcirnet.lower import linear_shape
from privcirnet.nn.graph import evaluating


def layer_shapes(model: nn.Module, image: torch.Tensor) -> dict[str, LinearShape]:
    """Dimensions of every linear layer and convolution, by module name, seen by running one image (1, C, H, W).

    Raises:
        RuleError: a layer that runs twice (its weights would be exported once), or that has no encrypted form.
    """
    shapes: dict[str, LinearShape] = {}

    def record(name: str, module: nn.Linear | nn.Conv2d, inputs: tuple[torch.Tensor, ...]) -> None:
        if name in shapes:
            raise RuleError("a layer must run once an image", got=name, remedy="give each use its own layer")
        size = tuple(inputs[0].shape[1:])
        if len(size) not in (1, 3):
            got = f"{name} on {size}"
            raise RuleError("a layer's input must be an image or a vector", got=got, remedy="leave the layer out")
        shapes[name] = linear_shape(module, size if len(size) == 3 else (size[0], 1, 1), name)

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    handles = [
        module.register_forward_hook(lambda _, inputs, output, name=name, module=module: record(name, module, inputs))
        for name, module in layers
    ]
    try:
        with evaluating(model), torch.no_grad():
            model(image)
    finally:
        for handle in handles:
            handle.remove()
    return shapes


def latency_table(
    shapes: Mapping[str, LinearShape], block_sizes: Sequence[int], profile: Profile, link: Link
) -> dict[str, dict[int, float]]:
    """Seconds by layer and admissible block size, each with its cheapest plan."""
    table: dict[str, dict[int, float]] = {}
    for name, shape in shapes.items():
        channels = shape.out_channels, shape.in_channels
        sizes = admissible_block_sizes(channels, tuple(block_sizes)) if shape.groups == 1 else (1,)
        layers = {b: cheapest_layer(shape, b, profile, link) for b in sizes}
        table[name] = {b: linear_cost(layer, profile, link).total for b, layer in layers.items()}
    return table
