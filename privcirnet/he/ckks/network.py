"""A network as CKKS plans it: convolutions, residuals and squares in turn, in real numbers.

Sum i has terms, u_i, each a convolution of an earlier sum's square or that square as it is; x_i = u_i^2. The logits are
a fully connected layer of the means of the last sum's maps. :func:`sums_of` finds them in a program of any operations
that come to that: multiples and constants join the terms beside them.

Scales: a bootstrapping takes values in [-1, 1]. :meth:`Sums.normalized` divides every u_i by a bound B_i of what was
seen, for nothing: weights from node j to node i become B_j^2 / B_i times as large, and so do squares that are added.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Reals
from privcirnet.he.layers.integer import dense_weight
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.operation import Domain, Weights
from privcirnet.he.program.program import Network

IMAGE = -1
"""The source of a term that reads the image, whose values are not squared."""


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution with padding (f - 1) / 2.

    Attributes:
        weights: shape (K, C, f, f), f = 1 or 3.
        bias: shape (K,).
        stride: 1 or 2.
    """

    name: str
    weights: Reals
    bias: Reals
    stride: int = 1

    def __post_init__(self) -> None:
        got = f"{self.weights.shape[2]} x {self.weights.shape[3]}, stride {self.stride} in layer {self.name!r}"
        if self.weights.shape[2:] not in {(1, 1), (3, 3)} or self.stride not in {1, 2}:
            rule, remedy = "a convolution must have a kernel of 1 x 1 or 3 x 3 and a stride of 1 or 2", "change it"
            raise RuleError(rule, got=got, remedy=remedy)

    def __call__(self, maps: Reals) -> Reals:
        """Return the convolution of maps: shape (N, K, H / stride, H / stride); ``maps``: shape (N, C, H, H)."""
        f, step, size = self.weights.shape[2], self.stride, maps.shape[2]
        padded = np.pad(maps, ((0, 0), (0, 0), (f // 2, f // 2), (f // 2, f // 2)))
        parts = (
            np.einsum("kc,nchw->nkhw", self.weights[:, :, u, v], padded[:, :, u : u + size : step, v : v + size : step])
            for u, v in np.ndindex(f, f)
        )
        return sum(parts, self.bias[:, None, None])


@dataclass(frozen=True, eq=False)
class Term:
    """A part of a sum.

    Attributes:
        source: node whose square is read, or :data:`IMAGE`.
        layer: the convolution; None: the square itself, times a factor.
        factor: factor of a square that is added as it is.
    """

    source: int
    layer: Convolution | None = None
    factor: float = 1.0


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of terms, which is squared.

    Attributes:
        terms: terms, one at least.
        rms: root mean square of the sum, as far as examples tell.
    """

    name: str
    terms: tuple[Term, ...]
    rms: float = math.inf


@dataclass(frozen=True)
class Scales:
    """Divisors of a network's values.

    Attributes:
        sums: bounds of the sums.
        rms: root mean square of each sum, once it is divided.
        bound: bound of the image's absolute values.
        pooled: bound of the means of the last squares, once they are divided.
        answer: bound of the logits.
    """

    sums: tuple[float, ...]
    rms: tuple[float, ...]
    bound: float
    pooled: float
    answer: float

    def __post_init__(self) -> None:
        if not min(*self.sums, self.bound, self.pooled, self.answer) > 0:
            rule, remedy = "weights must be finite, and bounds positive", "train the network again: its loss may be NaN"
            raise RuleError(rule, got="others", remedy=remedy)

    def arrays(self) -> tuple[Reals, Reals]:
        """Return ``sums`` and ``rms``, (2, number of sums), and the others, (3,)."""
        return np.array([self.sums, self.rms]), np.array([self.bound, self.pooled, self.answer])

    @staticmethod
    def of(sums: Reals, ends: Reals) -> "Scales":
        """Return the scales that :meth:`arrays` gives."""
        bounds, rms = map(tuple, sums.tolist())
        return Scales(bounds, rms, *ends.tolist())


@dataclass(frozen=True, eq=False)
class CkksNetwork:
    """A network of sums of convolutions and squares, see the module.

    Attributes:
        size: width of an image, H = W.
        nodes: sums in the order in which they are computed.
        weights: weights of the classifier, shape (classes, C).
        bias: bias of the classifier, shape (classes,).
        bound: bound of the image's absolute values, which are divided by it before they are encrypted.
        pooled: bound of the means of the last squares.
        answer: bound of the logits, which are multiplied by it after they are decrypted.
    """

    channels: int
    size: int
    nodes: tuple[Sum, ...]
    weights: Reals
    bias: Reals
    head: str = "classifier"
    bound: float = 1.0
    pooled: float = 1.0
    answer: float = 1.0

    def sums(self, images: Reals) -> list[Reals]:
        """Return every u_i, shape (N, C, H, H) each; ``images``: shape (N, channels, size, size), real values."""
        squares, sums = {IMAGE: images / self.bound}, list[Reals]()
        for number, node in enumerate(self.nodes):
            terms = (t.layer(squares[t.source]) if t.layer else t.factor * squares[t.source] for t in node.terms)
            sums.append(sum(terms, np.zeros(())))
            squares[number] = sums[-1] ** 2
        return sums

    def __call__(self, images: Reals) -> Reals:
        """Return the logits, shape (N, classes); ``images``: shape (N, channels, size, size), real values."""
        return self.answer * (self._means(self.sums(images)) @ self.weights.T + self.bias)

    def within(self, images: Reals) -> bool:
        """Return whether every sum and the logits keep their bounds.

        Args:
            images: shape (N, channels, size, size), real values.
        """
        values = [images / self.bound, *self.sums(images), self(images) / self.answer]
        return all(bool((np.abs(array) <= 1).all()) for array in values)

    def shapes(self) -> list[tuple[int, int]]:
        """Return (channels, width of the map) of every node."""
        shapes: list[tuple[int, int]] = []
        for node in self.nodes:
            term = node.terms[0]
            channels, size = (self.channels, self.size) if term.source == IMAGE else shapes[term.source]
            layer = term.layer
            shapes.append((len(layer.weights), size // layer.stride) if layer else (channels, size))
        return shapes

    def check(self) -> None:
        """Raise unless every number is finite."""
        terms = [term for node in self.nodes for term in node.terms]
        layers = [term.layer for term in terms if term.layer]
        numbers = [self.bound, self.pooled, self.answer, *(term.factor for term in terms)]
        arrays = [self.weights, self.bias, np.array(numbers), *(a for o in layers for a in (o.weights, o.bias))]
        if not all(np.isfinite(array).all() for array in arrays):
            rule = "weights must be finite"
            raise RuleError(rule, got="others", remedy="train the network again: its loss may have become NaN")

    def strided(self, source: int) -> bool:
        """Return whether what reads a node has a stride of 2; ``source``: the node, or :data:`IMAGE`."""
        terms = [t for node in self.nodes for t in node.terms if t.source == source]
        strides = {t.layer.stride if t.layer else 1 for t in terms}
        if len(strides) > 1:
            name = self.nodes[source].name if source != IMAGE else "the image"
            rule, remedy = "all layers that read a sum must have the same stride", "give the shortcut a convolution"
            raise RuleError(rule, got=f"{sorted(strides)} after {name!r}", remedy=remedy)
        return strides == {2}

    def seen(self, images: Reals, margin: float = 2.0) -> Scales:
        """Return the scales that bring images and sums to [-1, 1], as far as examples tell.

        Args:
            images: examples, shape (N, channels, size, size).
            margin: factor by which values may exceed those of the examples.
        """
        sums = self.sums(images)
        bounds = tuple(margin * float(np.abs(u).max()) for u in sums)
        return Scales(
            bounds,
            tuple(float(np.sqrt((u**2).mean())) / bound for u, bound in zip(sums, bounds, strict=True)),
            margin * float(np.abs(images).max()),
            margin * float(self._means(sums).max()) / bounds[-1] ** 2,
            margin * float(np.abs(self(images)).max()),
        )

    def scaled(self, scales: Scales) -> "CkksNetwork":
        """Return the same network with images and sums in [-1, 1]; it must not be scaled already."""
        powers = {IMAGE: scales.bound} | {i: b**2 for i, b in enumerate(scales.sums)}
        nodes = tuple(
            Sum(node.name, tuple(_scaled(term, powers[term.source], bound) for term in node.terms), rms)
            for node, bound, rms in zip(self.nodes, scales.sums, scales.rms, strict=True)
        )
        weights, bias = self.weights * (powers[len(nodes) - 1] / scales.answer), self.bias / scales.answer
        ends = {"bound": scales.bound, "pooled": scales.pooled, "answer": scales.answer}
        return replace(self, nodes=nodes, weights=weights, bias=bias, **ends)

    def normalized(self, images: Reals, margin: float = 2.0) -> "CkksNetwork":
        """Return the network scaled by what is :meth:`seen`."""
        return self.scaled(self.seen(images, margin))

    @staticmethod
    def _means(sums: list[Reals]) -> Reals:
        return (sums[-1] ** 2).mean(axis=(2, 3))


def _scaled(term: Term, source: float, bound: float) -> Term:
    """Return a term whose input is divided by one number, and its result by another."""
    if not term.layer:
        return replace(term, factor=term.factor * source / bound)
    layer = term.layer
    return replace(term, layer=replace(layer, weights=layer.weights * source / bound, bias=layer.bias / bound))


def _in_square(weights: Reals, shape: LinearShape) -> Reals | None:
    """Return weights (K, C, R, S) in the square kernel with padding (f - 1) / 2 that does the same; None without one.

    Rectangular kernels, and those with fewer zeros on one side, have zeros in theirs.
    """
    lost = {window.kernel - sum(window.ends) for window in shape.windows}
    around = max(max(window.ends) for window in shape.windows)
    side = max(lost) + 2 * around
    if len(lost) > 1 or len(set(shape.strides)) > 1 or side // 2 != around:
        return None
    square = np.zeros((*weights.shape[:2], side, side), dtype=weights.dtype)
    row, column = (around - window.padding for window in shape.windows)
    square[:, :, row : row + weights.shape[2], column : column + weights.shape[3]] = weights
    return square


@dataclass(frozen=True)
class _Value:
    """A sum; a square times a factor, which is a sum of that term alone; the sum over its maps; or the logits."""

    terms: tuple[Term, ...]
    pooled: bool = False
    logits: tuple[Reals, Reals] | None = None

    @property
    def bare(self) -> bool:
        """True if the value is a square, or the image."""
        return len(self.terms) == 1 and self.terms[0].layer is None and not self.logits


class _Walk(Domain[_Value]):
    """A domain of real values: integers count in units of their steps."""

    name, remedy = "a network in CKKS", "infer it with the interactive protocol"

    def __init__(self) -> None:
        self.sums: list[Sum] = []
        self.head = ""

    def image(self, low: int, high: int) -> _Value:
        return _Value((Term(IMAGE),))

    def move(self, places: Callable[..., np.ndarray], *values: _Value) -> _Value:
        if not (values[0].pooled and self.keeps_order(places)):
            self.refuse("moved values but for means of whole maps, and one linear layer behind")
        return values[0]

    def add(self, x: _Value, y: _Value) -> _Value:
        if x.pooled or y.pooled or x.logits or y.logits:
            self.refuse("sums of anything but convolutions and squares")
        return _Value((*x.terms, *y.terms))

    def times(self, x: _Value, factor: int) -> _Value:
        real = factor * self._unit
        if x.logits:
            return replace(x, logits=(x.logits[0] * real, x.logits[1] * real))
        return replace(x, terms=tuple(_times(term, real) for term in x.terms))

    def pool(self, x: _Value, window: tuple[int, int]) -> _Value:
        if not x.bare or x.pooled or self.sources[0].shape[1:] != window:
            self.refuse("pools but for windows as large as the maps")
        return _Value((_times(x.terms[0], math.prod(window) * self._unit),), pooled=True)

    def plus(self, x: _Value, constants: np.ndarray) -> _Value:
        real = self.of_channels(constants) * self._step
        if x.logits:
            return replace(x, logits=(x.logits[0], x.logits[1] + real))
        first = next((i for i, term in enumerate(x.terms) if term.layer), None)
        if first is None:
            self.refuse("constants behind a square")
        terms = [*x.terms]
        if layer := terms[first].layer:
            terms[first] = replace(terms[first], layer=replace(layer, bias=layer.bias + real))
        return replace(x, terms=tuple(terms))

    def linear(self, layer: Layer, x: _Value, weights: Weights) -> _Value:
        shape = layer.shape
        if not x.bare or shape.groups != 1:
            self.refuse("grouped layers, or layers of anything but squares")
        real = dense_weight(weights.rows, shape, layer.block_size) * (self._unit * x.terms[0].factor)
        bias = weights.bias * self._step
        if x.pooled:
            self.head = self.title
            return _Value((), logits=(real[:, :, 0, 0], bias))
        square = _in_square(real, shape) if shape.height == shape.width else None
        if square is None:
            self.refuse("a stride for each axis, a padding other than half the kernel, or maps that are no squares")
        return _Value((Term(x.terms[0].source, Convolution(self.title, square, bias, shape.stride)),))

    def square(self, x: _Value) -> _Value:
        layers = any(term.layer for term in x.terms)
        if not layers or any(term.source == IMAGE and not term.layer for term in x.terms):
            self.refuse("squares but those of sums of convolutions of squares, and of squares")
        self.sums.append(Sum(self.title, x.terms))
        return _Value((Term(len(self.sums) - 1),))

    @property
    def _step(self) -> float:
        """Step of the node that is visited."""
        return 2.0**self.node.log_step if self.node else 1.0

    @property
    def _unit(self) -> float:
        """Value that a factor of 1 stands for, from the node's input to its result."""
        return self._step * 2.0 ** -self.sources[0].log_step


def sums_of(network: Network) -> CkksNetwork:
    """Return the sums of convolutions and squares of a network, in real numbers, not normalized yet.

    Raises:
        RuleError: it has something else; with the operation's name.
    """
    walk, (channels, size, _) = _Walk(), network.nodes[0].shape
    classifier = walk.values(network.nodes, network.weights)[network.output.name].logits
    if not walk.sums or classifier is None:
        rule = "a network in CKKS must have squares, then an average pool of whole maps, and one linear layer"
        raise RuleError(rule, got=f"{len(walk.sums)} squares", remedy="train it with activation=aespa")
    return CkksNetwork(channels, size, tuple(walk.sums), *classifier, walk.head)


def _times(term: Term, factor: float) -> Term:
    layer = term.layer
    if layer is None:
        return replace(term, factor=term.factor * factor)
    return replace(term, layer=replace(layer, weights=layer.weights * factor, bias=layer.bias * factor))
