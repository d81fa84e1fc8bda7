"""Composite operations: the primitives that one applies, as nodes of a program.

With the interactive protocol each primitive that takes messages is a node of its own. So an operation whose ``apply``
uses primitives that the protocol has, x^2 + a x for one, needs no exchange: :func:`decompose_all` replaces it before
parameters are chosen, and neither party ever meets it. Bounds that it has of its own are kept
(:class:`local.AssertRange`): those of a maximum are its inputs', of which the sums that it comes to know nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privcirnet.he.layers.layer import Layer
from privcirnet.he.program.interactive_ops import Linear, Square
from privcirnet.he.program.local import Add, AssertRange, MulConstant, Plus, SumPool, Truncate
from privcirnet.he.program.operation import NO_ROWS, BoundedFunction, Domain, Interval, Node, Operation, Weights
from privcirnet.he.program.program import Network


class Primitives(Domain[Node]):
    """The nodes that a network's operations come to; values are the nodes that have them.

    Attributes:
        nodes: nodes in order.
        weights: weights by name of the nodes that have some.

    Args:
        bounds: bounds that composite operations have of their own.
    """

    name, remedy = "a composite operation", "give it an exchange (protocol.schedule)"

    def __init__(self, bounds: Mapping[str, Interval]) -> None:
        self.nodes, self.weights, self._known = list[Node](), dict[str, Weights](), bounds

    def visit(self, node: Node, arguments: Sequence[Node], weights: Weights | None) -> Node:
        """Return the node itself, or if it is composite the last one of those that it comes to, by its name."""
        self.node = node
        if not node.operation.composite:
            return self._keep(node, weights)
        result = node.operation.pieces(self, arguments, weights)
        if node.name in self._known:
            low, high = self._known[node.name]
            result = self.step(AssertRange(int(low.min()), int(high.max())), result)
        elif self.nodes[-1] is not result or result in arguments:
            result = self.times(result, 1)
        last = self.nodes.pop()
        return self._keep(replace(last, name=node.name), self.weights.pop(last.name, None))

    def add(self, x: Node, y: Node) -> Node:
        return self._then(Add(), *map(self._own, (x, y)))

    def times(self, x: Node, factor: int) -> Node:
        return self._then(MulConstant(factor), x)

    def pool(self, x: Node, window: tuple[int, int]) -> Node:
        return self._then(SumPool(*window), x)

    def plus(self, x: Node, constants: np.ndarray) -> Node:
        bias = np.broadcast_to(constants, x.shape).reshape(x.shape[0], -1)
        if (bias != bias[:, :1]).any():
            self.refuse("constants that differ within a channel")
        return self._then(Plus(), x, weights=Weights(NO_ROWS, bias[:, 0].astype(np.int64)))

    def truncate(self, x: Node, bits: int) -> Node:
        return self._then(Truncate(bits), x)

    def linear(self, layer: Layer, x: Node, weights: Weights) -> Node:
        return self._then(Linear(layer), x, weights=weights)

    def square(self, x: Node) -> Node:
        return self._then(Square(), x)

    def product(self, operation: Any, x: Node, y: Node, weights: Weights) -> Node:
        return self._then(operation, x, y, weights=weights)

    def function(self, operation: BoundedFunction, x: Node) -> Node:
        if not isinstance(operation, Operation):
            self.refuse("a function that is no operation")
        return self._then(operation, x)

    def step(self, operation: Operation, *arguments: Node) -> Node:
        return self._then(operation, *map(self._own, arguments))

    def _own(self, x: Node) -> Node:
        """Return a summand in the step of this node: its integers are what counts."""
        return x if self.node and x.log_step == self.node.log_step else self.times(x, 1)

    def _then(self, operation: Operation, *inputs: Node, weights: Weights | None = None) -> Node:
        assert self.node is not None
        shape, name = operation.shape_after([x.shape for x in inputs]), f"{self.node.name}/{len(self.nodes)}"
        node = replace(self.node, name=name, operation=operation, inputs=tuple(x.name for x in inputs), shape=shape)
        return self._keep(node, weights)

    def _keep(self, node: Node, weights: Weights | None) -> Node:
        self.nodes.append(node)
        if weights is not None:
            self.weights[node.name] = weights
        return node


def decompose_all(network: Network, bounds: Mapping[str, Interval]) -> Network:
    """Return a network without composite operations.

    Args:
        bounds: bounds of the network's values, by node.

    Raises:
        RuleError: an operation uses a primitive that is no operation of its own, such as values in new places.
    """
    if not any(node.operation.composite for node in network.nodes):
        return network
    primitives = Primitives(bounds)
    primitives.values(network.nodes, network.weights)
    return Network(tuple(primitives.nodes), primitives.weights)
