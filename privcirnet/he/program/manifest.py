"""A program's public description as plain data, and back: what the manifest file and the server's greeting hold.

It has the architecture, the plans and the parameters, never a weight or a bound that was derived from one. Whatever is
read is checked: unknown operations, wrong types, dangling inputs and shapes that do not follow are refused.
"""

import reprlib
from dataclasses import asdict
from typing import Any, cast

from privcirnet.errors import RuleError
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.pieces import Piece
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.spectral_layer import SpectralLayer
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.program import limits
from privcirnet.he.program.operations import (
    Add,
    ClientAided,
    Input,
    Linear,
    Operation,
    Product,
    Square,
    SumPool,
    Truncate,
)
from privcirnet.he.program.program import Node, Program
from privcirnet.he.program.rearrangement import Channels, Flatten, Take, Tokens, Transpose
from privcirnet.he.program.validate import REMEDY, check

_WITH_NUMBERS = (Input, Truncate, Square, Add, SumPool, Flatten, Tokens, Take, Channels, Transpose)
_OPERATIONS = {cls.__name__.lower(): cls for cls in _WITH_NUMBERS}
_CLIENT_AIDED = "revealed"
"""What the format calls :class:`ClientAided`."""


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
        raise RuleError("a program's description must be complete", got=reprlib.repr(error), remedy=REMEDY) from None
    program = Program(nodes, parameters, masks=masks, bounds=bounds)
    check(program)
    return program


def _node_to_dict(node: Node) -> dict[str, Any]:
    operation = node.operation
    match operation:
        case Linear(layer):
            fields = {"layer": _layer_to_dict(layer)}
        case Product(left, right):
            fields = {"left": _layer_to_dict(left), "right": _layer_to_dict(right)}
        case _:
            fields = asdict(operation)
    return {
        "name": node.name,
        "operation": _CLIENT_AIDED if isinstance(operation, ClientAided) else type(operation).__name__.lower(),
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


def _operation(item: dict[str, Any]) -> Operation:
    name = item["operation"]
    if name == "linear":
        return Linear(_layer_from_dict(item["layer"]))
    if name == "product":
        return Product(_factor_from_dict(item["left"]), _factor_from_dict(item["right"]))
    if name == _CLIENT_AIDED:
        return ClientAided(_string(item["function"]), _integer(item["log_step_in"]), _integer(item["bits"]))
    cls = _OPERATIONS.get(name)
    if cls is None:
        raise RuleError("an operation must be a known one", got=reprlib.repr(name), remedy=REMEDY)
    return cls(**{key: _integer(item[key]) for key in cls.__dataclass_fields__})


def _layer_to_dict(layer: Layer) -> dict[str, Any]:
    return {"encoding": layer.encoding, **asdict(layer)}


def _layer_from_dict(item: dict[str, Any]) -> Layer:
    shape = LinearShape(**{key: _integer(item["shape"][key]) for key in LinearShape.__dataclass_fields__})
    block_size, ring_degree, encoding = _integer(item["block_size"]), _integer(item["ring_degree"]), item["encoding"]
    if encoding != SpectralLayer.encoding:
        return CoefficientLayer(shape, block_size, ring_degree, _string(encoding), _integer(item["weight_bits"]))
    tile = tuple(_integer(size) for size in _few(item["tile"]))
    if len(tile) != 2:
        raise RuleError("a tile must have two sizes", got=reprlib.repr(tile), remedy=REMEDY)
    pieces = tuple(_piece_from_dict(piece) for piece in _few(item["pieces"], limits.MAX_PIECES))
    return SpectralLayer(shape, block_size, ring_degree, tile, pieces)


def _factor_from_dict(item: dict[str, Any]) -> SpectralLayer:
    """A layer of a product: its weights are as large as t, which a coefficient encoding's noise bound is not for."""
    layer = _layer_from_dict(item)
    if not isinstance(layer, SpectralLayer):
        raise RuleError("a product must have spectral layers", got=reprlib.repr(layer.encoding), remedy=REMEDY)
    return layer


def _piece_from_dict(item: dict[str, Any]) -> Piece:
    fields = Piece.__dataclass_fields__
    flags = {key: _boolean(item[key]) for key in fields if key.endswith("_on_shares")}
    return Piece(**{key: _integer(item[key]) for key in fields if key not in flags}, **flags)


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
