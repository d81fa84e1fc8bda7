"""Traps of a trace by torch.fx: in-place operations, forwards other than the class's, proxies left behind.

torch.fx records operations as a pure dataflow. ``x.relu_()``, ``F.relu(x, inplace=True)``, ``nn.ReLU(inplace=True)``,
``x += y`` and ``torch.add(x, y, out=x)`` change a value that other names may stand for as well. Here such an operation
is recorded as its form that does not write, and the proxy of the value stands for the result from then on. Views of a
value that was written to, which share its memory, cannot be followed; reading one afterwards is an error.

A traced network calls a layer by its name, and surgery, folding and lowering go by its class. A computation around the
class, through forward hooks that return something or another forward, is refused before it would be lost. Hooks that
leave values as they are, which only look or set a weight, are ignored.

A network that caches a value would keep a proxy, so its attributes are restored after the trace.
"""

import inspect
import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.errors import RuleError, listed
from privcirnet.nn.example import example_for

_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_PLAIN: dict[Any, Callable[..., Any]] = {
    **{getattr(operator, f"i{name}"): getattr(operator, name) for name in _OPERATORS},
    **{
        getattr(room, f"{name}_"): getattr(room, name)
        for room in (torch, F)
        for name in dir(room)
        if not name.startswith("_") and callable(getattr(room, f"{name}_", None))
    },
}
"""Operation that writes into its first argument -> its form that does not write."""
_VIEWS = frozenset(
    "view reshape flatten unflatten squeeze unsqueeze permute transpose swapaxes movedim chunk split unbind narrow "
    "select expand expand_as view_as reshape_as detach contiguous to type float getitem getattr dropout dropout2d "
    "alpha_dropout".split()
)
"""Operations whose result may be the memory of their input, functions and methods by name."""
CASTS = frozenset({"float", "double", "half", "bfloat16", "to", "type", "type_as"})
"""Methods that change the precision of real values, and no value."""
_VIEW_MODULES = (nn.Flatten, nn.Unflatten, nn.Identity, _DropoutNd)


class Proxy(fx.Proxy):
    """A proxy on which ``x += y`` is an operation that writes; torch.fx makes it ``x = x + y``."""

    def __setitem__(self, key: object, value: object) -> None:
        remedy = "compute the parts and join them with torch.cat, or multiply with a mask"
        raise RuleError("a network must not write to a part of a value", got=f"{self.node.name}[...] =", remedy=remedy)


def _writing(name: str) -> Callable[[fx.Proxy, Any], Any]:
    target = getattr(operator, name)
    return lambda self, other: self.tracer.create_proxy("call_function", target, (self, other), {})


for _operator in _OPERATORS:
    setattr(Proxy, f"__i{_operator}__", _writing(f"i{_operator}"))


class RecordedOperation(NamedTuple):
    """An operation as it is recorded.

    Attributes:
        target: function that does not write into its arguments, unless there is no such form.
        written: proxy of the value that takes the result's place; None if nothing is written to.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    written: fx.Proxy | None


def without_writing(
    root: nn.Module, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> RecordedOperation:
    """Return the form of an operation that does not write into its arguments, and the target of its write."""
    written: Any = None
    first = args[0] if args else kwargs.get("input")
    match kind:
        case "call_module":
            written = first if getattr(root.get_submodule(str(target)), "inplace", False) else None
        case "call_method" if str(target).endswith("_") and not str(target).endswith("__"):
            written, plain = first, str(target).rstrip("_")
            target = plain if callable(getattr(Tensor, plain, None)) else target
        case "call_function" if target in _PLAIN:
            written, target = first, _PLAIN[target]
        case "call_function" if isinstance(kwargs.get("out"), fx.Proxy):
            written, kwargs = kwargs["out"], {key: value for key, value in kwargs.items() if key != "out"}
        case "call_function" if _is_inplace(target, args, kwargs):
            written, (args, kwargs) = first, _not_in_place(target, args, kwargs)
        case _:
            pass
    return RecordedOperation(target, args, kwargs, written if isinstance(written, fx.Proxy) else None)


def _is_inplace(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    bound = _bound(target, args, kwargs)
    return bound is not None and bound.arguments.get("inplace") is True


def _not_in_place(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    bound = _bound(target, args, kwargs)
    assert bound is not None
    bound.arguments["inplace"] = False
    return bound.args, dict(bound.kwargs)


def _bound(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments | None:
    """Return the arguments of a Python function by name; None for a built-in one, which has no ``inplace``."""
    try:
        return inspect.signature(target).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None


class Memory:
    """The memory of nodes: which of them share it, and which hold values overwritten through another one."""

    def __init__(self) -> None:
        self._owner: dict[fx.Node, fx.Node] = {}
        self._stale: dict[fx.Node, str] = {}

    def check(self, arguments: Any) -> None:
        """Raise if an operation reads a value that was overwritten through a view of it."""
        for node in _nodes_in(arguments):
            if node in self._stale:
                got = f"{node.name}, which shares memory with what {self._stale[node]} wrote to"
                remedy = "write the operation without inplace=True and without a _ at the end of its name"
                raise RuleError("a view must not be read after its memory was written to", got=got, remedy=remedy)

    def note(self, root: nn.Module, node: fx.Node) -> None:
        """Record whose memory a new node has."""
        if not node.all_input_nodes or not _is_view(root, node):
            return
        self._owner[node] = self._of(node.all_input_nodes[0])

    def write(self, written: fx.Proxy, result: fx.Proxy) -> None:
        """Let a proxy stand for the value written to it."""
        before, after = written.node, result.node
        if before.op == "get_attr":
            rule, remedy = "a network must not change itself in its forward", "keep what changes out of it"
            raise RuleError(rule, got=str(before.target), remedy=remedy)
        owner = self._of(before)
        sharing = [node for node in before.graph.nodes if node is not after and self._of(node) is owner]
        self._stale |= {node: after.name for node in sharing}
        self._owner[after] = owner
        vars(written).update(vars(result))

    def _of(self, node: fx.Node) -> fx.Node:
        return self._owner.get(node, node)


def _is_view(root: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return isinstance(root.get_submodule(str(node.target)), _VIEW_MODULES)
    return getattr(node.target, "__name__", str(node.target)) in _VIEWS


def _nodes_in(arguments: Any) -> Iterator[fx.Node]:
    proxies: list[fx.Proxy] = []
    map_aggregate(arguments, lambda value: proxies.append(value) if isinstance(value, fx.Proxy) else None)
    yield from (proxy.node for proxy in proxies)


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


@contextmanager
def restore_attributes(model: nn.Module) -> Generator[None]:
    """Restore the attributes of modules afterwards, and the contents of lists, dicts and sets among these.

    Yields:
        Nothing.
    """
    attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
    values = [value for _, state in attributes for value in state.values()]
    listed = [(value, list(value)) for value in values if isinstance(value, list)]
    containers = [(value, value.copy()) for value in values if isinstance(value, dict | set)]
    try:
        yield
    finally:
        for now, before in (*attributes, *containers):
            now.clear()
            now.update(before)
        for now, before in listed:
            now[:] = before
