"""A new operation is one dataclass and its registration: it runs in clear, interactively and in CKKS."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from privcirnet.he.ckks.circuit import CkksCircuit
from privcirnet.he.ckks.network import sums_of
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import unplanned
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.plan_program import Target, plan_program
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import Integers, interpret
from privcirnet.he.program.operation import KINDS, Domain, Node, V, Weights
from privcirnet.he.program.program import Network
from privcirnet.he.protocol.parties.session import prepare
from tests.he.ckks.test_bootstrapping import toy, with_low
from tests.he.ckks_toys import Pair
from tests.he.parties import check, parties

MAPS, SIDE, CLASSES = 2, 4, 2


@dataclass(frozen=True)
class Affine(op.Operation):
    """y = factor x + offset, in units of x's step."""

    kind: ClassVar[str] = "affine"

    needs_share = True

    factor: int
    offset: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.plus(on.times(arguments[0], self.factor), np.array(self.offset))


@dataclass(frozen=True)
class Quadratic(op.Operation):
    """y = x^2 + a x + c for each channel's c, in units of its own step."""

    kind: ClassVar[str] = "quadratic"

    local = False
    composite = True

    a: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        (x,) = arguments
        return on.plus(on.add(on.square(x), on.times(x, self.a)), np.arange(MAPS)[:, None, None])


@dataclass(frozen=True)
class Turned(Quadratic):
    """The places of x, transposed: no operation of its own."""

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.move(lambda x: x.swapaxes(1, 2), arguments[0])


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a line of program.operations does, for the time of a test."""
    monkeypatch.setitem(KINDS, Affine.kind, Affine)


def network(*, pool: bool = False, affine: op.Operation = Affine(-3, 5)) -> Network:
    """A convolution, the toy, a square; flattened or pooled, and a layer with a toy behind it."""
    random = np.random.default_rng(0)
    conv = LinearShape(SIDE, SIDE, 1, MAPS, 3, 1, 1)
    head = LinearShape.gemm(1, MAPS if pool else MAPS * SIDE * SIDE, CLASSES)
    maps = MAPS, SIDE, SIDE
    nodes = [
        Node("x", op.Input(0, 4), (), (1, SIDE, SIDE), -2),
        Node("conv", op.Linear(unplanned(conv, 1)), ("x",), maps, -4),
        Node("toy", affine, ("conv",), maps, -4),
        Node("square", op.Square(), ("toy",), maps, -8),
        Node("pool", op.SumPool(SIDE), ("square",), (MAPS, 1, 1), -12),
        Node("flat", op.Flatten(), ("pool",), (MAPS, 1, 1), -12),
        Node("head", op.Linear(unplanned(head, 1)), ("flat",), head.output_shape, -14),
        Node("again", affine, ("head",), head.output_shape, -14),
    ]
    if not pool:
        del nodes[4]
        nodes[4] = Node("flat", op.Flatten(), ("square",), head.input_shape, -8)
    shapes = {"conv": conv, "head": head}
    weights = {
        name: Weights(random.integers(-3, 4, shape.weight_shape(1)), random.integers(-9, 10, shape.out_channels))
        for name, shape in shapes.items()
    }
    return Network(tuple(nodes), weights)


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 5, (count, 1, SIDE, SIDE))


def logits(made: Network, image: np.ndarray) -> np.ndarray:
    return Integers(image).values(made.nodes, made.weights)["again"].reshape(-1)


def test_in_clear_and_its_bounds() -> None:
    made, image = network(), images(1)[0]
    found, intervals = Integers(image).values(made.nodes, made.weights), bounds.prove(made)
    assert (found["toy"] == -3 * found["conv"] + 5).all()
    for name, values in found.items():
        assert (intervals[name][0] <= values).all()
        assert (values <= intervals[name][1]).all()


def test_interactively() -> None:
    program = plan_program(network(), Target(COUNTED, LINKS["local"], failure_bits=0)).program
    described = json.loads(json.dumps(manifest.to_dict(program)))
    assert manifest.from_dict(described) == replace(program, weights={})
    image = images(1)[0]
    check(program, *parties(program, "kernel"), image)
    assert (interpret(program, image)["again"].reshape(-1) == logits(network(), image)).all()


def with_composite(operation: op.Operation) -> Network:
    """The network with a composite operation in the square's place."""
    made = network()
    nodes = [replace(node, operation=operation) if node.name == "square" else node for node in made.nodes]
    return Network(tuple(nodes), made.weights)


@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_a_composite_operation_runs_interactively_with_the_exchanges_that_there_are(engine: str) -> None:
    """No party meets it: its nodes are in the program, whose description a client reads as any other."""
    made, image = with_composite(Quadratic(-3)), images(1)[0]
    program = plan_program(made, Target(COUNTED, LINKS["local"], failure_bits=0)).program
    assert [node.operation.kind for node in program.nodes][3:7] == ["square", "times", "add", "plus"]
    assert manifest.from_dict(json.loads(json.dumps(manifest.to_dict(program)))) == replace(program, weights={})
    client, session = parties(program, engine)
    check(program, client, session, image, "waited")
    prepare(client, session, 2)
    check(program, client, session, image, "prepared")
    found = interpret(program, image)
    assert (found["again"].reshape(-1) == logits(made, image)).all()
    assert (found["square"] == found["toy"] ** 2 - 3 * found["toy"] + np.arange(MAPS)[:, None, None]).all()


def test_what_a_composite_operation_may_not_have_is_said() -> None:
    target = Target(COUNTED, LINKS["local"], failure_bits=0)
    with pytest.raises(RuleError, match="a composite operation cannot have moved values here: got quadratic 'square'"):
        plan_program(with_composite(Turned(0)), target)


def test_in_ckks() -> None:
    made, some = network(pool=True), images(8)
    expected = np.array([logits(made, image) for image in some]) * 2.0**made.output.log_step
    real = some * 2.0**-2
    sums = sums_of(made)
    np.testing.assert_allclose(sums(real), expected, rtol=1e-12)
    circuit = CkksCircuit(sums.normalized(real), Bootstrapping(with_low(toy(spare=5)), to_coefficients=2, to_slots=2))
    parameters, level = circuit.bootstrapping.parameters, circuit.placement.image
    simulator = Simulator(parameters)
    circuit(simulator, [simulator.fresh(level=level)])
    pair = Pair.of(parameters)
    (slots,) = circuit.encode(real[0])
    reply = circuit(pair.machine(simulator.keys), [pair.server.receive(pair.client.encrypt(slots, level), level)])
    np.testing.assert_allclose(circuit.logits(pair.slots(reply)), expected[0], atol=2**-20 * np.abs(expected).max())


def test_a_mode_that_cannot_do_it_says_so() -> None:
    rule = "a network in CKKS cannot have truncations here: got truncate 'toy'; infer it with the interactive protocol"
    with pytest.raises(RuleError, match=rule):
        sums_of(network(affine=op.Truncate(1)))
