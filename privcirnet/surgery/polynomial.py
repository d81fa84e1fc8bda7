"""A network of torch's operations becomes one of layers, batch norms, squares, averages and sums, in place.

The network is traced at one image size, and each operation is replaced by a module that encrypted inference knows.
Layers and norms stay the same objects under their own names, so its state still loads.

Average pools of a map take side x side values each, without overlap, so that their sums are sums of shares. A max pool
becomes such an average. What depends on batch or image size in the forward is gone.
"""

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.errors import RuleError, listed
from privcirnet.nn.activations import Aespa1d, Aespa2d, Square
from privcirnet.nn.checks import IMAGE
from privcirnet.nn.concat import Concat
from privcirnet.nn.graph import module_of
from privcirnet.nn.pooling import divisor_of
from privcirnet.surgery.changes import ONE_MORE, TRAIN, Change
from privcirnet.surgery.kinds import kind_of, named
from privcirnet.surgery.sizes import trace_at

ACTIVATIONS = ("aespa", "square")


def polynomial_(model: nn.Module, images: Tensor, activation: str = "aespa") -> tuple[Change, ...]:
    r"""Replace everything in a network that is no polynomial, in place; nothing changes if that is not possible.

    Activations become AESPA or squares, max pools averages, adaptive pools and means averages of a fixed size. Dropout
    and identities vanish. The network becomes its own torch.fx graph, for images of this size only; its layers and
    norms stay the same objects under their names. Fine-tune it afterwards (``recipe=replace`` does).

    Args:
        model: a network on maps, with any weights.
        images: some as the network reads them, (N, C, H, W); only their shape matters.
        activation: "aespa" or "square".

    Returns:
        What was replaced, in the order of the forward.

    Raises:
        RuleError: the network cannot be traced, something has no replacement, or the activation is unknown.

    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> print(*polynomial_(network, torch.zeros(1, 3, 6, 6)), sep="\n")
    1: ReLU -> Aespa2d (values differ: fine-tune, best with the original network as teacher)
    2: AdaptiveAvgPool2d -> AvgPool2d(4)
    """
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise RuleError("the activation must be a polynomial", got=repr(activation), remedy=f"use one of {known}")
    graph = trace_at(model, images)
    surgeon = _Surgeon(graph, activation)
    for node in list(graph.graph.nodes):
        surgeon.visit(node)
    surgeon.finish()
    graph.meta[IMAGE] = tuple(images.shape[1:])
    _become_(model, graph)
    return tuple(surgeon.changes)


class _Surgeon:
    """Replaces the nodes of a graph one by one.

    Args:
        graph: of :func:`trace_at`; changed in place.
        activation: what activations become.
    """

    def __init__(self, graph: fx.GraphModule, activation: str) -> None:
        self.graph, self.activation = graph, activation
        self.like = next((p.detach() for p in graph.parameters() if p.is_floating_point()), torch.empty(0))
        self.changes: list[Change] = []
        self.problems: list[tuple[str, str]] = []

    def visit(self, node: fx.Node) -> None:
        """Replace one node, or note why it cannot be.

        Args:
            node: of the graph.
        """
        match kind_of(self.graph, node):
            case "kept" | "layer":
                pass
            case "activation":
                self._replace(node, self._activation(node), TRAIN)
            case "nothing":
                self._skip(node)
            case "norm":
                self._split_norm(node)
                self._put_behind_layer(node)
            case "average" | "maximum" as kind:
                self._pool(node, kind == "average")
            case "reshape":
                self._reshape(node)
            case "sum":
                self._sum(node)
            case "concat":
                self._concat(node)
            case _:
                self._cannot(node, "write it with layers, batch norms, sums, averages and activations")

    def finish(self) -> None:
        """Check and compile the graph.

        Raises:
            RuleError: something could not be replaced.
        """
        if self.problems:
            names, remedies = zip(*self.problems, strict=True)
            remedy = "; ".join(dict.fromkeys(remedies))
            raise RuleError("every operation must have a polynomial form", got=listed(list(names)), remedy=remedy)
        self.graph.delete_all_unused_submodules()
        self.graph.graph.lint()
        self.graph.recompile()

    def _activation(self, node: fx.Node) -> nn.Module:
        shape = _shape(node)
        if self.activation == "square":
            return Square()
        return Aespa2d(shape[1]) if len(shape) == 4 else Aespa1d(shape[-1])

    def _replace(self, node: fx.Node, module: nn.Module, effect: str) -> fx.Node:
        """Let a module of its own take a node's place; report it unless it does the same as before."""
        path, before = _path(node), named(self.graph, node)
        taken = node.op != "call_module" or self._calls(node.target) > 1
        made = self._insert(node, self._free(path) if taken else path, module, (node.all_input_nodes[0],))
        node.replace_all_uses_with(made)
        self.graph.graph.erase_node(node)
        if effect or before != type(module).__name__:
            self.changes.append(Change(path, before, _said(module), effect))
        return made

    def _insert(self, after: fx.Node, name: str, module: nn.Module, inputs: tuple[fx.Node, ...]) -> fx.Node:
        """Return a new call of a new module; its value has the shape of the node that it stands behind."""
        self.graph.add_submodule(name, module.to(self.like).train(self.graph.training))
        with self.graph.graph.inserting_after(after):
            made = self.graph.graph.call_module(name, inputs)
        made.meta = dict(after.meta)
        return made

    def _append(self, node: fx.Node, name: str, module: nn.Module) -> fx.Node:
        """Let a module of its own read a node, and all that read the node read the module."""
        made = self._insert(node, name, module, (node,))
        node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
        return made

    def _skip(self, node: fx.Node) -> None:
        node.replace_all_uses_with(node.all_input_nodes[0])
        self.graph.graph.erase_node(node)

    def _split_norm(self, node: fx.Node) -> None:
        """Separate a batch norm from the activation inside it (timm's BatchNormAct2d)."""
        norm = module_of(self.graph, node)
        assert isinstance(norm, _BatchNorm)
        inside = [child for child in norm.children() if not isinstance(child, nn.Identity)]
        if not inside and type(norm).__module__.startswith("torch."):
            return
        path = str(node.target)
        plain = nn.BatchNorm2d(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        plain.weight, plain.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers(recurse=False):
            plain.register_buffer(name, buffer)
        self.graph.add_submodule(path, plain.train(norm.training))
        last, appended = node, list[fx.Node]()
        for name, child in norm.named_children():
            if child in inside:
                appended.append(last := self._append(last, f"{path}_{name}", child))
        for made in appended:
            self.visit(made)

    def _put_behind_layer(self, node: fx.Node) -> None:
        """Give a batch norm that follows no convolution of its own one that does nothing, to be folded into."""
        source = node.all_input_nodes[0]
        follows = isinstance(module_of(self.graph, source), nn.Conv2d) and len(source.users) == 1
        if follows or not isinstance(module_of(self.graph, node), nn.BatchNorm2d):
            return
        channels, path = _shape(node)[1], str(node.target)
        layer = nn.Conv2d(channels, channels, 1, groups=channels, bias=False)
        nn.init.ones_(layer.weight)
        node.replace_input_with(source, self._insert(source, self._free(f"{path}_layer"), layer, (source,)))
        self.changes.append(Change(path, "BatchNorm2d", "depthwise Conv2d and BatchNorm2d", ONE_MORE))

    def _concat(self, node: fx.Node) -> None:
        parts, axis = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        rank = len(_shape(node))
        if not isinstance(parts, list | tuple) or axis not in ((1, -3) if rank == 4 else (rank - 1, -1)):
            self._cannot(node, "concatenate channels")
            return
        if len(parts) == 1:
            self._skip(node)
            return
        made = self._insert(
            node, self._free(node.name), Concat(), tuple(part for part in parts if isinstance(part, fx.Node))
        )
        node.replace_all_uses_with(made)
        self.graph.graph.erase_node(node)

    def _pool(self, node: fx.Node, average: bool) -> None:
        before, after = _shape(node.all_input_nodes[0]), _shape(node)
        module = module_of(self.graph, node)
        if isinstance(module, nn.AvgPool2d) and divisor_of(module):
            return
        if len(before) != 4 or len(after) not in (2, 4) or before[:2] != after[:2]:
            self._cannot(node, "average over the two axes of a map")
            return
        height, width = after[2:] if len(after) == 4 else (1, 1)
        side = before[2] // height
        if (side * height, side * width) != before[2:]:
            self._cannot(node, f"pools must divide their map of {before[2]} x {before[3]}: use another image size")
            return
        if side == 1 and len(after) == 4:
            self._skip(node)
            return
        same = average and self._averages(node, side)
        if named(self.graph, node) == "mean" and not same:
            self._cannot(node, "average over the two axes of a map")
            return
        made = self._replace(node, nn.AvgPool2d(side), "" if same else TRAIN)
        if len(after) == 2:
            self._append(made, self._free(f"{_path(made)}_flatten"), nn.Flatten())

    def _averages(self, node: fx.Node, side: int) -> bool:
        """Return whether a node averages over windows side by side, tried on random values."""
        x = torch.rand(_shape(node.all_input_nodes[0]))
        call = getattr(fx.Interpreter(self.graph), node.op)
        found = call(node.target, (x, *node.args[1:]), node.kwargs)
        return torch.allclose(found, nn.functional.avg_pool2d(x, side).reshape(found.shape), atol=1e-5)

    def _reshape(self, node: fx.Node) -> None:
        before, after = _shape(node.all_input_nodes[0]), _shape(node)
        if before == after:
            self._skip(node)
        elif len(after) != 2 or before[0] != after[0]:
            self._cannot(node, "flatten all but the first axis")
        elif not isinstance(module_of(self.graph, node), nn.Flatten):
            self._replace(node, nn.Flatten(), "")

    def _sum(self, node: fx.Node) -> None:
        terms = [term for term in node.args if isinstance(term, fx.Node)]
        if len(terms) != 2 or node.kwargs or _shape(terms[0]) != _shape(terms[1]):
            self._cannot(node, "add two values of one shape")
            return
        node.op, node.target = "call_function", operator.add

    def _cannot(self, node: fx.Node, remedy: str) -> None:
        self.problems.append((f"{_path(node)} ({named(self.graph, node)})", remedy))

    def _calls(self, target: Any) -> int:
        return sum(node.target == target for node in self.graph.graph.nodes if node.op == "call_module")

    def _free(self, name: str) -> str:
        """Return a name that no module of the graph has."""
        names = dict(self.graph.named_modules())
        tried = (f"{name}_{number}" if number else name for number in range(len(names) + 2))
        return next(each for each in tried if each not in names)


def _become_(model: nn.Module, graph: fx.GraphModule) -> None:
    """Make a network the graph of itself, with its modes."""
    modes = {name: module.training for name, module in model.named_modules()}
    for name, module in graph.named_modules():
        module.training = modes.get(name, model.training)
    model.__class__ = graph.__class__  # type: ignore[assignment]
    model.__dict__ = graph.__dict__


def _path(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _shape(node: fx.Node) -> tuple[int, ...]:
    shape = node.meta.get("shape")
    return shape if shape is not None else ()


def _said(module: nn.Module) -> str:
    name = type(module).__name__
    return f"{name}({module.kernel_size})" if isinstance(module, nn.AvgPool2d) else name
