"""A program's public description as plain data, and back: what the manifest file and the server's greeting hold.

It has the architecture, the plans and the parameters, never a weight, and of bounds only how many bits the result has.
Whatever is read is checked: unknown operations, wrong types, dangling inputs and shapes that do not follow are refused.
Both parties rely on :func:`check` for everything they compute, so it is asked of whatever is lowered as well.

Format: an operation is stored by its kind (:data:`program.operation.KINDS`) and its fields under their own names, but
for those that are None. A layer is stored by the name of its encoding and its fields. Fields are read by their declared
types: integers of 62 bits, flags, short printable names, short lists, layers.
"""

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import lru_cache
from math import prod
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers import spectral_pieces
from privcirnet.he.layers.layer import MOST_IMAGES, Layer, stacked_shape
from privcirnet.he.layers.shape import by_axis
from privcirnet.he.layers.spectral_layer import SpectralLayer, UnplannedLayer
from privcirnet.he.program import limits
from privcirnet.he.program import operations as op
from privcirnet.he.program.exact import ExactStep, exact_steps
from privcirnet.he.program.limits import MAX_LENGTH, MAX_LOG_STEP, MAX_TAPS, MAX_VALUES
from privcirnet.he.program.operation import KINDS, Node, Operation
from privcirnet.he.program.program import ANSWERS, BOUNDS, TRANSFERS, Program, masked_node

REMEDY = "export the program again with this version"
"""Remedy for a program that does not follow the rules."""
_ENCODINGS: dict[str, Any] = {layer.encoding: layer for layer in (SpectralLayer, UnplannedLayer)}
_COUNTS = {2: "two", 3: "three"}


def to_dict(program: Program) -> dict[str, Any]:
    """Return the public description of a program: plain data for JSON."""
    parameters, exact = program.parameters, {"transfers": program.transfers} if exact_steps(program.nodes) else {}
    return {
        "parameters": {
            name: getattr(parameters, name) for name in ("ring_degree", "coefficient_bits", "plain_modulus")
        },
        "bounds": program.bounds,
        "answer": program.answer,
        "output_bits": program.output_bits,
        **exact,
        "nodes": nodes_to_list(program.nodes),
    }


def from_dict(data: Any) -> Program:
    """Return a program without weights from its description."""
    try:
        literal = data["parameters"]
        bits = tuple(_integer(b) for b in _few(literal["coefficient_bits"]))
        parameters = Parameters(_integer(literal["ring_degree"]), bits, _integer(literal["plain_modulus"]))
        nodes = _nodes_from_list(data["nodes"])
        bounds, answer = (_string(data[name]) for name in ("bounds", "answer"))
        transfers = _string(data.get("transfers", TRANSFERS[0]))
        output_bits = _integer(data["output_bits"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise RuleError("a program's description must be complete", got=reprlib.repr(error), remedy=REMEDY) from None
    program = Program(nodes, parameters, {}, bounds, answer, output_bits, transfers)
    check(program)
    return program


def nodes_to_list(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Return nodes as plain data for JSON."""
    return [_node_to_dict(node) for node in nodes]


def nodes_from_list(data: Any) -> tuple[Node, ...]:
    """Return the nodes of a network whose layers are not planned."""
    try:
        nodes = _nodes_from_list(data)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise RuleError("a program's description must be complete", got=reprlib.repr(error), remedy=REMEDY) from None
    check_nodes(nodes)
    return nodes


def _nodes_from_list(data: Any) -> tuple[Node, ...]:
    return tuple(_node_from_dict(item) for item in _few(data, limits.MAX_NODES))


def _node_to_dict(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "operation": node.operation.kind,
        **_plain_fields(node.operation),
        "inputs": list(node.inputs),
        "shape": list(node.shape),
        "log_step": node.log_step,
        "module": node.module,
    }


def _plain_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain data, without those that are None; layers begin with their encoding."""
    encoding = {"encoding": value.encoding} if hasattr(value, "encoding") else {}
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    return encoding | {name: _plain(content) for name, content in values.items() if content is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in cast(tuple[object, ...], value)]
    return _plain_fields(value) if is_dataclass(value) else value


def _node_from_dict(item: dict[str, Any]) -> Node:
    shape = tuple(_integer(v) for v in _few(item["shape"]))
    if len(shape) != 3:
        raise RuleError("a node's shape must have three sizes", got=reprlib.repr(shape), remedy=REMEDY)
    inputs = tuple(_string(name) for name in _few(item["inputs"]))
    log_step, module = _integer(item["log_step"]), _string(item["module"])
    return Node(_string(item["name"]), _operation(item), inputs, shape, log_step, module)


def _operation(item: dict[str, Any]) -> Operation:
    name = item["operation"]
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise RuleError("an operation must be a known one", got=reprlib.repr(name), remedy=REMEDY)
    return kind(**_fields(kind, item))


def _layer_from_dict(item: dict[str, Any]) -> Layer:
    encoding = _string(item["encoding"])
    if encoding not in _ENCODINGS:
        raise RuleError("the encoding must be a known one", got=repr(encoding), remedy=REMEDY)
    make: Callable[..., Layer] = _ENCODINGS[encoding]
    return make(**_fields(make, item))


def _spectral_from_dict(item: dict[str, Any]) -> SpectralLayer:
    """Return a layer of a product, which is planned."""
    layer = _layer_from_dict(item)
    if not isinstance(layer, SpectralLayer):
        raise RuleError("a product must have planned layers", got=reprlib.repr(layer.encoding), remedy=REMEDY)
    return layer


def _fields(cls: Any, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass, each checked by its type; those that may be None may be left out."""
    return {n: _value(kind, item[n], n) for n, kind in _kinds(cls).items() if n in item or not _optional(kind)}


@lru_cache(maxsize=64)
def _kinds(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _optional(kind: Any) -> bool:
    return get_origin(kind) is UnionType and NoneType in get_args(kind)


def _value(kind: Any, value: Any, name: str) -> Any:
    if _optional(kind):
        (kind,) = set(get_args(kind)) - {NoneType}
    if kind in _CHECKS:
        return _CHECKS[kind](value)
    if get_origin(kind) is tuple:
        return _tuple(get_args(kind), value, name)
    return kind(**_fields(kind, value))


def _tuple(kinds: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    """Return as many items as there are types, or any number of one type: (T, ...)."""
    if kinds[-1] is Ellipsis:
        return tuple(_value(kinds[0], item, name) for item in _few(value, spectral_pieces.MAX_PIECES))
    items = tuple(_value(kinds[0], item, name) for item in _few(value))
    if len(items) != len(kinds):
        rule = f"a {name} must have {_COUNTS[len(kinds)]} sizes"
        raise RuleError(rule, got=reprlib.repr(items), remedy=REMEDY)
    return items


def _few(value: Any, limit: int = 64) -> list[Any]:
    items = list(cast(list[Any], value)) if isinstance(value, list | tuple) else None
    if items is None or len(items) > limit:
        got = reprlib.repr(cast(object, value)) if items is None else f"{len(items)} items"
        raise RuleError(f"a program's description must have a list of at most {limit} here", got=got, remedy=REMEDY)
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


_CHECKS: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    bool: _boolean,
    str: _string,
    Layer: _layer_from_dict,
    SpectralLayer: _spectral_from_dict,
}
"""Checks of a field's value, by its type."""


def check(program: Program) -> None:
    """Raise unless the nodes form a program: inputs exist, shapes follow, steps of a sum agree, sizes are sane.

    Args:
        program: program with or without weights, which are not looked at.
    """
    if program.bounds not in BOUNDS:
        raise RuleError("bounds must be a known kind", got=repr(program.bounds), remedy=f"use {' or '.join(BOUNDS)}")
    if program.answer not in ANSWERS:
        raise RuleError(
            "the answer must be a known kind", got=repr(program.answer), remedy=f"use {' or '.join(ANSWERS)}"
        )
    if program.transfers not in TRANSFERS:
        rule, remedy = "oblivious transfers must be of a known source", f"use {' or '.join(TRANSFERS)}"
        raise RuleError(rule, got=repr(program.transfers), remedy=remedy)
    of_client = check_nodes(program.nodes, program.parameters)
    if not program.nodes or program.output.name in of_client:
        got = f"{len(program.nodes)} nodes"
        raise RuleError("a program must have an input and a linear layer", got=got, remedy=REMEDY)
    _check_answer(program)
    limits.check_keys(program.column_steps, program.parameters)
    _check_stacks(program)


def _check_stacks(program: Program) -> None:
    """Raise unless offline work for several images together rotates with the keys that one image needs."""
    for node, _, stack in program.stacks:
        if not stack.layer.column_steps <= program.column_steps:
            got = f"node {node.name}: {sorted(stack.layer.column_steps - program.column_steps)}"
            raise RuleError("a stack's rotations must be among those of single images", got=got, remedy=REMEDY)


def _check_answer(program: Program) -> None:
    """Raise unless a class is one number behind logits; a width that is not under t's would let any value pass."""
    output, bits = program.output, program.output_bits
    if program.answer == "top1" and (
        len({node.name.split("/")[0] for node in program.nodes}) < 2 or output.shape != (1, 1, 1)
    ):
        raise RuleError("a class must be one number, behind logits", got=f"shape {output.shape}", remedy=REMEDY)
    if program.answer == "top1" and 4 * prod(program.logits.shape) > program.parameters.plain_modulus:
        got = f"{prod(program.logits.shape)} modulo {program.parameters.plain_modulus}"
        raise RuleError("the number of classes must be under a quarter of the plain modulus", got=got, remedy=REMEDY)
    if not 0 <= bits < program.parameters.plain_bits:
        rule = "a result's width must leave room in the plain modulus, to tell wrong results"
        raise RuleError(rule, got=f"{bits} of {program.parameters.plain_bits} bits", remedy=REMEDY)


def check_nodes(nodes: Sequence[Node], parameters: Parameters | None = None) -> set[str]:
    """Return, if nodes form a network, the names of those whose values the client knows alone.

    Args:
        parameters: parameters that the layers are planned for; None for a network that may be computed any way.
    """
    values = sum(prod(node.shape) for node in nodes)
    if len(nodes) > limits.MAX_NODES or values > limits.MAX_ALL_VALUES:
        raise RuleError(
            f"a program must have at most {limits.MAX_NODES} nodes with {limits.MAX_ALL_VALUES} values in all",
            got=f"{len(nodes)} nodes, {values} values",
            remedy=REMEDY,
        )
    if (steps := len({node.operation for node in nodes if isinstance(node.operation, ExactStep)})) > limits.MAX_STEPS:
        rule = f"a program must have at most {limits.MAX_STEPS} exact steps that differ"
        raise RuleError(rule, got=steps, remedy=REMEDY)
    earlier, of_client = dict[str, Node](), set[str]()
    for node in nodes:
        problem = _misplaced(node, earlier) or (_shareless(node, earlier, of_client) if parameters else "")
        problem = problem or _misshaped(node, [earlier[name] for name in node.inputs])
        if problem := problem or (_unfit(node, parameters) if parameters else ""):
            raise RuleError("a program's nodes must fit together", got=f"node {node.name}: {problem}", remedy=REMEDY)
        earlier[node.name] = node
        if of_client.issuperset(node.inputs) and not node.operation.masks:
            of_client.add(node.name)
    return of_client


def _misplaced(node: Node, earlier: Mapping[str, Node]) -> str:
    """Return the problem of a node's name and inputs."""
    operation = node.operation
    if node.name in earlier:
        return "its name is taken"
    if isinstance(operation, op.Input) == bool(earlier):
        return "a program has one input, its first node"
    fits = len(node.inputs) == operation.arity and earlier.keys() >= set(node.inputs)
    return "" if fits else f"inputs {node.inputs}"


def _misshaped(node: Node, sources: Sequence[Node]) -> str:
    """Return the problem of an operation on its inputs; each layer's sizes first, as all else takes time with them."""
    for layer in node.operation.layers:
        kernels, strides = layer.shape.kernels, layer.shape.strides
        if max(*kernels, *strides) > MAX_LENGTH or max(prod(kernels), prod(strides)) > MAX_TAPS:
            return f"a kernel of {by_axis(kernels)} with stride {by_axis(strides)}"
    if abs(node.log_step) > MAX_LOG_STEP:
        return f"step 2^{node.log_step}"
    if problem := node.operation.problem(node, sources):
        return problem
    expected = node.operation.shape_after([source.shape for source in sources]) if sources else node.shape
    if node.shape != expected or min(node.shape) < 1 or prod(node.shape) > MAX_VALUES:
        return f"shape {node.shape} where {expected} follows"
    return ""


def _shareless(node: Node, earlier: Mapping[str, Node], of_client: Set[str]) -> str:
    """Return why the parties' shares cannot do it; ``of_client``: values that the client knows alone."""
    operation = node.operation
    if operation.needs_share and not of_client.isdisjoint(node.inputs):
        return f"{operation.kind} of the image itself, which has no shares: begin with a layer, as a 1 x 1 convolution"
    if isinstance(operation, op.Truncate) and not masked_node(earlier, node.inputs[0]).operation.masks:
        return "a truncation must follow a linear layer, a square or a product"
    return ""


def _unfit(node: Node, parameters: Parameters) -> str:
    """Return the problem of the plans of a node's layers, or of the parameters for exact steps."""
    if isinstance(node.operation, ExactStep):
        return node.operation.unfit(parameters.plain_modulus)
    problem = next(filter(None, (_unfit_layer(layer, parameters) for layer in node.operation.layers)), "")
    return problem or (_unfit_stack(node.operation, parameters) if isinstance(node.operation, op.Linear) else "")


def _unfit_stack(linear: op.Linear, parameters: Parameters) -> str:
    """Return the problem of a layer's stack of images; their number first, as the tall image grows."""
    layer, stack = linear.layer, linear.stack
    if stack is None:
        return ""
    if not 2 <= stack.least <= stack.images <= MOST_IMAGES:
        return f"a stack of {stack.images} images, from {stack.least} on"
    if (stack.layer.shape, stack.layer.block_size) != (stacked_shape(layer.shape, stack.images), layer.block_size):
        return "a stack of another layer"
    problem = _unfit_layer(stack.layer, parameters)
    return f"a stack {problem}" if problem else ""


def _unfit_layer(layer: Layer, parameters: Parameters) -> str:
    """Return the problem of a layer's plan; sizes first, because everything else takes time that grows with them."""
    if isinstance(layer, UnplannedLayer):
        return "a layer that is not planned"
    if layer.ring_degree != parameters.ring_degree:
        return f"made for ring degree {layer.ring_degree}"
    if problem := limits.excess(layer, parameters):
        return problem
    if any((parameters.plain_modulus - 1) % length for length in layer.transform_lengths):
        return f"transforms of lengths {sorted(layer.transform_lengths)} that t is not made for"
    return ""
