"""Every plan computes the integer network, in clear; MNIST's rotations are at most the published ones."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.falcon2020.circuits.engines import evaluator_of
from papers.falcon2020.circuits.evaluator import encode, run
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.packed import packed_plan
from papers.falcon2020.planning.periodic import periodic_plan
from papers.falcon2020.planning.plan import Plan
from papers.layouts.falcon import falcon_plan
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv import engines
from privcirnet.he.layers.shape import LinearShape, Window
from privcirnet.he.ring import modular
from tests.he.insecure import insecure_parameters
from tests.papers.falcon2020.exact_networks import image_of, mnist, network

PLANNERS = {"lola": lola_plan, "falcon": falcon_plan, "periodic": periodic_plan, "packed": packed_plan}
N = 256


def in_clear(plan: Plan, image: np.ndarray, bits: int = 41) -> np.ndarray:
    """The results of the clear-text engine modulo one prime, as signed integers."""
    parameters = insecure_parameters(plan.circuit.ring_degree, plain_bits=bits)
    client, server, t = (
        engines.CleartextClient(parameters),
        evaluator_of(engines.CleartextServer)(parameters),
        parameters.plain_modulus,
    )
    rotations = plan.circuit.rotations
    keys = server.load(client.keys(rotations), rotations)
    inputs = [server.receive(client.encrypt(slots)) for slots in modular.residues(plan.public.encode(image), t)]
    outputs = run(plan.circuit, encode(plan.circuit, server, 1), inputs, server, keys)
    assert server.counts["rotate"] == plan.circuit.counts["rotate"]
    assert server.counts["pmult"] == plan.circuit.counts["pmult"]
    slots = np.array([client.decrypt(server.answer(o, np.zeros_like(o.values), keys)) for o in outputs])
    return plan.public.decode(modular.centered(plan.public.gather(slots, t), t).astype(object))


@pytest.mark.parametrize("planner", PLANNERS.values(), ids=list(PLANNERS))
@given(st.integers(1, 3), st.integers(4, 7), st.integers(1, 9), st.integers(1, 5), st.sampled_from([1, 2, 4]))
def test_every_plan_is_the_integer_network(
    planner: Callable[[ExactNetwork, int], Plan], maps: int, side: int, hidden: int, classes: int, b: int
) -> None:
    """Sizes that blocks do not divide; a plan may refuse what has no room, and does not answer wrongly."""
    made = network(maps, side, min(max(hidden, b), 2 * b * b), classes, b)
    try:
        plan = planner(made, 2 * N)
    except DoesNotFit:
        assert planner is not lola_plan
        plan = planner(made, 32 * N)
    image = image_of(made, seed=maps)
    assert made.bits <= 60
    assert list(in_clear(plan, image, 60)) == list(made.evaluate(image))


def test_rotations_of_mnist_are_at_most_the_published_ones():
    """LoLa 4 + 151 + 70 = 225; Falcon 46 in the first fully connected layer and 120 in all (its Tables 6 and 7)."""
    plans = {name: planner(mnist(8), 16384).circuit for name, planner in PLANNERS.items()}
    layers = ("conv", "fc1", "fc2")
    counts = {name: tuple(made.counts_of(layer)["rotate"] for layer in layers) for name, made in plans.items()}
    assert counts == {"lola": (4, 145, 70), "falcon": (0, 16, 70), "periodic": (0, 11, 7), "packed": (4, 14, 9)}
    assert {name: made.counts["square"] for name, made in plans.items()} == dict.fromkeys(PLANNERS, 2)
    assert {name: made.levels for name, made in plans.items()} == {
        "lola": (4, 2),
        "falcon": (5, 2),
        "periodic": (3, 2),
        "packed": (3, 2),
    }


@pytest.mark.parametrize("planner", [falcon_plan, periodic_plan, packed_plan])
def test_networks_of_other_depths_are_refused(planner):
    made = network(2, 6, 4, 3)
    with pytest.raises(RuleError, match="two layers behind it: got 2 layers"):
        planner(ExactNetwork(made.layers[:2], 0, 4), N)


def test_an_output_without_weights_is_refused():
    made = network(2, 6, 4, 3)
    made.layers[2].rows[1] = 0
    with pytest.raises(RuleError, match="not zero: got none in layer fc2"):
        lola_plan(made, N)


def extreme() -> ExactNetwork:
    """All weights and biases at their largest, and of one sign."""
    shapes = LinearShape(28, 28, 1, 5, 5, 2, 1), LinearShape.gemm(1, 845, 100), LinearShape.gemm(1, 100, 10)
    layers = [
        ExactLayer(f"l{i}", s, 1, np.full(s.weight_shape(1), 127), np.full(s.out_channels, 1 << 60, dtype=object))
        for i, s in enumerate(shapes)
    ]
    return ExactNetwork(tuple(layers), 0, 16)


def test_values_are_python_integers_and_the_bound_is_reached():
    made = extreme()
    found = made.evaluate(np.full((1, 28, 28), 16))
    assert {type(value) for value in found} == {int}
    values = [16 * 127 * 25 + (1 << 60)] * 845
    hidden = 127 * sum(value**2 for value in values) + (1 << 60)
    exact = 127 * 100 * hidden**2 + (1 << 60)
    assert found[0] <= exact, "windows at the border see padding"
    assert found[0] > exact * 99 // 100
    assert made.bits == exact.bit_length() + 1


def test_rows_that_are_not_those_of_whole_blocks_are_refused():
    """845 to 100 with blocks of 8: 13 rows of 848, and not 12 of 845."""
    shape = LinearShape.gemm(1, 845, 100)
    rows, bias = np.ones(shape.weight_shape(8), dtype=np.int64), np.zeros(100, dtype=object)
    assert ExactLayer("fc1", shape, 8, rows, bias).weight.shape == (100, 845, 1, 1)
    for wrong, short in ((rows[:-1], bias), (rows[:, :-3], bias), (rows, bias[:-1])):
        with pytest.raises(RuleError, match=r"rows and bias must have the shapes \(13, 848, 1, 1\), \(100,\): got"):
            ExactLayer("fc1", shape, 8, wrong, short)


def test_a_window_that_differs_by_axis_is_refused():
    shape = LinearShape(1, 4, 1, 2, across=Window(3))
    rows, bias = np.ones(shape.weight_shape(1), dtype=np.int64), np.zeros(2, dtype=object)
    with pytest.raises(RuleError, match="windows must be alike along both axes: got conv"):
        ExactLayer("conv", shape, 1, rows, bias)
