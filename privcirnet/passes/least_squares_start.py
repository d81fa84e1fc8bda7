"""The start of a circulant network: its weights fitted to what the dense one computes, layer by layer, without labels.

Both networks run side by side, node by node, on the same images. The dense one says what every layer should give. The
inputs are those of the circulant network, whose earlier layers are fitted already, so later layers mend what earlier
ones lost. Where a layer's result is added to a stream, its target also has what the stream has lost so far.

A rectifier makes no difference between values below zero. So where the target of a layer before one is below, any value
below will do: the target is moved to the one that is there, or to zero, and the layer is fitted again, some times.
Otherwise a fit of large blocks, which is drawn towards the mean, leaves many channels below zero for every image:
MobileNetV2 by a plan with blocks of 16 and 32 has 66 % of CIFAR-10 without training, 34 % without this.

A batch norm behind a layer is fitted with it: the target is the normed result, and the norm's blocks share an offset.
Such a weight may have any size, because the norm divides by it. It gets that of the dense weight's projection, so that
a step of training changes it by as small a part as it would there.
Statistics of other norms and of AESPA are measured again. Depthwise convolutions, padded layers and those that run
twice keep the projection.

Source of the moved targets: Zhang et al., "Accelerating very deep convolutional networks" (TPAMI 2016), Section 3.2.
Departure: without relaxation.

Cost: one run of both networks, and :func:`privcirnet.nn.functional.least_squares.fit_rows` for each layer, five times
before a rectifier. Memory: the values that are yet to be read, of both networks: of all images where these fit into
4 GB, else of fewer in the first layers, whose maps are large; more join in as maps become smaller.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.nn.activations import Aespa
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import expand, project
from privcirnet.nn.functional.least_squares import Moments, channel_axis, fit_rows, reachable, read_by, some_of
from privcirnet.nn.graph import evaluating, is_plain_layer, is_sum, module_of
from privcirnet.nn.neighbours import layer_before
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.nn.supported_modules import LIMITS, row_of
from privcirnet.passes.ranges import show_values

SAMPLES = 32768
"""Largest number of positions of all images that a layer is fitted on; more where it has many inputs."""
_BATCH = 64
_BYTES = 2**32
"""Most bytes of all values that are there at once, unless :data:`_FEWEST` images have more."""
_FEWEST = 256
"""Least number of images, if there are so many."""
_ROUNDS = 4
"""Number of times that targets are moved to where a rectifier gives the same."""

Batches = list[tuple[Any, Any]]
"""Pairs, by batch, of a node's value in the dense and in the circulant network; the same object while they agree."""


@torch.no_grad()
def fit_circulant_(
    model: nn.Module,
    dense: fx.GraphModule,
    names: Collection[str],
    images: Tensor,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> None:
    """Fit the weights, biases and norms of a circulant network to the dense one, in place.

    Args:
        model: the circulant network, left in its mode.
        dense: the network that it was made of, with plain weights, as traced in evaluation; left as it was.
        names: names of the layers that are fitted; dense ones among them are fitted to the errors before them.
        images: (N, ...) as the network reads them, some hundreds; no labels are needed.
        progress: callback with the number of nodes done, and of all nodes.
    """
    with evaluating(model), evaluating(dense):
        _Twins(dense, _with_modules_of(model, dense), frozenset(names), images.clone()).run(progress)


def _with_modules_of(model: nn.Module, graph: fx.GraphModule) -> fx.GraphModule:
    """Return a graph with the modules and tensors of a network; constants of its forward are the graph's."""
    root = copy.copy(model)
    for node in graph.graph.nodes:
        if node.op == "get_attr" and not hasattr(root, name := str(node.target).partition(".")[0]):
            setattr(root, name, getattr(graph, name))
    return fx.GraphModule(root, graph.graph)


def _live_bytes(dense: fx.GraphModule, images: Tensor) -> list[int]:
    """Return the bytes of an image's values in both networks that are there while each node runs, node by node.

    Those of the node itself are there twice: its targets, and its results before they are normalized.
    """
    sizes, here, live = dict[str, int](), dict[fx.Node, int](), list[int]()
    show_values(dense, images[:1], lambda name, values: sizes.__setitem__(name, values.nbytes))
    nodes = list(dense.graph.nodes)
    last = {source: node for node in nodes for source in node.all_input_nodes}
    for node in nodes:
        here[node] = 2 * sizes.get(node.name, 0)
        live.append(max(1, sum(here.values()) + here[node]))
        here = {source: size for source, size in here.items() if last.get(source, node) is not node}
    return live


class _Twins:
    """The dense and the circulant network side by side.

    Args:
        dense: dense network as a graph.
        circulant: circulant network with the same graph.
        names: names of the layers that are fitted.
        images: (N, ...).
    """

    def __init__(self, dense: fx.GraphModule, circulant: fx.GraphModule, names: frozenset[str], images: Tensor) -> None:
        self._dense, self._circulant = dense, circulant
        self._interpreters = fx.Interpreter(dense), fx.Interpreter(circulant)
        self._images, self._bytes = images, _live_bytes(dense, images)
        self._batches = images[: self._count(0)].split(_BATCH)
        self._random = torch.Generator().manual_seed(0)
        self._values: dict[fx.Node, Batches] = {}
        calls = [str(node.target) for node in dense.graph.nodes if node.op == "call_module"]
        self._names = {name for name in names if calls.count(name) == 1 and self._can_be_fitted(name)}
        self._layers = {node: layer for node in dense.graph.nodes if (layer := self._fitted_with(node)) is not None}
        self._deferred = set(self._layers.values())
        self._nodes = [node for node in dense.graph.nodes if node.op != "output"]
        self._last = {source: node for node in self._nodes for source in self._reads(node)}

    def run(self, progress: Callable[[int, int], object]) -> None:
        """Fit all layers, in the order in which they run."""
        for done, node in enumerate(self._nodes):
            self._extend(self._nodes[:done])
            self._values[node] = self._run(node)
            self._forget(node, self._values)
            progress(done + 1, len(self._nodes))

    def _forget(self, node: fx.Node, values: dict[fx.Node, Any]) -> None:
        """Drop the values that a node is the last to read."""
        for source in self._reads(node):
            if self._last[source] is node:
                del values[source]

    def _count(self, done: int) -> int:
        """Return the number of images for which the values of all nodes from one on find room."""
        return max(min(_FEWEST, len(self._images)), min(len(self._images), _BYTES // max(self._bytes[done:])))

    def _extend(self, done: Sequence[fx.Node]) -> None:
        """Run more images through both networks as far as they are fitted, if there is room for twice as many or all.

        Args:
            done: the nodes that ran.
        """
        before, count = sum(map(len, self._batches)), self._count(len(done))
        if count < min(2 * before, len(self._images)) or count == before:
            return
        alike = {node for node, values in self._values.items() if all(first is second for first, second in values)}
        self._batches = self._images[:count].split(_BATCH)
        values: dict[fx.Node, Batches] = {node: [] for node in self._values}
        for batch in self._batches:
            first, second = (self._values_after(done, batch, interpreter) for interpreter in self._interpreters)
            for node, pairs in values.items():
                pairs.append((first[node], first[node] if node in alike else second[node]))
        self._values = values

    def _values_after(self, done: Sequence[fx.Node], images: Tensor, interpreter: fx.Interpreter) -> dict[fx.Node, Any]:
        """Return one network's values of some images that are yet to be read once nodes ran."""
        values = dict[fx.Node, Any]()
        for node in done:
            if node.op == "placeholder":
                values[node] = node.args[0] if node.args else images
            else:
                values[node] = _called(node, interpreter, values.__getitem__)
            self._forget(node, values)
        return values

    def _reads(self, node: fx.Node) -> set[fx.Node]:
        layer = self._layers.get(node)
        return {*node.all_input_nodes, *(layer.all_input_nodes if layer else ())}

    def _run(self, node: fx.Node) -> Batches:
        """Fit the layer of a node if it is among the fitted ones; return the node's values."""
        if node.op == "placeholder":  # the images, and arguments of the forward that have a default
            return [(batch, batch) for batch in ([node.args[0]] * len(self._batches) if node.args else self._batches)]
        expected = [self._value(node, batch, self._interpreters[0], 0) for batch in range(len(self._batches))]
        if node in self._deferred:
            return [(value, value) for value in expected]
        layer = self._layers.get(node)
        if layer is not None and (self._differ(layer) or _is_blocked(module_of(self._circulant, layer))):
            results = self._fit_with_norm(layer, node)
            call = self._interpreters[1].call_module
            return [(value, call(node.target, (y,), {})) for value, y in zip(expected, results, strict=True)]
        module = module_of(self._circulant, node)
        if not self._differ(node) and not _is_blocked(module):
            return [(value, value) for value in expected]
        if node.op == "call_module" and str(node.target) in self._names:
            self._fit(node, expected)
        elif isinstance(module, _BatchNorm | Aespa):
            self._measure(node, module)
        results = (self._value(node, batch, self._interpreters[1], 1) for batch in range(len(self._batches)))
        return list(zip(expected, results, strict=True))

    def _value(self, node: fx.Node, batch: int, interpreter: fx.Interpreter, which: int) -> Any:
        """Return one network's value of a node."""
        return _called(node, interpreter, lambda source: self._values[source][batch][which])

    def _differ(self, node: fx.Node) -> bool:
        """Return whether the two networks' inputs of a node differ."""
        return any(first is not second for source in node.all_input_nodes for first, second in self._values[source])

    def _can_be_fitted(self, name: str) -> bool:
        layer, circulant = self._dense.get_submodule(name), self._circulant.get_submodule(name)
        b = block_size_of(circulant)
        if not is_plain_layer(layer) or any(size % b for size in layer.weight.shape[:2]):
            return False
        return isinstance(layer, nn.Linear) or layer.groups == 1

    def _fitted_with(self, node: fx.Node) -> fx.Node | None:
        """Return the layer that a batch norm is fitted with, if a node is such a norm."""
        norm = module_of(self._circulant, node)
        if not isinstance(norm, _BatchNorm) or norm.weight is None or norm.running_mean is None:
            return None
        layer = layer_before(self._dense, node)
        if layer is None or str(layer.target) not in self._names:
            return None
        of = self._circulant.get_submodule(str(layer.target))
        fits = isinstance(norm, TokenBatchNorm) == isinstance(of, nn.Linear) and not _is_blocked(
            module_of(self._dense, node)
        )
        return layer if fits and getattr(norm, "block_size", 1) == block_size_of(of) else None

    def _fit(self, node: fx.Node, expected: list[Tensor]) -> None:
        """Fit a layer's weight and bias."""
        layer, dense = self._both(node)
        lost = self._lost(node)
        targets = [value if lost is None else value + lost[batch] for batch, value in enumerate(expected)]
        b, offset = block_size_of(layer), "none" if layer.bias is None else "each"
        rows, offsets = self._rows(node, node, targets, dense.weight, offset)
        _set_weight(layer, expand(rows, b))
        if layer.bias is not None:
            layer.bias.copy_(offsets)

    def _fit_with_norm(self, node: fx.Node, norm_node: fx.Node) -> list[Tensor]:
        """Fit a layer and the norm behind it, whose shift is its bias if it has none; return the layer's results."""
        (layer, dense), (norm, dense_norm) = self._both(node), self._both(norm_node)
        b, axis = block_size_of(layer), channel_axis(layer)
        scale = dense_norm.weight / (dense_norm.running_var + dense_norm.eps).sqrt()
        shift = dense_norm.bias - dense_norm.running_mean * scale
        lost, targets = self._lost(norm_node), list[Tensor]()
        for batch, (value, _) in enumerate(self._values[norm_node.all_input_nodes[0]]):
            target = (value.movedim(axis, -1) * scale + shift).movedim(-1, axis)
            targets.append(target if lost is None else target + lost[batch])
        scaled = dense.weight * scale.reshape(-1, *[1] * (dense.weight.ndim - 1))
        rows, offsets = self._rows(node, norm_node, targets, scaled, "block" if layer.bias is None else "each")
        weight = expand(rows, b)
        size = expand(project(dense.weight, b), b).norm() / weight.norm().clamp(min=1e-30)
        _set_weight(layer, size * weight)
        shared = offsets[::b]
        if layer.bias is not None:
            layer.bias.copy_(size * offsets)
            shared = torch.zeros_like(shared)
        results = [self._value(node, batch, self._interpreters[1], 1) for batch in range(len(self._batches))]
        mean, var = _statistics(results, axis, b)
        norm.running_mean.copy_(mean)
        norm.running_var.copy_(var)
        norm.weight.copy_((var + norm.eps).sqrt() / size)
        norm.bias.copy_(shared + mean / size)
        return results

    def _lost(self, node: fx.Node) -> list[Tensor] | None:
        """Return the loss, by batch, of the stream that a node's value is added to; None where it is not known."""
        joined = self._sum_behind(node)
        summands = self._values.get(joined[1], []) if joined else []
        differ = any(first is not second for first, second in summands)
        return [first - second for first, second in summands] if differ else None

    def _sum_behind(self, node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
        """Return the sum that a node's value goes into with nothing but norms between, and what it is added to."""
        while len(node.users) == 1 and _is_linear(module_of(self._dense, node)):
            user = next(iter(node.users))
            if is_sum(user):
                return user, next(source for source in user.all_input_nodes if source is not node)
            if row_of(module_of(self._dense, user)).kind != "nothing":
                return None
            node = user
        return None

    def _rows(
        self, node: fx.Node, last: fx.Node, targets: list[Tensor], weight: Tensor, offset: str
    ) -> tuple[Tensor, Tensor]:
        """Return the rows and offsets of a layer with the nearest outputs, compared behind its rectifier if it has one.

        Args:
            node: node of the layer.
            last: the layer's node, or the node of the norm that is fitted with it.
            targets: target values by batch.
            weight: dense weight, which gives the targets.
            offset: see :func:`fit_rows`.
        """
        limits, beside = self._rectified(last)
        samples, b = self._samples(node, targets, beside), block_size_of(self._both(node)[0])
        rounds = _ROUNDS if limits and b > 1 else 0
        samples = list(samples) if rounds else samples  # else each batch is forgotten once it is counted
        moments = Moments.zeros(weight.shape[0], weight[0].numel(), weight.device)
        for x, z, _ in samples:
            moments.add(x, z)
        ridge = moments.ridge(b)
        rows, offsets = fit_rows(moments, weight, b, ridge, offset)
        for _ in range(rounds):
            assert limits is not None
            flat, shift = expand(rows, b).flatten(1).float().T, offsets.float()
            moved = [(x, reachable(z + y, x @ flat + shift + y, *limits) - y) for x, z, y in samples]
            rows, offsets = fit_rows(moments.towards(moved), weight, b, ridge, offset)
        return rows, offsets

    def _rectified(self, node: fx.Node) -> tuple[tuple[float, float] | None, list[Tensor] | None]:
        """Return the limits of the rectifier that alone reads a node's values, and what is added to them before it."""
        beside = None
        if joined := self._sum_behind(node):
            node, summand = joined
            if summand not in self._values:
                return None, None
            beside = [second for _, second in self._values[summand]]
        module, users = module_of(self._dense, node), list(node.users)
        inside = [child for child in module.children() if not isinstance(child, nn.Identity)] if module else []
        reader = users[0] if len(users) == 1 else node
        called = inside[0] if inside else module_of(self._dense, reader)
        return LIMITS.get(reader.target if called is None else type(called)), beside

    def _samples(
        self, node: fx.Node, targets: list[Tensor], beside: list[Tensor] | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield a layer's inputs in the circulant network, its targets, and the summands added to them.

        Yields:
            For each batch (positions, inputs), (positions, out), and (positions, out) or a zero.
        """
        layer, dense = self._both(node)
        out, into = dense.weight.shape[0], dense.weight[0].numel()
        count = max(SAMPLES, 8 * into) // len(self._batches) + 1
        for batch, target in enumerate(targets):
            rows = [target, beside[batch]] if beside else [target]
            read = read_by(layer, self._values[node.all_input_nodes[0]][batch][1]).reshape(-1, into)
            rows = [value.expand_as(target).movedim(channel_axis(layer), -1).reshape(-1, out) for value in rows]
            x, z, *y = (values.float() for values in some_of(count, self._random, read, *rows))
            yield x, z, y[0] if y else torch.zeros(())

    def _measure(self, node: fx.Node, norm: Any) -> None:
        """Set the running statistics of a norm or AESPA to those of its inputs in the circulant network."""
        momentum, norm.training, total = norm.momentum, True, 0
        for batch, images in enumerate(self._batches):
            total += len(images)
            norm.momentum = len(images) / total
            self._value(node, batch, self._interpreters[1], 1)
        norm.momentum, norm.training = momentum, False

    def _both(self, node: fx.Node) -> tuple[Any, Any]:
        """Return the modules that a node calls in the circulant and in the dense network."""
        return module_of(self._circulant, node), module_of(self._dense, node)


def _called(node: fx.Node, interpreter: fx.Interpreter, value_of: Callable[[fx.Node], Any]) -> Any:
    """Return a node's value, of those that it reads."""
    arguments: Any = map_arg((node.args, node.kwargs), value_of)
    return getattr(interpreter, node.op)(node.target, *arguments)


def _is_blocked(module: nn.Module | None) -> bool:
    """Return whether a module's weights or statistics are shared by blocks."""
    return module is not None and max(block_size_of(module), getattr(module, "block_size", 1)) > 1


def _is_linear(module: nn.Module | None) -> bool:
    """Return whether a module has no activation inside, as timm's norms may have."""
    return not isinstance(module, _BatchNorm) or all(isinstance(child, nn.Identity) for child in module.children())


def _set_weight(layer: Any, weight: Tensor) -> None:
    weight = weight.to(layer.weight.dtype)
    if block_size_of(layer) > 1:
        layer.weight = weight
    else:
        layer.weight.copy_(weight)


def _statistics(values: list[Tensor], axis: int, block_size: int) -> tuple[Tensor, Tensor]:
    """Return mean and variance of all values by blocks of channels: (C / b,) each."""
    total = square = torch.zeros((), dtype=torch.float64)
    count = 0
    for value in values:
        blocks = value.movedim(axis, -1).reshape(-1, value.shape[axis] // block_size, block_size).double()
        total, square = total + blocks.sum((0, 2)), square + blocks.square().sum((0, 2))
        count += len(blocks) * block_size
    mean = total / count
    return mean, (square / count - mean.square()).clamp(min=0)
