"""What the plans of one convolution and two further layers have in common: the image spread over all slots.

The first layer costs no rotation whatever its outputs' slots are: the client puts into every slot of every window
message the pixel that the output of this slot sees. So the second layer's input comes out of the convolution in the
layout that it wants, with as many copies as it wants.

What the client sends can be shared among the outputs. Where a cyclic digit of the columns counts maps, whose places see
the same pixels, a message may hold another window at each value of the digit: ``side`` windows in one message, and the
sums that each of them starts are brought together by side - 1 rotations, all by one value of the digit.
"""

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from privcirnet.errors import RuleError


def three_layers(network: ExactNetwork) -> tuple[ExactLayer, ExactLayer, ExactLayer]:
    """Return a network's layers."""
    if len(network.layers) != 3:
        got, remedy = f"{len(network.layers)} layers", "use LoLa's plan"
        raise RuleError("this plan is for a convolution and two layers behind it", got=got, remedy=remedy)
    first, second, third = network.layers
    return first, second, third


def convolution(builder: Builder, layer: ExactLayer, values: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the first layer's outputs in given slots, without rotations, squared.

    Args:
        values: for each slot which output it holds, counted map after map, -1 for none: (n,).

    Returns:
        (the ciphertext; for each slot which place of a map it is, -1 for none, as :class:`plan.PublicPlan` has them).
    """
    return shared_convolution(builder, layer, values, 1, 1)[:2]


def shared_convolution(
    builder: Builder, layer: ExactLayer, values: np.ndarray, count: int, side: int
) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the first layer's outputs in given slots, squared, from messages of several windows.

    Args:
        builder: of the circuit, whose inputs are as many as :func:`messages` says.
        values: for each slot which output it holds, counted map after map, -1 for none: (n,). The places of a map are
            the same at all values of the digit.
        count: values of the digit, the slowest of a row's.
        side: windows in a message; it divides ``count``.

    Returns:
        (the ciphertext; for each slot which place of a map it is for, (n,), and for each slot of every message which
        weight of a kernel it meets, (messages, n), -1 for none in both, as :class:`plan.PublicPlan` has them).
    """
    builder.layer = layer.name
    size, held, stride = int(np.prod(layer.shape.output_shape[1:])), values >= 0, builder.row // count
    maps, weights = values // size, layer.weight.reshape(len(layer.weight), -1)
    places = np.where(held, values % size, -1).reshape(2, count, stride).max(axis=1, keepdims=True)
    columns = np.broadcast_to(places, (2, count, stride)).reshape(-1)
    own = np.arange(builder.ring_degree) % builder.row // stride % side + side * np.arange(builder.inputs)[:, None]
    kernels = np.where((columns >= 0) & (own < weights.shape[1]), own, -1)

    def met(source: int, turn: int) -> np.ndarray:
        """Weights of the outputs whose sums are turned later: (n,)."""
        turned = np.roll(maps.reshape(2, -1), turn * stride, axis=1).reshape(-1)
        used = np.roll(held.reshape(2, -1), turn * stride, axis=1).reshape(-1) & (kernels[source] >= 0)
        return np.where(used, weights[turned, np.maximum(kernels[source], 0)], 0)

    made: int | None = None
    for turn in reversed(range(side)):
        made = None if made is None else builder.rotate(made, stride)
        terms = [(source, met(source, turn)) for source in range(builder.inputs)]
        if (not turn and made is None) or any(slots.any() for _, slots in terms):
            own = builder.weighted(terms)
            made = own if made is None else builder.add(own, made)
    if made is None:
        raise ValueError(f"layer {layer.name!r} has no weight but zero")
    made = builder.add_integers(made, np.where(held, layer.bias[maps], 0))
    builder.layer = f"square behind {layer.name}"
    return builder.square(made), columns, kernels


def messages(layer: ExactLayer, side: int) -> int:
    """Return how many messages hold an image."""
    return -(-layer.weight[0].size // side)
