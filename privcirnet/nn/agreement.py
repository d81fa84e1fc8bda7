"""Numerical comparison of two forms of a network: the guard behind everything that reads a network.

Tracing, surgery, folding and lowering are exact where they say so. Each compares its result with its input on some
images, so that an operation that it misreads is an error and no wrong answer.
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
"""Largest scale of a norm that hides the values before it."""
_NORMS = _BatchNorm, nn.LayerNorm, nn.GroupNorm
_ORDERS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda values: values,
    lambda values: values.movedim(-1, 1),
    lambda values: values.movedim(1, -1),
)
"""Possible orders of values in another layout: as they are, with their channels first, with their channels last."""
EXACT = 1e-6
"""Largest difference in double precision: shows a factor behind a bias of a hundred thousand times its values."""


def some_of(images: Tensor) -> Tensor:
    """Return two of a batch of images, one twice if there is but one; ``images``: (N, ...)."""
    return images[[0, -1]].detach()


@torch.no_grad()
def exact_value(model: nn.Module, images: Tensor) -> Tensor:
    """Return a network's output in double precision, in which rows of squares round nothing away.

    Args:
        model: network in evaluation mode; left as it was.
        images: (N, ...).
    """
    return copy.deepcopy(model).double()(images.double())


def agree(computed: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Return whether values are equal up to rounding, image by image; values that are not finite are ignored.

    Args:
        computed: (N, ...).
        tolerance: share of the largest finite value of an image.
    """
    if computed.numel() != expected.numel():
        return False
    ours, theirs = (values.detach().double().reshape(len(expected), -1) for values in (computed, expected))
    finite = ours.isfinite() & theirs.isfinite()
    largest = theirs.where(finite, 0).abs().amax(1, keepdim=True)
    return bool((((ours - theirs).abs() <= tolerance * largest + 1e-9) | ~finite).all())


@torch.no_grad()
def check_traced(graph: fx.GraphModule, model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    """Raise unless a graph agrees with the network that it was traced from.

    Args:
        images: some, (N, ...).

    Returns:
        The values of the graph's nodes by name.
    """
    values, expected = node_values(graph, images), model(images.clone())
    if not isinstance(expected, Tensor):
        raise several_outputs(model, type(expected).__name__)
    if not agree(values[returned(graph).name], expected):
        if not agree(model(images.clone()), expected):
            rule, remedy = "a network must give an image the same values each time", "use nn.Dropout for F.dropout"
            raise RuleError(rule, got="others the second time, in evaluation", remedy=remedy)
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
    values: dict[str, Tensor] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if isinstance(result, Tensor):
                values[n.name] = result.clone()  # a later operation may write to it
            return result

    Recorder(graph, garbage_collect_values=True).run(images.clone())
    return values


class Guard:
    """The values of a traced network's nodes, and whether the nodes of a changed one compute the same from them.

    The images have noise added, and scales of norms that are nearly zero are made 1 where values are computed: no
    branch is hidden behind one, and no pool shows nothing because its map is the same everywhere.

    Args:
        graph: graph whose parameters the changed network shares.
        images: some, (N, ...).

    Attributes:
        values: values of the nodes by name.
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
        """Return the name of the first node that computes other values than before, "" if there is none.

        Each node gets correct inputs, so that later operations hide no difference.

        Args:
            graph: the network as it is now.
            original: name of a node -> that of the node whose value it must have.
            inexact: names of nodes that may compute other values -> the node whose value each must read, if known.
        """
        values, wrong = self.values, list[str]()

        class Compared(fx.Interpreter):
            def run_node(self, n: fx.Node) -> object:
                read = values.get(inexact.get(n.name) or "")
                source = self.env.get(n.all_input_nodes[0]) if n.all_input_nodes else None
                order = _order(source, read) if isinstance(source, Tensor) and read is not None else None
                result, expected = super().run_node(n), values.get(original.get(n.name, ""))
                if read is not None and order is None:
                    wrong.append(n.name)
                if not isinstance(result, Tensor) or expected is None:
                    return result
                if n.name in inexact:
                    moved = expected.ndim < result.ndim or _is_moved(expected, result)
                    return (order or _ORDERS[moved])(expected).reshape(result.shape).clone()
                if _order(result, expected) is None:
                    wrong.append(n.name)
                return expected.clone() if expected.shape == result.shape else result

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


def _is_moved(expected: Tensor, result: Tensor) -> bool:
    """Return whether values have their channels last, and a result has them first."""
    return expected.shape[:2] != result.shape[:2] and expected.shape[-1] == result.shape[1]


def _order(computed: Tensor, expected: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Return the order that makes expected values equal to computed ones up to rounding; None if there is none."""
    orders = _ORDERS if expected.ndim > 2 and computed.shape != expected.shape else _ORDERS[:1]
    return next((order for order in orders if agree(computed, order(torch.atleast_1d(expected)))), None)


def _first_module(graph: fx.GraphModule, model: nn.Module, images: Tensor, values: Mapping[str, Tensor]) -> str:
    """Return the path of the first module, in the order of the graph, with another result in the network."""
    expected: dict[nn.Module, Tensor] = {}

    def look(module: nn.Module, _: object, result: object) -> None:
        if isinstance(result, Tensor):
            expected.setdefault(module, result.clone())

    modules = {node: module for node in graph.graph.nodes if (module := module_of(graph, node)) is not None}
    handles = [module.register_forward_hook(look) for module in set(modules.values())]
    try:
        model(images.clone())
    finally:
        for handle in handles:
            handle.remove()
    for node, module in modules.items():
        if module in expected and not agree(values[node.name], expected[module]):
            return repr(str(node.target))
    return "its output"
