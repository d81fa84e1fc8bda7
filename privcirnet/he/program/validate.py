"""Checks that the nodes of a program fit together: inputs exist, shapes follow, steps of a sum agree, sizes are sane.

Both parties rely on it for everything they compute, so it is asked of whatever is lowered and of whatever is read.
"""

from collections.abc import Mapping, Sequence, Set
from math import prod

from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.stacking import MOST_IMAGES, stacked_shape
from privcirnet.he.layers.unplanned import UnplannedLayer
from privcirnet.he.program import limits
from privcirnet.he.program import operations as op
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.program.limits import MAX_KERNEL, MAX_LOG_STEP, MAX_VALUES
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import ANSWERS, BOUNDS, TRANSFERS, Program, masked_node

REMEDY = "export the program again with this version"
"""Remedy for a program that does not follow the rules."""


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
        if max(layer.shape.kernel, layer.shape.stride) > MAX_KERNEL:
            return f"a kernel of {layer.shape.kernel} with stride {layer.shape.stride}"
    if problem := node.operation.problem(node, sources):
        return problem
    expected = node.operation.shape_after([source.shape for source in sources]) if sources else node.shape
    if (
        node.shape != expected
        or min(node.shape) < 1
        or prod(node.shape) > MAX_VALUES
        or abs(node.log_step) > MAX_LOG_STEP
    ):
        return f"shape {node.shape}, step 2^{node.log_step} where {expected} follows"
    return ""


def _shareless(node: Node, earlier: Mapping[str, Node], of_client: Set[str]) -> str:
    """Return why the parties' shares cannot do it; ``of_client``: values that the client knows alone."""
    operation = node.operation
    if operation.needs_share and not of_client.isdisjoint(node.inputs):
        return f"a {operation.kind} of the input itself has no share to work on"
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
