"""The papers' encodings by name, and that they compute the layer."""

from dataclasses import replace

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import SUMS, Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import NAMES, plan_layer, plan_named
from privcirnet.he.planning.profile import COUNTED, OPERATIONS, Profile
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters

GEMM, CONV = LinearShape.gemm(65, 24, 12), LinearShape(8, 6, 4, 8, 3, 2, 1)
POINTWISE = LinearShape(8, 6, 4, 8, 1, 2)
DEPTHWISE, GROUPS = (LinearShape(6, 6, 12, 12, 3, 1, 1, groups=groups) for groups in (12, 3))
MESSAGES = Profile(
    "messages", 256, COUNTED.coefficient_bits, {**dict.fromkeys(OPERATIONS, 1e-9), "reply": 1.0, "encrypt": 1.0}
)
GOALS = [Objective(replace(COUNTED, ring_degree=256), LINKS["local"], sums) for sums in SUMS]
GOALS += [Objective(MESSAGES, LINKS["wan"])]
ALL = {(GEMM, 1), (GEMM, 2), (POINTWISE, 1), (POINTWISE, 2), (CONV, 1), (CONV, 2), (DEPTHWISE, 1), (GROUPS, 2)}
FITS = {
    "cirencode": ALL,
    "bolt": {(GEMM, 1), (POINTWISE, 1)},
    "neujeans": {(CONV, 1), (DEPTHWISE, 1)},
    "ensei": {(CONV, 1), (DEPTHWISE, 1)},
}
RULES = {
    "bolt": "the encoding bolt is for b = 1 and 1 x 1 kernels",
    "neujeans": "the encoding neujeans is for b = 1 and larger kernels",
    "ensei": "the encoding ensei is for b = 1 and larger kernels",
}
EVERY = sorted(ALL, key=str)


def brief(value: LinearShape | int) -> str:
    return f"{value.kind} {value.kernel} {value.groups}" if isinstance(value, LinearShape) else f"b{value}"


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize(("shape", "b"), EVERY, ids=brief)
def test_each_is_for_its_layers_and_refuses_the_others(name: str, shape: LinearShape, b: int) -> None:
    for goal in GOALS:
        if (shape, b) in FITS[name]:
            assert plan_named(name, shape, b, goal).layer.block_size == b
        else:
            got = f"b = {b}, kernel {shape.kernel}, {shape.groups} groups"
            match = f"{RULES[name]}: got {got}; use cirencode"
            with pytest.raises(RuleError, match=match):
                plan_named(name, shape, b, goal)


def test_the_cases_are_all_of_them() -> None:
    assert set(FITS) == set(NAMES) - {"cheetah", "falcon"}, "those are of papers.bench, where it is imported"
    assert set(RULES) == {name for name, fits in FITS.items() if fits != ALL}


@pytest.mark.parametrize("name", ["cirencode", "bolt", "neujeans"])
def test_special_cases_are_the_very_layer_of_the_planner(name: str) -> None:
    for shape, b in FITS[name]:
        for goal in GOALS:
            assert plan_named(name, shape, b, goal) == plan_layer(shape, b, goal)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.profile.name} {goal.sums}")
@pytest.mark.parametrize(("shape", "b"), sorted(FITS["ensei"], key=str), ids=brief)
def test_ensei_has_no_rotation(shape: LinearShape, b: int, goal: Objective) -> None:
    """Whatever the goal says of sums: that is what makes it ENSEI."""
    choice = plan_named("ensei", shape, b, goal)
    assert choice == plan_layer(shape, b, replace(goal, sums="shares"))
    assert choice.goal.sums == "shares"
    for _, layer in choice.candidates:
        assert (layer.rotations, layer.column_steps) == (0, set())
        for placed in layer.placed:
            plan = placed.plan
            assert plan.folds_on_shares or plan.fold == 1
            assert plan.giants_on_shares or plan.giant_steps == 1
            assert not plan.baby_rotations


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_each_is_exact(name: str) -> None:
    for shape, b in FITS[name]:
        layer = plan_named(name, shape, b, GOALS[0]).layer
        rows, x = random_rows(shape, b), random_input(shape)
        bias = rows[:, 0, 0, 0].repeat(b)
        party = Party(layer, rows, bias, insecure_parameters(256, layer.transform_lengths))
        assert (party.run(x) == slow_layer(shape, b, rows, bias, x)).all()


@pytest.mark.parametrize("name", ["iron", "CirEncode", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(RuleError, match=f"encoding must be a known one: got '{name}'; use cirencode, bolt"):
        plan_named(name, GEMM, 1, GOALS[0])
