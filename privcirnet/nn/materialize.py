"""Weights that a layer computes from others at each use made plain: of weight_norm, spectral_norm, pruning, of users.

Training goes on through them: ``polynomial_`` and ``fit`` leave them alone, so that masks hold. Steps on the weights
themselves make them plain, which changes no value in evaluation: ``circulant_`` in place, ``fuse``, ``quantize`` and
``search`` in a copy. This toolkit's own parametrizations, circulant and quantized, are none of them.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm, SpectralNormLoadStateDictPreHook, remove_spectral_norm
from torch.nn.utils.weight_norm import WeightNorm, remove_weight_norm

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def has_plain_weights(module: nn.Module) -> bool:
    """Return whether no tensor of a module, or of those inside it, is computed from others."""
    return not any(True for child in module.modules() for _ in _removals(child))


def with_plain_weights(model: AnyModule) -> AnyModule:
    """Return a network that computes the same in evaluation, with plain weights.

    Returns:
        The network itself if its weights are plain, else a copy.
    """
    if has_plain_weights(model):
        return model
    with torch.no_grad():  # a weight that remembers what it was computed from cannot be copied
        for module in model.modules():
            for hook in module._forward_pre_hooks.values():
                if isinstance(hook, SpectralNorm) and module.training:
                    weight = hook.compute_weight(module, do_power_iteration=False)
                    setattr(module, hook.name, weight)
                elif isinstance(hook, WeightNorm | SpectralNorm | prune.BasePruningMethod):
                    hook(module, ())
    return materialize_weights_(copy.deepcopy(model))


def materialize_weights_(module: AnyModule) -> AnyModule:
    """Return the module, all weights plain: a computed weight becomes a parameter with its value in evaluation.

    >>> layer = materialize_weights_(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    for child in module.modules():
        for remove in list(_removals(child)):
            remove()
    return module


def _removals(module: nn.Module) -> Iterator[Callable[[], object]]:
    """Yield functions that make the tensors of a module plain, one by one."""
    for hook in module._forward_pre_hooks.values():
        match hook:
            case WeightNorm():
                yield partial(remove_weight_norm, module, hook.name)
            case SpectralNorm():
                yield partial(_remove_spectral_norm_, module, hook.name)
            case prune.BasePruningMethod():
                yield partial(prune.remove, module, hook._tensor_name)
            case _:
                pass
    structures: nn.ModuleDict = module.parametrizations if parametrize.is_parametrized(module) else nn.ModuleDict()  # type: ignore[assignment]
    for name, chain in structures.items():
        if not any(type(structure).__module__.startswith("privcirnet.") for structure in chain):  # type: ignore[arg-type]
            yield partial(_remove_parametrization_, module, name)


def _remove_spectral_norm_(module: nn.Module, name: str) -> None:
    """Remove a spectral norm with its load hook, which torch forgets."""
    remove_spectral_norm(module, name)
    hooks = module._load_state_dict_pre_hooks
    for key, hook in list(hooks.items()):
        if isinstance(getattr(hook, "hook", hook), SpectralNormLoadStateDictPreHook):
            del hooks[key]


def _remove_parametrization_(module: nn.Module, name: str) -> None:
    give_own_class_(module)
    module.parametrizations[name].eval()  # type: ignore[index]
    trained = any(parameter.requires_grad for parameter in module.parametrizations[name].parameters())  # type: ignore[index]
    parametrize.remove_parametrizations(module, name)
    value = getattr(module, name).detach()
    delattr(module, name)
    setattr(module, name, nn.Parameter(value, requires_grad=trained))


def give_own_class_(module: nn.Module) -> None:
    """Separate a copied module from its original.

    A deep copy shares the class that torch generates, which holds a property for each parametrization. Without a class
    of its own, registering or removing a parametrization on the copy would break the original.
    """
    if parametrize.is_parametrized(module):
        cls = type(module)
        contents = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        module.__class__ = type(cls.__name__, cls.__bases__, contents)  # type: ignore[assignment]
