"""In-place operations in a traced network: all readers of a value that was written to get the new value.

torch.fx records operations as a pure dataflow. ``x.relu_()``, ``F.relu(x, inplace=True)``, ``nn.ReLU(inplace=True)``,
``x += y`` and ``torch.add(x, y, out=x)`` change a value that other names may stand for as well. Here such an operation
is recorded as its form that does not write, and the proxy of the value stands for the result from then on. Views of a
value that was written to, which share its memory, cannot be followed; reading one afterwards is an error.
"""

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.errors import RuleError

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
_VIEW_MODULES = (nn.Flatten, nn.Unflatten, nn.Identity, _DropoutNd)


class Proxy(fx.Proxy):
    """A proxy on which ``x += y`` is an operation that writes; torch.fx makes it ``x = x + y``."""

    def __setitem__(self, key: object, value: object) -> None:
        remedy = "compute the parts and join them with torch.cat, or multiply with a mask"
        raise RuleError("a network must not write to a part of a value", got=f"{self.node.name}[...] =", remedy=remedy)


def _writing(name: str) -> Callable[[fx.Proxy, Any], Any]:
    target = getattr(operator, name)
    return lambda self, other: self.tracer.create_proxy("call_function", target, (self, other), {})


for _name in _OPERATORS:
    setattr(Proxy, f"__i{_name}__", _writing(f"i{_name}"))


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
