"""Modules that compute more than their class: through forward hooks that return something, or another forward.

A traced network calls a layer by its name, and surgery, folding and lowering go by its class. A computation around the
class is refused before it would be lost. Hooks that leave values as they are, which only look or set a weight, are
ignored.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.node import map_aggregate

from privcirnet.errors import RuleError, listed
from privcirnet.nn.example import example_for

UNTRIED = "forward hooks must leave values as they are"
"""Rule broken by hooks that cannot be tried for lack of images."""

_RULE = "a module must compute what its class says"
_FORWARDS = ("forward", "_conv_forward", "_call_impl")


def check_own_forwards(model: nn.Module, is_leaf: Callable[[nn.Module, str], bool], images: Tensor | None) -> None:
    """Raise if the network or a layer that tracing does not enter computes more than its class says.

    Args:
        is_leaf: (module, path) -> whether tracing does not enter a module.
        images: some images that it takes; None to try images of usual sizes.
    """
    leaves = {path: module for path, module in model.named_modules() if not path or is_leaf(module, path)}
    replaced = [_name(path, module) for path, module in leaves.items() if any(f in vars(module) for f in _FORWARDS)]
    if replaced:
        remedy = "write a module of a class of its own, with this forward"
        raise RuleError(_RULE, got=f"another forward at {listed(replaced)}", remedy=remedy)
    if compiled := [_name(path, module) for path, module in model.named_modules() if path and _is_compiled(module)]:
        raise RuleError("a layer must not be compiled", got=listed(compiled), remedy="give copy.deepcopy(model)")
    hooked = {path: module for path, module in leaves.items() if module._forward_hooks or module._forward_pre_hooks}
    if not hooked:
        return
    example = example_for(model) if images is None else images
    if example is None:
        got = (
            f"some at {listed([_name(path, module) for path, module in hooked.items()])}, and no images to try them on"
        )
        raise RuleError(UNTRIED, got=got, remedy="remove them, or give images")
    if changing := _changing(model, hooked, example):
        where = listed([_name(path, hooked[path]) for path in changing])
        remedy = "write what the hook computes as a module, or merge it into the weights, and remove the hook"
        raise RuleError(_RULE, got=f"forward hooks that change values at {where}", remedy=remedy)


@torch.no_grad()
def _changing(model: nn.Module, hooked: dict[str, nn.Module], images: Tensor) -> list[str]:
    """Return the paths of the modules with a hook that returned another value or wrote to one."""
    changing: list[str] = []

    def watched(path: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*arguments: Any, **options: Any) -> Any:
            before = _versions(arguments)
            result = hook(*arguments, **options)
            changed = _versions(arguments) != before or not (result is None or result is arguments[-1])
            if changed and path not in changing:
                changing.append(path)
            return result

        return watch

    before = [(hooks, dict(hooks)) for module in hooked.values() for hooks in _hooks(module)]
    try:
        for path, module in hooked.items():
            for hooks in _hooks(module):
                hooks.update({key: watched(path, hook) for key, hook in hooks.items()})
        model(images.clone())
    finally:
        for hooks, original in before:
            hooks.update(original)
    return changing


def _hooks(module: nn.Module) -> Iterator[dict[int, Callable[..., Any]]]:
    yield module._forward_pre_hooks  # type: ignore[misc]
    yield module._forward_hooks  # type: ignore[misc]


def _versions(arguments: tuple[Any, ...]) -> list[int]:
    """Return how often each tensor among a hook's arguments has been written to."""
    versions: list[int] = []
    map_aggregate(arguments, lambda value: versions.append(value._version) if isinstance(value, Tensor) else None)
    return versions


def _is_compiled(module: nn.Module) -> bool:
    return module._compiled_call_impl is not None


def _name(path: str, module: nn.Module) -> str:
    return f"{path or 'the network itself'} ({type(module).__name__})"
