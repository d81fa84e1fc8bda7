"""A program's public description as plain data, and back: what the manifest file and the server's greeting hold.

It has the architecture, the plans and the parameters, never a weight or a bound that was derived from one. Whatever is
read is checked: unknown operations, wrong types, dangling inputs and shapes that do not follow are refused.
"""

from dataclasses import asdict
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.layout import LinearShape
from privcirnet.he.linear import LinearLayer
from privcirnet.he.params import Parameters
from privcirnet.he.program import MASKS, Add, Flatten, Input, Linear, Node, Operation, Program, Square, SumPool, Truncate

_REMEDY = "export the program again with this version"
_OPERATIONS = {cls.__name__.lower(): cls for cls in (Input, Truncate, Square, Add, SumPool, Flatten)}
_ARITY: dict[type, int] = {Input: 0, Add: 2}
MAX_VALUES = 1 << 24
"""Largest number of values in one node that is accepted."""


def to_dict(program: Program) -> dict[str, Any]:
    """The public description."""
    nodes = [_node_to_dict(node) for node in program.nodes]
    return {"parameters": asdict(program.parameters), "masks": program.masks, "nodes": nodes}


def from_dict(data: Any) -> Program:
    """A program without weights from its description.

    Raises:
        RuleError: the description is not one, or does not follow the rules.
    """
    try:
        literal = data["parameters"]
        bits = tuple(_integer(b) for b in literal["coefficient_bits"])
        parameters = Parameters(_integer(literal["ring_degree"]), bits, _integer(literal["plain_modulus"]))
        nodes = tuple(_node_from_dict(item) for item in data["nodes"])
        masks = str(data["masks"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise RuleError("a program's description must be complete", got=repr(error), remedy=_REMEDY) from None
    program = Program(nodes, parameters, masks=masks)
    check(program)
    return program


def check(program: Program) -> None:
    """Raise unless the nodes form a program: inputs exist, shapes follow, steps of a sum agree.

    Raises:
        RuleError: naming the node.
    """
    if program.masks not in MASKS:
        raise RuleError("masks must be a known kind", got=repr(program.masks), remedy=f"use {' or '.join(MASKS)}")
    known: dict[str, Node] = {}
    for node in program.nodes:
        sources = [known.get(name) for name in node.inputs]
        problem = _problem(node, sources, node.name in known, program.parameters.ring_degree)
        if problem:
            raise RuleError("a program's nodes must fit together", got=f"node {node.name}: {problem}", remedy=_REMEDY)
        known[node.name] = node
    if not program.nodes or not isinstance(program.nodes[0].operation, Input):
        raise RuleError("a program must begin with its input", got="none", remedy=_REMEDY)


def _problem(node: Node, sources: list[Node | None], repeated: bool, ring_degree: int) -> str:  # noqa: PLR0911
    operation = node.operation
    if repeated:
        return "its name is taken"
    if len(sources) != _ARITY.get(type(operation), 1) or None in sources:
        return f"inputs {node.inputs}"
    before = [source for source in sources if source]
    expected = _shape_after(operation, [source.shape for source in before]) or node.shape
    size = node.shape[0] * node.shape[1] * node.shape[2]
    if node.shape != expected or min(node.shape) < 1 or size > MAX_VALUES:
        return f"shape {node.shape} where {expected} follows"
    if isinstance(operation, Linear) and operation.layer.shape.input_shape != before[0].shape:
        return f"takes {operation.layer.shape.input_shape}, gets {before[0].shape}"
    if isinstance(operation, Linear) and operation.layer.ring_degree != ring_degree:
        return f"made for ring degree {operation.layer.ring_degree}"
    if isinstance(operation, Add) and len({(source.shape, source.log_step) for source in before}) != 1:
        return "summands differ in shape or step"
    if isinstance(operation, Truncate):
        if not isinstance(before[0].operation, Linear | Square) or not 1 <= operation.bits < 60:
            return "a truncation must follow a linear layer or a square, by 1 to 59 bits"
    if isinstance(operation, Square) and isinstance(before[0].operation, Input):
        return "a square of the input itself has no share to work on"
    return ""


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
    shape = tuple(_integer(v) for v in item["shape"])
    if len(shape) != 3:
        raise RuleError("a node's shape must have three sizes", got=shape, remedy=_REMEDY)
    inputs = tuple(str(name) for name in item["inputs"])
    return Node(
        str(item["name"]), _operation(item), inputs, shape, _integer(item["log_step"]), str(item.get("module", ""))
    )


def _operation(item: dict[str, Any]) -> Operation:
    name = item["operation"]
    if name == "linear":
        return Linear(_layer_from_dict(item["layer"]))
    cls = _OPERATIONS.get(name)
    if cls is None:
        raise RuleError("an operation must be a known one", got=repr(name), remedy=_REMEDY)
    return cls(**{key: _integer(item[key]) for key in cls.__dataclass_fields__})


def _layer_to_dict(layer: LinearLayer) -> dict[str, Any]:
    return asdict(layer)


def _layer_from_dict(item: dict[str, Any]) -> LinearLayer:
    shape = LinearShape(**{key: _integer(item["shape"][key]) for key in LinearShape.__dataclass_fields__})
    layer = LinearLayer(
        shape,
        _integer(item["block_size"]),
        _integer(item["ring_degree"]),
        _integer(item["baby_steps"]),
        _boolean(item["giants_on_shares"]),
        _boolean(item["folds_on_shares"]),
    )
    assert layer.plan
    return layer


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise RuleError("a number in a program's description must be an integer", got=repr(value), remedy=_REMEDY)
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise RuleError("a flag in a program's description must be true or false", got=repr(value), remedy=_REMEDY)
    return value
