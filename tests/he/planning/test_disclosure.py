"""The truncation that rounds an answer, and the widths that a program says."""

import dataclasses

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.planning.chooser import SETS
from privcirnet.he.planning.disclosure import classified, published, rounded
from privcirnet.he.planning.fit import Target, fit
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Add, ClientAided, Gather, Input, Truncate
from privcirnet.he.program.program import Network, Program
from tests.he.networks import network, revealing
from tests.he.planning.case import LOCAL, NETWORK

TARGET = Target(COUNTED, LOCAL, failure_bits=10, sets=SETS, auto=True)
ROUNDED = dataclasses.replace(TARGET, answer="rounded", answer_bits=6, largest_logit=2.0**9)


def network_of(program: Program) -> Network:
    return Network(program.nodes, program.weights)


def test_a_few_bits_of_each_logit_are_left() -> None:
    program = network()
    found, intervals = rounded(network_of(program), bounds.prove(program), ROUNDED)
    answer = found.output
    assert found.nodes[:-1] == program.nodes
    assert (answer.name, answer.inputs, answer.shape, answer.log_step) == ("answer", ("head",), (10, 1, 1), 4)
    assert answer.operation == Truncate(12)
    low, high = intervals["answer"]
    assert ((low << 12) <= intervals["head"][0]).all()
    assert ((high << 12) >= intervals["head"][1]).all()
    taken = Network((*program.nodes[:-1], dataclasses.replace(program.output, name="answer")), program.weights)
    again, _ = rounded(taken, intervals, ROUNDED)
    assert again.output.name == "answer_"


def test_what_cannot_be_rounded() -> None:
    program = network()
    intervals = bounds.prove(program)
    with pytest.raises(RuleError, match=r"must be coarser than the logits: got steps of 2\^-9 for 2\^-8"):
        rounded(network_of(program), intervals, dataclasses.replace(ROUNDED, answer_bits=19))
    twice = Node("twice", Add(), ("head", "head"), (10, 1, 1), -8)
    more, known = Network((*program.nodes, twice), program.weights), {**intervals, "twice": intervals["head"]}
    with pytest.raises(RuleError, match="needs a last layer that masks it: got add twice"):
        rounded(more, known, ROUNDED)


@pytest.mark.parametrize("name", ["x", "token"])
def test_what_has_no_class(name: str) -> None:
    """A map, and a single logit."""
    found = Network(
        (
            Node("x", Input(0, 1), (), (8, 2, 2), 0),
            Node("token", Gather((1, 1, 1), 0, (1,), (1,)), ("x",), (1, 1, 1), 0),
        ),
        {},
    )
    found = Network(found.nodes[: 1 + [node.name for node in found.nodes].index(name)], {})
    with pytest.raises(RuleError, match=r"the class alone needs two logits or more: got values of shape \("):
        classified(found, bounds.prove(found), TARGET)


def test_a_client_is_told_the_widths_of_what_it_sees() -> None:
    program = revealing()
    intervals = bounds.prove(program)
    nodes = published(program.nodes, intervals)
    seen = {node.inputs[0]: node.operation.value_bits for node in nodes if isinstance(node.operation, ClientAided)}
    assert seen == {name: bounds.value_bits(intervals[name]) for name in ("first_t", "sum")}
    assert [n for n in nodes if n not in program.nodes] == [n for n in nodes if isinstance(n.operation, ClientAided)]


def test_a_fitted_program_says_how_wide_its_result_is() -> None:
    whole = fit(NETWORK, TARGET)
    assert (whole.program.answer, whole.program.output_bits) == (
        "logits",
        bounds.value_bits(whole.intervals[whole.program.output.name]),
    )
    found = fit(NETWORK, dataclasses.replace(ROUNDED, largest_logit=2.0**6)).program
    assert (found.answer, found.output_bits, type(found.output.operation)) == ("rounded", 5, Truncate)
    assert manifest.from_dict(manifest.to_dict(found)) == dataclasses.replace(found, weights={})
    found = fit(NETWORK, dataclasses.replace(TARGET, truncation="exact", answer="top1")).program
    assert (found.answer, found.output_bits, found.output.shape, found.logits.name) == ("top1", 4, (1, 1, 1), "head")
    assert manifest.from_dict(manifest.to_dict(found)) == dataclasses.replace(found, weights={})
