"""A network as a torch.fx graph, read without changing it.

Cost: one symbolic run of the network's forward; computes nothing on tensors.
"""

import operator
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Target
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.errors import RuleError
from privcirnet.nn.norm import is_frozen_norm
from privcirnet.nn.tracing import Memory, Proxy, check_own_forwards, restore_attributes, without_writing

ADDITIONS = (operator.add, torch.add)
WeightedLayer = nn.Linear | nn.Conv1d | nn.Conv2d
"""A layer whose weight may be circulant."""

UNTRACEABLE = "a network must be traceable by torch.fx to find its batch norms"
"""Rule broken by a network that may still be traced at one size of images (:mod:`privcirnet.passes.shape_tracing`)."""


class Tracer(fx.Tracer):
    """A torch.fx tracer that does not enter the layers this toolkit knows: torch.nn's, its own, and subclasses.

    Values written in place reach all their readers, see :mod:`privcirnet.nn.tracing`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory = Memory()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module stays one node of the graph."""
        is_layer = isinstance(m, nn.Linear | nn.Conv2d | _BatchNorm) or is_plain_layer(m)
        is_layer = is_layer or type(m).__module__.startswith("privcirnet.nn")
        return is_layer or is_frozen_norm(m) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return the proxy of a node's value in the forward."""
        return Proxy(node, self)

    def create_proxy(  # noqa: PLR0913, PLR0917
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
        proxy_factory_fn: Callable[[fx.Node], fx.Proxy] | None = None,
    ) -> Any:
        """Record an operation, in the form that writes into none of its arguments.

        Returns:
            The result's proxy; that of the value that was written to, if one was.
        """
        self._memory.check((args, kwargs))
        recorded = without_writing(self.root, kind, target, args, kwargs)
        proxy = self._record(kind, recorded.target, recorded.args, recorded.kwargs, name, type_expr, proxy_factory_fn)
        if not isinstance(proxy, fx.Proxy):
            return proxy
        self._memory.note(self.root, proxy.node)
        if recorded.written is None:
            return proxy
        self._memory.write(recorded.written, proxy)
        return recorded.written

    def _record(self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], *more: Any) -> Any:
        return super().create_proxy(kind, target, args, kwargs, *more)


def trace(model: nn.Module, images: Tensor | None = None) -> fx.GraphModule:
    """Return the network as a graph, in its present training or evaluation mode.

    Args:
        images: Some images that it takes, for its forward hooks; None to try images of usual sizes if it has any.

    Returns:
        A graph module that shares the network's submodules under their names.

    Raises:
        RuleError: torch.fx cannot trace the network, for example because of its control flow; a module computes more
            than its class says; or the network does not return one tensor.

    >>> [node.target for node in trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).graph.nodes]
    ['input', '0', '1', 'output']
    """
    tracer = Tracer()
    with evaluating(model):
        check_own_forwards(model, tracer.is_leaf_module, images)
    with restore_attributes(model):
        try:
            graph = tracer.trace(model)
        except RuleError:
            raise
        except Exception as error:
            tracer = Tracer()
            tracer.proxy_buffer_attributes = True  # for one that takes its size from the images: expand(len(x), ...)
            try:
                graph = tracer.trace(model)
            except Exception:
                raise RuleError(
                    UNTRACEABLE,
                    got=f"{type(model).__name__}: {error}",
                    remedy="write its forward without branches on tensors",
                ) from error
        check_one_output(graph, model)
        return graph_module(tracer, graph, model)


class Traced(fx.GraphModule):
    """A traced network that keeps its ``meta``, as the image size it is made for, when it is pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the constructor and its arguments for pickle."""
        return _restored, (*super().__reduce__(), self.meta)


def _restored(make: Callable[..., fx.GraphModule], parts: tuple[Any, ...], meta: dict[str, Any]) -> Traced:
    graph = make(*parts)
    again = Traced(graph, graph.graph, type(graph).__name__)
    vars(again).update({name: value for name, value in vars(graph).items() if name not in vars(again)})
    again.meta.update(meta)
    return again


def graph_module(tracer: Tracer, graph: fx.Graph, model: nn.Module) -> fx.GraphModule:
    """Return a graph as a module in a network's place, with the network's own hooks, without unused operations."""
    traced = Traced(tracer.root, graph, type(model).__name__)
    traced.meta.update(getattr(model, "meta", {}))
    vars(traced).update({name: value for name, value in vars(model).items() if "_hooks" in name})
    drop_unused(traced)
    return traced


def drop_unused(graph: fx.GraphModule) -> None:
    """Remove operations that the output does not depend on; a traced network has no side effects.

    Args:
        graph: a traced network; changed in place.
    """
    graph.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    graph.recompile()


def check_one_output(graph: fx.Graph, model: nn.Module) -> None:
    """Raise unless a network returns one tensor."""
    returned = output_of(graph).args[0]
    if not isinstance(returned, fx.Node):
        raise several_outputs(model, type(returned).__name__.removeprefix("immutable_"))


def several_outputs(model: nn.Module, kind: str) -> RuleError:
    """Return the error of a network that returns other than one tensor."""
    remedy = "return the logits alone, for example from a module around it"
    return RuleError("a network must return one tensor", got=f"{type(model).__name__} returns a {kind}", remedy=remedy)


def output_of(graph: fx.Graph) -> fx.Node:
    """Return the node of a graph's output."""
    return next(node for node in reversed(graph.nodes) if node.op == "output")


def module_of(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls, or None."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def is_plain_layer(module: nn.Module | None) -> TypeGuard[WeightedLayer]:
    """Return whether a module computes what torch's Linear, Conv1d or Conv2d does: a subclass may do more.

    timm's own Linear, known by name, does.
    """
    if not isinstance(module, WeightedLayer):
        return False
    forward, kind = type(module).forward, nn.Conv1d if isinstance(module, nn.Conv1d) else nn.Conv2d
    if isinstance(module, kind) and type(module)._conv_forward is not kind._conv_forward:
        return False
    return forward in (kind.forward, nn.Linear.forward) or forward.__module__ == "timm.layers.linear"


def is_sum(node: fx.Node) -> bool:
    """Return whether a node adds two others, as a residual does."""
    return (
        node.op == "call_function" and node.target in ADDITIONS and len(node.all_input_nodes) == 2 and not node.kwargs
    )


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Put a network in evaluation mode, and restore the mode of each module afterwards.

    Yields:
        Nothing.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
