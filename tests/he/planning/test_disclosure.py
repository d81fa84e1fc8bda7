"""What puts a class behind the logits, and the width that a program says."""

import dataclasses

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.planning.parameter_choice import SETS
from privcirnet.he.planning.plan_program import Target, classified, plan_program
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import AsStrided, Input
from privcirnet.he.program.program import Network
from tests.he.planning.case import LOCAL, NETWORK

TARGET = Target(COUNTED, LOCAL, failure_bits=10, sets=SETS, auto=True)


@pytest.mark.parametrize("name", ["x", "token"])
def test_what_has_no_class(name: str) -> None:
    """A map, and a single logit."""
    found = Network(
        (
            Node("x", Input(0, 1), (), (8, 2, 2), 0),
            Node("token", AsStrided((1, 1, 1), 0, (1,), (1,)), ("x",), (1, 1, 1), 0),
        ),
        {},
    )
    found = Network(found.nodes[: 1 + [node.name for node in found.nodes].index(name)], {})
    with pytest.raises(RuleError, match=r"the class alone needs two logits or more: got values of shape \("):
        classified(found, bounds.prove(found))


def test_a_fitted_program_says_how_wide_its_result_is() -> None:
    whole = plan_program(NETWORK, TARGET)
    assert (whole.program.answer, whole.program.output_bits) == (
        "logits",
        bounds.value_bits(whole.intervals[whole.program.output.name]),
    )
    found = plan_program(NETWORK, dataclasses.replace(TARGET, truncation="exact", answer="top1")).program
    assert (found.answer, found.output_bits, found.output.shape, found.logits.name) == ("top1", 4, (1, 1, 1), "head")
    assert manifest.from_dict(manifest.to_dict(found)) == dataclasses.replace(found, weights={})
