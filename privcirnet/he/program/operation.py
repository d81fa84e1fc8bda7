"""Operations of a program, and the domains in which they are applied.

An operation is a frozen dataclass without weights. It says once, in :meth:`Operation.apply`, how its result follows
from its inputs, in the few primitives of a :class:`Domain`: moves, sums, multiples, constants, truncations, linear
layers, squares, products and functions. Each domain gives them its own meaning:

* integers in clear, :class:`program.interpreter.Integers`;
* bounds on them, :class:`program.bounds.Intervals`;
* a party's share, :mod:`mpc.local.shares`;
* the nodes that a composite operation comes to, :mod:`planning.plan_program`;
* the sums that a CKKS circuit is planned from, :func:`ckks.network.sums_of`.

So a new operation that these primitives express is a dataclass in one file and one line in
:mod:`program.operations`. A domain that lacks a primitive refuses it, with the operation's name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer

Shape = tuple[int, int, int]
Interval = tuple[np.ndarray, np.ndarray]
V = TypeVar("V")
C_co = TypeVar("C_co", covariant=True)


@dataclass(frozen=True)
class Weights:
    """Weights of a linear node, or the constants of a product or of tokens.

    Integers are int64, real numbers float64.

    Attributes:
        rows: (K/b, C, R, R): the first row of each circulant block row; :data:`NO_ROWS` where there are none.
        bias: (K,), of tokens (C, T), in units of the node's step.
    """

    rows: np.ndarray
    bias: np.ndarray


NO_ROWS: np.ndarray = np.zeros((0, 0, 1, 1), dtype=np.int64)


class CostModel(Protocol[C_co]):
    """A model of the cost of an operation's turns."""

    def linear(self, layer: Layer) -> C_co:
        """Return the cost of a linear layer."""
        ...

    def product(self, left: Layer, right: Layer) -> C_co:
        """Return the cost of a product of two values."""
        ...

    def square(self, values: int) -> C_co:
        """Return the cost of so many squares."""
        ...

    def messages(self, *byte_counts: int, ahead: int = 0, transfers: int = 0) -> C_co:
        """Return the cost of messages that take turns, so many bytes each, nothing encrypted.

        Args:
            byte_counts: bytes of the messages.
            ahead: bytes that are sent before, whose round trips others share.
            transfers: oblivious ones that are made before.
        """
        ...

    def exact(self, step: Any, values: int) -> C_co:
        """Return the cost of an exact step (:class:`program.exact.ExactStep`) of so many values."""
        ...

    def local(self) -> C_co:
        """Return the cost of the work that each party does alone."""
        ...


class Planner(Protocol):
    """A planner of layers."""

    def layer(self, shape: LinearShape, block_size: int) -> Layer:
        """Return the fastest layer."""
        ...

    def factor(self, shape: LinearShape) -> SpectralLayer:
        """Return the fastest layer whose weights are the other factor of a product."""
        ...


class Operation:
    """A step of a program. Whoever adds one overrides what differs from these defaults.

    Attributes:
        kind: name in manifests and messages.
        local: each party applies it to its share, without a message. Others have a line in
            :data:`protocol.schedule.EXCHANGES`.
        masks: whether its result is shared anew, with a mask that a truncation can rest on.
        needs_share: whether a value that the client knows alone, without a share of the server, is refused.
        composite: interactively it is run as the operations that its :meth:`pieces` come to.
    """

    kind: ClassVar[str]
    local: ClassVar[bool] = True
    masks: ClassVar[bool] = False
    needs_share: ClassVar[bool] = False
    composite: ClassVar[bool] = False

    @property
    def arity(self) -> int:
        """Number of values that it takes."""
        return 1

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its encrypted layers."""
        return ()

    def apply(self, on: "Domain[V]", arguments: Sequence[V], weights: Weights | None) -> V:
        """Return its result.

        Args:
            weights: weights of the node; None where :meth:`tensors` names none.
        """
        raise NotImplementedError

    def pieces(self, on: "Domain[V]", arguments: Sequence[V], weights: Weights | None) -> V:
        """Return the result of a composite one, from operations; where it has bounds of its own, not as it is applied.

        Args:
            weights: weights of the node.
        """
        return self.apply(on, arguments, weights)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        """Return the shape of its result."""
        return shapes[0]

    def problem(self, node: "Node", sources: Sequence["Node"]) -> str:
        """Return the problem of its numbers or of the values that it is given, "" if there is none."""
        return ""

    def tensors(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of "rows" and "bias" of its weights, as far as it has them; ``shape``: of its result."""
        return {}

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        """Return its cost; ``shape``: shape of its result."""
        if not self.local:
            raise NotImplementedError(f"what {self.kind} costs")
        return prices.local()

    def planned(self, planner: Planner) -> "Operation":
        """Return it with planned layers."""
        return self


@dataclass(frozen=True)
class Node:
    """A step of a program.

    Attributes:
        name: unique.
        shape: (C, H, W) of the result.
        log_step: real value = integer x 2^log_step.
        module: name of the module in the trained model that it comes from, or of what it truncates; "" if none.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    shape: Shape
    log_step: int
    module: str = ""


class Domain(Generic[V]):
    """Values of one kind, and the primitives of operations on them. Those that are not overridden are refused.

    Attributes:
        name: "X" in "X cannot do this".
        remedy: alternative for such a network.
        node: node that is visited.
        sources: inputs of the node.
    """

    name: ClassVar[str] = "a program"
    remedy: ClassVar[str] = "infer it with the interactive protocol"
    node: Node | None = None
    sources: Sequence[Node] = ()

    def visit(self, node: Node, arguments: Sequence[V], weights: Weights | None) -> V:
        """Return a node's value from those of its inputs."""
        self.node = node
        return node.operation.apply(self, arguments, weights)

    def values(self, nodes: Sequence[Node], weights: Mapping[str, Weights]) -> dict[str, V]:
        """Return the value of every node by name; ``nodes``: of a program, in order."""
        values, visited = dict[str, V](), dict[str, Node]()
        for node in nodes:
            visited[node.name], self.sources = node, [visited[name] for name in node.inputs]
            values[node.name] = self.visit(node, [values[name] for name in node.inputs], weights.get(node.name))
        return values

    def image(self, low: int, high: int) -> V:
        """Return the image, whose pixels lie in [low, high]."""
        self.refuse("an image")

    def move(self, places: Callable[..., np.ndarray], *values: V) -> V:
        """Return values in new places; ``places``: of arrays of any type, which it rearranges and joins."""
        self.refuse("moved values")

    def add(self, x: V, y: V) -> V:
        """Return x + y."""
        self.refuse("sums")

    def times(self, x: V, factor: int) -> V:
        """Return x * factor."""
        self.refuse("multiples")

    def pool(self, x: V, window: tuple[int, int]) -> V:
        """Return the sums over windows of rows x columns, without what is left over at the right and below."""
        self.refuse("pools")

    def plus(self, x: V, constants: np.ndarray) -> V:
        """Return x + constants, which broadcast to its shape."""
        self.refuse("constants")

    def truncate(self, x: V, bits: int) -> V:
        """Return x / 2^bits, rounded."""
        self.refuse("truncations")

    def within(self, x: V, low: int, high: int) -> V:
        """Return x, of which is known that it lies in [low, high]."""
        return x

    def linear(self, layer: Layer, x: V, weights: Weights) -> V:
        """Return a linear layer's result, its bias added."""
        self.refuse("linear layers")

    def square(self, x: V) -> V:
        """Return x * x."""
        self.refuse("squares")

    def product(self, operation: Any, x: V, y: V, weights: Weights) -> V:
        """Return a product's result, its bias added."""
        self.refuse("products of two values")

    def function(self, operation: "BoundedFunction", x: V) -> V:
        """Return a function of x, element by element."""
        self.refuse("functions that are no polynomials")

    def step(self, operation: Operation, *arguments: V) -> V:
        """Return the result of an operation without weights, as a piece of a composite one."""
        return operation.apply(self, arguments, None)

    @property
    def title(self) -> str:
        """The name of the visited node, or of its module."""
        return (self.node.module or self.node.name) if self.node else ""

    def keeps_order(self, places: Callable[..., np.ndarray]) -> bool:
        """Return whether a move leaves all values of the node's input where they were, in whatever shape."""
        if len(self.sources) != 1:
            return False
        numbers = np.arange(prod(self.sources[0].shape))
        return np.array_equal(places(numbers.reshape(self.sources[0].shape)).reshape(-1), numbers)

    def of_channels(self, constants: np.ndarray) -> np.ndarray:
        """Return constants that are added to a value of the node's shape as one for each channel, (C,).

        Raises:
            RuleError: they differ within a channel.
        """
        bias = np.broadcast_to(constants, self.node.shape if self.node else ())
        bias = bias.reshape(len(bias), -1)
        if (bias != bias[:, :1]).any():
            self.refuse("constants that differ within a channel")
        return bias[:, 0]

    def refuse(self, what: str) -> NoReturn:
        """Raise for the node that is visited."""
        got = f"{self.node.operation.kind} {self.title!r}" if self.node else "none"
        raise RuleError(f"{self.name} cannot have {what} here", got=got, remedy=self.remedy)


class BoundedFunction(Protocol):
    """An operation whose bounds are known from those of its argument: a function of single integers, or a maximum."""

    def values(self, x: np.ndarray) -> np.ndarray:
        """Return its values."""
        ...

    def interval(self, low: np.ndarray, high: np.ndarray) -> Interval:
        """Return the least and the largest value on [low, high], position by position."""
        ...


KINDS: dict[str, type[Operation]] = {}
"""Operations by their names in manifests."""


def register(*kinds: type[Operation]) -> None:
    """Let manifests have operations."""
    KINDS.update({kind.kind: kind for kind in kinds})


def spread(bias: np.ndarray) -> np.ndarray:
    """Return a bias in the shape in which it is added to (K, H, W): the same numbers, (K, 1, 1) or (K, H, 1).

    Args:
        bias: bias of channels, (K,), or of channels and places, (K, H).
    """
    return bias.reshape(bias.shape + (1,) * (3 - bias.ndim))


def require_weights(weights: Weights | None) -> Weights:
    """Return the weights of a node that must have some."""
    if weights is None:
        raise ValueError("a node's weights are missing")
    return weights
