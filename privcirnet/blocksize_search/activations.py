"""Activations as layers of the search: their options, and the effect of each on the loss and the cost.

Beside a layer's block sizes stand the options of an activation: its own, exact by two-party computation, or a
polynomial in its place. Their numbers (:data:`OPTIONS`) are under all block sizes, so that one block size everywhere
leaves activations as they are.

The rise of the loss by a polynomial p in place of an activation f is estimated to second order. With d = f(x) - p(x),
all values of a sample together, and labels drawn from the network's own predictions::

    Omega = mean over the samples of  (gradient of the sample's loss in f(x) . d)^2

is twice the divergence of the network's predictions from what they were, for small d: the Fisher information along d.
Unlike in weights, d is another one for each sample, and the effects of its values add up, which the diagonal alone
leaves out. p is the polynomial of its degree that is nearest to f on some images, channel by channel.

Source of the choice of activations: Jha et al., DeepReDuce (ICML 2021). Departure: all of it in one integer program.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.hooks import RemovableHandle

from privcirnet import distributed
from privcirnet.artifact.records import REPLACEMENTS
from privcirnet.blocksize_search.latency import CostPrediction, figures_of_nodes
from privcirnet.errors import RuleError
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.plan_program import Target
from privcirnet.nn.activations import Square
from privcirnet.nn.graph import evaluating
from privcirnet.nn.supported_modules import function_name, row_of
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower import usual_draft

OPTIONS = {"own": 0, **{kind: -1 - index for index, kind in enumerate(REPLACEMENTS)}}
"""Number of each option, where layers have block sizes."""
KINDS = {option: kind for kind, option in OPTIONS.items()}
_DEGREES = {"aespa": 2, "square": 2, "identity": 1}
_TOGETHER = 16
"""Number of images whose activations are held at a time."""


def activation_sizes(model: nn.Module, image: Tensor) -> dict[str, int]:
    """Return the values of every activation that has an exact form and a polynomial one, by module name.

    Args:
        image: (1, C, H, W).

    Raises:
        RuleError: one runs twice, so that it cannot be decided on.
    """
    sizes = dict[str, int]()

    def see(name: str, _: Tensor, output: Tensor) -> None:
        if name in sizes:
            remedy = "make each a module first: recipe=replace activation=own"
            raise RuleError("an activation must run once an image", got=name, remedy=remedy)
        sizes[name] = output.numel()

    with torch.no_grad(), evaluating(model), _seen(model, _activations(model), see):
        model(image)
    return sizes


def replacement_errors(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], options: Mapping[str, Sequence[int]]
) -> dict[str, Tensor]:
    """Return the differences of activations from their replacements, with the nearest polynomials on some images.

    Args:
        batches: images (N, C, H, W) and labels, which are ignored.
        options: options of each activation, by name.

    Returns:
        For each name d's coefficients of 1, x, x^2 and f(x), (options, C, 4), float64.
    """
    moments, device = dict[str, Tensor](), next(model.parameters()).device

    def see(name: str, x: Tensor, y: Tensor) -> None:
        powers = _powers(x, y)
        moments[name] = moments.get(name, 0) + torch.einsum("ncpk,ncpl->ckl", powers, powers)

    with torch.no_grad(), evaluating(model), _seen(model, [*options], see):
        for part in (part for images, _ in batches for part in images.split(_TOGETHER)):
            model(part.to(device))
    return {name: torch.stack([_error(moments[name], KINDS[b]) for b in some]) for name, some in options.items()}


def _error(moments: Tensor, kind: str) -> Tensor:
    """Return coefficients of 1, x, x^2 and f(x), (C, 4), from the sums of their products, (C, 4, 4)."""
    coefficients = torch.zeros_like(moments[:, 0])
    if kind != "own":
        terms = _DEGREES[kind] + 1
        inverse = torch.linalg.pinv(moments[:, :terms, :terms], hermitian=True)
        coefficients[:, 3], coefficients[:, :terms] = 1.0, -(inverse @ moments[:, :terms, 3:]).squeeze(-1)
    return coefficients


def activation_omegas(model: nn.Module, images: Tensor, errors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return Omega of activations' options on some images, in evaluation mode.

    Args:
        images: (N, C, H, W).
        errors: result of :func:`replacement_errors`.

    Returns:
        Omega by name, (options,), float64.
    """
    device, values = next(model.parameters()).device, dict[str, tuple[Tensor, Tensor]]()
    random = torch.Generator(device).manual_seed(0)
    total = {name: torch.zeros_like(error[:, 0, 0]) for name, error in errors.items()}
    with evaluating(model), torch.enable_grad(), _seen(model, [*errors], lambda name, *of: values.update({name: of})):
        for part in distributed.share(images).split(_TOGETHER):
            logits = model(part.to(device, copy=True).requires_grad_())
            drawn = logits.detach().softmax(-1).multinomial(1, generator=random).squeeze(1)
            loss = cross_entropy(logits, drawn, reduction="sum")
            gradients = torch.autograd.grad(loss, [values[name][1] for name in errors])
            for (name, error), gradient in zip(errors.items(), gradients, strict=True):
                sums = torch.einsum("ncpk,ncp->nck", _powers(*values[name]), _by_channel(gradient))
                total[name] = total[name] + torch.einsum("nck,ock->no", sums, error).square().sum(0)
    return {name: distributed.total(omega) / len(images) for name, omega in total.items()}


def activation_figures(
    model: nn.Module, sizes: dict[str, int], kinds: Sequence[str], goal: Objective
) -> dict[str, dict[int, CostPrediction]]:
    """Return predictions by activation and option, for the exact steps and squares that each would be.

    A depthwise layer that AESPA needs where another activation's result is added is not counted.
    """
    target = Target(goal.profile, goal.link, truncation="exact", nonlinear="exact")

    @cache
    def figures(function: str, values: int, kind: str) -> CostPrediction:
        original = next(m for m in modules if function_name(m) == function)
        between = {"own": original, "identity": nn.Identity()}.get(kind, Square())
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
    activations = [name for name, module in model.named_modules() if row_of(module).kind == "activation"]
    return [name for name in activations if function_name(model.get_submodule(name))]


@contextmanager
def _seen(model: nn.Module, names: Sequence[str], see: Callable[..., object]) -> Iterator[None]:
    """Call a function with name, input and output of modules, each as it was even if others work in place."""
    inputs, handles = dict[str, Tensor](), list[RemovableHandle]()

    def before(_: nn.Module, arguments: tuple[Tensor, ...], name: str) -> None:
        inputs[name] = arguments[0].detach().clone()

    def after(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor, name: str) -> Tensor:
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


def _powers(x: Tensor, y: Tensor) -> Tensor:
    """Return 1, x, x^2 and f(x) of samples, (N, C, places, 4)."""
    x, y = _by_channel(x), _by_channel(y)
    return torch.stack((torch.ones_like(x), x, x.square(), y), -1)


def _by_channel(x: Tensor) -> Tensor:
    """Return values as (N, C, places), float64; channels are the first axis of maps, the last of tokens."""
    return (x if x.ndim == 4 else x.movedim(-1, 1)).detach().unsqueeze(-1).flatten(2).double()
