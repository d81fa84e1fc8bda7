"""Whether two forms of a network compute the same, by numbers: the guard behind everything that reads a network.

Tracing, surgery, folding and lowering are exact where they say so. Each compares its result with what it began with on
some images, so that whatever it did not understand of a network is an error and no wrong answer.
"""

import copy
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.errors import RuleError
from privcirnet.nn.graph import module_of, output_of, several_outputs

TOLERANCE = 1e-3
"""Largest difference, as a share of an image's largest value: far above rounding errors, far below a lost operation."""
_HIDDEN = 1e-2
"""Scales of norms up to this size hide what is before them."""
_NORMS = _BatchNorm, nn.LayerNorm, nn.GroupNorm
_ORDERS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda values: values,
    lambda values: values.movedim(-1, 1),
    lambda values: values.movedim(1, -1),
)
"""How values may be ordered in another layout: as they are, with their channels first, with their channels last."""
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
def node_values(graph: fx.GraphModule, images: Tensor) -> dict[str, Tensor]:
    """Return the value of every node of a graph on images, by its name; ``images``: (N, ...)."""
    found: dict[str, Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if isinstance(result, Tensor):
                found[n.name] = result.clone()  # a later operation may write to it
            return result

    Recorder(graph, garbage_collect_values=True).run(images.clone())
    return found


class Guard:
    """The values of a traced network's nodes, and whether the nodes of a changed one compute the same from them.

    The images have noise added, and scales of norms that are nearly zero are made 1 where values are computed: no
    branch is hidden behind one, and no pool shows nothing because its map is the same everywhere.

    Args:
        graph: whose parameters the changed network shares.
        images: some, (N, ...).

    Attributes:
        values: of the nodes by name.
    """

    def __init__(self, graph: fx.GraphModule, images: Tensor) -> None:
        noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0)).to(images)
        self._images = images + noise * (images.std(correction=0) + 1)
        norms = (module for module in graph.modules() if isinstance(module, _NORMS))
        self._scales = [norm.weight for norm in norms if isinstance(norm._parameters.get("weight"), nn.Parameter)]
        with self._visible():
            self.values = node_values(graph, self._images)

    @torch.no_grad()
    def first_other(self, graph: fx.GraphModule, original: Mapping[str, str], inexact: Mapping[str, str | None]) -> str:
        """Return the name of the first node that computes other values than it did, "" if there is none.

        Each gets what its inputs should be, so that none is hidden by what comes after it.

        Args:
            graph: the network as it is now.
            original: name of a node -> that of the node whose value it must have.
            inexact: names of nodes that may compute other values -> the node whose value each must read, if known.
        """
        values, wrong = self.values, list[str]()

        class Compared(fx.Interpreter):
            def run_node(self, n: fx.Node) -> object:
                read = values.get(inexact.get(n.name) or "")
                given = self.env.get(n.all_input_nodes[0]) if n.all_input_nodes else None
                order = _order(given, read) if isinstance(given, Tensor) and read is not None else None
                result, wanted = super().run_node(n), values.get(original.get(n.name, ""))
                if read is not None and order is None:
                    wrong.append(n.name)
                if not isinstance(result, Tensor) or wanted is None:
                    return result
                if n.name in inexact:
                    moved = wanted.ndim < result.ndim or _is_moved(wanted, result)
                    return (order or _ORDERS[moved])(wanted).reshape(result.shape).clone()
                if _order(result, wanted) is None:
                    wrong.append(n.name)
                return wanted.clone() if wanted.shape == result.shape else result

        with self._visible():
            Compared(graph, garbage_collect_values=True).run(self._images.clone())
        return next(iter(wrong), "")

    @contextmanager
    def _visible(self) -> Generator[None]:
        before = [scale.detach().clone() for scale in self._scales]
        try:
            with torch.no_grad():
                for scale in self._scales:
                    scale.copy_(scale.where(scale.abs() > _HIDDEN, 1))
            yield
        finally:
            with torch.no_grad():
                for scale, values in zip(self._scales, before, strict=True):
                    scale.copy_(values)


def _is_moved(wanted: Tensor, result: Tensor) -> bool:
    """Return whether values have their channels last, and a result has them first."""
    return wanted.shape[:2] != result.shape[:2] and wanted.shape[-1] == result.shape[1]


def _order(found: Tensor, wanted: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return how values are ordered that are others up to rounding: alike, or with their channels moved."""
    orders = _ORDERS if wanted.ndim > 2 and found.shape != wanted.shape else _ORDERS[:1]
    return next((order for order in orders if agree(found, order(torch.atleast_1d(wanted)))), None)


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
