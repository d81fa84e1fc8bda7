"""Plans and parameters of a whole program, and encrypted inference with them."""

import dataclasses
import math
from collections.abc import Callable

import pytest

from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET
from privcirnet.he.bfv.parameters import Parameters, message_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import unplanned_factor
from privcirnet.he.planning.cost import for_one_use, operation_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import SETS, SHORT_PLAIN_BITS, WIDE, divisibilities, sets_for
from privcirnet.he.planning.plan_program import (
    CheapestPlanner,
    Target,
    plan_program,
    planned_layer,
    predicted_seconds,
    replan,
    scaled,
)
from privcirnet.he.planning.profile import COUNTED, ONLINE
from privcirnet.he.program import bounds
from privcirnet.he.program.operations import ExactTruncate, MatMul, Truncate
from privcirnet.he.program.program import Program, layers_of
from tests.he.networks import attention, random_image
from tests.he.parties import check, parties
from tests.he.planning.case import (
    DEFAULT,
    LOCAL,
    NETWORK,
    wants,
)


def test_scaled_profile() -> None:
    """A rotation transforms d digits to d + 1 primes; the rest grows with d n log n."""
    assert scaled(COUNTED, COUNTED.parameter_set) is COUNTED
    wide = scaled(COUNTED, WIDE)
    assert wide.parameter_set == WIDE
    more = 2 * 14 / 13 * 4 / 3
    for name, seconds in wide.seconds.items():
        factor = ({"transform": 1, "rotate": more * 5 / 4} | dict.fromkeys(ONLINE, 1)).get(name, more)
        assert seconds == pytest.approx(COUNTED.seconds[name] * factor)


def test_products_are_planned_by_the_price_of_encoding_too() -> None:
    """Where products with kept weights cost something and encoding nothing, a product of values does more of them."""
    seconds = dict.fromkeys(COUNTED.seconds, 0.0) | {"encrypt": 1.0, "decrypt": 1.0, "pmult": 1.0}
    profile = dataclasses.replace(COUNTED, seconds=seconds)
    shape = LinearShape.product((256, 65, 1), (256, 65, 1), 4)
    product, kept = (
        MatMul(*[unplanned_factor(shape)] * 2).planned(CheapestPlanner(profile, LOCAL)),
        planned_layer(shape, 1, profile, LOCAL),
    )
    assert product.left == product.right == planned_layer(shape, 1, for_one_use(profile), LOCAL)
    assert product.left.pmults > kept.pmults


@pytest.mark.parametrize(("make", "layers"), [(lambda: NETWORK, 3), (attention, 7)])
def test_a_prediction_is_the_sum_over_the_nodes_that_talk(make: Callable[[], Program], layers: int) -> None:
    nodes = replan(make().nodes, COUNTED, LOCAL)
    expected = sum(operation_cost(node.operation, node.shape, COUNTED, LOCAL).total for node in nodes)
    assert predicted_seconds(nodes, COUNTED, LOCAL) == pytest.approx(expected)
    assert len(layers_of(nodes)) == layers


def target(**changes: object) -> Target:
    return Target(**({"profile": COUNTED, "link": LOCAL, "failure_bits": 20, "sets": SETS, "auto": True} | changes))


def test_a_set_that_is_only_compared_with_is_not_taken() -> None:
    fixed = plan_program(NETWORK, target(profile=scaled(COUNTED, WIDE), auto=False, failure_bits=0))
    assert scaled(COUNTED, WIDE).parameter_set == fixed.choice.set == WIDE
    assert fixed.choice.cheapest.option.parameters == DEFAULT
    assert fixed.program.parameters.ring_degree == 16384
    narrow = target(sets=sets_for(16384), failure_bits=0)
    assert plan_program(NETWORK, narrow).program.parameters.ring_degree == 16384


@pytest.mark.parametrize(("failure_bits", "expected"), [(20, 8192), (34, 16384)])
def test_encrypted_inference_at_the_chosen_parameters(failure_bits: int, expected: int) -> None:
    fitted = plan_program(NETWORK, target(failure_bits=failure_bits))
    program, verdict = fitted.program, fitted.choice.chosen
    assert program.parameters == fitted.choice.parameters == Parameters(*dataclasses.astuple(program.parameters))
    assert program.parameters.ring_degree == expected
    assert {layer.ring_degree for _, layer in program.linear_nodes} == {expected}
    assert verdict.budget.left >= MIN_NOISE_BUDGET
    assert -math.log2(bounds.wrap_probability(program, fitted.sizes)) >= failure_bits
    check(program, *parties(program, "tenseal"), random_image(program))


def test_exact_truncation_takes_the_smallest_modulus() -> None:
    """No failure to make rarer: values alone decide, and t carries eight times what is truncated."""
    random, exact = (
        plan_program(NETWORK, target(failure_bits=20, truncation=kind)).program for kind in ("random", "exact")
    )
    steps = [node.operation for node in exact.nodes if isinstance(node.operation, ExactTruncate)]
    t = exact.parameters.plain_modulus
    assert len(steps) == sum(isinstance(node.operation, Truncate) for node in random.nodes)
    assert max(step.least_modulus for step in steps) < t < random.parameters.plain_modulus >> 16
    assert all(t % (2 << step.bits) == 1 for step in steps)
    assert (random.parameters.coefficient_bits, exact.parameters.coefficient_bits) == ((54, 54, 53, 53), (60, 60, 60))


WAN = LINKS["wan"]


def test_where_bytes_cost_time_t_is_no_longer_than_it_must_be() -> None:
    """Each of its bits lengthens replies; in one process they cost nothing, and the truncation is safer."""
    made = {}
    for name in ("local", "wan"):
        target = Target(COUNTED, LINKS[name], failure_bits=20, sets=sets_for(8192), auto=True)
        made[name] = plan_program(NETWORK, target).program.parameters
    assert made["wan"].plain_bits < made["local"].plain_bits
    assert message_bytes(made["wan"])[1] < message_bytes(made["local"])[1]


def test_factors_of_the_plain_modulus_are_chosen_by_what_they_cost() -> None:
    """No choice is worse than another in each of three; 29 bits are kept to where some choice has them."""
    some = wants(multiple=1 << 9, twos=frozenset({9, 19, 22}), largest=1 << 20, exact=1 << 22, wrapping=0.0)
    options = divisibilities(some)
    assert {option.twos for option in options} == {9, 19, 22}
    assert all(22 < option.bits <= SHORT_PLAIN_BITS for option in options)
    for one in options:
        assert not any(
            other.lengths % one.lengths == 0 and other.twos >= one.twos and other.bits <= one.bits
            for other in options
            if other != one
        )
    assert divisibilities(dataclasses.replace(some, largest=1 << 40))[0].bits > 40
