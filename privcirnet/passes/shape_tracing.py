"""Tracing at one image size: whatever a network computes from shapes is a plain number, so it may branch on them.

torch.fx runs the network's forward on proxies. Here each proxy carries the value of some images as well. Results
other than tensors, such as sizes, go back to the forward as they are and are no part of the graph. Only
branches on the images themselves remain impossible.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx import _symbolic_trace
from torch.fx.node import Argument, Target, map_aggregate

from privcirnet.errors import RuleError, listed
from privcirnet.nn.graph import Tracer, check_one_output, evaluating, graph_module
from privcirnet.nn.tracing import CASTS, Proxy, check_own_forwards, restore_attributes

_FILLED = frozenset({"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"})
"""Functions and methods whose result depends on the shape of a value alone."""
_SHAPED_AS = {"expand_as": "expand", "view_as": "view", "reshape_as": "reshape"}
"""Methods that read the shape of another value -> methods that take the shape itself."""
TRANSFORMERS = (
    *(nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder),
    *(nn.TransformerEncoderLayer, nn.TransformerDecoderLayer),
)
"""Modules of torch that are made of others, which tracing enters."""


class _Valued(Proxy):
    """A proxy that knows the value it stands for: a tensor, or tensors in a list or tuple."""

    value: Any = None

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.value, name, None)
        if isinstance(attribute, Tensor):
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name) if attribute is None or callable(attribute) else attribute

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return iter([cast(Any, self)[place] for place in range(len(self.value))])


class _SizedTracer(Tracer):
    """A tracer whose proxies carry values."""

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self._images, self._computing = images, False
        self._forward: Callable[..., Any] | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        norms = nn.LayerNorm | nn.GroupNorm
        leaf = isinstance(m, norms) or super().is_leaf_module(m, module_qualified_name)
        return leaf and not isinstance(m, TRANSFORMERS)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Valued(node, self)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._computing:
            return forward(*args, **kwargs)
        self._forward = forward
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self._computing else super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_node(self, kind: str, target: Target, *more: Any, **named: Any) -> fx.Node:
        """Record a node; parameters, buffers and other tensors of the forward are constants."""
        node = super().create_node(kind, target, *more, **named)
        if kind == "get_attr":
            _note(node, self._value(kind, target, (), {}))
        return node

    def _record(self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], *more: Any) -> Any:
        if kind == "placeholder" and args:  # an option of the forward keeps its default
            return args[0]
        name: str = getattr(target, "__name__", str(target))
        if name in _FILLED:
            return self._value(kind, target, args, kwargs)
        if kind == "call_method" and name in _SHAPED_AS:
            tensor, like = (*args, *kwargs.values())
            target, args, kwargs = _SHAPED_AS[name], (tensor, *like.shape), {}
        proxy = super()._record(kind, target, args, kwargs, *more)
        if kind == "output":
            return proxy
        value = self._value(kind, target, args, kwargs)
        if kind == "call_method" and name in CASTS and value is args[0].value:
            self.graph.erase_node(proxy.node)
            return args[0]
        if not _has_tensors(value):
            self.graph.erase_node(proxy.node)
            return value
        proxy.value = value
        _note(proxy.node, value)
        return proxy

    def _value(self, kind: str, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a node computes on the images."""
        positional, named = (map_aggregate(values, _value_of) for values in (args, kwargs))
        self._computing = True
        try:
            match kind:
                case "placeholder":
                    return self._images.clone()
                case "get_attr":
                    return _attribute(self.root, str(target))
                case "call_module":
                    return self._forward(*positional, **named)  # type: ignore[misc]
                case "call_method":
                    return getattr(positional[0], str(target))(*positional[1:], **named)  # type: ignore[index,misc]
                case _:
                    return target(*positional, **named)  # type: ignore[misc]
        finally:
            self._computing = False


def trace_at(model: nn.Module, images: Tensor) -> fx.GraphModule:
    """Return the network in evaluation mode as a graph, for images of one size.

    Args:
        images: some, (N, C, H, W); what is recorded depends on their shape alone. Each node's ``meta["shape"]`` is that
            of its value, None if it is no single tensor; ``meta["constant"]`` the value itself of what depends on
            parameters and buffers alone.

    Returns:
        A graph module that shares the network's submodules under their names.
    """
    tracer, before = _SizedTracer(images), _own_state(model)
    with restore_attributes(model):
        try:
            with evaluating(model), torch.no_grad(), _wrapped_entered():
                check_own_forwards(model, tracer.is_leaf_module, images)
                graph = tracer.trace(model)
        except RuleError:
            raise
        except Exception as error:
            lines = str(error).splitlines() or [""]
            rule = "a network must be traceable by torch.fx at its image size"
            got = f"{type(model).__name__} on {tuple(images.shape)}: {type(error).__name__}: {lines[0]}"
            remedy = "give images of the size it is made for, and write its forward without branches on their values"
            raise RuleError(rule, got=got, remedy=remedy) from error
        changed = [name for name, value in _own_state(model).items() if before.get(name, value) != value]
        if changed:
            got, remedy = listed(changed), "keep what changes from image to image out of it"
            raise RuleError("a network must not change itself in its forward", got=got, remedy=remedy)
        check_one_output(graph, model)
        plain, copies = fx.Graph(tracer_cls=Tracer), dict[fx.Node, fx.Node]()  # a copy that is pickled is traced anew
        plain.output(plain.graph_copy(graph, copies))
        return graph_module(tracer, plain, model)


@contextmanager
def _wrapped_entered() -> Iterator[None]:
    """Let tracing enter functions that torch.fx.wrap keeps whole for traces without sizes."""
    wrapped = _symbolic_trace._wrapped_fns_to_patch
    before = dict(wrapped)
    wrapped.clear()
    try:
        yield
    finally:
        wrapped.update(before)


def _note(node: fx.Node, value: Any) -> None:
    """Note a node's shape, and its value if that depends on no image."""
    node.meta["shape"] = tuple(value.shape) if isinstance(value, Tensor) else None
    if node.op != "placeholder" and all("constant" in source.meta for source in node.all_input_nodes):
        node.meta["constant"] = value


def _own_state(model: nn.Module) -> dict[str, Any]:
    """Return the state that a forward may change: plain attributes, and how often each tensor was written to."""
    plain = {
        f"{name}.{key}".lstrip("."): value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, int | float | str | None) and key != "training"
    }
    tensors = (*model.named_parameters(), *model.named_buffers())
    return plain | {name: tensor._version for name, tensor in tensors}


def _value_of(argument: Argument) -> Any:
    return argument.value if isinstance(argument, _Valued) else argument


def _has_tensors(value: Any) -> bool:
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return any(_has_tensors(item) for item in value)
    return isinstance(value, Tensor)


def _attribute(root: nn.Module, name: str) -> Any:
    owner, _, last = name.rpartition(".")
    return getattr(root.get_submodule(owner), last)
