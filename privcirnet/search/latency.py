"""Predicted latency of every layer at every block size: the LAT of the integer program (PrivCirNet, equation 3)."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.functional.circulant import admissible_block_sizes
from privcirnet.he.cost import Link, Profile, cheapest_layer, linear_cost
from privcirnet.he.layout import LinearShape
from privcirnet.lower import linear_shape
from privcirnet.nn.graph import evaluating


def layer_shapes(model: nn.Module, image: torch.Tensor) -> dict[str, LinearShape]:
    """Dimensions of every linear layer and convolution, by module name, seen by running one image (1, C, H, W).

    Raises:
        RuleError: a layer that runs twice (its weights would be exported once).
    """
    shapes: dict[str, LinearShape] = {}

    def hook(name: str):  # noqa: ANN202
        def record(module: nn.Module, inputs: tuple[torch.Tensor, ...], _: torch.Tensor) -> None:
            if name in shapes:
                raise RuleError("a layer must run once an image", got=name, remedy="give each use its own layer")
            channels, *rest = inputs[0].shape[1:]
            height, width = rest or (1, 1)
            shapes[name] = linear_shape(module, (channels, height, width), name)

        return record

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    handles = [module.register_forward_hook(hook(name)) for name, module in layers]
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
        sizes = admissible_block_sizes((shape.out_channels, shape.in_channels), tuple(block_sizes))
        layers = {b: cheapest_layer(shape, b, profile, link) for b in sizes}
        table[name] = {b: linear_cost(layer, profile, link).total for b, layer in layers.items()}
    return table
