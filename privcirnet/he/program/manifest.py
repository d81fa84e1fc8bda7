"""A program's public description as plain data, and back: what the manifest file and the server's greeting hold.

It has the architecture, the plans and the parameters, never a weight, and of bounds only how many bits the values have
that the client sees. Whatever is read is checked: unknown operations, wrong types, dangling inputs and shapes that do
not follow are refused.

Format: an operation is stored by its class's name in lower case, but for :class:`ClientAided`, which is "revealed". Its
fields follow under their own names. A layer is stored by the name of its encoding and its fields. Fields are read by
their declared types: integers of 62 bits, flags, short printable names, short lists.
Descriptions of version 1 have no ``answer``, ``output_bits`` and ``value_bits``. A linear layer has a ``stack`` where
work ahead takes several images together.
"""

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from typing import Any, assert_never, cast, get_args, get_origin, get_type_hints

from privcirnet.errors import RuleError
from privcirnet.he.layers import size_limits
from privcirnet.he.layers.layer import ENCODINGS, Layer
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.stacking import Stack
from privcirnet.he.program import limits
from privcirnet.he.program import operations as op
from privcirnet.he.program.program import Node, Program
from privcirnet.he.program.validate import REMEDY, check
from privcirnet.he.schemes.bfv.parameters import Parameters

_CLIENT_AIDED = "revealed"
"""What the format calls :class:`ClientAided`."""
_WITHOUT_LAYERS = (
    *(op.Input, op.Truncate, op.Scale, op.Square, op.Add, op.Concat, op.SumPool),
    *(op.Flatten, op.Tokens, op.Take, op.Channels, op.Transpose, op.Gather),
)
_OPERATIONS: dict[str, Callable[..., op.Operation]] = {
    **{cls.__name__.lower(): cls for cls in _WITHOUT_LAYERS},
    _CLIENT_AIDED: op.ClientAided,
}
_ADDED = ("answer", "output_bits", "value_bits")
"""What descriptions of version 1 do not have."""
_COUNTS = {2: "two"}


def to_dict(program: Program) -> dict[str, Any]:
    """Return the public description of a program: plain data for JSON."""
    nodes = [_node_to_dict(node) for node in program.nodes]
    known = program.parameters
    return {
        "parameters": {name: getattr(known, name) for name in ("ring_degree", "coefficient_bits", "plain_modulus")},
        "masks": program.masks,
        "bounds": program.bounds,
        "answer": program.answer,
        "output_bits": program.output_bits,
        "nodes": nodes,
    }


def from_dict(data: Any) -> Program:
    """Return a program without weights from its description.

    Raises:
        RuleError: the description is not one, or does not follow the rules.
    """
    try:
        literal = data["parameters"]
        bits = tuple(_integer(b) for b in _few(literal["coefficient_bits"]))
        parameters = Parameters(_integer(literal["ring_degree"]), bits, _integer(literal["plain_modulus"]))
        nodes = tuple(_node_from_dict(item) for item in _few(data["nodes"], limits.MAX_NODES))
        masks, bounds, answer = _string(data["masks"]), _string(data["bounds"]), _string(data.get("answer", "logits"))
        output_bits = _integer(data.get("output_bits", 0))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise RuleError("a program's description must be complete", got=reprlib.repr(error), remedy=REMEDY) from None
    program = Program(nodes, parameters, {}, masks, bounds, answer, output_bits)
    check(program)
    return program


def _node_to_dict(node: Node) -> dict[str, Any]:
    operation = node.operation
    match operation:
        case op.Linear(layer, stack):
            fields = {"layer": _layer_to_dict(layer)} | ({"stack": _stack_to_dict(stack)} if stack else {})
        case op.Product(left, right):
            fields = {"left": _layer_to_dict(left), "right": _layer_to_dict(right)}
        case op.Input() | op.Truncate() | op.Scale() | op.Square() | op.ClientAided() | op.Add():
            fields = asdict(operation)
        case op.Concat() | op.SumPool():
            fields = asdict(operation)
        case op.Flatten() | op.Tokens() | op.Take() | op.Channels() | op.Transpose() | op.Gather():
            fields = asdict(operation)
        case _:
            assert_never(operation)
    return {
        "name": node.name,
        "operation": _CLIENT_AIDED if isinstance(operation, op.ClientAided) else type(operation).__name__.lower(),
        **fields,
        "inputs": list(node.inputs),
        "shape": list(node.shape),
        "log_step": node.log_step,
        "module": node.module,
    }


def _node_from_dict(item: dict[str, Any]) -> Node:
    shape = tuple(_integer(v) for v in _few(item["shape"]))
    if len(shape) != 3:
        raise RuleError("a node's shape must have three sizes", got=reprlib.repr(shape), remedy=REMEDY)
    inputs = tuple(_string(name) for name in _few(item["inputs"]))
    log_step, module = _integer(item["log_step"]), _string(item["module"])
    return Node(_string(item["name"]), _operation(item), inputs, shape, log_step, module)


def _operation(item: dict[str, Any]) -> op.Operation:
    name = item["operation"]
    if name == "linear":
        return op.Linear(_layer_from_dict(item["layer"]), _stack_from_dict(item["stack"]) if "stack" in item else None)
    if name == "product":
        return op.Product(_factor_from_dict(item["left"]), _factor_from_dict(item["right"]))
    cls = _OPERATIONS.get(name)
    if cls is None:
        raise RuleError("an operation must be a known one", got=reprlib.repr(name), remedy=REMEDY)
    return cls(**_fields(cls, item))


def _stack_to_dict(stack: Stack) -> dict[str, Any]:
    return {"images": stack.images, "least": stack.least, "layer": _layer_to_dict(stack.layer)}


def _stack_from_dict(item: dict[str, Any]) -> Stack:
    return Stack(_integer(item["images"]), _integer(item["least"]), _layer_from_dict(item["layer"]))


def _layer_to_dict(layer: Layer) -> dict[str, Any]:
    return {"encoding": layer.encoding, **asdict(layer)}


def _layer_from_dict(item: dict[str, Any]) -> Layer:
    encoding = _string(item["encoding"])
    if encoding not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise RuleError("the encoding must be a known one", got=repr(encoding), remedy=f"use one of {known}")
    make: Callable[..., Layer] = ENCODINGS[encoding]
    return make(**_fields(make, item))


def _factor_from_dict(item: dict[str, Any]) -> SpectralLayer:
    """A layer of a product: its weights are as large as t, which a coefficient encoding's noise bound is not for."""
    layer = _layer_from_dict(item)
    if not isinstance(layer, SpectralLayer):
        raise RuleError("a product must have spectral layers", got=reprlib.repr(layer.encoding), remedy=REMEDY)
    return layer


def _fields(cls: Any, item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass, each checked by its type."""
    return {n: _value(kind, item[n], n) for n, kind in _kinds(cls).items() if n in item or n not in _ADDED}


@lru_cache(maxsize=64)
def _kinds(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in cls.__dataclass_fields__}


def _value(kind: Any, value: Any, name: str) -> Any:
    if is_dataclass(kind):
        return cast(Any, kind)(**_fields(kind, value))
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind), value, name)
    return _CHECKS[kind](value)


def _tuple(kinds: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    """As many items as there are types, or any number of one type: (T, ...)."""
    if kinds[-1] is Ellipsis:
        return tuple(_value(kinds[0], item, name) for item in _few(value, size_limits.MAX_PIECES))
    found = tuple(_value(kinds[0], item, name) for item in _few(value))
    if len(found) != len(kinds):
        rule = f"a {name} must have {_COUNTS[len(kinds)]} sizes"
        raise RuleError(rule, got=reprlib.repr(found), remedy=REMEDY)
    return found


def _few(value: Any, most: int = 64) -> list[Any]:
    items = list(cast(list[Any], value)) if isinstance(value, list | tuple) else None
    if items is None or len(items) > most:
        got = reprlib.repr(cast(object, value)) if items is None else f"{len(items)} items"
        raise RuleError(f"a program's description must have a list of at most {most} here", got=got, remedy=REMEDY)
    return items


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > limits.MAX_INTEGER:
        got = type(value).__name__ if type(value) is not int else f"one of {value.bit_length()} bits"
        raise RuleError("a number in a program's description must be a 62-bit integer", got=got, remedy=REMEDY)
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        got = reprlib.repr(value)
        raise RuleError("a flag in a program's description must be true or false", got=got, remedy=REMEDY)
    return value


def _string(value: Any) -> str:
    if type(value) is not str or len(value) > limits.MAX_NAME or not value.isprintable():
        rule = f"a name in a program's description must be a printable string of at most {limits.MAX_NAME} characters"
        raise RuleError(rule, got=reprlib.repr(value), remedy=REMEDY)
    return value


_CHECKS: dict[Any, Callable[[Any], Any]] = {int: _integer, bool: _boolean, str: _string}
"""Type of a field -> what checks its value."""
