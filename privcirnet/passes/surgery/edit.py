"""A traced network that is being changed node by node, with a report of what was done and of what could not be.

:func:`name_unsupported` names operations that surgery would have replaced where a later step fails on them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from privcirnet.errors import RuleError, first_line, listed
from privcirnet.nn.agreement import returned
from privcirnet.nn.graph import module_of
from privcirnet.nn.supported_modules import kind_of, named


@dataclass(frozen=True)
class Replacement:
    """One replacement.

    Attributes:
        path: path of the module, or name of the operation in the traced network.
        after: class or description of the replacement; "" if it is gone.
        effect: usual cost; "" if the network computes the same as before.
    """

    path: str
    before: str
    after: str
    effect: str = ""

    def __str__(self) -> str:
        """Return the change as one line."""
        line = f"{self.path}: {self.before} -> {self.after or 'nothing'}"
        return f"{line} ({self.effect})" if self.effect else line


TRAIN = "values differ: fine-tune, best with the original network as teacher"
"""Effect of a replacement that needs training."""
ONE_MORE = "one more encrypted layer"
"""Effect of a new layer; the network computes the same."""
TWO_MORE = "two more encrypted layers"
"""Effect of two new layers."""
WITHOUT_SOFTMAX = (
    "no softmax at the end: the class of the logits is the same, and softmax of a decrypted answer gives probabilities"
)
"""Remedy for the last operation of many classifiers."""


class GraphEditor:
    """The graph under change.

    Args:
        graph: result of :func:`privcirnet.passes.shape_tracing.trace_at`; changed in place.
        other_size: function that returns an image size that would do, as a remedy; called at most once.
        exact: whether what runs exactly stays, else all becomes polynomials.

    Attributes:
        original: name of a node -> that of the traced node whose value it has.
        read: name of a traced node, or of one in its place -> that of the traced node that it reads first.
        inexact: names of nodes that compute other values than those that they stand for.
        problems: operations without a replacement, each with its remedy.
        values: values of the traced nodes by name, on some images.
        noisy: those on the same images with noise, which nodes are compared on.
        returned: name of the node whose value the network returned before it was changed.
    """

    def __init__(self, graph: fx.GraphModule, other_size: Callable[[], str], *, exact: bool = False) -> None:
        self.graph, self.other_size, self.exact = graph, cache(other_size), exact
        self.like = next((p.detach() for p in graph.parameters() if p.is_floating_point()), torch.empty(0))
        self.changes: list[Replacement] = []
        nodes = list(graph.graph.nodes)
        self.original = {node.name: node.name for node in nodes}
        self.read = {node.name: values[0].name for node in nodes if (values := values_of(node))}
        self.inexact: set[str] = set()
        self.values: dict[str, Tensor] = {}
        self.noisy: dict[str, Tensor] = {}
        self.returned = returned(graph).name
        self.problems: list[tuple[str, str]] = []

    def module(self, node: fx.Node) -> nn.Module | None:
        """Return the module that a node calls, or None."""
        return module_of(self.graph, node)

    def replace(self, node: fx.Node, module: nn.Module, effect: str) -> fx.Node:
        """Return the node of a module that takes a node's place; report it unless it does the same as before."""
        path, before = path_of(node), named(self.graph, node)
        needs_name = node.op != "call_module" or self.calls(node.target) > 1
        call = self.insert(node, self.free(path) if needs_name else path, module, (source_of(node),))
        self.put_for(node, call)
        if node.name in self.read:
            self.read[call.name] = self.read[node.name]
        if effect == TRAIN:
            self.inexact.add(call.name)
        if effect or before != type(module).__name__:
            self.changes.append(Replacement(path, before, _said(module), effect))
        return call

    def value(self, node: fx.Node) -> Tensor | None:
        """Return a node's value on some images, None if it is that of no traced node."""
        return self.values.get(self.original.get(node.name, ""))

    def insert(self, after: fx.Node, name: str, module: nn.Module, inputs: tuple[fx.Node, ...]) -> fx.Node:
        """Return a new call of a new module; its value has the shape of the node that it stands behind."""
        self.graph.add_submodule(name, module.to(self.like).train(self.graph.training))
        with self.graph.graph.inserting_after(after):
            call = self.graph.graph.call_module(name, inputs)
        call.meta = {key: value for key, value in after.meta.items() if key != "constant"}
        return call

    def append(self, node: fx.Node, name: str, module: nn.Module) -> fx.Node:
        """Let a module of its own read a node, and all that read the node read the module, which has its value then.

        Returns:
            The node that calls it.
        """
        call = self.insert(node, name, module, (node,))
        if node.name in self.original:
            self.original[call.name] = self.original.pop(node.name)
        if node.name in self.inexact:
            self.inexact.add(call.name)
        node.replace_all_uses_with(call, delete_user_cb=lambda user: user is not call)
        return call

    def put_layer_before(self, node: fx.Node, source: fx.Node, what: str) -> fx.Node:
        """Give a node a depthwise convolution that does nothing, which scales and shifts can be folded into.

        Returns:
            The convolution's node, now read instead of the map.
        """
        channels = shape_of(source)[1]
        layer = nn.Conv2d(channels, channels, 1, groups=channels, bias=False)
        nn.init.ones_(layer.weight)
        convolution = self.insert(source, self.free(f"{path_of(node)}_layer"), layer, (source,))
        node.replace_input_with(source, convolution)
        self.changes.append(Replacement(path_of(node), what, f"depthwise Conv2d and {what}", ONE_MORE))
        return convolution

    def put_for(self, node: fx.Node, replacement: fx.Node) -> None:
        """Let all that read a node read another, and remove it."""
        node.replace_all_uses_with(replacement)
        if node.name in self.original:
            self.original.setdefault(replacement.name, self.original[node.name])
        self.graph.graph.erase_node(node)

    def skip(self, node: fx.Node) -> None:
        """Remove a node that does nothing."""
        self.put_for(node, source_of(node))

    @torch.no_grad()
    def compute(self, node: fx.Node, *values: Any) -> Any:
        """Return what a node makes of constants and of other values in place of those that it reads."""
        values_by_node = dict(zip(values_of(node), values, strict=True))
        arguments: Any = map_arg(
            (node.args, node.kwargs), lambda n: values_by_node[n] if n in values_by_node else _constant(n)
        )
        return getattr(fx.Interpreter(self.graph), node.op)(node.target, *arguments)

    def cannot(self, node: fx.Node, remedy: str) -> None:
        """Note that a node cannot be replaced."""
        self.problems.append((f"{path_of(node)} ({named(self.graph, node)})", remedy))

    @contextmanager
    def visiting(self, node: fx.Node) -> Iterator[None]:
        """Name the node that is changed if an unexpected error is raised.

        Yields:
            Nothing.
        """
        before = len(self.problems)
        try:
            yield
        except RuleError:
            raise
        except Exception as error:
            if len(self.problems) == before:  # else it follows from what is named already
                self.cannot(node, f"write it in another way: {type(error).__name__}: {first_line(error)}")

    def check(self) -> None:
        """Raise if there is something that could not be replaced."""
        if self.problems:
            names, remedies = zip(*self.problems, strict=True)
            form = "an exact form" if self.exact else "a polynomial form"
            rule, remedy = f"every operation must have {form}", "; ".join(dict.fromkeys(remedies))
            errors = [RuleError(rule, got=name, remedy=remedy) for name, remedy in self.problems]
            raise RuleError(rule, got=listed(list(names)), remedy=remedy).of(errors)

    def finish(self) -> None:
        """Check and compile the graph."""
        self.check()
        self.graph.graph.eliminate_dead_code()
        self.graph.delete_all_unused_submodules()
        self._forget_parameters()
        self.graph.graph.lint()
        self.graph.recompile()

    def free(self, name: str) -> str:
        """Return a name that no module of the graph has."""
        names = dict(self.graph.named_modules())
        tried = (f"{name}_{number}" if number else name for number in range(len(names) + 2))
        return next(candidate for candidate in tried if candidate not in names)

    def _forget_parameters(self) -> None:
        """Remove the tensors between the modules that nothing reads any more, such as a class token."""
        called = tuple(f"{node.target}." for node in self.graph.graph.nodes if node.op == "call_module")
        read = {str(node.target) for node in self.graph.graph.nodes if node.op == "get_attr"}
        named = self.graph.named_parameters(remove_duplicate=False), self.graph.named_buffers(remove_duplicate=False)
        for name, _ in list(chain(*named)):
            if name not in read and not name.startswith(called):
                owner, _, last = name.rpartition(".")
                delattr(self.graph.get_submodule(owner), last)

    def calls(self, target: Any) -> int:
        """Return how many nodes call a module."""
        return sum(node.target == target for node in self.graph.graph.nodes if node.op == "call_module")


def path_of(node: fx.Node) -> str:
    """Return the name under which a node is reported."""
    return str(node.target) if node.op == "call_module" else node.name


def arguments_of(node: fx.Node, *names: str, behind: int = 0) -> dict[str, Any]:
    """Return a node's arguments by name.

    Args:
        names: names of the positional ones, in order.
        behind: number of positional ones in front that are left out.
    """
    return dict(zip(names, node.args[behind:], strict=False)) | node.kwargs


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a node's value as its writer knows it, () if it is no single tensor."""
    return node.meta.get("shape") or ()


def values_of(node: fx.Node) -> list[fx.Node]:
    """Return the nodes, other than constants, that a node reads, each once."""
    return [source for source in node.all_input_nodes if "constant" not in source.meta]


def source_of(node: fx.Node) -> fx.Node:
    """Return the first value that a node reads."""
    return values_of(node)[0]


def _constant(node: fx.Node) -> Any:
    return node.meta["constant"]


def constant_of(node: fx.Node, rank: int) -> Tensor | None:
    """Return the value of a node that depends on no image, without the batch's axis; else None.

    Args:
        rank: axes of the value that it meets, the batch's included.
    """
    value = node.meta.get("constant")
    return value[0] if isinstance(value, Tensor) and value.ndim == rank else value


def _said(module: nn.Module) -> str:
    name = type(module).__name__
    if isinstance(module, nn.Conv2d):
        return f"depthwise {name}" if 1 < module.groups == module.in_channels else name
    return f"{name}({module.kernel_size})" if isinstance(module, nn.AvgPool2d) else name


_KINDS = ("activation", "maximum", "gate", "layer norm")


@contextmanager
def name_unsupported(graph: fx.GraphModule) -> Iterator[None]:
    """Name the operations of a network that are no polynomials if a step on it breaks a rule.

    Yields:
        Nothing.

    Raises:
        RuleError: the step's error; it names the operations left to replace, if there are any.
    """
    try:
        yield
    except RuleError as error:
        nodes = (node for node in graph.graph.nodes if kind_of(graph, node) in _KINDS)
        remaining = [f"{path_of(node)} ({named(graph, node)})" for node in nodes]
        if not remaining:
            raise
        first = "run train.py recipe=replace activation=aespa first, and give it as recipe.init"
        remedy = f"{first}; activation=own keeps what he.nonlinear=exact runs"
        rule = "a network must have polynomial operations before it is quantized"
        raise RuleError(rule, got=f"{listed(remaining)}: {error.rule}", remedy=remedy) from error
