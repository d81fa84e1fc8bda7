"""A network as a torch.fx graph and as named layers, read without changing it.

Cost: one symbolic run of the network's forward; computes nothing on tensors.
"""

import difflib
import operator
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of

ADDITIONS = (operator.add, operator.iadd, torch.add)


class Tracer(fx.Tracer):
    """A torch.fx tracer that does not enter the layers this toolkit knows: torch.nn's, its own, and subclasses."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module stays one node of the graph.

        Args:
            m: the module.
            module_qualified_name: its name in the network.
        """
        known = isinstance(m, nn.Linear | nn.Conv2d | _BatchNorm) or type(m).__module__.startswith("privcirnet.nn")
        return known or super().is_leaf_module(m, module_qualified_name)


def trace(model: nn.Module) -> fx.GraphModule:
    """Return the network as a graph, in its present training or evaluation mode.

    Args:
        model: A network.

    Returns:
        A graph module that shares the network's submodules under their names.

    Raises:
        RuleError: torch.fx cannot trace the network, for example because of its control flow.

    >>> [node.target for node in trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())).graph.nodes]
    ['input', '0', '1', 'output']
    """
    tracer = Tracer()
    try:
        graph = tracer.trace(model)
    except Exception as error:
        raise RuleError(
            "a network must be traceable by torch.fx to find its batch norms",
            got=f"{type(model).__name__}: {error}",
            remedy="write its forward without branches on tensors",
        ) from error
    found = fx.GraphModule(tracer.root, graph, type(model).__name__)
    found.meta.update(getattr(model, "meta", {}))
    return found


def module_of(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls, or None.

    Args:
        graph: A traced network.
        node: One of its nodes.
    """
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def is_plain_layer(module: nn.Module | None) -> bool:
    """Return whether a module computes what torch's Conv2d or Linear does: a subclass may pad or scale as it likes.

    timm's own Linear, known by name, does.

    Args:
        module: any, parametrized or not.
    """
    if not isinstance(module, nn.Conv2d | nn.Linear):
        return False
    forward = type(module).forward
    return forward in (nn.Conv2d.forward, nn.Linear.forward) or forward.__module__ == "timm.layers.linear"


def is_sum(node: fx.Node) -> bool:
    """Return whether a node adds two others, as a residual does.

    Args:
        node: Of a traced network.
    """
    return (
        node.op == "call_function" and node.target in ADDITIONS and len(node.all_input_nodes) == 2 and not node.kwargs
    )


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Put a network in evaluation mode, and restore the mode of each module afterwards.

    Args:
        model: A network.

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


def find_layer(model: nn.Module, name: str) -> nn.Linear | nn.Conv2d:
    """Return the linear or convolutional layer of this name, its weight still plain.

    Args:
        model: A network.
        name: Module name, as in `named_modules`.

    Returns:
        The layer.

    Raises:
        RuleError: There is no such module, it is of another type, or its weight is parametrized already.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    if name not in modules:
        layers = [key for key, module in modules.items() if isinstance(module, nn.Linear | nn.Conv2d)]
        close = difflib.get_close_matches(name, layers, n=1) or layers[:1] or ["nothing: it has no layers"]
        raise RuleError("a layer name must exist in the model", got=repr(name), remedy=f"did you mean {close[0]!r}?")
    layer = modules[name]
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        raise RuleError(
            "a layer must be Linear or Conv2d", got=f"{type(layer).__name__} at {name!r}", remedy="leave it out"
        )
    if parametrize.is_parametrized(layer, "weight"):
        raise RuleError(
            "a layer must still have its plain dense weight",
            got=f"{name!r} with a parametrized weight of block size {block_size_of(layer)}",
            remedy="start from the dense model",
        )
    return layer
