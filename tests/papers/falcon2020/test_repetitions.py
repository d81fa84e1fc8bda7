"""Circuits without repetitions: noise, levels and costs are those of the whole circuit."""

import pytest

from papers.falcon2020.circuits.modulus_switching import with_switches
from papers.falcon2020.circuits.network_circuit import ModSwitch
from papers.falcon2020.circuits.noise import noise_bits
from papers.falcon2020.circuits.repetitions import without_repetitions
from papers.falcon2020.planning.parameters import _Candidate, distance_bits, plan_for
from papers.layouts.lola_maps import lola_maps_plan
from privcirnet.he.layers.shape import LinearShape
from tests.papers.falcon2020.exact_networks import network
from tests.papers.falcon2020.test_maps import two_convolutions
from tests.papers.falcon2020.test_plans import PLANNERS


@pytest.mark.parametrize("name", PLANNERS)
def test_what_is_chosen_by_is_that_of_the_whole_circuit(name):
    made = network(2, 6, 6, 3, b=4, largest=1)
    plan, parameters = plan_for(made, PLANNERS[name])
    whole = PLANNERS[name](made, parameters.ring_degree).circuit
    short, counts = without_repetitions(whole)
    assert sum(counts) == len(whole.steps) >= len(short.steps)
    every, some = with_switches(whole, parameters), with_switches(short, parameters)
    assert noise_bits(every, parameters) == noise_bits(some, parameters)
    assert distance_bits(parameters, every) == distance_bits(parameters, some)
    assert every.keys(len(parameters.data_bits)) == some.keys(len(parameters.data_bits)) == dict(plan.public.keys)
    one, other = _Candidate(parameters, every, (1,) * len(whole.steps)), _Candidate(parameters, some, counts)
    assert (one.work, one.key_bytes) == (other.work, other.key_bytes)
    leveled, again = without_repetitions(every)
    assert sum(again) == len(every.steps)
    assert any(isinstance(step, ModSwitch) for step in leveled.steps)


def test_outputs_of_a_layer_are_one_line_of_steps():
    made = two_convolutions(LinearShape(8, 8, 2, 5, 3, 2, 1), 12, 2, 3, 4)
    whole = lola_maps_plan(made, 512).circuit
    short, _ = without_repetitions(whole)
    assert len(short.outputs) == len(whole.outputs)
    assert whole.counts_of("conv2")["pmult"] == 2 * 48
    assert short.counts_of("conv2")["pmult"] == 2
