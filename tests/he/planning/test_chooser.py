"""The choice of (n, q, t): against exhaustive search by the functions that the protocol itself checks with."""

import dataclasses
import math
import re

import numpy as np
import pytest

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.params.noise import MIN_NOISE_BUDGET, check_noise, largest_plain_bits, noise_bits, noise_budget
from privcirnet.he.params.parameters import Parameters, ParameterSet
from privcirnet.he.params.parameters import choose as choose_parameters
from privcirnet.he.params.security import MAX_LOG_Q, check_security
from privcirnet.he.params.sizes import reply_primes
from privcirnet.he.planning.chooser import SETS, WIDE, ParameterChoice, choose, sets_for
from privcirnet.he.planning.cost import for_one_use, linear_cost, product_cost, square_cost
from privcirnet.he.planning.fit import (
    Target,
    fit,
    layers_of,
    options,
    planned_layer,
    planned_product,
    predicted_seconds,
    replan,
    scaled,
)
from privcirnet.he.planning.noise_budget import Option, budget, judge
from privcirnet.he.planning.planner import paper_layer
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.he.planning.requirements import Requirements, requirements
from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Linear, Product, Square
from privcirnet.he.program.program import Node
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.session import run
from privcirnet.pipeline import audit
from tests.he.networks import attention, network, random_image

LOCAL, DEFAULT = LINKS["local"], SETS[0]
NETWORK = network()
INTERVALS = bounds.prove(NETWORK)
SIZES = bounds.largest_sizes(INTERVALS)
LENGTHS = set().union(*(layer.transform_lengths for _, layer in NETWORK.linear_nodes))


def wants(bits: float = 8, masks: str = "uniform", **changes: object) -> Requirements:
    return dataclasses.replace(requirements(NETWORK.nodes, INTERVALS, SIZES, masks, bits), **changes)


def candidates(*sets: ParameterSet) -> tuple[Option, ...]:
    return options(NETWORK.nodes, COUNTED, LOCAL, sets or SETS)


def choice(bits: float = 8, masks: str = "uniform", **changes: object) -> ParameterChoice:
    return choose(wants(bits, masks, **changes), candidates())


def products(option: Option) -> int:
    return max(layer.products_per_sum for layer in option.layers)


def fits(option: Option, t: int, masks: str, bits: float) -> bool:
    """By the functions of params and bounds that the protocol and the export rest on."""
    n, coefficient_bits = option.parameters.ring_degree, option.parameters.coefficient_bits
    program = dataclasses.replace(NETWORK, parameters=Parameters(n, coefficient_bits, t), masks=masks)
    try:
        bounds.check_modulus(program, INTERVALS)
        noise = noise_bits(n, t.bit_length(), products(option))
        check_noise(program.parameters, noise, "any")
    except RuleError:
        return False
    if masks == "uniform":
        return truncation.wrap_probability(program, SIZES) <= 2.0**-bits
    try:
        return truncation.hiding_bits(program, INTERVALS) >= bits
    except ValueError:
        return False


def exhaustive(option: Option, masks: str, bits: float) -> list[int]:
    """Every t that fits, the largest of each size."""
    found, n = [], option.parameters.ring_degree
    for size in range(15, 61):
        try:
            t = choose_parameters(LENGTHS, size, n, option.parameters.coefficient_bits).plain_modulus
        except RuleError:
            continue
        found += [t] if fits(option, t, masks, bits) else []
    return found


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
@pytest.mark.parametrize("bits", [0, 16.5, 24, 28, 32, 38])
def test_verdicts_are_those_of_exhaustive_search(masks: str, bits: float) -> None:
    some = {True: 0, False: 0}
    for option in candidates():
        verdict, expected = judge(wants(bits, masks), option), exhaustive(option, masks, bits)
        assert verdict.fits == bool(expected), option.parameters
        some[verdict.fits] += 1
        if verdict.fits:
            assert verdict.parameters is not None
            assert verdict.parameters.plain_modulus == max(expected)
            primes = [reply_primes(option.parameters.coefficient_bits, t.bit_length()) for t in expected]
            short = [t for t, count in zip(expected, primes, strict=True) if count == min(primes)]
            thrifty = judge(wants(bits, masks), dataclasses.replace(option, thrifty=True))
            assert thrifty.parameters is not None
            assert thrifty.parameters.plain_modulus == max(short)
            assert verdict.binding == ""
        else:
            assert verdict.binding
            assert isinstance(verdict.error, RuleError)
    assert some[True] or bits > 32
    assert some[False] or bits < 24


def test_the_fastest_that_fits_is_chosen() -> None:
    chosen_at = {}
    for bits in range(0, 36, 2):
        try:
            made = choice(bits)
        except DoesNotFit:
            continue
        fitting = [o.seconds for o in candidates() if exhaustive(o, "uniform", bits)]
        assert made.chosen.option.seconds == min(fitting)
        assert made.chosen is made.cheapest
        chosen_at[bits] = made.set
    assert chosen_at[0] == DEFAULT
    assert len(set(chosen_at.values())) >= 3, "the test must see several sets chosen"


@pytest.mark.parametrize("masks", ["uniform", "bounded"])
@pytest.mark.parametrize("option", candidates(DEFAULT, WIDE), ids=lambda o: str(o.parameters))
def test_more_security_never_needs_a_smaller_modulus(masks: str, option: Option) -> None:
    needed = [wants(bits, masks).truncation_bits for bits in range(40)]
    assert needed == sorted(needed)
    assert needed[-1] > needed[0]
    verdicts = [judge(wants(bits, masks), option) for bits in range(40)]
    fitting = [v.fits for v in verdicts]
    assert fitting == sorted(fitting, reverse=True), "what fits with more bits fits with fewer"
    carried = [v.parameters.plain_modulus for v in verdicts if v.fits and v.parameters]
    assert carried == sorted(carried)
    refused = [v.parameters.plain_modulus for v in verdicts if not v.fits and v.parameters]
    assert refused == sorted(refused)


def test_needed_bits_are_the_least_that_do() -> None:
    for masks in ("uniform", "bounded"):
        for bits in (0, 7, 20.5, 39):
            asked = wants(bits, masks)
            assert (
                asked.reached(2**asked.truncation_bits - 1)
                >= bits
                > asked.reached(2 ** (asked.truncation_bits - 1) - 1)
            )
    for value, needed in {4: 4, 7: 4, 8: 5}.items():
        asked = wants(largest=value)
        assert asked.value_bits == needed
        assert 2 * value < 2**needed - 1
        assert 2 * value >= 2 ** (needed - 1) - 1
    assert wants(0, largest=1 << 50).needed_by == f"value bound of {wants().node}"
    assert wants(30).needed_by == "truncation failure"
    assert wants(30, "bounded").needed_by == "truncation hiding"


def test_the_largest_bound_is_named() -> None:
    asked = wants()
    assert asked.largest == max(bounds.largest(i) for i in INTERVALS.values())
    assert bounds.largest(INTERVALS[asked.node]) == asked.largest


def test_without_truncation_only_values_count() -> None:
    nodes = tuple(node for node in NETWORK.nodes[:2])
    for masks in ("uniform", "bounded"):
        asked = requirements(nodes, {n.name: INTERVALS[n.name] for n in nodes}, SIZES, masks, 1000)
        assert asked.reached(2**40) == math.inf
        assert asked.truncation_bits == 1
        assert asked.satisfied(2 * asked.largest + 1)
        assert not asked.satisfied(2 * asked.largest)


LONG, ODD = ParameterSet(8192, (60, 60, 60, 60)), ParameterSet(8192, (61, 60))
BINDINGS = [
    (LONG, wants(), "security", r"security: log q 240 > 218", r"log2 q must be at most 218 .*: got 240 bits"),
    (
        ODD,
        wants(),
        "security",
        "security: q must be two or more primes of 20 to 60 bits",
        r"q must be two or more primes of 20 to 60 bits, the special prime 16 to 60: got \(61, 60\); e.g. 55,55,54,54",
    ),
    (
        WIDE,
        wants(largest=1 << 60),
        "value bound",
        r"value bound of \w+: needs t of 62 bits, at most 60",
        r"every value must stay under t / 2: got \w+ reaches 2\^60.0, t has at most 60 bits; use fewer bits",
    ),
    (
        WIDE,
        wants(45),
        "truncation",
        r"truncation failure: needs t of 7\d bits, at most 60",
        r"truncation with uniform masks must reach he.failure_bits = 45: got \d+\.\d with the largest plain modulus, 60 "
        r"bits \(7\d needed\); lower he.failure_bits",
    ),
    (
        WIDE,
        wants(45, "bounded"),
        "truncation",
        r"truncation hiding: needs t of 7\d bits, at most 60",
        r"truncation with bounded masks must reach he.hiding_bits = 45: got \d+\.\d with",
    ),
    (
        DEFAULT,
        wants(32),
        "noise budget",
        r"noise budget: -\d+ bits after 40-bit flooding",
        r"every layer must leave 6 bits of noise budget: got -\d+ bits with n = 8192, q of 55\+55\+54\+54 bits and the "
        r"5\d-bit plain modulus that the truncation failure needs; use fewer bits",
    ),
    (
        DEFAULT,
        wants(largest=1 << 55),
        "noise budget",
        r"noise budget: -\d+ bits",
        r"57-bit plain modulus that the value bound of \w+ needs",
    ),
]


@pytest.mark.parametrize(("wanted", "asked", "stage", "binding", "message"), BINDINGS)
def test_what_binds_is_named(wanted: ParameterSet, asked: Requirements, stage: str, binding: str, message: str) -> None:
    found = candidates(wanted)
    verdict = judge(asked, found[0])
    assert (verdict.stage, verdict.fits) == (stage, False)
    assert re.match(binding, verdict.binding), verdict.binding
    with pytest.raises(RuleError, match=message) as raised:
        choose(asked, found)
    assert isinstance(raised.value, DoesNotFit) == (stage != "security")


def blocks(*sizes: int) -> tuple[Node, ...]:
    """Layers of one block of each of these sizes, which no tiling makes smaller; never run."""
    layers = [paper_layer(LinearShape.gemm(1, b, b), b, 1 << 17) for b in sizes]
    return tuple(Node(f"l{i}", Linear(layer), (), layer.shape.output_shape, 0) for i, layer in enumerate(layers))


def test_transform_lengths_that_no_modulus_carries() -> None:
    """The lengths are primes, and so is t: t - 1 is a multiple of their product, of 47 bits, and of 2 n, of 15."""
    nodes = blocks(97, 101, 103, 107, 109, 113, 127)
    verdict = judge(wants(), options(nodes, COUNTED, LOCAL, [WIDE])[0])
    assert verdict.stage == "transform lengths"
    assert f"1 mod {2 * 16384 * 97 * 101 * 103 * 107 * 109 * 113 * 127}" in verdict.binding
    assert judge(wants(), options(nodes[:5], COUNTED, LOCAL, [WIDE])[0]).fits
    assert re.match(r"transform lengths: no t of at most 60 bits .* is 1 mod \d+", verdict.binding)
    with pytest.raises(DoesNotFit, match="roots of unity for every transform length: got no t of at most 60 bits"):
        choose(wants(), options(nodes, COUNTED, LOCAL, [WIDE]))


def test_layers_that_do_not_fit_the_ring() -> None:
    nodes = blocks(16384)
    small, large = options(nodes, COUNTED, LOCAL, [DEFAULT, WIDE])
    assert judge(wants(), small).binding == "layout: block size 16384 at 1 x 1 for 8192 slots"
    assert judge(wants(), large).fits
    assert choose(wants(), [small, large]).set == WIDE
    match = r"a cell .* must fit a ciphertext: got block size 16384 at 1 x 1 for 8192 slots; n = 16384, .* would do"
    with pytest.raises(RuleError, match=match):
        choose(wants(), [small, large], DEFAULT)


def test_the_error_is_that_of_the_set_that_comes_closest() -> None:
    """Security is a worse refusal than noise; of two with too little noise budget the one with more counts."""
    asked, some = wants(32), candidates(LONG, DEFAULT, SETS[1])
    left = [judge(asked, option).budget for option in some[1:]]
    assert left[0].left < left[1].left < MIN_NOISE_BUDGET
    for order in (some, some[::-1]):
        with pytest.raises(DoesNotFit, match=rf"got {left[1].left} bits with n = 8192, q of 43\+43\+44\+44\+44 bits"):
            choose(asked, order)


def test_a_set_can_be_insisted_on() -> None:
    asked = wants(8)
    insisted = choose(asked, candidates(), WIDE)
    assert insisted.set == WIDE
    assert insisted.cheapest.option.parameters == choice(8).set != WIDE
    assert re.fullmatch(
        r"n = 8192, q of .* bits would do in 0\.\d\d of the time; he.ring_degree=0 chooses", insisted.reason()
    )
    with pytest.raises(DoesNotFit, match=r"got -\d+ bits with n = 8192.*; n = \d+, q of .* would do: he.ring_degree=0"):
        choose(wants(32), candidates(), DEFAULT)


def test_budget_is_that_of_the_noise_model() -> None:
    for option in candidates():
        parameters = judge(wants(), option).parameters
        parts = budget(option.layers, parameters)
        noise = noise_bits(parameters.ring_degree, parameters.plain_bits, products(option))
        assert parts.noise == noise
        assert parts.left == noise_budget(parameters, noise)
        assert parts.left == parts.modulus - parts.plain - parts.noise - parts.flooding - 1 >= MIN_NOISE_BUDGET
        assert (parts.modulus, parts.plain) == (sum(parameters.coefficient_bits[:-1]), parameters.plain_bits)
        assert parts.switched >= 1


def test_the_layer_with_the_most_noise_counts() -> None:
    """Of spectral layers the one with the most products to a sum; a coefficient layer's noise is no multiple of t."""
    spectral = [paper_layer(LinearShape.gemm(1, width, 4), 1, WIDE.ring_degree) for width in (1 << 14, 1 << 16, 4)]
    option = dataclasses.replace(candidates(WIDE)[0], layers=tuple(spectral))
    assert [layer.products_per_sum for layer in spectral] == [1 << 14, 1 << 16, 4]
    coefficient = CoefficientLayer(LinearShape.gemm(1, 1 << 11, 8), 1, WIDE.ring_degree, "cheetah")
    verdict = judge(wants(), option)
    parameters = verdict.parameters
    one = [budget((layer,), parameters).noise for layer in (*spectral, coefficient)]
    assert len(set(one[:3])) == 3
    assert coefficient.noise_bits(parameters) < min(one)
    assert one[3] == budget((), parameters).noise == min(one), "no program has less noise than a square"
    assert verdict.budget == budget((*spectral, coefficient), parameters) == budget(spectral[1:2], parameters)
    loud = dataclasses.replace(coefficient, weight_bits=100)
    assert budget((*spectral, loud), parameters).noise == loud.noise_bits(parameters) > max(one)


def test_explanation_has_a_line_for_every_candidate() -> None:
    made = choice(26)
    needs, header, *rows = made.explain()
    assert re.match(rf"needed: t of {wants(26).truncation_bits} bits by truncation failure \(values \d+, ", needs)
    assert header.split()[:3] == ["set", "log", "q"]
    assert len(rows) == len(SETS)
    for candidate in SETS:
        row = next(row for row in rows if row.startswith(f"{candidate} "))
        assert f"{candidate.log_q} of {MAX_LOG_Q[candidate.ring_degree]}" in row
        assert "40 flooding" in row
        verdict = next(v for v in made.verdicts if v.option.parameters == candidate)
        assert row.endswith("chosen" if verdict is made.chosen else verdict.binding or "fits")
    assert sum(row.endswith("chosen") for row in rows) == 1
    assert any("noise budget: " in row for row in rows)
    assert made.to_dict() == {"reason": made.reason(), "table": made.explain()}
    assert re.fullmatch(
        rf"{re.escape(str(made.set))}: the fastest that fits; n = 8192, q of .* does not \(.*\)", made.reason()
    )
    assert choice(0).reason() == f"{DEFAULT}: the fastest set, and it fits"


def test_the_known_sets_are_secure_and_of_use() -> None:
    """Each but the last carries a modulus that no faster one does; the last carries the longest sums."""
    for candidate in SETS:
        check_security(candidate.ring_degree, candidate.coefficient_bits)
    carried = {s: largest_plain_bits(s.ring_degree, s.coefficient_bits, 1) for s in SETS}
    assert list(carried.values()) == [48, 53, 57, 55, 60, 60]
    long = {s: largest_plain_bits(s.ring_degree, s.coefficient_bits, 1 << 14) for s in SETS}
    assert [bits == 60 for bits in long.values()] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0,), SETS),
        ((8192,), SETS[:3]),
        ((16384,), SETS[3:]),
        ((4096, [36, 36, 37]), (ParameterSet(4096, (36, 36, 37)),)),
    ],
)
def test_sets_that_settings_allow(arguments: tuple[object, ...], expected: tuple[ParameterSet, ...]) -> None:
    assert sets_for(*arguments) == expected


def test_a_ring_degree_without_known_sets() -> None:
    with pytest.raises(RuleError, match="must be that of a known set: got 4096; use 8192, 16384, or 0 to let"):
        sets_for(4096)


def test_scaled_profile() -> None:
    """A rotation transforms d digits to d + 1 primes; the rest grows with d n log n."""
    assert scaled(COUNTED, COUNTED.parameter_set) is COUNTED
    wide = scaled(COUNTED, WIDE)
    assert wide.parameter_set == WIDE
    more = 2 * 14 / 13 * 4 / 3
    for name, seconds in wide.seconds.items():
        factor = {"transform": 1, "rotate": more * 5 / 4}.get(name, more)
        assert seconds == pytest.approx(COUNTED.seconds[name] * factor)


def test_products_are_planned_by_the_price_of_encoding_too() -> None:
    """Where products with kept weights cost something and encoding nothing, a product of values does more of them."""
    seconds = dict.fromkeys(COUNTED.seconds, 0.0) | {"encrypt": 1.0, "decrypt": 1.0, "pmult": 1.0}
    profile = dataclasses.replace(COUNTED, seconds=seconds)
    shape = LinearShape.product((256, 65, 1), (256, 65, 1), 4)
    product, kept = planned_product(shape, shape, profile, LOCAL), planned_layer(shape, 1, profile, LOCAL)
    assert product.left == product.right == planned_layer(shape, 1, for_one_use(profile), LOCAL)
    assert product.left.pmults > kept.pmults


def test_prediction_of_products_is_theirs() -> None:
    nodes = replan(attention().nodes, COUNTED, LOCAL)
    products = [node.operation for node in nodes if isinstance(node.operation, Product)]
    others = [node for node in nodes if not isinstance(node.operation, Product)]
    expected = sum(product_cost(product.left, product.right, COUNTED, LOCAL).total for product in products)
    assert predicted_seconds(nodes, COUNTED, LOCAL) == pytest.approx(
        predicted_seconds(others, COUNTED, LOCAL) + expected
    )
    assert len(layers_of(nodes)) == 3 + 2 * len(products) == 7


def test_prediction_is_the_sum_over_the_nodes_that_talk() -> None:
    nodes = replan(NETWORK.nodes, COUNTED, LOCAL)
    squares = sum(
        square_cost(math.prod(n.shape), COUNTED, LOCAL).total for n in nodes if isinstance(n.operation, Square)
    )
    linear = sum(linear_cost(layer, COUNTED, LOCAL).total for layer in layers_of(nodes))
    assert predicted_seconds(nodes, COUNTED, LOCAL) == pytest.approx(linear + squares)
    assert squares > 0


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
    server = Server(program, "tenseal")
    client = Client(server.greeting(), "tenseal")
    session = server.session(client.keys())
    image = random_image(program)
    logits, _ = run(client, session, image)
    values = audit.reconstruct(program, client.shares, session.shares)
    assert audit.wrong_nodes(program, values) == []
    told = interpret(program, image, lambda node, _: values[node.name])
    assert np.array_equal(told[program.output.name], logits)
