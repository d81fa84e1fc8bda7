"""Checks of a network before anything is measured on it or made of it: whole weights, images of its size."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from privcirnet.errors import RuleError, first_line, listed
from privcirnet.nn.example import IMAGE
from privcirnet.nn.graph import evaluating

_INNER = ("_orig_mod", "module")
"""Attributes in which wrappers of torch keep the network: compiled ones, and DataParallel, DistributedDataParallel,
AveragedModel."""


@contextmanager
def understood(verb: str) -> Iterator[None]:
    """Refuse a network with which a verb fails by an unexpected error.

    Yields:
        Nothing.

    Raises:
        RuleError: there was an error of another kind.
    """
    try:
        yield
    except RuleError:
        raise
    except Exception as error:
        rule, got = f"a network must be one that {verb} understands", f"{type(error).__name__}: {first_line(error)}"
        raise RuleError(rule, got=got, remedy="report this network") from error


def check_module(model: object) -> None:
    """Raise unless something is a network itself, not a wrapper around one, with usable weights."""
    if not isinstance(model, nn.Module):
        raise RuleError("a network must be a torch module", got=type(model).__name__, remedy="give an nn.Module")
    if torch.is_inference_mode_enabled():
        rule = "a network must be read and changed outside of torch.inference_mode"
        raise RuleError(rule, got="a call inside of it", remedy="use torch.no_grad")
    for name, module in model.named_modules():
        _check_unwrapped(module, f"model.{name}".rstrip("."))
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        if values.is_floating_point():
            _check_number(name, values)


def _check_unwrapped(module: nn.Module, path: str) -> None:
    rule, kind = "a network must be given without what wraps it", type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise RuleError(rule, got=f"{kind} at {path}", remedy="give the module that was scripted")
    if "eval" in vars(module):  # which torch.export replaces: what was exported has one mode
        raise RuleError(rule, got=f"{kind} of torch.export at {path}", remedy="give the module that was exported")
    inner = next((name for name in _INNER if name in module._modules), "")
    bare = type(module) is nn.Module  # of a graph, for the names of what lies in it
    if inner and type(module).__module__.startswith("torch.") and not bare:
        raise RuleError(rule, got=f"{kind} at {path}", remedy=f"give {path}.{inner}")


def _check_number(name: str, values: Tensor) -> None:
    rule, kind = "weights must be float32 or float64", str(values.dtype).removeprefix("torch.")
    if is_lazy(values):
        raise RuleError(rule, got=f"none yet at {name}", remedy="show the network an image first: model(images[:1])")
    if values.is_meta:
        raise RuleError(rule, got=f"none at {name}, which is on device meta", remedy="load weights: model.to_empty")
    if values.dtype not in (torch.float32, torch.float64):
        raise RuleError(rule, got=f"{kind} at {name}", remedy="give model.float()")
    if values.is_inference():
        got, remedy = f"{name} of torch.inference_mode", "give copy.deepcopy(model), made outside of it"
        raise RuleError("weights must be such that training can change", got=got, remedy=remedy)


def check_weights(model: nn.Module) -> None:
    """Raise unless all weights are finite and each belongs to one layer."""
    check_module(model)
    owners: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners.setdefault(id(parameter), []).append(name)
    if shared := next((names for names in owners.values() if len(names) > 1), []):
        remedy = "give each layer a copy, for example nn.Parameter(weight.detach().clone())"
        raise RuleError("each layer must have weights of its own", got=" = ".join(shared), remedy=remedy)
    check_finite(model)


def check_finite(model: nn.Module) -> None:
    """Raise unless all weights and buffers of a network are finite."""
    named = [*model.named_parameters(), *model.named_buffers()]
    if broken := [name for name, values in named if values.is_floating_point() and not values.isfinite().all()]:
        remedy = "load other weights, or train again with a lower learning rate"
        raise RuleError("weights must be finite", got=f"NaN or infinity in {listed(broken)}", remedy=remedy)


RANKS = (2, 3, 4)
"""Axes of a table (N, F), of signals (N, C, L) and of images (N, C, H, W)."""
_SIGNALS = 3
_INSTEAD = {
    1: "give several rows, or table[None] for one",
    5: "give images (N, C, H, W): no convolution runs over time or depth",
}


def image_of(size: Sequence[int]) -> tuple[int, int, int]:
    """Return an input's size without the batch as (C, H, W): signals are maps of one row, a table's rows one place.

    >>> image_of((20,)), image_of((6, 128))
    ((20, 1, 1), (6, 1, 128))
    """
    channels, *rest = size
    height, width = (1, 1, *rest)[-2:]
    return channels, height, width


def check_batch(images: object) -> None:
    """Raise unless something is a batch of images or signals, or a table, all finite.

    Args:
        images: candidate for images (N, C, H, W), signals (N, C, L) or a table (N, F).
    """
    if not isinstance(images, Tensor) or images.ndim not in RANKS or not len(images):
        got = f"shape {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        remedy = _INSTEAD.get(images.ndim if isinstance(images, Tensor) else 0, "give a batch of them")
        rule = "images must be a tensor (N, C, H, W), N at least 1, signals (N, C, L) or a table (N, F)"
        raise RuleError(rule, got=got, remedy=remedy)
    if not images.is_floating_point():
        got = str(images.dtype).removeprefix("torch.")
        remedy = "give images.float(), scaled as in training; in place of numbers of words what their embedding gives"
        raise RuleError("images must be floating-point numbers", got=got, remedy=remedy)
    if not images.isfinite().all():
        raise RuleError("images must be finite", got="NaN or infinity", remedy="leave such images out")


def check_images(model: nn.Module, images: Tensor) -> None:
    """Raise unless a network can take images: there are some, they are finite and of the size that it is made for.

    Args:
        images: (N, C, H, W).
    """
    check_batch(images)
    size, made_for = tuple(images.shape[1:]), getattr(model, "meta", {}).get(IMAGE)
    if made_for not in (None, size):
        remedy = "resize the images, or begin again with the network as it was before polynomial_ and fuse"
        raise RuleError(
            "a network must get images of the size it was traced at", got=f"{size} for {made_for}", remedy=remedy
        )


@torch.no_grad()
def value_of_one(model: nn.Module, images: Tensor) -> object:
    """Return a network's output on the first image, in evaluation mode, after :func:`check_images`.

    Args:
        images: (N, C, H, W).
    """
    check_images(model, images)
    first = next(model.parameters(), images)
    try:
        with evaluating(model):
            value = model(images[:1].to(first.device))
    except (AssertionError, RuntimeError, ValueError, TypeError) as error:
        kind, problem = str(images.dtype).removeprefix("torch."), next(iter(str(error).splitlines()), "")
        got = f"{tuple(images.shape[1:])} of {kind}: {problem}"
        prefix = "give images[None] for one image; " if images.ndim == _SIGNALS else ""
        remedy = f"{prefix}give images of the size, type and channels that it is made for"
        raise RuleError("a network must take the images", got=got, remedy=remedy) from error
    if isinstance(value, Tensor) and value.ndim < 2:
        rule, remedy = "a network must return values for each image, (N, K)", "keep its last axis, also for one value"
        raise RuleError(rule, got=f"shape {tuple(value.shape)} for one image", remedy=remedy)
    return value


def logits_of_one(model: nn.Module, images: Tensor) -> Tensor:
    """Return a network's logits of the first image, see :func:`value_of_one`.

    Args:
        images: (N, C, H, W).

    Returns:
        Logits, (1, classes), on the network's device.
    """
    logits = value_of_one(model, images)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise RuleError("a network must return logits (N, classes)", got=got, remedy="end it in a linear layer")
    return logits
