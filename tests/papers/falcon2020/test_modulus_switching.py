"""Modulus switches: where they stand, what they cost, and what the server needs keys for."""

from dataclasses import replace

import pytest

from papers.falcon2020.circuits.modulus_switching import at_one_modulus, with_switches
from papers.falcon2020.circuits.network_circuit import ModSwitch, Rotate, SquareStep, sources_of
from papers.falcon2020.circuits.noise import noise_bits
from papers.falcon2020.planning.packed import packed_plan
from papers.falcon2020.planning.parameters import fits, plan_for
from privcirnet.errors import RuleError
from privcirnet.he.rlwe.parameters import RELINEARIZATION
from tests.papers.falcon2020.exact_networks import network


def test_values_that_meet_have_one_level_and_keys_reach_it():
    made = network(2, 6, 6, 3, b=4, largest=1)
    plan, parameters = plan_for(made, packed_plan)
    circuit, top = plan.circuit, len(parameters.data_bits)
    levels, keys = circuit.primes_of(top), circuit.keys(top)
    assert keys == dict(plan.public.keys)
    assert {name for name in keys if name != RELINEARIZATION} == circuit.rotations
    for number, step in enumerate(circuit.steps, circuit.inputs):
        below = {levels[source] for source in sources_of(step)}
        assert len(below) == 1
        if isinstance(step, ModSwitch):
            assert step.primes < min(below)
        else:
            assert below == {levels[number]}
        if isinstance(step, Rotate | SquareStep):
            kind = step.element if isinstance(step, Rotate) else RELINEARIZATION
            assert levels[step.source] <= keys[kind] <= parameters.key_primes
    assert {levels[output] for output in circuit.outputs} == {plan.public.primes}
    assert plan.public.primes < top


def test_switches_cost_little_room():
    """Of all bits that are dropped the noise has lost all but four at most, over two or three switches."""
    made = network(2, 6, 6, 3, b=4, largest=1)
    plan, parameters = plan_for(made, packed_plan)
    plain = packed_plan(made, parameters.ring_degree).circuit
    circuit = with_switches(plain, parameters)
    dropped = sum(parameters.data_bits[plan.public.primes :])
    assert noise_bits(plain, parameters) - dropped <= noise_bits(circuit, parameters)
    assert noise_bits(circuit, parameters) <= noise_bits(plain, parameters) - dropped + 4
    assert fits(parameters, circuit)


def test_every_modulus_that_something_is_encrypted_under_is_checked_by_the_table():
    """Requests without special primes, keys with all of them."""
    _, parameters = plan_for(network(2, 6, 6, 3, b=4, largest=1), packed_plan)
    for longer in ({"request_bits": (56,) * 8}, {"special_bits": (56,) * 8}):
        with pytest.raises(RuleError, match="log2 q must be at most"):
            replace(parameters, **longer)


def test_an_engine_without_levels_has_the_noise_of_one_modulus():
    plan, parameters = plan_for(network(2, 6, 6, 3, b=4, largest=1), packed_plan)
    alone = replace(parameters, request_bits=())
    circuit = at_one_modulus(plan.circuit, parameters.key_primes)
    assert set(circuit.primes_of(parameters.key_primes)) == {parameters.key_primes}
    assert noise_bits(circuit, alone) > noise_bits(plan.circuit, parameters)
