"""Integer program: a network as a list of nodes in order of evaluation, with weights, parameters and plans.

Every value is an integer array of a power-of-two step: real value = integer x 2^log_step. Rescaling is a truncation by
whole bits.

Two parties follow the same list on shares. Linear layers, squares and products of two values take a message each way.
Exact steps (truncation, ReLU, maxima, look-ups) take oblivious transfers. Sums, moves of values and random truncations
are local.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.layer import Layer, Stack
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.arithmetic import Input, Linear, Square
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.rearrangement import SliceChannels


class PixelRange(NamedTuple):
    """Pixels of an image as a program takes them.

    Attributes:
        shape: (C, H, W).
        low: least integer that is encrypted.
        high: largest one; where others are allowed, as large as examples had it.
        steps: different steps that channels have.
        whole: whether images have no larger values; else the program was told of none.
        log_step: real pixel = integer x 2^log_step.
        exponents: log2 of the factors by which channels are finer than that, 0 or less; none where all have one step.
    """

    shape: tuple[int, int, int]
    low: int
    high: int
    steps: int = 1
    whole: bool = True
    log_step: int = 0
    exponents: tuple[int, ...] = ()


class PublicDescription(ABC):
    """The public description of a program, without weights.

    Attributes:
        mode: protocol of images: "interactive" or "ckks".
        scheme: name of the scheme.
        prepares: whether images take two phases: the first one comes before them.
        warms_up: whether an image is run before the first one, which loads the kernels.
    """

    mode: ClassVar[str]
    scheme: ClassVar[str] = "BFV"
    prepares: ClassVar[bool] = False
    warms_up: ClassVar[bool] = True

    @property
    @abstractmethod
    def pixels(self) -> PixelRange:
        """Pixels of an image as it takes them."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of logits."""

    @property
    @abstractmethod
    def request_bits(self) -> tuple[int, ...]:
        """Bits of the primes of a request."""

    @property
    @abstractmethod
    def parameters_in_words(self) -> str:
        """The parameters of the scheme."""

    @property
    def result_log_step(self) -> int:
        """Real logit = result x 2^result_log_step."""
        return 0

    @property
    def class_alone(self) -> bool:
        """True if a client learns no more than the class."""
        return False

    def requests(self, images: Sequence[Values] | Values) -> Iterator[tuple[Values, int, int]]:
        """Yield the values that each request encrypts, the number of its images, and that of its results.

        Args:
            images: integers as the data set has them, (C, H, W) each.
        """
        yield from ((image, 1, 1) for image in images)


ANSWERS = ("logits", "top1")
BOUNDS = ("proved", "measured")
TRANSFERS = ("softspoken", "silent")


@dataclass(frozen=True)
class Network:
    """The computation, before its protocol is chosen: interactive or CKKS.

    Attributes:
        nodes: in order of evaluation; the first is the image, the last has the logits.
        weights: weights by name of the nodes that have some.
    """

    nodes: tuple[Node, ...]
    weights: Mapping[str, Weights]

    @property
    def source(self) -> Input:
        """The range of the pixels."""
        operation = self.nodes[0].operation
        if not isinstance(operation, Input):
            raise RuleError("a network must begin with an image", got=operation.kind, remedy="begin it with an Input")
        return operation

    @property
    def output(self) -> Node:
        """The logits."""
        return self.nodes[-1]


@dataclass(frozen=True)
class Program(PublicDescription):
    """An integer network ready for encrypted inference. Without ``weights`` it is the client's view.

    Attributes:
        nodes: in order of evaluation.
        weights: weights by name of the nodes that have some.
        bounds: kind of the values' bounds: "proved" for every image, or "measured" on some, see :mod:`bounds`.
        answer: "logits"; or "top1": the last node is their class, and the client is given no more of it
            (:mod:`protocol.rounds.answer`).
        output_bits: absolute values of the result stay under 2^output_bits, or it is wrong; 0: not known, until a
            server finds it from proved bounds.
        transfers: source of oblivious transfers, if a step takes some: "softspoken", or "silent", which sends
            fewer bytes once an image takes hundreds of thousands (:mod:`mpc.ot.silent`).
    """

    nodes: tuple[Node, ...]
    parameters: Parameters
    weights: Mapping[str, Weights] = field(default_factory=dict[str, Weights])
    bounds: str = "proved"
    answer: str = "logits"
    output_bits: int = 0
    transfers: str = "softspoken"

    mode, prepares = "interactive", True

    @property
    def pixels(self) -> PixelRange:
        source = self.nodes[0]
        assert isinstance(source.operation, Input)
        exponents = source.operation.exponents or ()
        ends, steps = (source.operation.low, source.operation.high), len({*(exponents or (0,))})
        return PixelRange(source.shape, *ends, steps, log_step=source.log_step, exponents=exponents)

    @property
    def request_bits(self) -> tuple[int, ...]:
        return self.parameters.coefficient_bits[:-1]

    @property
    def parameters_in_words(self) -> str:
        return f"n = {self.parameters.ring_degree}, log q = {self.parameters.log_q}"

    @property
    def classes(self) -> int:
        return math.prod(self.logits.shape)

    @property
    def result_log_step(self) -> int:
        return self.output.log_step

    @property
    def class_alone(self) -> bool:
        return self.answer == "top1"

    @property
    def output(self) -> Node:
        """The client's result: the logits, or their answer."""
        return self.nodes[-1]

    @property
    def logits(self) -> Node:
        """The logits themselves, whatever the answer."""
        before = (node for node in reversed(self.nodes) if node.name.split("/")[0] != self.output.name)
        return self.output if self.answer == "logits" else next(before)

    def answered(self, values: Values) -> Values:
        """Return the client's logits from the output's values: for a class, 1 in its place and 0 in all others."""
        if self.answer != "top1":
            return values
        return (
            (np.arange(math.prod(self.logits.shape)) == values.reshape(-1)).astype(np.int64).reshape(self.logits.shape)
        )

    @property
    def linear_nodes(self) -> list[tuple[Node, Layer]]:
        """Linear nodes, in order."""
        return [(n, n.operation.layer) for n in self.nodes if isinstance(n.operation, Linear)]

    @property
    def stacks(self) -> list[tuple[Node, LinearShape, Stack]]:
        """Linear nodes that take several images together offline, in order; with the dimensions on one image."""
        linear = ((node, node.operation) for node in self.nodes if isinstance(node.operation, Linear))
        return [(node, operation.layer.shape, operation.stack) for node, operation in linear if operation.stack]

    @property
    def layers(self) -> list[tuple[Node, Layer]]:
        """Every encrypted layer, both of each product too, in order."""
        return [(node, layer) for node in self.nodes for layer in node.operation.layers]

    @property
    def column_steps(self) -> set[int]:
        """Rotations for which the server needs Galois keys."""
        return set[int]().union(*(layer.column_steps for _, layer in self.layers))


def masked_node(nodes: Mapping[str, Node], name: str) -> Node:
    """Return the node whose mask a value carries: its own, or the one that its channels were taken from."""
    node = nodes[name]
    while isinstance(node.operation, SliceChannels):
        node = nodes[node.inputs[0]]
    return node


def layers_of(nodes: Sequence[Node]) -> tuple[Layer, ...]:
    """Return the encrypted layers in order, those of products too; ``nodes``: of a program, in order."""
    return tuple(layer for node in nodes for layer in node.operation.layers)


def squares_of(nodes: Sequence[Node]) -> tuple[int, ...]:
    """Return the number of values of each square; ``nodes``: of a program, in order."""
    return tuple(math.prod(node.shape) for node in nodes if isinstance(node.operation, Square))


class ImpossibleResultError(RuleError):
    """A result, or a value on the way to it, that no right inference has."""

    def __init__(self, rule: str, *, got: object, remedy: str, values: np.ndarray | None = None) -> None:
        super().__init__(rule, got=got, remedy=remedy)
        self.values: np.ndarray = np.zeros(0, dtype=np.int64) if values is None else values
