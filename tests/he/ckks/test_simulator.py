"""What the simulator says of a circuit, against ciphertexts; and what it refuses before there are any."""

import math

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.evaluator import Cleartext
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.rlwe.parameters import RELINEARIZATION, conjugation_element
from tests.he.ckks_toys import Pair, insecure_ckks, random_slots, simulate

MAP = LinearMap({3 * d: random_slots(d) * 0.125 for d in range(6)})
FACTOR = random_slots(100)


def network(machine, value):
    """A map, a square, a conjugate, a rotation, plaintexts, and values of different levels that meet."""
    machine.layer = "first"
    x = machine.map(value, MAP)
    machine.layer = "second"
    y = machine.add(machine.multiply(x, x), machine.multiply_plain(machine.conjugate(value), FACTOR))
    machine.layer = "third"
    return machine.subtract(machine.add_plain(machine.rotate(y, 7), FACTOR), machine.multiply(x, value))


@pytest.mark.parametrize(("levels", "digit_primes"), [(4, 1), (5, 3)])
def test_the_error_is_what_the_simulator_says(levels, digit_primes):
    parameters, clear = insecure_ckks(levels, digit_primes), Cleartext()
    reply, simulator = simulate(network, parameters)
    pair, slots = Pair.of(parameters), random_slots(7)
    found = pair.slots(network(pair.machine(simulator.keys), pair.fresh(slots)))
    errors = np.abs(found - network(clear, slots))
    assert errors.max() < 2**-reply.precision_bits
    assert math.sqrt(reply.variance) / 3 < np.sqrt((errors**2).mean()) < math.sqrt(reply.variance)
    assert pair.server.counts["rotate"] == clear.counts["rotate"] == 1 + MAP.rotations
    assert [trace.level for trace in simulator.course][1:] == [levels - 1, levels - 2, levels - 2, 0]


@pytest.mark.parametrize("step", ["fresh", "rotate", "multiply", "multiply_plain", "map"])
def test_every_kind_of_step_has_the_error_of_its_estimate(step, pair):
    machine, slots = pair.machine({1, *MAP.steps}), random_slots(3)

    def circuit(machine, value):
        arguments = {"rotate": (1,), "multiply": (value,), "multiply_plain": (FACTOR,), "map": (MAP,)}
        return value if step == "fresh" else getattr(machine, step)(value, *arguments[step])

    reply, _ = simulate(circuit, pair.server.context.parameters)
    errors = np.abs(pair.slots(circuit(machine, pair.fresh(slots))) - circuit(Cleartext(), slots))
    assert 0.7 < np.sqrt((errors**2).mean() / reply.variance) < 1.2


def test_what_is_missing_or_too_large_is_named():
    parameters = insecure_ckks(4, 1)
    _, simulator = simulate(network, parameters)
    rotations = Context(parameters).elements({7, *MAP.steps})
    assert {*simulator.keys} == rotations | {RELINEARIZATION, conjugation_element(1024)}
    for rule, made, more in (
        (r"a level above 0: got level 0 in layer 'second'", insecure_ckks(1, 1), {}),
        (
            r"none for the Galois elements \[301\] in layer 'third' at level 2",
            parameters,
            {"names": {*simulator.keys} - {301}},
        ),
        (r"must fit its modulus: got .* in layer 'reply' at level 0", parameters, {"bound": 1000.0}),
    ):
        with pytest.raises(RuleError, match=rule):
            simulate(network, made, **more)


def test_a_scale_that_drifts_is_named():
    """The toy's chain is not checked: primes near 2^25 are a thousandth apart, and every square doubles the drift."""

    def squares(machine, value):
        for number in range(9):
            machine.layer = f"square {number}"
            value = machine.multiply(value, value)
        return value

    parameters = insecure_ckks(9, 1, scale_bits=25, first=40)
    simulate(squares, parameters)
    chain = parameters._chain
    parameters.__dict__["_chain"] = ((chain[0][0], *reversed(chain[0][1:])), *chain[1:])
    parameters.__dict__["_chain"] = ((*chain[0][:6], chain[0][6] + 2**22, *chain[0][7:]), *chain[1:])
    with pytest.raises(RuleError, match=r"within 0.5 bits of 2\^25: got 2\^.* in layer 'square .' at level \d"):
        simulate(squares, parameters)
    with pytest.raises(RuleError, match=r"scale must stay within 0.5 bits of 2\^25: got 2\^.* at level 0"):
        _drifted().check()


def _drifted() -> CkksParameters:
    parameters = insecure_ckks(3, 1, scale_bits=25, first=40)
    primes, scales, factors = parameters._chain
    parameters.__dict__["_chain"] = primes, (scales[0] * 2, *scales[1:]), factors
    return parameters
