"""Plans and parameters of a whole program, and encrypted inference with them."""

import dataclasses
import math
from collections.abc import Callable

import pytest

from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.params.noise import MIN_NOISE_BUDGET
from privcirnet.he.params.parameters import Parameters
from privcirnet.he.planning.chooser import SETS, WIDE
from privcirnet.he.planning.cost import for_one_use, operation_cost
from privcirnet.he.planning.fit import (
    Target,
    fit,
    planned_layer,
    planned_product,
    predicted_seconds,
    replan,
    scaled,
)
from privcirnet.he.planning.profile import COUNTED, ONLINE
from privcirnet.he.program import truncation
from privcirnet.he.program.program import Program, layers_of
from tests.he.networks import attention, random_image
from tests.he.parties import check, parties
from tests.he.planning.case import (
    DEFAULT,
    LOCAL,
    NETWORK,
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
    product, kept = planned_product(shape, shape, profile, LOCAL), planned_layer(shape, 1, profile, LOCAL)
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
    fixed = fit(NETWORK.nodes, NETWORK.weights, target(profile=scaled(COUNTED, WIDE), auto=False, failure_bits=0))
    assert scaled(COUNTED, WIDE).parameter_set == fixed.choice.set == WIDE
    assert fixed.choice.cheapest.option.parameters == DEFAULT
    assert fixed.program.parameters.ring_degree == 16384
    narrow = target(sets=SETS[3:], failure_bits=0)
    assert fit(NETWORK.nodes, NETWORK.weights, narrow).program.parameters.ring_degree == 16384


@pytest.mark.parametrize(("failure_bits", "expected"), [(20, 8192), (34, 16384)])
def test_encrypted_inference_at_the_chosen_parameters(failure_bits: int, expected: int) -> None:
    fitted = fit(NETWORK.nodes, NETWORK.weights, target(failure_bits=failure_bits))
    program, verdict = fitted.program, fitted.choice.chosen
    assert program.parameters == fitted.choice.parameters == Parameters(*dataclasses.astuple(program.parameters))
    assert program.parameters.ring_degree == expected
    assert {layer.ring_degree for _, layer in program.linear_nodes} == {expected}
    assert verdict.budget.left >= MIN_NOISE_BUDGET
    assert -math.log2(truncation.wrap_probability(program, fitted.sizes)) >= failure_bits
    check(program, *parties(program, "tenseal"), random_image(program))
