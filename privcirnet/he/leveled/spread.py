"""What the plans of one convolution and two further layers have in common: the image spread over all slots.

The first layer costs no rotation whatever its outputs' slots are: the client puts into every slot of every window
message the pixel that the output of this slot sees. So the second layer's input comes out of the convolution in the
layout that it wants, with as many copies as it wants.
"""

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.leveled.builder import Builder
from privcirnet.he.leveled.network import LeveledLayer, LeveledNetwork


def three_layers(network: LeveledNetwork) -> tuple[LeveledLayer, LeveledLayer, LeveledLayer]:
    """Return a network's layers.

    Args:
        network: with three.

    Raises:
        RuleError: it has another number of layers.
    """
    if len(network.layers) != 3:
        got, remedy = f"{len(network.layers)} layers", "use LoLa's plan"
        raise RuleError("this plan is for a convolution and two layers behind it", got=got, remedy=remedy)
    first, second, third = network.layers
    return first, second, third


def convolution(builder: Builder, layer: LeveledLayer, values: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the first layer's outputs in given slots, without rotations, squared.

    Args:
        builder: of the circuit.
        layer: the first one.
        values: for each slot which output it holds, counted map after map, -1 for none: (n,).

    Returns:
        (the ciphertext; for each slot which place of a map it is, -1 for none, as :class:`plan.PublicPlan` has them).
    """
    builder.layer = layer.name
    size, held = int(np.prod(layer.shape.output_shape[1:])), values >= 0
    maps, kernels = values // size, layer.weight.reshape(len(layer.weight), -1)
    terms = [(source, np.where(held, weights[maps], 0)) for source, weights in enumerate(kernels.T)]
    made = builder.add_integers(builder.weighted(terms), np.where(held, layer.bias[maps], 0))
    builder.layer = f"square behind {layer.name}"
    return builder.square(made), np.where(held, values % size, -1)
