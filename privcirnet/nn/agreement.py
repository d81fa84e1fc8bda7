"""Whether two forms of a network compute the same, by numbers: the guard behind everything that reads a network.

Tracing, surgery, folding and lowering are exact where they say so. Each compares its result with what it began with on
some images, so that whatever it did not understand of a network is an error and no wrong answer.
"""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.graph import module_of, output_of, several_outputs

TOLERANCE = 1e-3
"""Largest difference, as a share of an image's largest value: far above rounding errors, far below a lost operation."""
EXACT = 1e-6
"""The same in double precision: a factor is not missed behind a bias of a hundred thousand times its values."""


def some_of(images: Tensor) -> Tensor:
    """Return two of a batch of images, one twice if there is but one; ``images``: (N, ...)."""
    return images[[0, -1]].detach()


@torch.no_grad()
def exact_value(model: nn.Module, images: Tensor) -> Tensor:
    """Return what a network makes of images in double precision, in which rows of squares round nothing away.

    Args:
        model: in evaluation mode; left as it was.
        images: (N, ...).
    """
    return copy.deepcopy(model).double()(images.double())


def agree(found: Tensor, wanted: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Return whether values are equal up to rounding, image by image; what is not finite says nothing.

    Args:
        found: (N, ...).
        tolerance: share of the largest finite value of an image.
    """
    if found.numel() != wanted.numel():
        return False
    ours, theirs = (values.detach().double().reshape(len(wanted), -1) for values in (found, wanted))
    finite = ours.isfinite() & theirs.isfinite()
    largest = theirs.where(finite, 0).abs().amax(1, keepdim=True)
    return bool((((ours - theirs).abs() <= tolerance * largest + 1e-9) | ~finite).all())


@torch.no_grad()
def check_traced(graph: fx.GraphModule, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Raise unless a graph computes what the network does that it was traced from.

    Args:
        images: some, (N, ...).

    Returns:
        The values of the graph's nodes by name.
    """
    values, wanted = node_values(graph, images), model(images.clone())
    if not isinstance(wanted, Tensor):
        raise several_outputs(model, type(wanted).__name__)
    if not agree(values[returned(graph).name], wanted):
        where = _first_module(graph, model, images, values)
        remedy = "write what the network does around it as a module, without changing values in place"
        rule = "a network must compute what its modules and operations say"
        raise RuleError(rule, got=f"other values from {where} on", remedy=remedy)
    return values


def returned(graph: fx.GraphModule) -> fx.Node:
    """Return the node whose value a graph returns."""
    node = output_of(graph.graph).args[0]
    assert isinstance(node, fx.Node)
    return node


@torch.no_grad()
def node_values(graph: fx.GraphModule, images: Tensor, known: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return the value of every node of a graph on images, by its name; ``images``: (N, ...)."""
    found: dict[str, Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if known and n.name in known and isinstance(result, Tensor):
                result = _shaped(known[n.name], result)
            if isinstance(result, Tensor):
                found[n.name] = result.clone()  # a later operation may write to it
            return result

    Recorder(graph, garbage_collect_values=True).run(images.clone())
    return found


def _shaped(values: Tensor, like: Tensor) -> Tensor:
    """Values in the layout of others: tokens (N, ..., C) become a map (N, C, T, 1) of them."""
    if values.shape[:2] != like.shape[:2] and values.shape[-1] == like.shape[1]:
        values = values.movedim(-1, 1)
    return values.reshape(like.shape)


def _first_module(graph: fx.GraphModule, model: nn.Module, images: Tensor, values: Mapping[str, Tensor]) -> str:
    """The path of the first module, in the order of the graph, whose result is another one in the network."""
    wanted: dict[nn.Module, Tensor] = {}

    def look(module: nn.Module, _: object, result: object) -> None:
        if isinstance(result, Tensor):
            wanted.setdefault(module, result.clone())

    modules = {node: module for node in graph.graph.nodes if (module := module_of(graph, node)) is not None}
    handles = [module.register_forward_hook(look) for module in set(modules.values())]
    try:
        model(images.clone())
    finally:
        for handle in handles:
            handle.remove()
    for node, module in modules.items():
        if module in wanted and not agree(values[node.name], wanted[module]):
            return repr(str(node.target))
    return "its output"
