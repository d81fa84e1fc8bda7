"""Activations as layers of the search: their options, what each would do to the loss, and what it costs.

Beside a layer's block sizes stand the options of an activation: its own, exact by two-party computation, or a
polynomial in its place. Their numbers (:data:`OPTIONS`) are under all block sizes, so that one block size everywhere
leaves activations as they are.

What a polynomial p in place of an activation f would do to the loss is estimated as for weights, to second order, with
the squared gradients of each sample's loss for the diagonal of the Hessian::

    Omega = mean over the samples of  the sum over the values of  (gradient in f(x))^2 (f(x) - p(x))^2

p is the polynomial of its degree that is nearest to f on the samples, for each channel. Both follow from the moments of
1, x, x^2 and f(x), plain and weighted by squared gradients: one pass over the images is enough.

What is replaced, and why it pays: Jha et al., DeepReDuce (ICML 2021). Departure: all of it in one integer program.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle

from privcirnet import distributed
from privcirnet.artifact import REPLACEMENTS
from privcirnet.blocksizes.latency import Figures, figures_of_nodes
from privcirnet.errors import RuleError
from privcirnet.he.planning.goal import Goal
from privcirnet.he.planning.target import Target
from privcirnet.nn.activations import Square
from privcirnet.nn.graph import evaluating
from privcirnet.nn.nonpolynomial import function_name
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower.activations import EXACT
from privcirnet.passes.lower.usual import usual_draft

OPTIONS = {"own": 0, **{kind: -1 - index for index, kind in enumerate(REPLACEMENTS)}}
"""Number of each option, where layers have block sizes."""
KINDS = {option: kind for kind, option in OPTIONS.items()}
_DEGREES = {"aespa": 2, "square": 2, "identity": 1}
_GATES = ("sigmoid", "hardsigmoid")
_VALUES = 1 << 22
"""Of an activation that moments are taken of at a time."""


def activation_sizes(model: nn.Module, image: Tensor) -> dict[str, int]:
    """Return the values of every activation that has an exact form and a polynomial one, by module name.

    Args:
        image: (1, C, H, W).

    Raises:
        RuleError: one runs twice, so that it cannot be decided on.
    """
    found = dict[str, int]()

    def see(name: str, _: Tensor, output: Tensor) -> None:
        if name in found:
            remedy = 'make each a module first: recipe=replace +model.arguments.activation=own, or activation="own"'
            raise RuleError("an activation must run once an image", got=name, remedy=remedy)
        found[name] = output.numel()

    with torch.no_grad(), evaluating(model), _seen(model, _activations(model), see):
        model(image)
    return found


def activation_moments(model: nn.Module, images: Tensor, labels: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Return moments of activations' values, plain and weighted by squared gradients, in evaluation mode.

    Args:
        images: (N, C, H, W).
        labels: (N,), or probabilities (N, classes).

    Returns:
        For each name the means over the samples of sums over values, (2, C, 4, 4), float64: of the products of 1, x,
        x^2 and f(x), then of those times the square of the gradient of the sample's loss in f(x).
    """
    device, values = next(model.parameters()).device, dict[str, tuple[Tensor, Tensor]]()
    shared, total = distributed.share(images).to(device), dict[str, Tensor]()
    with evaluating(model), torch.enable_grad(), _seen(model, names, lambda name, *pair: values.update({name: pair})):
        loss = cross_entropy(model(shared.requires_grad_()), distributed.share(labels).to(device), reduction="sum")
        gradients = torch.autograd.grad(loss, [values[name][1] for name in names])
    for name, gradient in zip(names, gradients, strict=True):
        total[name] = distributed.total(_moments(*values[name], gradient)) / len(images)
    return total


def rise(moments: Tensor, plain: Tensor, kind: str) -> float:
    """Return Omega of what an activation becomes; linear in ``moments``.

    Args:
        moments: of :func:`activation_moments`, (2, C, 4, 4), perhaps of a part of the images.
        plain: those of all images that its polynomial is fitted to.
        kind: of :data:`OPTIONS`.
    """
    if kind == "own":
        return 0.0
    terms = _DEGREES[kind] + 1
    nearest = torch.linalg.pinv(plain[0, :, :terms, :terms], hermitian=True) @ plain[0, :, :terms, 3:]
    error = torch.zeros_like(plain[0, :, :, :1])
    error[:, 3], error[:, :terms] = 1.0, -nearest
    return (error.mT @ moments[1] @ error).sum().item()


def activation_figures(
    model: nn.Module, sizes: dict[str, int], kinds: Sequence[str], goal: Goal
) -> dict[str, dict[int, Figures]]:
    """Return predictions by activation and option: of the exact steps and squares that each would be.

    A depthwise layer that AESPA needs where another activation's result is added is not counted.
    """
    target = Target(goal.profile, goal.link, truncation="exact", nonlinear="exact")

    @cache
    def figures(function: str, values: int, kind: str) -> Figures:
        own = next(m for m in modules if function_name(m) == function)
        between = {"own": own, "identity": nn.Identity()}.get(kind, Square())
        network = nn.Sequential(nn.Conv2d(1, 1, 1), between, nn.Conv2d(1, 1, 1))
        nodes = usual_draft(fuse(network), (1, values, 1), target).nodes
        return figures_of_nodes([node for node in nodes if not node.operation.layers], goal.profile, goal.link)

    modules = [model.get_submodule(name) for name in sizes]
    functions = [str(function_name(module)) for module in modules]
    return {
        name: {OPTIONS[kind]: figures(function, values, kind) for kind in ("own", *kinds)}
        for (name, values), function in zip(sizes.items(), functions, strict=True)
    }


def _activations(model: nn.Module) -> list[str]:
    names = {name: function_name(module) for name, module in model.named_modules()}
    return [name for name, function in names.items() if function in EXACT and function not in _GATES]


@contextmanager
def _seen(model: nn.Module, names: Sequence[str], see: Callable[..., object]) -> Iterator[None]:
    """Call a function with name, input and output of modules, each as it was even if others work in place."""
    inputs, handles = dict[str, Tensor](), list[RemovableHandle]()

    def before(_: nn.Module, given: tuple[Tensor, ...], name: str) -> None:
        inputs[name] = given[0].detach().clone()

    def after(_: nn.Module, given: tuple[Tensor, ...], output: Tensor, name: str) -> Tensor:
        see(name, inputs.pop(name), output)
        return output.clone()

    for module, name in ((model.get_submodule(name), name) for name in names):
        handles.append(module.register_forward_pre_hook(partial(before, name=name)))
        handles.append(module.register_forward_hook(partial(after, name=name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _moments(x: Tensor, y: Tensor, gradient: Tensor) -> Tensor:
    """Sums over samples and places, (2, C, 4, 4); channels are the first axis of maps, the last of tokens."""
    axis, most = 1 if x.ndim == 4 else -1, max(1, _VALUES // x.shape[1:].numel())
    found = torch.zeros(2, x.shape[axis], 4, 4, dtype=torch.float64, device=x.device)
    for parts in zip(*(each.split(most) for each in (x, y, gradient)), strict=True):
        one, result, weight = (part.movedim(axis, 0).flatten(1).double() for part in parts)
        powers = torch.stack((torch.ones_like(one), one, one.square(), result), 1)
        found += torch.stack([powers @ powers.mT, (powers * weight.square().unsqueeze(1)) @ powers.mT])
    return found
