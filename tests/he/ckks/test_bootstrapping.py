"""Bootstrapping at a toy ring degree: its polynomial, its levels, its failures, and ciphertexts that get new levels."""

import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev as series

from privcirnet.errors import RuleError
from privcirnet.he.ckks import bootstrapping
from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.evaluator import Cleartext
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.parameters import check_weight, tail_bits
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.he.rlwe.parameters import (
    FROM_EPHEMERAL,
    LOW,
    RELINEARIZATION,
    TO_EPHEMERAL,
    conjugation_element,
    is_low,
)
from tests.he.ckks_toys import Pair, insecure_ckks, random_slots


def toy(spare: int = 2, weight: int = 32, doublings: int = 3, low: int = 2):
    """INSECURE parameters of n = 1024 with the scales of n = 65536; CtoS takes two levels."""
    upper = {"upper_levels": 8 + doublings, "upper_bits": 58, "ephemeral_weight": weight}
    return insecure_ckks(low + spare + 8 + doublings, 8, scale_bits=48, first=56, **upper)


def with_low(parameters):
    """The same with short keys for the lower levels."""
    low = parameters.levels - parameters.upper_levels
    parameters.__dict__["low"] = insecure_ckks(low, 2, scale_bits=48, first=56)
    object.__setattr__(parameters, "low_levels", low)
    return parameters


@pytest.mark.parametrize("degree", [1, 5, 7, 8, 31, 63])
def test_polynomials_are_right_and_take_the_levels_that_are_said(degree):
    coefficients, x = np.random.default_rng(degree).normal(size=degree + 1), np.linspace(-1, 1, 512)
    clear, simulator = Cleartext(), Simulator(insecure_ckks(9))
    found = bootstrapping.Polynomial(clear, 2 * x.astype(complex), degree)(coefficients)
    np.testing.assert_allclose(found, series.chebval(x, coefficients), atol=1e-9)
    estimate = bootstrapping.Polynomial(simulator, simulator.fresh(2.0), degree)(coefficients)
    assert 9 - estimate.level <= bootstrapping.levels_of(degree)
    assert clear.counts["multiply"] <= 2 * degree**0.5 + degree.bit_length()


@pytest.mark.parametrize(("weight", "multiples"), [(2, 0), (3, 1), (8, 2)])
def test_the_probability_of_a_large_multiple_is_exact(weight, multiples):
    sums = np.random.default_rng(weight).uniform(-0.5, 0.5, (200_000, weight + 1)).sum(axis=1)
    found = (np.abs(np.rint(sums)) > multiples).mean()
    want = 2 ** -tail_bits(weight, multiples)
    assert abs(found - want) < 6 * math.sqrt(want / 200_000)


def test_the_multiples_keep_their_bound_as_often_as_is_said():
    parameters = parameters_for()
    assert parameters.log_q <= 1747
    refresh = Bootstrapping(parameters)
    assert (refresh.multiples, refresh.doublings, refresh.levels) == (12, 3, 12)
    assert 2**-refresh.failure_bits >= 65536 * 2 ** -tail_bits(32, 12)
    assert tail_bits(32, 11) < refresh.failure_bits + 16
    assert math.isinf(tail_bits(32, 16))


def test_what_is_refused():
    for n, weight in ((65536, 31), (32768, 64)):
        with pytest.raises(RuleError, match=r"32 or more at n = 65536: got .* ephemeral_weight=0"):
            check_weight(n, weight)
    with pytest.raises(RuleError, match=r"CtoS and EvalMod: got 11; use upper_levels=12"):
        Bootstrapping(toy(), to_slots=3)
    simulator = Simulator(toy())
    value = simulator.fresh(level=5)
    with pytest.raises(RuleError, match=r"must state its gain: got 1 for 1024 in layer '' at level 5"):
        simulator.multiply(value, value)
    pair = Pair.of(toy())
    fresh = pair.server.receive(pair.client.encrypt(random_slots(0), 5), 5)
    with pytest.raises(RuleError, match=r"must state its gain: got 1 for 1024 at level 5"):
        pair.machine().multiply(fresh, fresh)


def test_the_simulator_names_what_a_bootstrapped_chain_lacks():
    refresh = Bootstrapping(toy(), to_coefficients=2, to_slots=2)

    def chain(machine, value):
        for number in range(3):
            machine.layer = f"layer {number}"
            value = refresh(machine, machine.multiply(value, value))
        return value

    simulator = Simulator(refresh.parameters)
    assert chain(simulator, simulator.fresh(level=3)).level == 4
    with pytest.raises(RuleError, match=r"above 0: got level 0 in layer 'layer 0 StoC'"):
        chain(Simulator(refresh.parameters), simulator.fresh(level=2))
    for name, match in (
        (TO_EPHEMERAL, r"\[4\] in layer 'layer 0 CtoS' at level 0"),
        (conjugation_element(1024), r"\[2047\] in layer 'layer 0 EvalMod'"),
    ):
        without = {key: level for key, level in simulator.keys.items() if key != name}
        with pytest.raises(RuleError, match=f"must have a key: got none for the Galois elements {match}"):
            chain(Simulator(refresh.parameters, without), simulator.fresh(level=3))
    context, keys = Context(refresh.parameters), Pair.of(refresh.parameters).machine(simulator.keys)._keys
    assert context.key_bytes(simulator.keys) == sum(key.nbytes for key in keys.values())
    context.check_keys_gb(simulator.keys, 0.1)
    with pytest.raises(RuleError, match=r"keys must fit keys_gb = 0.01: got 0.0\d GB; raise it"):
        context.check_keys_gb(simulator.keys, 0.01)
    lower = simulator.keys | {RELINEARIZATION: 8}
    with pytest.raises(RuleError, match=r"none for the Galois elements \[0\] in layer 'layer 0 EvalMod' at level 13"):
        chain(Simulator(refresh.parameters, lower), simulator.fresh(level=3))


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [10, 1000])
def test_random_slots_get_new_levels(vectors):
    """At most one vector in 2^39 fails; 20 bits are what n = 65536 is to have, where the error is larger."""
    refresh = Bootstrapping(toy(), to_coefficients=2, to_slots=2)
    simulator, pair = Simulator(refresh.parameters), Pair.of(refresh.parameters)
    estimate = refresh(simulator, simulator.fresh(level=2))
    assert estimate.level == refresh.parameters.levels - refresh.levels == 4
    machine, worst = pair.machine(simulator.keys), 0.0
    errors: list[float] = []
    for seed in range(vectors):
        slots = random_slots(seed)
        found = refresh(machine, pair.server.receive(pair.client.encrypt(slots, level=2), 2))
        assert found.level == estimate.level
        worst = max(worst, float(np.abs(pair.slots(found) - slots).max()))
        errors.append(float(np.square(np.abs(pair.slots(found) - refresh(Cleartext(), slots))).mean()))
    assert 0.3 < math.sqrt(np.mean(errors) / estimate.variance) < 1
    assert np.abs(refresh(Cleartext(), slots) - slots).max() < 2**-24
    assert worst < 2**-23


@pytest.mark.slow
def test_ten_vectors_at_full_size():
    """n = 65536, 6 GB: at least 20 bits in every slot."""
    refresh = Bootstrapping(parameters_for())
    parameters = refresh.parameters
    simulator, pair = Simulator(parameters), Pair.of(parameters)
    refresh(simulator, simulator.fresh(level=3))
    machine, worst = pair.machine(simulator.keys), 0.0
    for seed in range(10):
        slots = random_slots(seed, parameters.slots)
        found = refresh(machine, pair.server.receive(pair.client.encrypt(slots, level=3), 3))
        assert found.level == parameters.levels - refresh.levels
        worst = max(worst, float(np.abs(pair.slots(found) - slots).max()))
    assert 2**-24 < worst < 2**-20


def test_the_simulator_knows_the_precision_that_is_measured_at_full_size():
    """21.4 bits in the worst of five vectors (docs/ckks.md)."""
    refresh = Bootstrapping(parameters_for())
    simulator = Simulator(refresh.parameters)
    assert 20.5 < refresh(simulator, simulator.fresh(level=3)).precision_bits < 21.4


def test_real_parts_alone_take_one_polynomial():
    """Imaginary parts are forgotten; both together are what a whole bootstrapping gives."""
    refresh = Bootstrapping(toy(), to_coefficients=2, to_slots=2)
    simulator, pair, slots = Simulator(refresh.parameters), Pair.of(refresh.parameters), random_slots(0)
    assert refresh.both(simulator, simulator.fresh(level=2))[1].level == 4
    machine, fresh = pair.machine(simulator.keys), pair.server.receive(pair.client.encrypt(slots, 2), 2)
    real = refresh.real(machine, fresh)
    assert pair.server.counts["multiply"] == 11
    assert np.abs(pair.slots(real) - slots.real).max() < 2**-24
    for found, part in zip(refresh.both(Cleartext(), slots), (slots.real, slots.imag), strict=True):
        assert np.abs(found - part).max() < 2**-24


def test_lower_levels_have_keys_of_their_own():
    """With fewer special primes, of the same secret; the primes and scales of their levels are the same."""
    real = parameters_for()
    assert real.low is not None
    assert (real.low.data_primes, real.low.scales) == (real.data_primes[:9], real.scales[:9])
    assert (len(real.low.special_primes), len(real.special_primes)) == (4, 10)
    assert real.low.special_primes == real.special_primes[:4]
    refresh = Bootstrapping(with_low(toy()), to_coefficients=2, to_slots=2)
    simulator, pair, slots = Simulator(refresh.parameters), Pair.of(refresh.parameters), random_slots(0)
    assert refresh(simulator, simulator.fresh(level=2)).level == 4
    low = {name - LOW for name in simulator.keys if is_low(name)}
    assert low == Context(refresh.parameters).elements({step for linear in refresh.forward for step in linear.steps})
    found = refresh(pair.machine(simulator.keys), pair.server.receive(pair.client.encrypt(slots, 2), 2))
    assert np.abs(pair.slots(found) - slots).max() < 2**-23
    assert sum(pair.server.counts.values()) > pair.server.counts["multiply"] == 22
    (last,) = [max(low)]
    with pytest.raises(RuleError, match=rf"none for the Galois elements \[{last}\] in layer ' StoC' at level"):
        refresh(Simulator(refresh.parameters, simulator.keys.keys() - {last + LOW}), simulator.fresh(level=2))


def test_what_comes_to_the_lower_levels_is_under_their_primes():
    """Rotations are divided late: a sum takes one that is not divided yet, and one that came by a product or a map."""
    parameters = with_low(toy())
    pair, slots, shift = Pair.of(parameters), random_slots(1), LinearMap({1: np.ones(512)})
    for step in (lambda machine, x: machine.multiply_plain(x, slots), lambda machine, x: machine.map(x, shift)):

        def crossing(machine, value, step=step):
            value = step(machine, value)
            return machine.add(value, machine.rotate(machine.add(value, machine.rotate(value, 2)), 3))

        simulator = Simulator(parameters)
        crossing(simulator, simulator.fresh(level=parameters.low_levels + 1))
        fresh = pair.server.receive(pair.client.encrypt(slots, parameters.low_levels + 1), parameters.low_levels + 1)
        found = pair.slots(crossing(pair.machine(simulator.keys), fresh))
        assert np.abs(found - crossing(Cleartext(), slots)).max() < 2**-20


def test_without_a_sparse_secret_it_takes_more_doublings():
    refresh = Bootstrapping(toy(weight=0, doublings=6), to_coefficients=2, to_slots=2, failure_bits=30)
    variance = (1 + 2 * 1024 / 3) / 12
    assert 2**-refresh.failure_bits >= 2 * 1024 * np.exp(-(refresh.multiples**2) / 2 / variance)
    simulator, pair, slots = Simulator(refresh.parameters), Pair.of(refresh.parameters), random_slots(0)
    assert refresh(simulator, simulator.fresh(level=2)).level == 4
    assert not {FROM_EPHEMERAL, TO_EPHEMERAL} & set(simulator.keys)
    found = refresh(pair.machine(simulator.keys), pair.server.receive(pair.client.encrypt(slots, level=2), 2))
    assert np.abs(pair.slots(found) - slots).max() < 2**-16
