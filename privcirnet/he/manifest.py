"""A program's public description as plain data, and back: what the manifest file and the server's greeting hold.

It has the architecture, the plans and the parameters, never a weight or a bound that was derived from one. Whatever is
read is checked: unknown operations, wrong types, dangling inputs and shapes that do not follow are refused.
"""

import reprlib
from collections.abc import Mapping, Set
from dataclasses import asdict
from math import prod
from typing import Any, cast

from privcirnet.errors import RuleError
from privcirnet.he import limits
from privcirnet.he.coefficient import CoefficientLayer
from privcirnet.he.layers import Layer
from privcirnet.he.limits import MAX_KERNEL, MAX_LOG_STEP, MAX_PIXEL, MAX_PRODUCTS, MAX_VALUES
from privcirnet.he.linear import LinearLayer
from privcirnet.he.params import Parameters
from privcirnet.he.pieces import Piece
from privcirnet.he.program import (
    BOUNDS,
    MASKS,
    Add,
    Flatten,
    Input,
    Linear,
    Node,
    Operation,
    Program,
    Square,
    SumPool,
    Truncate,
)
from privcirnet.he.shape import LinearShape

_REMEDY = "export the program again with this version"
_OPERATIONS = {cls.__name__.lower(): cls for cls in (Input, Truncate, Square, Add, SumPool, Flatten)}
_ARITY: dict[type, int] = {Input: 0, Add: 2}


def to_dict(program: Program) -> dict[str, Any]:
    """The public description."""
    nodes = [_node_to_dict(node) for node in program.nodes]
    return {"parameters": asdict(program.parameters), "masks": program.masks, "bounds": program.bounds, "nodes": nodes}


def from_dict(data: Any) -> Program:
    """A program without weights from its description.

    Raises:
        RuleError: the description is not one, or does not follow the rules.
    """
    try:
        literal = data["parameters"]
        bits = tuple(_integer(b) for b in _few(literal["coefficient_bits"]))
        parameters = Parameters(_integer(literal["ring_degree"]), bits, _integer(literal["plain_modulus"]))
        nodes = tuple(_node_from_dict(item) for item in _few(data["nodes"], limits.MAX_NODES))
        masks, bounds = _string(data["masks"]), _string(data["bounds"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise RuleError("a program's description must be complete", got=reprlib.repr(error), remedy=_REMEDY) from None
    program = Program(nodes, parameters, masks=masks, bounds=bounds)
    check(program)
    return program


def check(program: Program) -> None:
    """Raise unless the nodes form a program: inputs exist, shapes follow, steps of a sum agree, sizes are sane.

    Raises:
        RuleError: naming the node.
    """
    if program.masks not in MASKS:
        raise RuleError("masks must be a known kind", got=repr(program.masks), remedy=f"use {' or '.join(MASKS)}")
    if program.bounds not in BOUNDS:
        raise RuleError("bounds must be a known kind", got=repr(program.bounds), remedy=f"use {' or '.join(BOUNDS)}")
    if program.masks == "bounded" and program.bounds != "proved":
        rule, remedy = "bounded masks hide only within proved bounds", "use uniform masks, or he.bounds=proved"
        raise RuleError(rule, got=f"{program.bounds} bounds", remedy=remedy)
    _check_sizes(program)
    known: dict[str, Node] = {}
    of_client: set[str] = set()
    for node in program.nodes:
        problem = _misplaced(node, known, of_client)
        sources = [known[name] for name in node.inputs if name in known]
        problem = problem or _out_of_range(node, sources) or _unfit(node, sources, program.parameters)
        if problem:
            raise RuleError("a program's nodes must fit together", got=f"node {node.name}: {problem}", remedy=_REMEDY)
        known[node.name] = node
        if not isinstance(node.operation, Linear) and of_client.issuperset(node.inputs):
            of_client.add(node.name)
    if not known or program.output.name in of_client:
        raise RuleError("a program must have an input and a linear layer", got=f"{len(known)} nodes", remedy=_REMEDY)


def _check_sizes(program: Program) -> None:
    values = sum(prod(node.shape) for node in program.nodes)
    if len(program.nodes) > limits.MAX_NODES or values > limits.MAX_ALL_VALUES:
        raise RuleError(
            f"a program must have at most {limits.MAX_NODES} nodes with {limits.MAX_ALL_VALUES} values in all",
            got=f"{len(program.nodes)} nodes, {values} values",
            remedy=_REMEDY,
        )


def _misplaced(node: Node, known: Mapping[str, Node], of_client: Set[str]) -> str:
    """What is wrong with a node's name and inputs; ``of_client``: values that the client knows alone."""
    operation = node.operation
    if node.name in known:
        return "its name is taken"
    if isinstance(operation, Input) == bool(known):
        return "a program has one input, its first node"
    if len(node.inputs) != _ARITY.get(type(operation), 1) or not known.keys() >= set(node.inputs):
        return f"inputs {node.inputs}"
    if isinstance(operation, Square) and node.inputs[0] in of_client:
        return "a square of the input itself has no share to work on"
    if isinstance(operation, Truncate) and not isinstance(known[node.inputs[0]].operation, Linear | Square):
        return "a truncation must follow a linear layer or a square"
    return ""


def _out_of_range(node: Node, sources: list[Node]) -> str:
    """What is wrong with an operation's numbers."""
    match node.operation:
        case Input(low, high) if not -MAX_PIXEL <= low <= high <= MAX_PIXEL:
            return f"pixels in [{low}, {high}]"
        case Truncate(bits) if not 1 <= bits < 60:
            return f"a truncation by {bits} bits, not 1 to 59"
        case SumPool(kernel) if kernel < 1:
            return f"a window of {kernel}"
        case Add() if len({(source.shape, source.log_step) for source in sources}) != 1:
            return "summands differ in shape or step"
        case Linear(layer) if layer.shape.input_shape != sources[0].shape:
            return f"takes {layer.shape.input_shape}, gets {sources[0].shape}"
        case _:
            return ""


def _unfit(node: Node, sources: list[Node], parameters: Parameters) -> str:
    """What is wrong with a node's sizes."""
    expected = _shape_after(node.operation, [source.shape for source in sources]) or node.shape
    size = node.shape[0] * node.shape[1] * node.shape[2]
    if node.shape != expected or min(node.shape) < 1 or size > MAX_VALUES or abs(node.log_step) > MAX_LOG_STEP:
        return f"shape {node.shape}, step 2^{node.log_step} where {expected} follows"
    return _unfit_layer(node.operation.layer, parameters) if isinstance(node.operation, Linear) else ""


def _unfit_layer(layer: Layer, parameters: Parameters) -> str:
    """What is wrong with a layer's plan; sizes first, because everything else takes time that grows with them."""
    if layer.ring_degree != parameters.ring_degree:
        return f"made for ring degree {layer.ring_degree}"
    if max(layer.shape.kernel, layer.shape.stride) > MAX_KERNEL:
        return f"a kernel of {layer.shape.kernel} with stride {layer.shape.stride}"
    if problem := limits.grid_excess(layer):
        return problem
    products = limits.products(layer)
    if products > MAX_PRODUCTS:
        return f"{products} products"
    if any((parameters.plain_modulus - 1) % length for length in layer.transform_lengths):
        return f"transforms of lengths {sorted(layer.transform_lengths)} that t is not made for"
    return limits.excess(layer, parameters)


def _shape_after(operation: Operation, shapes: list[tuple[int, int, int]]) -> tuple[int, int, int] | None:
    match operation:
        case Input():
            return None
        case Linear(layer):
            return layer.shape.output_shape
        case SumPool(kernel):
            channels, height, width = shapes[0]
            return channels, height // kernel, width // kernel
        case Flatten():
            channels, height, width = shapes[0]
            return channels * height * width, 1, 1
        case _:
            return shapes[0]


def _node_to_dict(node: Node) -> dict[str, Any]:
    operation = node.operation
    fields = {"layer": _layer_to_dict(operation.layer)} if isinstance(operation, Linear) else asdict(operation)
    return {
        "name": node.name,
        "operation": type(operation).__name__.lower(),
        **fields,
        "inputs": list(node.inputs),
        "shape": list(node.shape),
        "log_step": node.log_step,
        "module": node.module,
    }


def _node_from_dict(item: dict[str, Any]) -> Node:
    shape = tuple(_integer(v) for v in _few(item["shape"]))
    if len(shape) != 3:
        raise RuleError("a node's shape must have three sizes", got=reprlib.repr(shape), remedy=_REMEDY)
    inputs = tuple(_string(name) for name in _few(item["inputs"]))
    log_step, module = _integer(item["log_step"]), _string(item["module"])
    return Node(_string(item["name"]), _operation(item), inputs, shape, log_step, module)


def _operation(item: dict[str, Any]) -> Operation:
    name = item["operation"]
    if name == "linear":
        return Linear(_layer_from_dict(item["layer"]))
    cls = _OPERATIONS.get(name)
    if cls is None:
        raise RuleError("an operation must be a known one", got=reprlib.repr(name), remedy=_REMEDY)
    return cls(**{key: _integer(item[key]) for key in cls.__dataclass_fields__})


def _layer_to_dict(layer: Layer) -> dict[str, Any]:
    return {"encoding": layer.encoding, **asdict(layer)}


def _layer_from_dict(item: dict[str, Any]) -> Layer:
    shape = LinearShape(**{key: _integer(item["shape"][key]) for key in LinearShape.__dataclass_fields__})
    block_size, ring_degree, encoding = _integer(item["block_size"]), _integer(item["ring_degree"]), item["encoding"]
    if encoding != LinearLayer.encoding:
        return CoefficientLayer(shape, block_size, ring_degree, _string(encoding), _integer(item["weight_bits"]))
    tile = tuple(_integer(size) for size in _few(item["tile"]))
    if len(tile) != 2:
        raise RuleError("a tile must have two sizes", got=reprlib.repr(tile), remedy=_REMEDY)
    pieces = tuple(_piece_from_dict(piece) for piece in _few(item["pieces"], limits.MAX_PIECES))
    return LinearLayer(shape, block_size, ring_degree, tile, pieces)


def _piece_from_dict(item: dict[str, Any]) -> Piece:
    fields = Piece.__dataclass_fields__
    flags = {key: _boolean(item[key]) for key in fields if key.endswith("_on_shares")}
    return Piece(**{key: _integer(item[key]) for key in fields if key not in flags}, **flags)


def _few(value: Any, most: int = 64) -> list[Any]:
    items = list(cast(list[Any], value)) if isinstance(value, list | tuple) else None
    if items is None or len(items) > most:
        got = reprlib.repr(cast(object, value)) if items is None else f"{len(items)} items"
        raise RuleError(f"a program's description must have a list of at most {most} here", got=got, remedy=_REMEDY)
    return items


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > limits.MAX_INTEGER:
        got = type(value).__name__ if type(value) is not int else f"one of {value.bit_length()} bits"
        raise RuleError("a number in a program's description must be a 62-bit integer", got=got, remedy=_REMEDY)
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        got = reprlib.repr(value)
        raise RuleError("a flag in a program's description must be true or false", got=got, remedy=_REMEDY)
    return value


def _string(value: Any) -> str:
    if type(value) is not str or len(value) > limits.MAX_NAME or not value.isprintable():
        rule = f"a name in a program's description must be a printable string of at most {limits.MAX_NAME} characters"
        raise RuleError(rule, got=reprlib.repr(value), remedy=_REMEDY)
    return value
