"""The truncation that rounds an answer, and the widths that a program says."""

import dataclasses

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.planning.chooser import SETS
from privcirnet.he.planning.disclosure import published, rounded
from privcirnet.he.planning.fit import Target, fit
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import bounds, manifest
from privcirnet.he.program.operation import Node
from privcirnet.he.program.operations import Add, ClientAided, Truncate
from tests.he.networks import network, revealing
from tests.he.planning.case import LOCAL, NETWORK

TARGET = Target(COUNTED, LOCAL, failure_bits=10, sets=SETS, auto=True)


def test_a_few_bits_of_each_logit_are_left() -> None:
    program = network()
    nodes, intervals = rounded(program.nodes, bounds.prove(program), 6, 2.0**9)
    answer = nodes[-1]
    assert nodes[:-1] == program.nodes
    assert (answer.name, answer.inputs, answer.shape, answer.log_step) == ("answer", ("head",), (10, 1, 1), 4)
    assert answer.operation == Truncate(12)
    low, high = intervals["answer"]
    assert ((low << 12) <= intervals["head"][0]).all()
    assert ((high << 12) >= intervals["head"][1]).all()
    again, _ = rounded([*nodes[:-1], dataclasses.replace(nodes[-2], name="answer")], {**intervals}, 6, 2.0**9)
    assert again[-1].name == "answer_"


def test_what_cannot_be_rounded() -> None:
    program = network()
    intervals = bounds.prove(program)
    with pytest.raises(RuleError, match=r"must be coarser than the logits: got steps of 2\^-9 for 2\^-8"):
        rounded(program.nodes, intervals, 19, 2.0**9)
    twice = Node("twice", Add(), ("head", "head"), (10, 1, 1), -8)
    with pytest.raises(RuleError, match="needs a last layer that masks it: got add twice"):
        rounded((*program.nodes, twice), {**intervals, "twice": intervals["head"]}, 8, 2.0**9)


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
    target = dataclasses.replace(TARGET, answer_bits=6, largest_logit=2.0**6)
    found = fit(NETWORK, target).program
    assert (found.answer, found.output_bits, type(found.output.operation)) == ("rounded", 5, Truncate)
    assert manifest.from_dict(manifest.to_dict(found)) == dataclasses.replace(found, weights={})
