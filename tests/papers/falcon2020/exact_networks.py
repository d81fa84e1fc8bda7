"""Integer networks for leveled inference, with random weights of a few bits."""

import numpy as np

from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import unplanned
from privcirnet.he.program.operation import Node, Operation, Weights
from privcirnet.he.program.operations import Flatten, Input, Linear, Square
from privcirnet.he.program.program import Network


def layer(name: str, shape: LinearShape, b: int = 1, largest: int = 3, seed: int = 0) -> ExactLayer:
    """A layer with circulant weights of which few are zero, and biases."""
    random = np.random.default_rng(seed)
    rows = random.integers(-largest, largest + 1, shape.weight_shape(b))
    bias = random.integers(-50, 51, shape.out_channels).astype(object)
    return ExactLayer(name, shape, b, rows, bias)


def network(maps: int, side: int, hidden: int, classes: int, b: int = 1, largest: int = 3) -> ExactNetwork:
    """A convolution, a square, a layer of blocks b, a square, a layer."""
    conv = LinearShape(side, side, 1, maps, 3, 2, 1)
    values = maps * conv.rows.outputs**2
    layers = (
        layer("conv", conv, 1, largest, 1),
        layer("fc1", LinearShape.gemm(1, values, hidden), b, largest, 2),
        layer("fc2", LinearShape.gemm(1, hidden, classes), 1, largest, 3),
    )
    return ExactNetwork(layers, 0, 4)


def mnist(b: int, largest: int = 127) -> ExactNetwork:
    """LoLa's MNIST network."""
    conv = LinearShape(28, 28, 1, 5, 5, 2, 1)
    layers = (
        layer("conv", conv, 1, largest, 1),
        layer("fc1", LinearShape.gemm(1, 845, 100), b, largest, 2),
        layer("fc2", LinearShape.gemm(1, 100, 10), 1, largest, 3),
    )
    return ExactNetwork(layers, 0, 16)


def image_of(made: ExactNetwork, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(made.low, made.high + 1, made.layers[0].shape.input_shape)


def network_of(exact: ExactNetwork, log_step: int = 0) -> Network:
    """The program that an exact network is found in; results in steps of 2^log_step."""
    nodes, weights = [Node("x", Input(exact.low, exact.high), (), exact.input_shape, 0)], dict[str, Weights]()

    def then(name: str, operation: Operation, step: int = 0) -> None:
        before = nodes[-1]
        nodes.append(Node(name, operation, (before.name,), operation.shape_after([before.shape]), step))

    for number, layer in enumerate(exact.layers):
        if number:
            then(f"{layer.name}_square", Square())
        if nodes[-1].shape != layer.shape.input_shape:
            then(f"{layer.name}_flat", Flatten())
        then(layer.name, Linear(unplanned(layer.shape, layer.block_size)), log_step * (layer is exact.layers[-1]))
        weights[layer.name] = Weights(layer.rows, layer.bias)
    return Network(tuple(nodes), weights)
